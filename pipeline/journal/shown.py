"""The lines of a journal for people: a time, the event, and a sentence that says what happened. Pure. What is not known
is shown as it stands, so that lines of later formats can be read, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

_EVENT_WIDTH: Final = 15
_SEQUENCE_MODULUS: Final = 2**31
_NO_ERROR: Final = 0


def shown(said: Mapping[str, Any], journal: str = "") -> str:
    """Return the text of a line. ``journal``: whose it is, where there are several."""
    at = datetime.fromtimestamp(said["time_ms"] / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    name = str(said["event"])
    try:
        text = _TEXTS.get(name, _as_it_stands)(said)
    except (KeyError, TypeError, ValueError):
        text = _as_it_stands(said)
    return _printable("  ".join(part for part in (at, journal, name.ljust(_EVENT_WIDTH), text) if part))


def _place(said: Mapping[str, Any]) -> str:
    return f"{said['topic']}-{said['partition']}"


def _sequences(base: int, count: int) -> str:
    last = (base + count - 1) % _SEQUENCE_MODULUS
    return f"{base}" if count == 1 else f"{base}..{last}"


def _group(said: Mapping[str, Any]) -> str:
    """The batches of an append: they are of one producer and epoch."""
    identities = said["identities"]
    producer_id, epoch = identities[0][:2]
    return f"producer {producer_id}/{epoch} seq {', '.join(_sequences(*one[2:]) for one in identities)}"


def _batch(said: Mapping[str, Any], count: int | None = None) -> str:
    base = said["base_sequence"]
    epoch = f"/{said['producer_epoch']}" if "producer_epoch" in said else ""
    return f"{_place(said)}  producer {said['producer_id']}{epoch} seq {_sequences(base, count or 1)}"


def _offsets(base: int, count: int | None) -> str:
    return f"{base}" if not count or count == 1 else f"{base}..{base + count - 1}"


def _sent(said: Mapping[str, Any]) -> str:
    return f"{_place(said)}  {_group(said)} to broker {said['broker_id']}"


def _outcome(said: Mapping[str, Any]) -> str:
    count = sum(one[3] for one in said["identities"])
    text = f"{_place(said)}  {_group(said)}: {said['outcome']}"
    if said["base_offset"] >= 0:
        text += f" at {_offsets(said['base_offset'], count)}"
    if said["error_code"]:
        text += f", error {said['error_code']}"
    return f"{text}, {said['reason']}" if said["reason"] else text


def _answered(said: Mapping[str, Any]) -> str:
    count = said.get("record_count")
    text = f"{_batch(said, count)}: {said['verdict']}"
    if said["base_offset"] >= 0:
        text += f" at {_offsets(said['base_offset'], count)}"
    if said["error_code"] != _NO_ERROR:
        text += f", error {said['error_code']}"
    if count is not None:
        text += f", {count} record{'s' if count != 1 else ''}, crc {said['crc']:08x}"
    if "seconds" in said:
        text += f", {said['seconds'] * 1000:.1f} ms"
    return f"{text}, {said['message']}" if said.get("message") else text


def _unknown_outcome(said: Mapping[str, Any]) -> str:
    return f"{_batch(said)}: {said['reason']}"


def _resolved(said: Mapping[str, Any]) -> str:
    detail = f", {said['detail']}" if said["detail"] else ""
    read = f"{said['bytes_read']:,} bytes of the log read in {said['seconds']:.3f} s"
    return f"{_batch(said)}: {said['result']}, {read}{detail}"


def _sent_again(said: Mapping[str, Any]) -> str:
    return f"{_batch(said)}: try {said['attempt']}"


def _late_write(said: Mapping[str, Any]) -> str:
    whose = f"producer {said['producer_id']}/{said['producer_epoch']}"
    return f"{_place(said)}  {whose} seq {', '.join(map(str, said['base_sequences']))}"


def _duplicate_found(said: Mapping[str, Any]) -> str:
    return f"{_batch(said)}: at {' and '.join(map(str, said['offsets']))}"


def _taken_over(said: Mapping[str, Any]) -> str:
    return f"{_place(said)}  producer {said['producer_id']}, from proxy instance {said['owner']}"


def _missing(said: Mapping[str, Any]) -> str:
    return f"{said['events']:,} events could not be written before this line"


def _not_synced(said: Mapping[str, Any]) -> str:
    seconds = (said["time_ms"] - said["since_ms"]) / 1000
    return f"for {seconds:.1f} s: {said['reason']}; a power cut since then may have taken lines"


def _header(said: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in said.items() if key not in ("journal", "time_ms", "event", "proxy")}
    return f"format {said['journal']}, idemproxy {said['proxy']}, {_pairs(rest)}"


def _as_it_stands(said: Mapping[str, Any]) -> str:
    return _pairs({key: value for key, value in said.items() if key not in ("time_ms", "event")})


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _printable(text: str) -> str:
    """Return the text with invisible characters as escapes, as they could control the terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


_TEXTS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "sent": _sent,
    "outcome": _outcome,
    "answered": _answered,
    "unknown_outcome": _unknown_outcome,
    "resolved": _resolved,
    "sent_again": _sent_again,
    "append_after_deadline": _late_write,
    "duplicate_found": _duplicate_found,
    "taken_over": _taken_over,
    "data_generation": lambda said: f"Redis has begun the data generation {said['data_generation']}",
    "proxy_instance": lambda said: f"this process is {said['instance_id']} from now on",
    "message": lambda said: f"{said['level']}: {said['what']}",
    "missing": _missing,
    "not_synced": _not_synced,
    "journal": _header,
}
