"""The log of one partition as its leader keeps it: offsets, a high watermark, truncation, retention, compaction.

Owns validation of produced message sets, the assignment of offsets (in place, so wrapper keys stay) and what becomes of
stored messages. It knows no connection and no time. What no proxy may ever send (two wrappers in one set, wrappers that
a broker would rebuild) is a violation, not a refusal: it is written down and the test fails.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from testkit.virtual.batches import MAGIC, converted_down, converted_up, is_batch, parse_batch, repacked_batch
from testkit.virtual.header_markers import SentIdentities
from testkit.virtual.kafka_reference import Failed, ReferenceProducer
from testkit.virtual.messages import Message, Refusal, as_format_0, at_offset, parse_messages, repacked

TOO_LARGE = 10
OTHER_FORMAT = 43
MESSAGE_BYTES_MAX = 1_000_012
"""message.max.bytes of a broker that nobody has configured."""
UNCOMPRESSED = 0
NO_OFFSET = -1
_last_offset = attrgetter("last_offset")

__all__ = ["MESSAGE_BYTES_MAX", "TOO_LARGE", "Message", "PartitionLog", "Refusal", "Stored", "parse_messages"]


@dataclass(slots=True)
class Stored:
    """One shallow message where it lies; never changed. ``first_offset`` of a wrapper is its first record's.

    ``offsets``: of its records, where compaction has left gaps between them. ``last_offset``: of its last record,
    inclusive; of a batch of format v2 that of the last one that it was sent with.
    """

    first_offset: int
    message: Message
    appended_at: float
    offsets: tuple[int, ...] = ()
    last_offset: int = NO_OFFSET

    def __post_init__(self) -> None:
        if self.last_offset == NO_OFFSET:
            self.last_offset = self.offsets[-1] if self.offsets else self.first_offset + self.message.record_count - 1


@dataclass(slots=True)
class PartitionLog:
    """What the present leader has. All that lies below the high watermark is on every in-sync replica."""

    keeps_wrapper_keys: bool = True
    """False: wrappers are rebuilt with the codec that they came with, and their keys are lost."""
    compression: int | None = None
    """The topic's compression.type: a codec, 0 for uncompressed, None for the producer's. What comes with another one
    is packed again and loses its key."""
    message_format: int = 1
    """0: a message.format.version before 0.10. Everything is stored in that format, and wrappers lose their keys."""
    keeps_old_format: bool = False
    """The topic has a message.format.version of its own: format v1, whatever its broker stores."""
    message_bytes_max: int = MESSAGE_BYTES_MAX
    start_offset: int = 0
    end_offset: int = 0
    high_watermark: int = 0
    """What the present leader knows to be replicated; a new leader may know of less than the old one did."""
    committed: int = 0
    """What is replicated: the highest high watermark that there ever was. A clean election loses nothing below it."""
    messages: list[Stored] = field(default_factory=list)
    """What can be read."""
    history: list[Stored] = field(default_factory=list)
    """What was appended, as it came, and was not cut off since: also what retention and compaction have removed."""
    truncated: list[Stored] = field(default_factory=list)
    """Cut off by a clean election: it was never acknowledged as safe."""
    lost: list[Stored] = field(default_factory=list)
    """Cut off below ``committed``: by an unclean election, or with the whole topic."""
    violations: list[str] = field(default_factory=list)
    producers: dict[int, ReferenceProducer] = field(default_factory=dict)
    """What a leader that gives idempotence knows of producers, by their ids: from the batches of format v2 that are in
    its log, also while they were appended by another one."""
    sent: SentIdentities = field(default_factory=SentIdentities)
    """What batch markers in headers may stand for."""

    def append(self, message_set: bytes, now: float, *, stores: int = 1) -> int:
        """Append and return the base offset, of what is there already its old one. Raises Refusal when nothing was
        appended. ``stores``: the format in which the broker stores, 2 for its own since 0.11."""
        if is_batch(message_set):
            return self._append_batch(parse_batch(message_set), now, stores)
        messages = parse_messages(message_set)
        assert messages, "empty sets are answered by the broker, not by the log"
        for message in messages:
            if len(message.data) > self.message_bytes_max:
                raise Refusal(TOO_LARGE, f"a message of {len(message.data)} bytes")
        self._look_for_violations(messages)
        return self._append_messages(messages, now, stores)

    def _append_messages(self, messages: Sequence[Message], now: float, stores: int) -> int:
        base_offset = self.end_offset
        for message in messages:
            first = self.end_offset
            self.end_offset += message.record_count
            self.history.append(Stored(first, message, now))
            self.messages += self._as_stored(message, first, now, stores)
        return base_offset

    def _append_batch(self, batch: Message, now: float, stores: int) -> int:
        """As brokers do since 2.5: the producer's last five batches are known, and one that is not known begins with
        any sequence (KIP-360). Of a batch without a producer id nothing is checked (measured on real brokers)."""
        if len(batch.data) > self.message_bytes_max:
            raise Refusal(TOO_LARGE, f"a batch of {len(batch.data)} bytes")
        is_old = stores < MAGIC or self.message_format == 0 or self.keeps_old_format
        if batch.producer_id < 0:
            if is_old:  # its batch marker is lost
                return self._append_messages(parse_messages(converted_down(batch, 0)), now, stores)
            return self._append_marked(batch, now)
        if is_old:
            raise Refusal(OTHER_FORMAT, "this format has no producer ids")
        names = batch.producer_epoch, batch.base_sequence, batch.record_count
        producer = self.producers.setdefault(batch.producer_id, ReferenceProducer())
        judged = producer.append(*names, self.end_offset)
        if isinstance(judged, Failed):
            raise Refusal(judged.error_code, f"{names} of producer {batch.producer_id}")
        if not judged.is_duplicate:
            stored = Stored(self.end_offset, at_offset(batch, self.end_offset), now)
            self.history.append(stored)
            self.messages.append(stored)
            self.end_offset += batch.record_count
        return judged.base_offset

    def _append_marked(self, batch: Message, now: float) -> int:
        """One without a producer id: epoch and base sequence may be anything, and are stored as they are."""
        identity = self.sent.marked_as(batch.producer_epoch, batch.base_sequence, batch.record_count)
        base_offset = self.end_offset
        came = at_offset(batch._replace(marked_as=identity), base_offset)
        is_kept = self.compression in (None, batch.codec)
        stored = came if is_kept else repacked_batch(came, range(len(came.inner)), self.compression or 0)
        self.history.append(Stored(base_offset, came, now))
        self.messages.append(Stored(base_offset, stored, now))
        self.end_offset += batch.record_count
        return base_offset

    def know_producers(self, *, last_only: bool = False) -> None:
        """As a replica does that begins to lead: what it knows is in its log. ``last_only``: of each producer the last
        batch, as a broker does that was started again (measured on real brokers)."""
        self.producers.clear()
        for stored in self.history:
            one = stored.message
            if one.producer_id >= 0:
                producer = self.producers.setdefault(one.producer_id, ReferenceProducer())
                producer.append(one.producer_epoch, one.base_sequence, one.record_count, stored.first_offset)
                while last_only and len(producer.batches) > 1:
                    producer.batches.popleft()

    def _as_stored(self, message: Message, first: int, now: float, stores: int) -> list[Stored]:
        """What the topic's settings, and the format of the broker, make of it. In format v2 a wrapper's key is lost."""
        if stores >= MAGIC and not self.keeps_old_format:
            batch = at_offset(converted_up(message), first)
            if self.compression not in (None, batch.codec):
                batch = repacked_batch(batch, range(len(batch.inner)), self.compression or 0)
            return [Stored(first, batch, now)]
        if self.message_format == 0:
            message = as_format_0(message, first)
        if self.compression == UNCOMPRESSED and message.inner:
            return [Stored(at, at_offset(one, at), now) for at, one in enumerate(message.inner, first)]
        codec = message.codec if self.compression is None else self.compression
        if message.inner and (codec != message.codec or not self.keeps_wrapper_keys):
            message = repacked(message, message.inner, codec)
        return [Stored(first, at_offset(message, first + message.record_count - 1), now)]

    def advance(self, offset: int) -> None:
        """The followers have everything below the offset."""
        self.high_watermark = max(self.high_watermark, min(offset, self.end_offset))
        self.committed = max(self.committed, self.high_watermark)

    # ------------------------------------------------------------------ what is lost again
    def truncate(self, offset: int, *, unclean: bool = False) -> None:
        """Forget what begins at or after the offset: a follower that has no more became the leader."""
        assert unclean or offset >= self.committed, "only an unclean election loses what is replicated"
        while self.messages and self.messages[-1].first_offset >= offset:
            self.messages.pop()
        while self.history and self.history[-1].first_offset >= offset:
            stored = self.history.pop()
            (self.lost if stored.last_offset < self.committed else self.truncated).append(stored)
        ends = [stored[-1].last_offset + 1 for stored in (self.history, self.messages) if stored]
        self.end_offset = max([self.start_offset, *ends])
        self.high_watermark = min(self.high_watermark, self.end_offset)
        self.committed = min(self.committed, self.end_offset)
        self.know_producers()

    def begin_again(self) -> None:
        """The topic was deleted, and made again."""
        self.lost += self.history
        self.messages, self.history = [], []
        self.start_offset = self.end_offset = self.high_watermark = self.committed = 0
        self.know_producers()

    def retain(self, offset: int) -> None:
        """Delete the messages that lie wholly below the offset, as far as they are replicated."""
        while self.messages and self.messages[0].last_offset < min(offset, self.high_watermark):
            self.start_offset = self.messages.pop(0).last_offset + 1

    def compact(self, index: int, removed: Sequence[int]) -> bool:
        """Remove these records of one readable message; what is left of a wrapper is packed again. False: it may
        not."""
        stored = self.messages[index]
        if stored.last_offset >= self.high_watermark or stored is self.messages[-1]:
            return False  # the active segment is never compacted
        offsets = stored.offsets or tuple(range(stored.first_offset, stored.last_offset + 1))
        records = stored.message.records
        left = [
            (at, one) for number, (at, one) in enumerate(zip(offsets, records, strict=True)) if number not in removed
        ]
        if not left:
            del self.messages[index]
        elif len(left) < len(records):
            at = tuple(offset for offset, _ in left)
            if stored.message.magic == MAGIC:
                kept = [number for number in range(len(records)) if number not in removed]
                batch = repacked_batch(stored.message, kept, stored.message.codec)
                self.messages[index] = Stored(stored.first_offset, batch, stored.appended_at, at, stored.last_offset)
                return True
            message = repacked(stored.message, [one for _, one in left], stored.message.codec)
            self.messages[index] = Stored(at[0], at_offset(message, at[-1]), stored.appended_at, at)
        return len(left) < len(records)

    def borders(self) -> list[int]:
        """Offsets at which a clean truncation may happen, lowest first; the last one is the end: nothing is lost."""
        ends = [stored.last_offset + 1 for stored in self.history[_index_of(self.history, self.committed) :]]
        return [self.committed, *ends]

    def border_before(self, offset: int) -> int:
        """Where the message just below the offset begins: high watermarks lie between messages, never inside one."""
        index = _index_of(self.history, offset - 1) if offset else 0
        return max(self.start_offset, self.history[index].first_offset if index < len(self.history) else 0)

    # ------------------------------------------------------------------ reading
    def read(self, offset: int, bytes_max: int, *, whole_first: bool, up_to: int, converts_down: bool = False) -> bytes:
        """Messages from the one that holds ``offset``, at most so many bytes; the last one may be partial.

        ``whole_first``: the first message is given whole even if it is larger (version 3). ``up_to``: the offset
        before which reading ends, the high watermark for everybody but brokers. ``converts_down``: batches of format
        v2 are given in format v1.
        """
        chunks: list[bytes] = []
        size = 0
        for index in range(_index_of(self.messages, offset), len(self.messages)):
            stored = self.messages[index]
            if stored.last_offset >= up_to:
                break
            data = stored.message.data
            if converts_down and stored.message.magic == MAGIC:
                data = converted_down(stored.message, stored.first_offset)
            room = bytes_max - size
            if len(data) > room and not (whole_first and not chunks):
                chunks.append(data[: max(0, room)])
                break
            chunks.append(data)
            size += len(data)
        return b"".join(chunks)

    def at(self, offset: int) -> tuple[Stored, Message] | None:
        """The shallow message and the record that can be read at an offset."""
        return _find(self.messages, offset)

    def was_at(self, offset: int) -> tuple[Stored, Message] | None:
        """The same, of what was appended there, also if retention or compaction has removed it since."""
        return _find(self.history, offset)

    def _look_for_violations(self, messages: list[Message]) -> None:
        wrappers = [message for message in messages if message.inner]
        if wrappers and len(messages) > 1:
            self.violations.append(f"{len(wrappers)} wrappers among {len(messages)} messages of one set")
        for wrapper in wrappers:
            offsets = [message.offset for message in wrapper.inner]
            if offsets != list(range(len(offsets))) or wrapper.offset != len(offsets) - 1:
                self.violations.append(f"a wrapper with offset {wrapper.offset} and inner offsets {offsets[:5]}...")
            if wrapper.magic and wrapper.timestamp != max(message.timestamp for message in wrapper.inner):
                self.violations.append(f"a wrapper with timestamp {wrapper.timestamp}, not the highest inner one")


def _find(messages: Sequence[Stored], offset: int) -> tuple[Stored, Message] | None:
    index = _index_of(messages, offset)
    if index >= len(messages) or messages[index].first_offset > offset:
        return None
    stored = messages[index]
    if not stored.offsets:
        return stored, stored.message.records[offset - stored.first_offset]
    return (stored, stored.message.records[stored.offsets.index(offset)]) if offset in stored.offsets else None


def _index_of(messages: Sequence[Stored], offset: int) -> int:
    """Of the first message that does not end below the offset."""
    return bisect_left(messages, offset, key=_last_offset)
