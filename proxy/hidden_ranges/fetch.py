"""A fetch from whose answer hidden ranges are left out: a bridge in front of Fetch's own.

Only partitions with hidden ranges are looked into. A consumer whose whole answer was left out asks again with the same
offset; that fetch then begins after what was left out, so that the consumer never stands still, in any version of
Fetch. The same holds where everything that is left lies below its offset, such as the first records of a wrapper, which
it has read already.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from operator import itemgetter
from struct import Struct, pack_into

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import LimitExceeded
from ...codecs.without_ranges import CUT_BYTES_MAX, entry_at
from ...reactor import Buffer
from ...state.hidden_ranges import OFFSET_MAX
from .. import limits
from ..bridge.base import Bridge, Chunks, RequestRefused
from ..bridge.fields import INT32, INT64, Reader
from .known import KnownHiddenRanges, Place, Skips
from .leaving_out import LeavingOut

_TOPICS_AT = {0: 12, 1: 12, 2: 12, 3: 16, 4: 17, 5: 17, 6: 17}
_TOPIC_BYTES_MIN = 6
_ABORTED = Struct(">qq")
_ANSWER_PARTITION_HEAD = Struct(">ihq")
_FETCH_OFFSET_AT = 4
_LOG_START_OFFSET_SINCE = 5
_STABLE_OFFSET_SINCE = 4
_THROTTLE_SINCE = 1
_TAKES_WHOLE_MESSAGE_SINCE = 3
"""From this version on a broker's answer has the first message whole, however large it is (KIP-74)."""


