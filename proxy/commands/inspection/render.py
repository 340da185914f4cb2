"""How each stored thing is shown: cells of a table, fields of a JSON object, or sentences. Pure. Producer ids are text
in JSON: they have up to 63 bits, and many readers of JSON keep 53."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from ....state.entry import NO_ANCHOR, NO_OFFSET, NO_PRINCIPAL, NO_TIME, NOBODY, Entry, Intent, IntentKind
from ....state.inspection import Damaged
from ....state.redis_inspection import EntryRow, NameRow, ServerFacts
from ....state.sequence import last_of

ENTRY_TITLES = (
    "TOPIC",
    "PARTITION",
    "PRODUCER",
    "EPOCH",
    "NEXT",
    "LAST FIVE",
    "END OFFSET",
    "STATE",
    "USED",
    "EXPIRES",
)
INTENT_TITLES = ("TOPIC", "PARTITION", "PRODUCER", "STATE", "OWNER", "EPOCH", "SEQUENCES", "FROM OFFSET", "UNTOUCHED")
NAME_TITLES = ("NAME", "PRODUCER", "EPOCH", "BEGAN", "PARTITIONS", "DATA GENERATION", "PRINCIPAL")
_VALUE_BYTES_SHOWN = 64


# ---------------------------------------------------------------------- cells
def entry_cells(row: EntryRow) -> tuple[object, ...]:
    """Return the cells of one entry, as in ``ENTRY_TITLES``."""
    place, entry = row.place, row.entry
    where = (place.topic, place.partition, place.producer_id)
    if isinstance(entry, Damaged):
        return (*where, "-", "-", "-", "-", row.state, _used(row), _seconds(row.expires_ms))
    return (
        *where,
        entry.producer_epoch,
        entry.next_sequence,
        _window_range(entry),
        _offset(entry.end_offset),
        row.state,
        _used(row),
        _seconds(row.expires_ms),
    )


def intent_cells(row: EntryRow) -> tuple[object, ...]:
    """Return the cells of an entry's intent, as in ``INTENT_TITLES``."""
    assert isinstance(row.entry, Entry)
    intent = row.entry.intent
    assert intent is not None
    place = row.place
    untouched = "-" if row.untouched_seconds is None else f"{row.untouched_seconds} s"
    owner = "nobody" if intent.owner == NOBODY else intent.owner.hex()
    return (
        *(place.topic, place.partition, place.producer_id, row.state, owner),
        *(intent.producer_epoch, _intent_range(intent), intent.lower_bound, untouched),
    )


def name_cells(row: NameRow, data_generation: bytes | None) -> tuple[object, ...]:
    """Return the cells of a name, as in ``NAME_TITLES``."""
    record = row.record
    if isinstance(record, Damaged):
        return (row.name, "-", "-", "-", "-", record.reason, "-")
    return (
        *(row.name, record.producer_id, record.producer_epoch, time_text(record.issued_at_ms), row.partitions),
        *(_data_generation_text(record.data_generation, data_generation), _principal(record.principal) or "-"),
    )


# ---------------------------------------------------------------------- JSON
def name_fields(row: NameRow, data_generation: bytes | None) -> dict[str, Any]:
    """Return the JSON object of a name."""
    record = row.record
    if isinstance(record, Damaged):
        return {"name": row.name, "state": "damaged", "reason": record.reason}
    return {
        "name": row.name,
        "state": "in use",
        "producer_id": str(record.producer_id),
        "producer_epoch": record.producer_epoch,
        "began_at_ms": record.issued_at_ms,
        "partitions": row.partitions,
        "data_generation": record.data_generation.hex(),
        "is_present_data_generation": record.data_generation == data_generation,
        "principal": _principal(record.principal),
        "version": record.version,
    }


def entry_fields(row: EntryRow, data_generation: bytes | None) -> dict[str, Any]:
    """Return the JSON object of one entry."""
    place, entry = row.place, row.entry
    fields: dict[str, Any] = {
        "topic": place.topic,
        "partition": place.partition,
        "producer_id": str(place.producer_id),
        "state": row.state,
        "expires_in_seconds": None if row.expires_ms is None else row.expires_ms / 1000,
        "untouched_seconds": row.untouched_seconds,
        "bytes": len(row.stored),
    }
    if isinstance(entry, Damaged):
        return {**fields, "reason": entry.reason, "value_hex": row.stored[:_VALUE_BYTES_SHOWN].hex()}
    return {
        **fields,
        "version": entry.version,
        "data_generation": entry.data_generation.hex(),
        "is_present_data_generation": entry.data_generation == data_generation,
        "principal": _principal(entry.principal),
        "producer_epoch": entry.producer_epoch,
        "next_sequence": entry.next_sequence,
        "window": [
            {
                "base_sequence": batch.base_sequence,
                "record_count": batch.record_count,
                "base_offset": batch.base_offset,
                "log_append_time_ms": None if batch.log_append_time_ms == NO_TIME else batch.log_append_time_ms,
            }
            for batch in entry.window
        ],
        "first_base_offset": None if entry.first_base_offset == NO_OFFSET else entry.first_base_offset,
        "end_offset": None if entry.end_offset == NO_OFFSET else entry.end_offset,
        "anchor": None if entry.anchor == NO_ANCHOR else entry.anchor.hex(),
        "intent": None if entry.intent is None else _intent_fields(entry.intent, row.is_owner_alive),
    }


