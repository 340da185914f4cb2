"""Keeps a copy of the hidden ranges in a compacted topic: Redis can be filled from it again, and clients that read from
the brokers without a proxy learn from it which offsets are duplicates. Flows only.

The topic is read to its end, and later from there on; what it lacks is appended, in message format v1 and without a
batch marker: the same record twice does no harm. The last record of a key counts, so when a late append brings back an
older word (``records.Word``), that is seen, and the newer one is appended again. What the topic has and Redis has not
is reported, never taken over: the right to write to a topic is not the right to hide records; a person decides that
(``idemproxy hide restore``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ...codecs.error_codes import ErrorCode, named
from ...codecs.errors import WireError
from ...codecs.logged import Logged, LoggedBatch
from ...codecs.message_set import ShallowMessage, encode_set, inner_messages
from ...codecs.record_batch import Record, iterate_records
from ...state.hidden_ranges import HiddenRange, HiddenRanges, OffsetRange, State
from .. import limits
from ..bridge.asks import EarliestOffset, LatestOffset
from ..events import OperatorMessage, Report
from ..flow.effects import Append, Ask, Leader, Unanswered, Wait
from ..flow.outcome import Appended, Outcome, Refused
from ..partition_log.log_chunk import LogChunk, ReadLog
from .known import KnownHiddenRanges
from .records import RECORDED, UnreadableHiddenRange, Word, read_record, record_of, word_of

PARTITION = 0
"""All records are in this one: what is said of a range later has to lie after what was said earlier."""
_MAGIC = 1
_NO_KEY = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
"""How a broker refuses a record without a key on a compacted topic: before 2.4, and from then on."""


class HiddenRangesTopic:
    """The copy that one process keeps; ``run`` never ends. ``by``: who writes its records."""

    def __init__(
        self,
        topic: str,
        known: KnownHiddenRanges,
        report: Report,
        wall_clock_ms: Callable[[], int],
        by: Callable[[], str],
    ) -> None:
        self._topic = topic
        self._known = known
        self._report = report
        self._wall_clock_ms = wall_clock_ms
        self._by = by
        self._words: dict[OffsetRange, Word] = {}
        """What the topic says of each range, as far as it was read."""
        self._at: int | None = None
        """The next offset to read; None: it is read from its start."""
        self._looks = 0
        self._is_current = False
        """Was Redis read since the last look?"""
        self._own: set[OffsetRange] = set()
        """Ranges of which this process has written the last word into Redis."""
        self._lacks: dict[OffsetRange, int] = {}
        """For how many looks the topic has lacked the word about a range."""
        self._looks_without = 0
        self._looks_unlike = 0
        self._is_compacted: bool | None = None
        self._failures = self._looks_to_skip = 0
        """Appends that have failed in a row, and for how many looks nothing is appended."""
        self._reported = ""

    def stored(self, own: Iterable[OffsetRange]) -> None:
        """What is known was compared with Redis just now. ``own``: the ranges whose last word there this process has
        written."""
        self._is_current = True
        self._own.update(own)

    async def run(self) -> None:
        """Look, and wait, for ever."""
        while True:
            if self._is_current:
                self._is_current = False
                await self._look()
            await Wait(limits.HIDDEN_RANGES_LOOK_SECONDS)

    async def _look(self) -> None:
        leader = await Leader(self._topic, PARTITION)
        if leader is None:
            self._looks_without += 1
            if self._looks_without >= limits.HIDDEN_RANGES_TOPIC_PATIENCE_LOOKS:
                self._warn(
                    "it does not exist, or partition 0 has no leader: create it with one partition and "
                    "cleanup.policy=compact"
                )
            return
        self._looks_without = 0
        if not await self._read_on(leader):
            return
        known = self._known.listed
        self._compare(known)
        due = self._due(known)
        if due and self._looks_to_skip:  # what is in doubt may be there twice: not a third time at once
            self._looks_to_skip -= 1
        elif due and await self._takes_keys_only(leader):
            await self._write(leader, known, due)

    # ------------------------------------------------------------------ reading
    async def _read_on(self, leader: int) -> bool:
        """Read to the end. Returns False if that is not known to be done."""
        earliest = await Ask(leader, EarliestOffset(self._topic, PARTITION))
        latest = await Ask(leader, LatestOffset(self._topic, PARTITION))
        if (
            isinstance(earliest, Unanswered)
            or isinstance(latest, Unanswered)
            or earliest.error_code
            or latest.error_code
        ):
            await Leader(self._topic, PARTITION, refresh=True)
            return False
        self._looks += 1
        # It may have been recreated, or have lost what its retention takes: so now and then it is read as a whole.
        is_again = self._at is None or not earliest.offset <= self._at <= latest.offset
        if is_again or self._looks >= limits.HIDDEN_RANGES_TOPIC_REREAD_LOOKS:
            self._at, self._words, self._is_compacted, self._looks = earliest.offset, {}, None, 0
        assert self._at is not None
        while self._at < latest.offset and len(self._words) <= limits.HIDDEN_RANGES_TOPIC_RANGES_MAX:
            chunk = await Ask(leader, ReadLog(self._topic, PARTITION, self._at))
            if isinstance(chunk, Unanswered) or chunk.error_code:
                return False
            await self._take_all(chunk)
            if chunk.end <= self._at:
                self._warn(f"it cannot be read at offset {self._at}: {chunk.unreadable or 'a message is too large'}")
                return False
            self._at = chunk.end
        if len(self._words) > limits.HIDDEN_RANGES_TOPIC_RANGES_MAX:
            self._warn(f"it has more than {limits.HIDDEN_RANGES_TOPIC_RANGES_MAX} ranges: another service may use it")
            return False
        return True

    async def _take_all(self, chunk: LogChunk) -> None:
        step_bytes = 0
        for _, message in chunk.messages:
            self._take(message)
            step_bytes += message.size_bytes
            if step_bytes >= limits.HIDDEN_RANGES_TOPIC_STEP_BYTES:
                step_bytes = 0
                await Wait(0)  # others have a turn

    def _take(self, message: Logged) -> None:
        """Brokers may have compressed what was written without a codec. A record that this version cannot read is
        passed over."""
        try:
            inside = _records_of(message)
        except WireError:
            return
        for one in inside:
            if one.key is None:
                continue
            try:
                place, hidden_range = read_record(one.key, one.value)
            except UnreadableHiddenRange:
                continue
            if hidden_range is None:
                self._words.pop(place, None)
            else:
                self._words[place] = word_of(hidden_range)

    # ------------------------------------------------------------------ comparing
    def _compare(self, known: HiddenRanges) -> None:
        """Warn if the topic has newer words than Redis, once another proxy has had the time to write them there,
        too."""
        better = sum(1 for place, word in self._words.items() if _is_better(word, known.get(place)))
        self._looks_unlike = self._looks_unlike + 1 if better else 0
        if self._looks_unlike >= limits.HIDDEN_RANGES_TOPIC_PATIENCE_LOOKS:
            self._warn(
                f"it has {better} hidden ranges, or later states of them, that Redis does not have: "
                "fetches do not apply them until `idemproxy hide restore` has written them there"
            )

    def _due(self, known: HiddenRanges) -> list[OffsetRange]:
        """Return what this process is to write into the topic: its own words, and those of others that the topic still
        lacks after ``HIDDEN_RANGES_TOPIC_TURN_LOOKS`` looks."""
        lacking = [place for place, hidden_range in known.items() if self._is_lacking(place, hidden_range)]
        self._lacks = {place: self._lacks.get(place, 0) + 1 for place in lacking}
        self._own.intersection_update(lacking)
        waited = limits.HIDDEN_RANGES_TOPIC_TURN_LOOKS
        return [place for place in lacking if place in self._own or self._lacks[place] > waited]

    def _is_lacking(self, place: OffsetRange, hidden_range: HiddenRange) -> bool:
        theirs = self._words.get(place)
        if theirs is None:  # of a range that never was left out nobody needs to know
            return hidden_range.state in (State.ACTIVE, State.REMOVED)
        return hidden_range.state in RECORDED and theirs < word_of(hidden_range)

    # ------------------------------------------------------------------ writing
    async def _takes_keys_only(self, leader: int) -> bool:
        """Is the topic compacted? Brokers before 0.11 do not tell the settings of a topic; but a compacted one refuses
        a record without a key, so one is appended as a test."""
        if self._is_compacted is None:
            outcome = await self._append(leader, [(None, b"", self._wall_clock_ms())])
            if isinstance(outcome, Appended):
                self._is_compacted = False
            elif isinstance(outcome, Refused) and outcome.error_code in _NO_KEY:
                self._is_compacted = True
            else:
                await self._failed(outcome)
        if self._is_compacted is False:
            self._warn("it is not compacted, so the proxy writes no copy there: set cleanup.policy=compact")
        return self._is_compacted is True

    async def _write(self, leader: int, known: HiddenRanges, due: list[OffsetRange]) -> None:
        """What was appended is seen when the topic is read on."""
        for records in _in_pieces(self._records(known, due)):
            outcome = await self._append(leader, records)
            if not isinstance(outcome, Appended) or outcome.error_code:
                await self._failed(outcome)
                return
        self._reported, self._failures = "", 0

    def _records(self, known: HiddenRanges, due: list[OffsetRange]) -> Iterator[tuple[bytes, bytes, int]]:
        by, now_ms = self._by(), self._wall_clock_ms()
        for place in due:
            if (record := record_of(place, known[place], by)) is not None:
                yield *record, now_ms

    async def _append(self, leader: int, records: list[tuple[bytes | None, bytes, int]]) -> Outcome:
        return await Append(
            *(leader, self._topic, PARTITION, encode_set(records, magic=_MAGIC), limits.HIDDEN_RANGES_TOPIC_TIMEOUT_MS),
            may_send=lambda: None,
            sender="hidden ranges",
        )

    async def _failed(self, outcome: Outcome) -> None:
        """It is tried again some looks later, after each failure more of them."""
        self._failures += 1
        self._looks_to_skip = min(2**self._failures, limits.HIDDEN_RANGES_TOPIC_SKIPS_MAX)
        if isinstance(outcome, Refused):
            self._warn(f"the broker refuses its records with code {named(outcome.error_code)}")
        await Leader(self._topic, PARTITION, refresh=True)

    def _warn(self, what: str) -> None:
        if what != self._reported:
            self._reported = what
            self._report(OperatorMessage("warning", f"topic {self._topic} (hidden_ranges.topic): {what}"))


def _is_better(theirs: Word, ours: HiddenRange | None) -> bool:
    return ours is None or word_of(ours) < theirs


def _in_pieces(
    records: Iterable[tuple[bytes, bytes, int]],
) -> Iterator[list[tuple[bytes | None, bytes, int]]]:
    """Cut them into requests: old brokers take a message set of less than 1 MB."""
    piece: list[tuple[bytes | None, bytes, int]] = []
    size_bytes = 0
    for key, value, at_ms in records:
        piece.append((key, value, at_ms))
        size_bytes += len(key) + len(value)
        if size_bytes >= limits.HIDDEN_RANGES_TOPIC_REQUEST_BYTES:
            yield piece
            piece, size_bytes = [], 0
    if piece:
        yield piece


def _records_of(message: Logged) -> Sequence[ShallowMessage | Record]:
    unpacked_bytes_max = limits.HIDDEN_RANGES_TOPIC_UNPACKED_BYTES_MAX
    if isinstance(message, LoggedBatch):
        return list(iterate_records(message.records, message.header, unpacked_bytes_max, is_stored=True))
    return inner_messages(message, unpacked_bytes_max) if message.is_wrapper else [message]