# R24 lives here: what was named is left out, and nothing else; no consumer stands still.
class FetchWithoutHiddenRanges:
    """One fetch. ``inner``: what translates it between the client's version and the broker's. ``skips``: of its
    client."""

    __slots__ = ("_client_version", "_fetched", "_inner", "_known", "_leaving_out", "_moved", "_skips")

    def __init__(self, inner: Bridge, client_version: int, known: KnownHiddenRanges, skips: Skips) -> None:
        self._inner = inner
        self._client_version = client_version
        self._known = known
        self._skips = skips
        self._fetched: dict[Place, int] = {}
        """Partitions with hidden ranges that are fetched, and the client's fetch offset."""
        self._moved: set[Place] = set()
        """Those of them that are fetched at another offset than the client's (``Skips``)."""
        self._leaving_out = LeavingOut()

    @property
    def broker_version(self) -> int:
        """The inner one's."""
        return self._inner.broker_version

    def request(self, body: memoryview) -> Chunks | RequestRefused:
        """The same request, with another fetch offset where everything that comes next is left out, and with smaller
        limits of bytes where all partitions are to fit into one step. Raises LimitExceeded above
        ``HIDDEN_RANGES_FETCH_REQUEST_BYTES_MAX``."""
        return self._inner.request(self._looked_at(body))

    def _looked_at(self, body: memoryview) -> memoryview:
        if len(body) > limits.HIDDEN_RANGES_FETCH_REQUEST_BYTES_MAX:
            raise LimitExceeded(
                f"Fetch: {len(body)} bytes, the limit is {limits.HIDDEN_RANGES_FETCH_REQUEST_BYTES_MAX} while there "
                "are hidden ranges"
            )
        rewritten: bytearray | None = None
        limited: list[tuple[int, int]] = []
        version = self._client_version
        has_log_start = version >= _LOG_START_OFFSET_SINCE
        reader = Reader(body, min(_TOPICS_AT[version], len(body)))
        for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
            topic = reader.string("topic name")
            for _ in range(reader.count("partitions", INT32.size + INT64.size + INT32.size)):
                at = reader.position
                partition, offset = reader.int32("partition"), reader.int64("fetch_offset")
                if has_log_start:
                    reader.int64("log_start_offset")
                bytes_max = reader.int32("partition_max_bytes")
                place, logs = (topic, partition), self._known.ranges_of(topic, partition)
                if all(offset > one.last_offset for one in logs):
                    self._skips.forget(place)
                    continue
                self._fetched[place] = offset
                rewritten = bytearray(body) if rewritten is None else rewritten
                begins_at = self._skips.begin(place, offset, logs)
                if begins_at != offset:
                    self._moved.add(place)
                    pack_into(">q", rewritten, at + _FETCH_OFFSET_AT, begins_at)
                limited.append((reader.position - INT32.size, bytes_max))
        if rewritten is None:
            return body
        share_bytes = max(
            limits.HIDDEN_RANGES_FETCH_BYTES_MAX // len(limited), limits.HIDDEN_RANGES_FETCH_SHARE_BYTES_MIN
        )
        for at, bytes_max in limited:
            if bytes_max > share_bytes and self.broker_version >= _TAKES_WHOLE_MESSAGE_SINCE:
                pack_into(">i", rewritten, at, share_bytes)
        return memoryview(rewritten)

    def response(self, body: memoryview) -> Chunks:
        """The broker's answer without what lies in the ranges."""
        return self._inner.response(self._without(body) if self._fetched else body)

    def _without(self, body: memoryview) -> memoryview:
        version = self.broker_version
        reader = Reader(body, INT32.size if version >= _THROTTLE_SINCE else 0)
        rows: list[tuple[Place, int, memoryview]] = []
        instead: list[tuple[int, int, tuple[Buffer, ...]]] = []
        for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
            topic = reader.string("topic name")
            for _ in range(reader.count("partitions", _ANSWER_PARTITION_HEAD.size + INT32.size)):
                head_at = reader.position
                partition, error_code, end = reader.unpack(_ANSWER_PARTITION_HEAD, "partition")
                if version >= _STABLE_OFFSET_SINCE:
                    reader.int64("last_stable_offset")
                    if version >= _LOG_START_OFFSET_SINCE:
                        reader.int64("log_start_offset")
                    for _ in range(reader.count("aborted transactions", _ABORTED.size, null_is=0)):
                        reader.unpack(_ABORTED, "aborted transaction")
                at = reader.position
                records = reader.nullable_bytes("records")
                place = topic, partition
                if place not in self._fetched:
                    continue
                if error_code:
                    # The log may be another one than it was.
                    self._skips.forget(place)
                    if error_code == ErrorCode.OFFSET_OUT_OF_RANGE and place in self._moved:
                        # It was not the client's own offset that is out of range.
                        head = _ANSWER_PARTITION_HEAD.pack(partition, 0, end)
                        instead.append((head_at, head_at + len(head), (head,)))
                if records is not None:
                    rows.append((place, at, records))
        reader.finish()
        for place, at, records in self._skips.in_turn(rows):
            left = self._left_of(place, records)
            if left is not records:
                instead.append((at, at + INT32.size + len(records), (INT32.pack(len(left)), left)))
        return _with_pieces(body, sorted(instead, key=itemgetter(0)))

    def _left_of(self, place: Place, records: memoryview) -> memoryview:
        """What the client gets of a partition; where that is nothing new, its next fetch begins after it."""
        logs, offset = self._known.ranges_of(*place), self._fetched[place]
        if not logs:  # shown again since the request
            return records
        records, left = self._leaving_out.of(records, logs)
        if left is records:
            return records
        self._known.applied += 1
        if any(end > offset for end in _ends_in(left)):
            return left
        (end,) = deque(_ends_in(records), maxlen=1)
        self._skips.note(place, offset, end, logs)
        return left[:0]


def _with_pieces(body: memoryview, instead: Sequence[tuple[int, int, Sequence[Buffer]]]) -> memoryview:
    """Put pieces in the place of others, from one position up to another."""
    if not instead:
        return body
    chunks: list[Buffer] = []
    copied = 0
    for start, end, pieces in instead:
        chunks += (body[copied:start], *pieces)
        copied = end
    return memoryview(b"".join((*chunks, body[copied:])))


def _ends_in(records: Buffer) -> Iterator[int]:
    """Yield the offset after each message that is there as a whole. At the first one that cannot be read, yield
    ``OFFSET_MAX`` and end: it counts as new to every client."""
    position = 0
    while position < len(records):
        entry = entry_at(records, position)
        if entry is None:
            if len(records) - position >= CUT_BYTES_MAX:
                yield OFFSET_MAX
            return
        position = entry.end
        if position <= len(records):
            yield entry.offset + 1
