"""What was sent, what the server returned, what the log has then; and what of it counts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

from ...codecs.compression import Codec
from ...codecs.error_codes import ErrorCode, name_of
from ...codecs.record_batch import BATCH_OVERHEAD_BYTES
from ...values import value
from .batches import ProbeBatch
from .stored import LogBatch, LogRecord

FORMAT_V2: Final = 2


# ---------------------------------------------------------------------- what happened
@value(frozen=True, slots=True)
class Returned:
    """The response to a request, or its part for one batch. ``base_offset`` -1: none."""

    error_code: int
    base_offset: int = -1

    @property
    def is_success(self) -> bool:
        return self.error_code == ErrorCode.NONE

    def __str__(self) -> str:
        return name_of(self.error_code)


@value(frozen=True, slots=True)
class Unanswered:
    """There was no response, or none that can be read. ``reason``: a clause for people."""

    reason: str

    @property
    def is_success(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"no response ({self.reason})"


@value(frozen=True, slots=True)
class Unsent:
    """There was no request. ``reason``: a clause for people."""

    reason: str

    @property
    def is_success(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.reason


Outcome = Returned | Unanswered | Unsent


@value(frozen=True, slots=True)
class Sent:
    """One batch with its outcome."""

    batch: ProbeBatch
    outcome: Outcome


@value(frozen=True, slots=True)
class IdTrials:
    """What was sent under producer ids that the server gave, in this order. ``in_order``: six batches. The next three
    are outcomes of the last, the fifth last and the sixth last of them, sent again."""

    in_order: tuple[Sent, ...]
    last_again: Outcome
    fifth_last_again: Outcome
    sixth_last_again: Outcome
    other_content: Sent
    """The sequence of the last batch, with other records."""
    gap: Sent
    newer_epoch: Sent
    older_epoch: Sent
    unknown_id: Sent


@value(frozen=True, slots=True)
class Trials:
    """All that was sent to one partition. ``first`` is None where no version of Produce takes format v2. ``wrappers``:
    in message format v1. ``producer_ids``: None where InitProducerId is not listed."""

    first: Sent | None
    pipelined: tuple[Sent, ...] = ()
    marked: tuple[Sent, ...] = ()
    with_headers: Sent | None = None
    compressed: tuple[Sent, ...] = ()
    wrappers: tuple[Sent, ...] = ()
    producer_ids: tuple[int, ...] | Outcome | None = None
    ids: IdTrials | None = None

    def __iter__(self) -> Iterator[Sent]:
        """Every batch that was sent once, in the order in which they were sent. ``other_content`` is not among them:
        a server that takes it for the batch before returns success and stores nothing."""
        if self.first is not None:
            yield self.first
        yield from (*self.pipelined, *self.marked)
        if self.with_headers is not None:
            yield self.with_headers
        yield from (*self.compressed, *self.wrappers)
        if (ids := self.ids) is not None:
            yield from ids.in_order
            yield from (ids.gap, ids.newer_epoch, ids.older_epoch, ids.unknown_id)


# ---------------------------------------------------------------------- what counts of it
class Offsets(Enum):
    """What the base offset in responses says."""

    TRUE = "where the batch is"
    NONE = "-1"
    FALSE = "where the batch is not"
    UNKNOWN = "not known: no batch was stored"


class Order(Enum):
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
    """What the server does with producer ids. Those of ``taken_first`` and the ones after it are outcomes."""

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
    """All that a verdict is made of. ``stored_format``: 0, 1 or 2; None where nothing can be read back, for the reason
    ``unread``. ``sent``: records of batches that were taken; of them ``missing`` and ``changed`` (key or value) in the
    log. None in ``are_markers_kept``, ``are_headers_kept`` and ``are_borders_kept``: nothing was stored that could
    show it; ``markers_refused`` and ``headers_refused`` say why."""

    stored_format: int | None
    unread: str
    offsets: Offsets
    order: Order
    order_refused: str
    sent: int
    missing: int
    changed: int
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
class _Found:
    """One batch in the log: the place of its first record."""

    stored: LogBatch
    record: LogRecord


class _Log:
    def __init__(self, batches: Sequence[LogBatch]) -> None:
        self.by_value: dict[bytes | None, list[_Found]] = {}
        for batch in batches:
            for record in batch.records:
                self.by_value.setdefault(record.value, []).append(_Found(batch, record))

    def first_of(self, batch: ProbeBatch) -> _Found | None:
        found = self.by_value.get(batch.records[0].value)
        return found[0] if found else None

    def times_of(self, batch: ProbeBatch) -> int:
        return len(self.by_value.get(batch.records[0].value, ()))


def seen_of(trials: Trials, batches: Sequence[LogBatch], unread: str = "") -> Seen:
    """Return what counts of all that happened. ``batches``: the log from its first batch of the probe on. ``unread``:
    why there is no more of it."""
    log = _Log(batches)
    taken = [one for one in trials if one.outcome.is_success]
    found = {one.batch.name: place for one in taken if (place := log.first_of(one.batch)) is not None}
    missing, changed = _records(taken, log)
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


def _format(taken: Sequence[Sent], log: _Log) -> int | None:
    """Return the format of the first of these that is in the log."""
    for one in taken:
        if (place := log.first_of(one.batch)) is not None:
            return place.stored.magic
    return None


def _records(taken: Sequence[Sent], log: _Log) -> tuple[int, int]:
    missing = changed = 0
    for one in taken:
        for record in one.batch.records:
            places = log.by_value.get(record.value, [])
            missing += not places
            changed += any(place.record.key != record.key for place in places)
    return missing, changed


def _offsets(taken: Sequence[Sent], found: Mapping[str, _Found]) -> Offsets:
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


def _order(pipelined: Sequence[Sent], log: _Log) -> tuple[Order, str]:
    if any(isinstance(one.outcome, Unanswered) and one.outcome.reason == OUT_OF_ORDER for one in pipelined):
        return Order.ANSWERED_OTHERWISE, ""
    if not pipelined or _refusal(pipelined):
        return Order.REFUSED, _refusal(pipelined) or "not tried"
    places = [log.first_of(one.batch) for one in pipelined]
    offsets = [place.record.offset for place in places if place is not None]
    return (Order.KEPT if offsets == sorted(offsets) else Order.STORED_OTHERWISE), ""


OUT_OF_ORDER: Final = "responses in another order than the requests"
"""The reason of requests that were sent at once."""


def _has_borders(batch: ProbeBatch, place: _Found) -> bool:
    """Is the stored batch that has the first record made of the records of this batch alone?"""
    return [one.value for one in place.stored.records] == [one.value for one in batch.records]


def _has_marker(batch: ProbeBatch, found: Mapping[str, _Found]) -> bool:
    place = found.get(batch.name)
    if place is None:
        return False
    if batch.marker is not None:
        return place.stored.key == batch.marker
    return place.stored.producer == batch.producer


def _headers(sent: Sent, log: _Log) -> bool | None:
    if not sent.outcome.is_success:
        return None
    places = [log.by_value.get(one.value, []) for one in sent.batch.records]
    return all(
        bool(at) and at[0].record.headers == one.headers for one, at in zip(sent.batch.records, places, strict=True)
    )


def _times(taken: Sequence[Sent], log: _Log) -> Times:
    found = Times.KEPT
    for one in taken:
        for record in one.batch.records:
            for place in log.by_value.get(record.value, [])[:1]:
                if place.stored.is_log_append_time:
                    found = Times.LOG_APPEND_TIME
                elif place.record.timestamp != record.timestamp:
                    return Times.CHANGED
    return found


def _compressed(sent: Sent, found: Mapping[str, _Found]) -> Compressed:
    place = found.get(sent.batch.name)
    is_same = place is not None and place.stored.data[BATCH_OVERHEAD_BYTES:] == sent.batch.data[BATCH_OVERHEAD_BYTES:]
    return Compressed(sent.batch.codec, sent.outcome, None if place is None else place.stored.codec, is_same)


def _ids(trials: IdTrials, log: _Log, found: Mapping[str, _Found]) -> Ids:
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