def _intent_fields(intent: Intent, is_owner_alive: bool) -> dict[str, Any]:
    return {
        "owner": None if intent.owner == NOBODY else intent.owner.hex(),
        "is_owner_alive": is_owner_alive,
        "producer_epoch": intent.producer_epoch,
        "batches": [
            {"base_sequence": batch.base_sequence, "record_count": batch.record_count, "digest": batch.digest.hex()}
            for batch in intent.batches
        ],
        "lower_bound": intent.lower_bound,
        "anchor": None if intent.anchor == NO_ANCHOR else intent.anchor.hex(),
        "leader": intent.leader,
        "attempts": intent.attempts if intent.kind is IntentKind.PLAIN else None,
        "is_unrecoverable": intent.is_unrecoverable,
        "is_append_reservation": intent.is_append_reservation,
    }


# ---------------------------------------------------------------------- sentences
def entry_lines(row: EntryRow, data_generation: bytes | None, client: str = "-") -> Iterator[str]:
    """Yield everything about one entry, for reading. ``client``: the client id, not stored in the entry."""
    place, entry = row.place, row.entry
    used = "" if row.untouched_seconds is None else f", used {_used(row)}"
    yield f"{place.topic}/{place.partition}: {row.state}{used}, expires: {_seconds(row.expires_ms)}"
    yield f"  client id: {client}"
    if isinstance(entry, Damaged):
        yield f"  cannot be read: {entry.reason}"
        yield f"  value ({len(row.stored)} bytes): {row.stored[:_VALUE_BYTES_SHOWN].hex()}"
        return
    yield (
        f"  epoch {entry.producer_epoch}, next sequence {entry.next_sequence}, end of its last append: "
        f"offset {_offset(entry.end_offset)}, epoch begins at offset {_offset(entry.first_base_offset)}"
    )
    for batch in entry.window:
        last = last_of(batch.base_sequence, batch.record_count)
        yield f"  in the log: sequences {batch.base_sequence} to {last} at offset {batch.base_offset}"
    intent = entry.intent
    if intent is not None:
        owner = "nobody" if intent.owner == NOBODY else f"proxy {intent.owner.hex()}"
        alive = "alive" if row.is_owner_alive else "gone"
        whose = "unrecoverable" if intent.is_unrecoverable else f"open, of {owner}, {alive}"
        yield f"  intent: sequences {_intent_range(intent)} of epoch {intent.producer_epoch}, {whose}"
        yield f"    meant for broker {intent.leader}, forwarded again {_attempts(intent)} times"
        yield f"    to be looked for from offset {intent.lower_bound} on"
        if row.untouched_seconds is not None:
            yield f"    nobody has read or written it for {row.untouched_seconds} s"
    if entry.principal != NO_PRINCIPAL:
        yield f"  belongs to the principal {_principal(entry.principal)}"
    yield (
        f"  version {entry.version}, data generation "
        f"{_data_generation_text(entry.data_generation, data_generation)}, {len(row.stored)} bytes"
    )


def server_line(server: ServerFacts, cluster: str) -> str:
    """Return one line about the server and its data."""
    data_generation = "unknown" if server.data_generation is None else server.data_generation.hex()
    return f"{server.version}, {server.role}; cluster name {cluster!r}; data generation {data_generation}"


def time_text(milliseconds: int) -> str:
    """Return a time for reading, in UTC; the number itself if it is not a valid time."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"


def _attempts(intent: Intent) -> int | str:
    return intent.attempts if intent.kind is IntentKind.PLAIN else "an unknown number of"


def _intent_range(intent: Intent) -> str:
    if not intent.batches:
        return "(all)"
    last = intent.batches[-1]
    return _range(intent.batches[0].base_sequence, last_of(last.base_sequence, last.record_count))


def _window_range(entry: Entry) -> str:
    if not entry.window:
        return "-"
    last = entry.window[-1]
    shown = _range(entry.window[0].base_sequence, last_of(last.base_sequence, last.record_count))
    return f"{shown} ({len(entry.window)})"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def _principal(principal: bytes) -> str | None:
    """Return the digest that stands for a principal (``entry.principal_of``), None for the anonymous one."""
    return None if principal == NO_PRINCIPAL else principal.hex()


def _offset(offset: int) -> int | str:
    return "-" if offset == NO_OFFSET else offset


def _data_generation_text(data_generation: bytes, present: bytes | None) -> str:
    return (
        f"{data_generation.hex()[:8]} (present)"
        if data_generation == present
        else f"{data_generation.hex()[:8]} (earlier)"
    )


def _used(row: EntryRow) -> str:
    """Return when it was read or written last."""
    return "-" if row.untouched_seconds is None else f"{_span(row.untouched_seconds)} ago"


def _seconds(milliseconds: int | None) -> str:
    """Return a span of time for reading."""
    return "never" if milliseconds is None else _span(milliseconds // 1000)


def _span(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h {seconds % 3600 // 60} min"
