"""What counts of all that happened: trials and the log after them, as facts that a verdict is made of. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Final

from ...codecs.compression import Codec
from ...codecs.record_batch import BATCH_OVERHEAD_BYTES
from ...values import value
from .batches import ProbeBatch
from .stored import LogBatch, LogRecord
from .trials import OUT_OF_ORDER, IdTrials, NoResponse, Outcome, Returned, Sent, Trials

FORMAT_V2: Final = 2


class Offsets(Enum):
    """What the base offset in responses says."""

    TRUE = "where the batch is"
    NONE = "-1"
    FALSE = "where the batch is not"
    UNKNOWN = "not known: no batch was stored"


class RequestOrder(Enum):
    """What becomes of several requests that are sent at once."""

    KEPT = "returned and stored in order"
    STORED_OTHERWISE = "stored in another order"
    ANSWERED_OTHERWISE = "returned in another order"
    REFUSED = "refused"


class Times(Enum):
    """What becomes of the timestamps of records."""

    KEPT = "kept"
    LOG_APPEND_TIME = "replaced by the time of the append"
    CHANGED = "changed"


@value(frozen=True, slots=True)
class Compressed:
    """What becomes of a compressed batch. ``stored``: the codec in the log, None where the batch is not there."""

    codec: Codec
    outcome: Outcome
    stored: int | None
    is_same: bool
    """Are the compressed bytes those that were sent?"""


@value(frozen=True, slots=True)
class Again:
    """A batch that was sent again, or its sequence. ``is_first_offset``: the response has the offset of the first
    time. ``times``: how often the batch is in the log."""

    outcome: Outcome
    is_first_offset: bool
    times: int


@value(frozen=True, slots=True)
class Ids:
    """What the server does with producer ids."""

    are_fields_kept: bool
    taken: Outcome
    """Of the first of six batches that was refused, else of the last."""
    last_again: Again
    fifth_last_again: Again
    sixth_last_again: Again
    other_content: Again
    gap: Outcome
    newer_epoch: Outcome
    older_epoch: Outcome
    unknown_id: Outcome


@value(frozen=True, slots=True)
class Seen:
    """All that a verdict is made of.

    ``stored_format``: 0, 1 or 2; None where nothing can be read back, for the reason ``unread``.
    ``sent``: records of batches that were taken; of these ``missing``, ``changed`` (key or value) and ``doubled`` in
    the log, though they were sent once. ``stored_though_refused``: names of batches.
    ``is_end_true``: does ListOffsets return the end of what was read? ``end_refused``: why it returns none.
    None in ``are_borders_kept``, ``are_markers_kept`` and ``are_headers_kept``: nothing is stored that shows it;
    ``markers_refused`` and ``headers_refused`` say why."""

    stored_format: int | None
    unread: str
    offsets: Offsets
    order: RequestOrder
    order_refused: str
    sent: int
    missing: int
    changed: int
    doubled: int
    stored_though_refused: tuple[str, ...]
    is_end_true: bool
    end_refused: str
    are_borders_kept: bool | None
    are_markers_kept: bool | None
    markers_refused: str
    are_headers_kept: bool | None
    headers_refused: str
    times: Times
    compressed: tuple[Compressed, ...]
    producer_ids: tuple[int, ...] | Outcome | None
    ids: Ids | None


@value(frozen=True, slots=True)
class _FoundBatch:
    """One batch in the log: the place of its first record."""

    stored: LogBatch
    record: LogRecord


class _ReadLog:
    def __init__(self, batches: Sequence[LogBatch]) -> None:
        self.by_value: dict[bytes | None, list[_FoundBatch]] = {}
        for batch in batches:
            for record in batch.records:
                self.by_value.setdefault(record.value, []).append(_FoundBatch(batch, record))

    def first_of(self, batch: ProbeBatch) -> _FoundBatch | None:
        found = self.by_value.get(batch.records[0].value)
        return found[0] if found else None

    def times_of(self, batch: ProbeBatch) -> int:
        return len(self.by_value.get(batch.records[0].value, ()))


def seen_of(trials: Trials, batches: Sequence[LogBatch], unread: str = "", end: int | str = "not asked") -> Seen:
    """Return what counts of all that happened. ``batches``: the log from its first batch of the probe on. ``unread``:
    why there is no more of it. ``end``: its end offset as ListOffsets returned it after that, or why it did not."""
    log = _ReadLog(batches)
    taken = [one for one in trials if one.outcome.is_success]
    found = {one.batch.name: place for one in taken if (place := log.first_of(one.batch)) is not None}
    missing, changed, doubled = _records(taken, log, trials.resent())
    after_last = max((one.records[-1].offset + 1 for one in batches), default=None)
    order, order_refused = _order(trials.pipelined, log)
    markers = trials.wrappers or trials.marked
    stored_format = _format([*(one for one in trials.wrappers if one.outcome.is_success), *taken], log)
    # What is converted to v1 has no borders there: a wrapper has.
    may_have_borders = [one for one in taken if stored_format == FORMAT_V2 or one.batch.marker is not None]
    bordered = [one for one in may_have_borders if one.batch.name in found]
    return Seen(
        stored_format=stored_format,
        unread=unread,
        offsets=_offsets(taken, found),
        order=order,
        order_refused=order_refused,
        sent=sum(len(one.batch.records) for one in taken),
        missing=missing,
        changed=changed,
        doubled=doubled,
        stored_though_refused=tuple(one.batch.name for one in trials.refused() if log.times_of(one.batch)),
        is_end_true=end == after_last,
        end_refused=end if isinstance(end, str) else "",
        are_borders_kept=_all([_has_borders(one.batch, found[one.batch.name]) for one in bordered]),
        are_markers_kept=_all([_has_marker(one.batch, found) for one in markers if one.outcome.is_success]),
        markers_refused=_refusal(markers),
        are_headers_kept=None if trials.with_headers is None else _headers(trials.with_headers, log),
        headers_refused="" if trials.with_headers is None else _refusal([trials.with_headers]),
        times=_times(taken, log),
        compressed=tuple(_compressed(one, found) for one in trials.compressed),
        producer_ids=trials.producer_ids,
        ids=None if trials.ids is None else _ids(trials.ids, log, found),
    )


def _all(answers: Sequence[bool]) -> bool | None:
    return all(answers) if answers else None


def _refusal(sent: Sequence[Sent]) -> str:
    return next((str(one.outcome) for one in sent if not one.outcome.is_success), "")


def _format(taken: Sequence[Sent], log: _ReadLog) -> int | None:
    """Return the format of the first of these that is in the log."""
    for one in taken:
        if (place := log.first_of(one.batch)) is not None:
            return place.stored.magic
    return None


def _records(taken: Sequence[Sent], log: _ReadLog, resent: Collection[str]) -> tuple[int, int, int]:
    missing = changed = doubled = 0
    for one in taken:
        for record in one.batch.records:
            places = log.by_value.get(record.value, [])
            missing += not places
            changed += any(place.record.key != record.key for place in places)
            doubled += len(places) > 1 and one.batch.name not in resent
    return missing, changed, doubled


def _offsets(taken: Sequence[Sent], found: Mapping[str, _FoundBatch]) -> Offsets:
    known = [
        (one.outcome.base_offset, found[one.batch.name].record.offset)
        for one in taken
        if isinstance(one.outcome, Returned) and one.batch.name in found
    ]
    if not known:
        return Offsets.UNKNOWN
    if any(returned < 0 for returned, _ in known):
        return Offsets.NONE
    return Offsets.TRUE if all(returned == offset for returned, offset in known) else Offsets.FALSE


def _order(pipelined: Sequence[Sent], log: _ReadLog) -> tuple[RequestOrder, str]:
    if any(isinstance(one.outcome, NoResponse) and one.outcome.reason == OUT_OF_ORDER for one in pipelined):
        return RequestOrder.ANSWERED_OTHERWISE, ""
    if not pipelined or _refusal(pipelined):
        return RequestOrder.REFUSED, _refusal(pipelined) or "not tried"
    places = [log.first_of(one.batch) for one in pipelined]
    offsets = [place.record.offset for place in places if place is not None]
    return (RequestOrder.KEPT if offsets == sorted(offsets) else RequestOrder.STORED_OTHERWISE), ""


def _has_borders(batch: ProbeBatch, place: _FoundBatch) -> bool:
    """Is the stored batch that has the first record made of the records of this batch alone?"""
    return [one.value for one in place.stored.records] == [one.value for one in batch.records]


def _has_marker(batch: ProbeBatch, found: Mapping[str, _FoundBatch]) -> bool:
    place = found.get(batch.name)
    if place is None:
        return False
    if batch.marker is not None:
        return place.stored.key == batch.marker
    return place.stored.producer == batch.producer


def _headers(sent: Sent, log: _ReadLog) -> bool | None:
    if not sent.outcome.is_success:
        return None
    places = [log.by_value.get(one.value, []) for one in sent.batch.records]
    return all(
        bool(at) and at[0].record.headers == one.headers for one, at in zip(sent.batch.records, places, strict=True)
    )


def _times(taken: Sequence[Sent], log: _ReadLog) -> Times:
    found = Times.KEPT
    for one in taken:
        for record in one.batch.records:
            for place in log.by_value.get(record.value, [])[:1]:
                if place.stored.is_log_append_time:
                    found = Times.LOG_APPEND_TIME
                elif place.record.timestamp != record.timestamp:
                    return Times.CHANGED
    return found


def _compressed(sent: Sent, found: Mapping[str, _FoundBatch]) -> Compressed:
    place = found.get(sent.batch.name)
    is_same = place is not None and place.stored.data[BATCH_OVERHEAD_BYTES:] == sent.batch.data[BATCH_OVERHEAD_BYTES:]
    return Compressed(sent.batch.codec, sent.outcome, None if place is None else place.stored.codec, is_same)


def _ids(trials: IdTrials, log: _ReadLog, found: Mapping[str, _FoundBatch]) -> Ids:
    def again(first: Sent, outcome: Outcome, *, stored: ProbeBatch | None = None) -> Again:
        """``stored``: the batch that is counted, if it is not the first one."""
        is_first_offset = (
            isinstance(outcome, Returned)
            and isinstance(first.outcome, Returned)
            and outcome.is_success
            and outcome.base_offset == first.outcome.base_offset >= 0
        )
        return Again(outcome, is_first_offset, log.times_of(first.batch if stored is None else stored))

    *_, last = trials.in_order
    refused = next((one for one in trials.in_order if not one.outcome.is_success), last)
    return Ids(
        are_fields_kept=all(_has_marker(one.batch, found) for one in trials.in_order),
        taken=refused.outcome,
        last_again=again(last, trials.last_again),
        fifth_last_again=again(trials.in_order[-5], trials.fifth_last_again),
        sixth_last_again=again(trials.in_order[-6], trials.sixth_last_again),
        other_content=again(last, trials.other_content.outcome, stored=trials.other_content.batch),
        gap=trials.gap.outcome,
        newer_epoch=trials.newer_epoch.outcome,
        older_epoch=trials.older_epoch.outcome,
        unknown_id=trials.unknown_id.outcome,
    )
