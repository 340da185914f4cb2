"""Fetch v0 to v3 to v10 or v4, and its records down to the message formats v0 and v1.

What a client gets of one partition's records is decided in ``codecs.old_formats.lowering``, where to begin in
``positions``; this module owns the request, the answer around the records, and when the broker is asked again.

v10 is the first version in which brokers send what a topic with compression.type zstd holds (KIP-110). Those that lack
it get v4, the first with record batches (KIP-98). No fetch session is opened (KIP-227), and no leader epoch is named
(KIP-320). Source: FetchRequest.json and FetchResponse.json of 3.9; KIP-74 (v3: max_bytes of the whole answer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from ....codecs.error_codes import ErrorCode
from ....codecs.errors import LimitExceeded, Malformed, WireError
from ....codecs.old_formats.lowering import UNPACKED_BYTES_MAX, AbortedTransaction, Lowered, lowering
from ....codecs.steps import STEP_RECORDS, Steps
from ....reactor import Buffer
from ..fields import INT32, INT64, Reader
from .error_codes import OF_0_10_2, known_code
from .layouts import ENTRIES_PER_STEP
from .list_offsets import REQUEST_BYTES_MAX, partition_entries
from .positions import KEPT_BYTES_MAX, FetchPositions, KeptBatch, Partition, ReadPosition

RAISED_VERSION_MAX: Final = 3
FETCH_BYTES_MAX: Final = 50 << 20
"""Of one answer: what clients of later versions ask for by default. v0 to v2 have no limit for the whole answer, and a
consumer of hundreds of partitions allows each of them a megabyte. What is left out comes first the next time."""

_CONSUMER: Final = -1
_MAGIC: Final = {0: 0, 1: 0, 2: 1, 3: 1}
"""Message format by version: v2 came with format v1 (KIP-31, KIP-32)."""
_WITH_ZSTD, _WITH_BATCHES = 10, 4
BROKER_VERSIONS: Final = (_WITH_ZSTD, _WITH_BATCHES)
"""Versions that requests are raised to, the best one first."""
_HAS_THROTTLE_FROM: Final = 1
_HAS_BYTES_MAX_FROM: Final = 3

_REQUEST_HEAD = Struct(">iii")
_RAISED_HEAD = Struct(">iiiib")
_REQUEST_PARTITION = Struct(">iqi")
_REQUEST_PARTITION_OF_10 = Struct(">iiqqi")
_NO_SESSION = Struct(">ii").pack(0, -1)
_NO_LEADER_EPOCH: Final = -1
_NO_LOG_START: Final = -1
_NO_OFFSET: Final = -1
_NO_FORGOTTEN_TOPICS = INT32.pack(0)
_ERROR_AND_SESSION = Struct(">hi")
_ANSWER_PARTITION = {_WITH_BATCHES: Struct(">ihqq"), _WITH_ZSTD: Struct(">ihqqq")}
_LOWERED_PARTITION = Struct(">ihqi")
_ABORTED = Struct(">qq")
_ARRAY_AND_RECORDS_BYTES_MIN: Final = 2 * INT32.size
_TOPIC_BYTES_MIN: Final = 6


@dataclass(frozen=True, slots=True)
class FurtherFetch:
    """The broker has to be asked again before the client is answered: it sent nothing that this client can read."""

    bodies: Sequence[Buffer]
    """As of ``RaisedFetch.requests``."""
    max_wait_ms: int
    """How long the broker waits for records: what is left of the client's own max_wait."""


class RefusedRecords(NamedTuple):
    """Records of a partition that can not be lowered, for the log."""

    topic: str
    partition: int
    offset: int
    reason: str


class _AskedPartition(NamedTuple):
    offset: int
    bytes_max: int


