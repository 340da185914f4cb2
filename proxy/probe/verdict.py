"""The rows of the table that a probe prints, which of them each form needs, and the form that follows. The one place
that decides it: by what was seen, never by a name or a version. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...codecs.compression import Codec
from ...codecs.error_codes import ErrorCode
from ...values import value
from ..flow.form import Form
from .batches import FIRST_OF_UNKNOWN
from .seen import FORMAT_V2, Again, Compressed, Offsets, RequestOrder, Seen, Times
from .trials import NO_RESPONSE, Outcome, Returned

V2: Final = tuple(form for form in Form if form.is_v2)
ALL: Final = tuple(Form)
"""In the order in which they are preferred."""
SEARCHED: Final = (Form.MARKED_V2, Form.WRAPPER_V1)
"""Those of which the log says what became of a batch."""


@value(frozen=True, slots=True)
class Row:
    """One line of the table. ``meets``: whether what was seen is what a form needs; forms that do not need the trial
    are not in it."""

    trial: str
    seen: str
    meets: Mapping[Form, bool]

    def __str__(self) -> str:
        return f"{self.trial}: {self.seen}"


@value(frozen=True, slots=True)
class Verdict:
    """``form`` None: the cluster cannot be served, ``because`` of these rows. ``hints``: what can be done so that
    another form can be used."""

    form: Form | None
    because: tuple[str, ...]
    hints: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "cannot be served" if self.form is None else self.form.label


def rows_of(seen: Seen) -> list[Row]:
    """Return all rows, in the order in which they are shown."""
    if seen.stored_format is None:
        return [_format_row(seen)]  # nothing else can be known
    rows = [_format_row(seen), _offsets_row(seen), _order_row(seen), _records_row(seen), _end_row(seen)]
    if seen.stored_format == FORMAT_V2:
        rows += [_borders_row(seen), _markers_row(seen), _headers_row(seen)]
    else:
        rows += [_borders_row(seen), _wrapper_keys_row(seen)]
    rows.append(_times_row(seen))
    rows += map(_codec_row, seen.compressed)
    if seen.stored_format == FORMAT_V2:
        rows.append(_producer_ids_row(seen))
        rows += _id_rows(seen)
    rows.append(_refused_row(seen))
    return rows


def _missing(rows: Iterable[Row]) -> dict[Form, list[Row]]:
    shown = list(rows)
    return {form: [row for row in shown if row.meets.get(form) is False] for form in ALL}


def forms_of(rows: Iterable[Row]) -> tuple[Form, ...]:
    """Return all forms of which nothing is missing, the preferred one first."""
    return tuple(form for form, missing in _missing(rows).items() if not missing)


def lack_responses(rows: Iterable[Row]) -> bool:
    """Was a request of the probe not answered?"""
    return any(NO_RESPONSE in row.seen for row in rows)


def verdict_of(rows: Iterable[Row], seen: Seen) -> Verdict:
    """Return the first form of which nothing is missing."""
    missing = _missing(rows)
    for form in ALL:
        if not missing[form]:
            return Verdict(form, (), _hints(seen))
    if seen.stored_format == FORMAT_V2:
        marked = missing[Form.MARKED_V2]
        wanted = [*marked, *(row for row in missing[Form.OWN_IDS] if row not in marked)]
    else:
        wanted = missing[Form.WRAPPER_V1]
    return Verdict(None, tuple(map(str, wanted)), _hints(seen))


def _hints(seen: Seen) -> tuple[str, ...]:
    refused = seen.producer_ids
    if isinstance(refused, Returned) and refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return (
            "InitProducerId is not allowed: to probe producer ids, grant IdempotentWrite on Cluster (Kafka before 2.8 "
            "needs it)",
        )
    return ()


# ---------------------------------------------------------------------- the log
def _format_row(seen: Seen) -> Row:
    is_v2, is_v1 = seen.stored_format == FORMAT_V2, seen.stored_format == 1
    shown = f"not known: {seen.unread}" if seen.stored_format is None else f"v{seen.stored_format}"
    return Row("message format that is stored", shown, dict.fromkeys(V2, is_v2) | {Form.WRAPPER_V1: is_v1})


def _offsets_row(seen: Seen) -> Row:
    return Row("base offset in responses", seen.offsets.value, dict.fromkeys(ALL, seen.offsets is Offsets.TRUE))


def _order_row(seen: Seen) -> Row:
    shown = f"{seen.order.value}: {seen.order_refused}" if seen.order_refused else seen.order.value
    return Row("five requests sent at once", shown, dict.fromkeys(ALL, seen.order is RequestOrder.KEPT))


def _records_row(seen: Seen) -> Row:
    counts = {"missing": seen.missing, "changed": seen.changed, "doubled": seen.doubled}
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    shown = f"{', '.join(parts)} of {seen.sent}" if parts else f"all {seen.sent}, with key and value"
    if seen.unread:
        shown += f" ({seen.unread})"
    return Row("records in fetches", shown, dict.fromkeys(ALL, seen.sent > 0 and not parts))


def _end_row(seen: Seen) -> Row:
    # Where an outcome is unknown, the log is searched up to the end that ListOffsets returns.
    shown = f"refused: {seen.end_refused}" if seen.end_refused else "true" if seen.is_end_true else "not true"
    return Row("log end in ListOffsets", shown, dict.fromkeys(SEARCHED, seen.is_end_true))


def _refused_row(seen: Seen) -> Row:
    names = seen.stored_though_refused
    return Row(
        "batches that are refused",
        f"stored: {', '.join(names)}" if names else "not stored",
        dict.fromkeys(ALL, not names),
    )


def _borders_row(seen: Seen) -> Row:
    shown = {True: "kept", False: "lost: batches are merged or split", None: "not known"}[seen.are_borders_kept]
    return Row("batch borders", shown, {Form.MARKED_V2: seen.are_borders_kept is True})


def _markers_row(seen: Seen) -> Row:
    shown = _kept(seen.are_markers_kept, seen.markers_refused)
    is_kept = seen.are_markers_kept is True and not seen.markers_refused
    return Row("epoch and sequence without producer id", shown, {Form.MARKED_V2: is_kept})


def _wrapper_keys_row(seen: Seen) -> Row:
    # The proxy serves topics that lose the key by comparing records, so no form needs it.
    return Row("key of a compressed message", _kept(seen.are_markers_kept, seen.markers_refused), {})


def _headers_row(seen: Seen) -> Row:
    shown = _kept(seen.are_headers_kept, seen.headers_refused)
    return Row("record headers", shown, {Form.MARKED_V2: seen.are_headers_kept is True})


def _times_row(seen: Seen) -> Row:
    return Row("timestamps of records", seen.times.value, {Form.MARKED_V2: seen.times is not Times.CHANGED})


def _codec_row(seen: Compressed) -> Row:
    trial = f"compression: {seen.codec.name.lower()}"
    if not seen.outcome.is_success:  # so is the client's own batch
        return Row(trial, f"refused: {seen.outcome}", {})
    if seen.stored is None:
        return Row(trial, "missing in the log", {Form.MARKED_V2: False})
    if seen.is_same:
        return Row(trial, "kept", {Form.MARKED_V2: True})
    codec = next((one.name.lower() for one in Codec if one == seen.stored), f"codec {seen.stored}")
    return Row(trial, f"compressed again: {codec}" if seen.stored else "decompressed", {Form.MARKED_V2: True})


def _kept(is_kept: bool | None, refused: str) -> str:
    if refused:
        return f"refused: {refused}"
    return {True: "kept", False: "lost", None: "not tried"}[is_kept]


# ---------------------------------------------------------------------- producer ids
def _producer_ids_row(seen: Seen) -> Row:
    ids = seen.producer_ids
    if ids is None:
        shown, are_new = "InitProducerId is not listed", False
    elif not isinstance(ids, tuple):
        shown, are_new = f"InitProducerId is refused: {ids}", False
    else:
        are_new = len(set(ids)) == len(ids) and min(ids) >= 0
        shown = ", ".join(map(str, ids)) if are_new else f"not new: {', '.join(map(str, ids))}"
    return Row("new producer ids", shown, {Form.OWN_IDS: are_new and seen.ids is not None})


def _id_rows(seen: Seen) -> list[Row]:
    ids = seen.ids
    if ids is None:
        return []
    gap, older = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH
    return [
        Row("six batches with a producer id", _taken(ids.taken), {Form.OWN_IDS: ids.taken.is_success}),
        Row("producer id, epoch and sequence", "kept" if ids.are_fields_kept else "lost", {}),
        Row("last batch again", _again(ids.last_again), {Form.OWN_IDS: _is_duplicate(ids.last_again)}),
        Row(
            "fifth last batch again", _again(ids.fifth_last_again), {Form.OWN_IDS: _is_duplicate(ids.fifth_last_again)}
        ),
        Row("sixth last batch again", _again(ids.sixth_last_again), {}),
        Row("last sequence with other records", _other_content(ids.other_content), {}),
        Row("gap in the sequence", _taken(ids.gap), {Form.OWN_IDS: _is_refused(ids.gap, gap)}),
        Row("newer epoch from sequence 0", _taken(ids.newer_epoch), {Form.OWN_IDS: ids.newer_epoch.is_success}),
        Row("older epoch", _taken(ids.older_epoch), {Form.OWN_IDS: _is_refused(ids.older_epoch, older)}),
        Row(
            f"unknown producer id from sequence {FIRST_OF_UNKNOWN}",
            _taken(ids.unknown_id),
            {Form.OWN_IDS: ids.unknown_id.is_success},
        ),
    ]


def _is_duplicate(again: Again) -> bool:
    return again.is_first_offset and again.times == 1


def _is_refused(outcome: Outcome, code: int) -> bool:
    return isinstance(outcome, Returned) and outcome.error_code == code


def _taken(outcome: Outcome) -> str:
    if outcome.is_success:
        return "taken"
    return f"refused: {outcome}" if isinstance(outcome, Returned) else str(outcome)


def _again(again: Again) -> str:
    if not again.outcome.is_success:
        return _taken(again.outcome)
    has_offset = isinstance(again.outcome, Returned) and again.outcome.base_offset >= 0
    offset = "its first offset" if again.is_first_offset else "another offset" if has_offset else "no offset"
    return f"{offset}, stored {_times_text(again.times)}"


def _other_content(again: Again) -> str:
    if not again.outcome.is_success:
        return _taken(again.outcome)
    if again.is_first_offset and not again.times:
        return "taken for a duplicate, not stored"
    return f"taken, stored {_times_text(again.times)}"


def _times_text(times: int) -> str:
    return {1: "once", 2: "twice"}.get(times, f"{times} times")
