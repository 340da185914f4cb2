"""ListOffsets v0 to v1: a list of offsets for each partition becomes one offset, and back.

v0 asks for up to max_num_offsets offsets, the highest first: starts of segments, and the end for latest. v1 has one
offset, by the records' time stamps instead of the files' (KIP-79). The list is made of what v1 can say: the offset that
was asked for, then the first one of the log where two or more were asked for. So up to three requests leave for one:

- what was asked for;
- earliest, for the partitions where two or more offsets are wanted;
- latest, for the partitions that are asked about by time: no record of that time or later means that the list begins
  with the end, as v0 says for a time in the future.

By time, the offset is exact: the first record of that time or later. In v0 it was the start of a segment file that was
last written before; no client could want that one. Lost: starts of segments between the first and the last offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from ....codecs.error_codes import ErrorCode
from ....codecs.errors import LimitExceeded, Malformed
from ....codecs.steps import Steps
from ....reactor import Buffer
from ...versions import KAFKA_4_FROM, ApiKey
from ..fields import INT32, INT64, Reader
from .error_codes import OF_0_10_2, known_code
from .layouts import ENTRIES_PER_STEP

REQUEST_BYTES_MAX: Final = 1 << 20
"""65,000 partitions; all of them are kept until the answers are there."""
LATEST: Final = -1
EARLIEST: Final = -2
_ASKED = Struct(">iqi")
_PARTITION_AND_TIMESTAMP = Struct(">iq")
_ANSWER = Struct(">ihqq")
_PARTITION_AND_ERROR = Struct(">ih")
_TOPIC_BYTES_MIN = 6


_Place = tuple[bytes, int]
"""A topic's name as it stands in the request, with its length, and a partition."""


class _WantedOffsets(NamedTuple):
    timestamp: int
    offsets_max: int


def _is_not_first(asked: _WantedOffsets) -> bool:
    return asked.offsets_max > 1 and asked.timestamp != EARLIEST


def _is_by_time(asked: _WantedOffsets) -> bool:
    return asked.offsets_max > 0 and asked.timestamp >= 0


_FURTHER: Final[Sequence[tuple[int, Callable[[_WantedOffsets], bool]]]] = (
    (EARLIEST, _is_not_first),
    (LATEST, _is_by_time),
)
"""What else is asked for, and for which partitions."""


class RaisedListOffsets:
    """One request, and its answer made of up to three."""

    __slots__ = ("_asked", "_further")

    broker_version: Final = KAFKA_4_FROM[ApiKey.LIST_OFFSETS]

    def __init__(self) -> None:
        self._asked: dict[_Place, _WantedOffsets] = {}
        self._further: list[int] = []

    def requests(self, body: Buffer) -> Steps[Sequence[Buffer]]:
        """One to three bodies of v1. LimitExceeded above ``REQUEST_BYTES_MAX``; WireError for garbage."""
        if len(body) > REQUEST_BYTES_MAX:
            raise LimitExceeded(f"ListOffsets: {len(body)} bytes, the limit is {REQUEST_BYTES_MAX} bytes")
        self._asked, self._further = {}, []  # long work may begin twice
        reader = Reader(body)
        replica_id = reader.take(INT32.size, "replica_id")
        asked = bytearray(body[: 2 * INT32.size])
        for topic, partition in partition_entries(reader, _ASKED, asked):
            if partition is None:
                yield
                continue
            number, timestamp, offsets_max = partition
            self._asked[topic, number] = _WantedOffsets(timestamp, offsets_max)
            asked += _PARTITION_AND_TIMESTAMP.pack(number, timestamp)
        bodies: list[Buffer] = [asked]
        for timestamp, is_wanted in _FURTHER:
            further = yield from self._further_request(replica_id, timestamp, is_wanted)
            if further is not None:
                self._further.append(timestamp)
                bodies.append(further)
        return bodies

    def response(self, bodies: Sequence[Buffer], elapsed_ms: int = 0) -> Steps[Buffer]:
        """The answer of v0, made of the answers of v1 in the order of the requests. WireError for garbage."""
        assert len(bodies) == 1 + len(self._further), "an answer for each request"
        further: dict[int, dict[_Place, int]] = {EARLIEST: {}, LATEST: {}}
        for timestamp, body in zip(self._further, bodies[1:], strict=True):
            further[timestamp] = yield from _offsets(body)
        reader = Reader(bodies[0])
        out = bytearray(bodies[0][: INT32.size])
        for topic, partition in partition_entries(reader, _ANSWER, out):
            if partition is None:
                yield
                continue
            number, code, _, offset = partition
            place = (topic, number)
            asked = self._asked.get(place)
            if asked is None:
                raise Malformed(f"partition {number} before {reader.position} was not asked about")
            found: list[int] = []
            if code == ErrorCode.NONE:
                found = _list(asked, offset, further[EARLIEST].get(place), further[LATEST].get(place))
            out += _PARTITION_AND_ERROR.pack(number, known_code(code, OF_0_10_2))
            out += INT32.pack(len(found))
            out += b"".join(map(INT64.pack, found))
        return out

    def _further_request(
        self, replica_id: Buffer, timestamp: int, is_wanted: Callable[[_WantedOffsets], bool]
    ) -> Steps[bytearray | None]:
        """The request for another offset of the partitions where it is wanted. None: of none."""
        by_topic: dict[bytes, bytearray] = {}
        for number, ((topic, partition), asked) in enumerate(self._asked.items(), 1):
            if is_wanted(asked):
                by_topic.setdefault(topic, bytearray()).extend(_PARTITION_AND_TIMESTAMP.pack(partition, timestamp))
            if number % ENTRIES_PER_STEP == 0:
                yield
        if not by_topic:
            return None
        request = bytearray(replica_id) + INT32.pack(len(by_topic))
        for number, (topic, partitions) in enumerate(by_topic.items(), 1):
            request += topic + INT32.pack(len(partitions) // _PARTITION_AND_TIMESTAMP.size) + partitions
            if number % ENTRIES_PER_STEP == 0:
                yield
        return request


def _list(asked: _WantedOffsets, offset: int, earliest: int | None, latest: int | None) -> list[int]:
    """The offsets of one partition, the highest first. None: not asked for, or not to be had."""
    found = {offset if offset >= 0 else latest, earliest}
    return sorted((one for one in found if one is not None), reverse=True)[: max(asked.offsets_max, 0)]


def partition_entries(
    reader: Reader, layout: Struct, out: bytearray | None = None
) -> Iterator[tuple[bytes, tuple[Any, ...] | None]]:
    """Yield each partition of the topics that follow, up to the end of the body: the topic's name, with its length, and
    the partition's fields. None for the fields: a step is over. ``out`` gets the names and numbers of partitions."""
    done = 0
    for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
        start = reader.position
        reader.take(reader.int16("topic name"), "topic name")
        topic = bytes(reader.data[start : reader.position])
        count = reader.count("partitions", layout.size)
        if out is not None:
            out += reader.data[start : reader.position]
        for entry in range(count + 1):  # the topic counts as well
            done += 1
            if done % ENTRIES_PER_STEP == 0:
                yield topic, None
            if entry:
                yield topic, reader.unpack(layout, "partition")
    reader.finish()


def _offsets(body: Buffer) -> Steps[dict[_Place, int]]:
    """The offsets in an answer of v1, of those partitions that have one."""
    found: dict[_Place, int] = {}
    for topic, partition in partition_entries(Reader(body), _ANSWER):
        if partition is None:
            yield
            continue
        number, code, _, offset = partition
        if code == ErrorCode.NONE and offset >= 0:
            found[topic, number] = offset
    return found