class RaisedFetch:
    """One request, and its answer made of the answers to one or more."""

    __slots__ = (
        "_asked",
        "_bytes_max",
        "_client_version",
        "_is_committed",
        "_kept",
        "_max_wait_ms",
        "_min_bytes",
        "_positions",
        "_unpacked_bytes_max",
        "_widened",
        "broker_version",
        "messages_without_headers",
        "refused",
    )

    def __init__(
        self,
        client_version: int,
        positions: FetchPositions,
        *,
        broker_version: int = _WITH_ZSTD,
        committed: bool = False,
        unpacked_bytes_max: int = UNPACKED_BYTES_MAX,
    ) -> None:
        """``positions``: of the connection, for all of its fetches. ``broker_version``: one of ``BROKER_VERSIONS``.
        ``committed``: records of open and aborted transactions are left out; Kafka gave them to such clients.
        ``unpacked_bytes_max``: of one batch."""
        assert 0 <= client_version <= RAISED_VERSION_MAX
        assert broker_version in BROKER_VERSIONS
        self.broker_version = broker_version
        self._client_version = client_version
        self._positions = positions
        self._is_committed = committed
        self._unpacked_bytes_max = unpacked_bytes_max
        self._asked: dict[Partition, _AskedPartition] = {}
        self._widened: set[Partition] = set()
        self._kept: KeptBatch | None = None
        self._max_wait_ms = self._min_bytes = 0
        self._bytes_max = FETCH_BYTES_MAX
        self.messages_without_headers: dict[str, int] = {}
        """Topic -> messages in the answer whose record had headers, which are lost."""
        self.refused: list[RefusedRecords] = []
        """What the client gets an error for that does not come from the broker."""

    def requests(self, body: Buffer) -> Steps[Sequence[Buffer]]:
        """The body for the broker. LimitExceeded above ``REQUEST_BYTES_MAX``; WireError for garbage.

        The replica id is a consumer's, whatever the client says: for a replica the leader would move its high
        watermark.
        """
        if len(body) > REQUEST_BYTES_MAX:
            raise LimitExceeded(f"Fetch: {len(body)} bytes, the limit is {REQUEST_BYTES_MAX} bytes")
        reader = Reader(body)
        _, max_wait_ms, self._min_bytes = reader.unpack(_REQUEST_HEAD, "replica_id, max_wait_ms and min_bytes")
        self._max_wait_ms = max(max_wait_ms, 0)
        if self._client_version >= _HAS_BYTES_MAX_FROM:
            self._bytes_max = min(reader.int32("max_bytes"), FETCH_BYTES_MAX)
        for topic, partition in partition_entries(reader, _REQUEST_PARTITION):
            if partition is None:
                yield
                continue
            number, offset, bytes_max = partition
            self._asked[topic, number] = _AskedPartition(offset, bytes_max)
        kept = self._positions.kept
        asked = self._asked.get(kept.partition) if kept else None
        if kept and asked and asked.offset == kept.offset:
            self._kept, self._positions.kept = kept, None
        return [(yield from self._request(0 if self._kept else self._max_wait_ms))]

    def response(self, bodies: Sequence[Buffer], elapsed_ms: int = 0) -> Steps[Buffer | FurtherFetch]:
        """The answer in the client's version, or what the broker has to be asked before there is one. ``bodies``: the
        broker's answer, to the last request. ``elapsed_ms``: since the client's request. WireError for
        garbage."""
        (body,) = bodies
        answer = _Answer(body, self.broker_version, self._client_version, self._kept)
        if answer.error_code != ErrorCode.NONE:
            return (yield from self._refused(answer))
        is_empty, is_moved = True, False
        entries = 0
        while (partition := answer.next_partition()) is not None:
            entries += 1
            if not entries % ENTRIES_PER_STEP:
                yield
            asked = self._asked.get(partition.place)
            if asked is None:
                raise Malformed(f"partition {partition.number} was not asked for")
            position = self._positions.of(partition.place, asked.offset)
            room = self._bytes_max - answer.records_bytes
            if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and position.next_offset != asked.offset:
                # The log was cut off below the place that was kept. What the client asked for may still be in it.
                self._positions.forget(partition.place)
                answer.put_nothing(partition, self._is_committed)
                is_moved = True
            elif partition.error_code != ErrorCode.NONE:
                self._positions.forget(partition.place)
                answer.put_error(partition, known_code(partition.error_code, OF_0_10_2), self._is_committed)
                is_empty = False
            elif room <= 0 < answer.records_bytes:
                self._note_left_out(partition, position)
                answer.put_nothing(partition, self._is_committed)
            else:
                room = max(min(asked.bytes_max, room), 0)
                lowered = yield from self._lowering(answer, partition, position, room)
                if lowered is not None and lowered.cut_at >= 0:
                    self._keep(partition, lowered, asked.bytes_max)
                is_empty &= lowered is not None and lowered.last_offset < 0
                is_moved |= lowered is not None and self._note(partition, position, lowered)
        left_ms = self._max_wait_ms - max(elapsed_ms, 0)
        if is_empty and is_moved and left_ms > 0:
            return FurtherFetch([(yield from self._request(left_ms))], left_ms)
        return answer.finished()

    def _request(self, max_wait_ms: int) -> Steps[bytearray]:
        """The body for the broker, with the partitions first that have to be, without the one of which a batch is kept.

        They take their topics along: the broker would answer a topic that is named twice with two entries, of which
        sarama keeps the last one alone.
        """
        first: dict[bytes, bytearray] = {}
        others: dict[bytes, bytearray] = {}
        entry = b""
        for number, ((topic, partition), asked) in enumerate(self._asked.items(), 1):
            if self._kept and self._kept.partition == (topic, partition):
                continue
            position = self._positions.of((topic, partition), asked.offset)
            topics = first if position.is_first else others
            bytes_max = max(asked.bytes_max, position.bytes_min)
            if self.broker_version == _WITH_ZSTD:
                fields = (partition, _NO_LEADER_EPOCH, position.next_offset, _NO_LOG_START, bytes_max)
                entry = _REQUEST_PARTITION_OF_10.pack(*fields)
            else:
                entry = _REQUEST_PARTITION.pack(partition, position.next_offset, bytes_max)
            topics.setdefault(topic, bytearray()).extend(entry)
            if not number % ENTRIES_PER_STEP:
                yield
        head = (_CONSUMER, max_wait_ms, self._min_bytes, self._bytes_max, self._is_committed)
        request = bytearray(_RAISED_HEAD.pack(*head))
        if self.broker_version == _WITH_ZSTD:
            request += _NO_SESSION
        request += INT32.pack(len(first.keys() | others.keys()))
        for topics in (first, others):
            for number, (topic, partitions) in enumerate(topics.items(), 1):
                if topics is first:
                    partitions += others.pop(topic, b"")
                request += topic + INT32.pack(len(partitions) // len(entry)) + partitions
                if not number % ENTRIES_PER_STEP:
                    yield
        if self.broker_version == _WITH_ZSTD:
            request += _NO_FORGOTTEN_TOPICS
        return request

    def _refused(self, answer: _Answer) -> Steps[Buffer]:
        """An error of the whole fetch, which lower versions have for each partition."""
        error_code = known_code(answer.error_code, OF_0_10_2)
        topics: dict[bytes, bytearray] = {}
        for number, (topic, partition) in enumerate(self._asked, 1):
            entry = _LOWERED_PARTITION.pack(partition, error_code, _NO_OFFSET, 0)
            topics.setdefault(topic, bytearray()).extend(entry)
            if not number % ENTRIES_PER_STEP:
                yield
        out = answer.beginning(len(topics))
        for number, (topic, partitions) in enumerate(topics.items(), 1):
            out += topic + INT32.pack(len(partitions) // _LOWERED_PARTITION.size) + partitions
            if not number % ENTRIES_PER_STEP:
                yield
        return out

    def _lowering(
        self, answer: _Answer, partition: _Partition, position: ReadPosition, bytes_max: int
    ) -> Steps[Lowered | None]:
        """Put one partition with its records. None: they can not be lowered, and it got an error."""
        aborted = (yield from _aborted_of(partition.aborted)) if self._is_committed else ()
        start = answer.begin_records(partition, self._is_committed)
        try:
            lowered = yield from lowering(
                partition.records,
                position.next_offset,
                answer.out,
                magic=_MAGIC[self._client_version],
                bytes_max=bytes_max,
                aborted=aborted,
                unpacked_bytes_max=self._unpacked_bytes_max,
            )
            if lowered.bytes_wanted and partition.place in self._widened:
                raise LimitExceeded(f"Fetch: the broker sent a part of a batch of {lowered.bytes_wanted} bytes")
        except WireError as error:
            answer.drop_records(start)
            self._positions.forget(partition.place)
            refused = RefusedRecords(partition.topic, partition.number, position.next_offset, str(error))
            self.refused.append(refused)
            answer.put_error(partition, _code_of(error), self._is_committed)
            return None
        answer.end_records(start)
        if lowered.messages_without_headers:
            lost = self.messages_without_headers
            lost[partition.topic] = lost.get(partition.topic, 0) + lowered.messages_without_headers
        return lowered

    def _note(self, partition: _Partition, position: ReadPosition, lowered: Lowered) -> bool:
        """Keep where the next fetch of a partition begins. Return whether the broker would send more if it were asked
        again now."""
        place = partition.place
        if lowered.last_offset >= 0:
            self._positions.note(place, ReadPosition(lowered.last_offset + 1, lowered.next_offset))
        elif lowered.next_offset > position.next_offset:
            self._positions.note(place, ReadPosition(position.asked, lowered.next_offset))
            return True
        elif lowered.bytes_wanted:
            self._widened.add(place)
            self._positions.note(place, position._replace(bytes_min=lowered.bytes_wanted, is_first=True))
            return True
        else:
            self._note_left_out(partition, position)
        return False

    def _keep(self, partition: _Partition, lowered: Lowered, bytes_max: int) -> None:
        """Keep the batch of which the client's set has not all records, if more than one fetch is needed for it."""
        size_at = lowered.cut_at + INT64.size
        size_bytes = size_at + INT32.size - lowered.cut_at + INT32.unpack_from(partition.records, size_at)[0]
        if bytes_max < size_bytes <= KEPT_BYTES_MAX:
            batch = bytes(partition.records[lowered.cut_at : lowered.cut_at + size_bytes])
            self._positions.kept = KeptBatch(
                partition.place, lowered.next_offset, batch, partition.high_watermark, partition.last_stable_offset
            )

    def _note_left_out(self, partition: _Partition, position: ReadPosition) -> None:
        """Of a partition without records: ask for it first if it has some."""
        is_left_out = position.next_offset < partition.end_offset(self._is_committed)
        self._positions.note(partition.place, position._replace(is_first=is_left_out))


def _code_of(error: WireError) -> ErrorCode:
    """The error code for records that can not be lowered.

    Not UNKNOWN_SERVER_ERROR: Java's consumer (``Fetcher`` of 0.9 to 0.11) and kafka-python 1 then log a warning and
    fetch the same again, at once and for ever. At any other code that they do not expect in a fetch answer they raise
    an error to the application, and librdkafka and sarama hand it on. These two say what is wrong.
    """
    return ErrorCode.MESSAGE_TOO_LARGE if isinstance(error, LimitExceeded) else ErrorCode.CORRUPT_MESSAGE


def _aborted_of(listed: memoryview) -> Steps[list[AbortedTransaction]]:
    aborted: list[AbortedTransaction] = []
    for start in range(0, len(listed), STEP_RECORDS * _ABORTED.size):
        entries: Iterable[tuple[int, int]] = _ABORTED.iter_unpack(listed[start : start + STEP_RECORDS * _ABORTED.size])
        aborted += [AbortedTransaction(first_offset, producer_id) for producer_id, first_offset in entries]
        yield
    return aborted


class _Partition(NamedTuple):
    """Of the broker's answer."""

    place: Partition
    number: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    aborted: memoryview
    records: memoryview

    @property
    def topic(self) -> str:
        return self.place[0][2:].decode(errors="replace")

    def end_offset(self, committed: bool) -> int:
        """What the client is shown as the end of the log."""
        return self.last_stable_offset if committed and self.last_stable_offset >= 0 else self.high_watermark


class _Answer:
    """The broker's answer as it is read, and the client's as it is written. ``records_bytes``: of all sets so far."""

    __slots__ = (
        "_kept",
        "_layout",
        "_partitions_left",
        "_reader",
        "_throttle",
        "_topic",
        "_topics_left",
        "error_code",
        "out",
        "records_bytes",
    )

    def __init__(self, body: Buffer, broker_version: int, client_version: int, kept: KeptBatch | None) -> None:
        """``kept``: a batch that the broker was not asked for, and which is read as if it had sent it."""
        self._kept = kept
        self._reader = reader = Reader(body)
        self._layout = _ANSWER_PARTITION[broker_version]
        throttle = reader.take(INT32.size, "throttle_time_ms")
        self._throttle = bytes(throttle) if client_version >= _HAS_THROTTLE_FROM else b""
        self.error_code: int = ErrorCode.NONE
        if broker_version == _WITH_ZSTD:
            self.error_code, _ = reader.unpack(_ERROR_AND_SESSION, "error_code and session_id")
        self._topics_left = reader.count("responses", _TOPIC_BYTES_MIN)
        self.out = self.beginning(self._topics_left)
        self._partitions_left = 0
        self._topic = b""
        self.records_bytes = 0

    def beginning(self, topics: int) -> bytearray:
        """What is in front of so many topics in the client's answer."""
        return bytearray(self._throttle) + INT32.pack(topics)

    def next_partition(self) -> _Partition | None:
        """Read the next one; None after the last. The topics in front of it are written."""
        reader = self._reader
        while not self._partitions_left:
            if not self._topics_left:
                reader.finish()
                return self._put_kept_topic()
            self._topics_left -= 1
            start = reader.position
            reader.take(reader.int16("topic"), "topic")
            self._topic = bytes(reader.data[start : reader.position])
            self._partitions_left = reader.count("partitions", self._layout.size + _ARRAY_AND_RECORDS_BYTES_MIN)
            is_kept = self._kept is not None and self._kept.partition[0] == self._topic
            self.out += self._topic + INT32.pack(self._partitions_left + is_kept)
            if is_kept:
                return self._taken()
        self._partitions_left -= 1
        number, error_code, high_watermark, last_stable_offset, *_ = reader.unpack(self._layout, "partition")
        count = reader.count("aborted_transactions", _ABORTED.size, null_is=0)
        aborted = reader.take(count * _ABORTED.size, "aborted_transactions")
        records = reader.nullable_bytes("records")
        if records is None:
            records = memoryview(b"")
        place = (self._topic, number)
        return _Partition(place, number, error_code, high_watermark, last_stable_offset, aborted, records)

    def _put_kept_topic(self) -> _Partition | None:
        """Write one topic more if the broker's answer has not that of the kept batch."""
        if self._kept is None:
            return None
        at = len(self._throttle)
        INT32.pack_into(self.out, at, INT32.unpack_from(self.out, at)[0] + 1)
        self.out += self._kept.partition[0] + INT32.pack(1)
        return self._taken()

    def _taken(self) -> _Partition:
        assert self._kept is not None
        place, _, batch, high_watermark, last_stable_offset = self._kept
        self._kept = None
        nothing = memoryview(b"")
        return _Partition(place, place[1], 0, high_watermark, last_stable_offset, nothing, memoryview(batch))

    def put_error(self, partition: _Partition, error_code: int, committed: bool) -> None:
        """Write a partition that has an error in place of records."""
        self.out += _LOWERED_PARTITION.pack(partition.number, error_code, partition.end_offset(committed), 0)

    def put_nothing(self, partition: _Partition, committed: bool) -> None:
        """Write a partition that gets no records this time."""
        self.put_error(partition, ErrorCode.NONE, committed)

    def begin_records(self, partition: _Partition, committed: bool) -> int:
        """Write what is in front of the records, which ``out`` gets next; return where they begin."""
        self.put_nothing(partition, committed)
        return len(self.out)

    def drop_records(self, start: int) -> None:
        """Take back what is written of the partition whose records begin there."""
        del self.out[start - _LOWERED_PARTITION.size :]

    def end_records(self, start: int) -> None:
        """Write the size of the records that begin there."""
        size_bytes = len(self.out) - start
        INT32.pack_into(self.out, start - INT32.size, size_bytes)
        self.records_bytes += size_bytes

    def finished(self) -> bytearray:
        """The client's answer."""
        return self.out
