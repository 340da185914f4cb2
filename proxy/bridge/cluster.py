"""The cluster as a broker tells it, as frozen data.

The partitions of a topic stay the bytes that the broker sent: a large cluster has tens of thousands of them, and of
nearly all only the leader is asked for. Their layout is the same in Metadata v0 to v4, so one comparison of bytes shows
that nothing has changed, and the bytes go out to clients as they came. Source: MetadataResponse (protocol guide).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from struct import Struct, pack
from struct import error as StructError

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import Malformed, Truncated
from ...codecs.steps import Steps, at_once
from ..limits import METADATA_ROWS_PER_STEP
from .fields import INT32, Reader

NO_BROKER = -1
_LED = (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE)
"""Codes of a partition that has a leader."""
_ROW_BYTES_MIN = 18
_HEAD = Struct(">hii")
_HEAD_AND_COUNT = Struct(">hiii")


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker as it names itself."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """``leader`` -1: there is none now."""

    error_code: int
    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    def encode(self) -> bytes:
        """Its bytes in Metadata v0 to v4."""
        replicas, isr = self.replicas, self.isr
        layout = f">hiii{len(replicas)}ii{len(isr)}i"
        return pack(layout, self.error_code, self.index, self.leader, len(replicas), *replicas, len(isr), *isr)


@dataclass(frozen=True, slots=True)
class Rows:
    """The partitions of one topic. ``body``: their array with its length in front, in the broker's order, which is not
    sorted. ``leaders``: leader by partition index, -1: none. ``reported``: the leaders of all partitions without an
    error code. ``is_plain``: no partition has an error code that only v0 may tell (REPLICA_NOT_AVAILABLE)."""

    body: bytes
    leaders: Mapping[int, int] = field(default_factory=dict, compare=False, repr=False)
    reported: frozenset[int] = field(default=frozenset(), compare=False, repr=False)
    is_plain: bool = field(default=True, compare=False, repr=False)

    def __iter__(self) -> Iterator[Partition]:
        reader = Reader(self.body)
        for _ in range(reader.count("partitions", _ROW_BYTES_MIN)):
            error_code, index, leader = reader.unpack(_HEAD, "partition")
            yield Partition(error_code, index, leader, reader.int32_array("replicas"), reader.int32_array("isr"))


NO_ROWS = Rows(bytes(4))


class Topic:
    """One topic, never changed. ``partitions``: in the broker's order."""

    __slots__ = ("error_code", "is_internal", "name", "rows")

    def __init__(
        self, name: str, error_code: int, is_internal: bool, partitions: Iterable[Partition] | Rows = NO_ROWS
    ) -> None:
        self.name = name
        self.error_code = error_code
        self.is_internal = is_internal
        self.rows = partitions if isinstance(partitions, Rows) else _rows_of(partitions)

    @property
    def has_leaders(self) -> bool:
        """Has every partition one? A topic that is being created has no partitions yet."""
        leaders = self.rows.leaders
        return bool(leaders) and NO_BROKER not in leaders.values()

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Taken apart again each time."""
        return tuple(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Topic) and self._all == other._all

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, {self.error_code}, {self.is_internal}, {self.partitions!r})"

    @property
    def _all(self) -> tuple[str, int, bool, Rows]:
        return self.name, self.error_code, self.is_internal, self.rows


@dataclass(frozen=True, slots=True)
class Cluster:
    """What one broker reported. ``cluster_id`` None: it reported none (before 0.10.1); ``controller_id`` None: before
    0.10.0, or not known to it."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerAddress] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)


def read_rows(reader: Reader) -> Steps[Rows]:
    """Read the array of partitions that comes next. Raises Truncated or Malformed for garbage; allocates by the bytes
    that are there, never by a length that is only announced."""
    body, start = reader.data, reader.position
    count = reader.count("partitions", _ROW_BYTES_MIN)
    leaders: dict[int, int] = {}
    reported: set[int] = set()
    is_plain, has_null = True, False
    at = reader.position
    try:
        for number in range(count):
            if number and number % METADATA_ROWS_PER_STEP == 0:
                yield
            error_code, index, leader, replicas = _HEAD_AND_COUNT.unpack_from(body, at)
            at += _HEAD_AND_COUNT.size
            at, has_null = (
                (at + INT32.size * replicas, has_null) if replicas >= 0 else (_behind_null(replicas, at), True)
            )
            (isr,) = INT32.unpack_from(body, at)
            at += INT32.size
            at, has_null = (at + INT32.size * isr, has_null) if isr >= 0 else (_behind_null(isr, at), True)
            leaders[index] = leader
            if error_code == ErrorCode.NONE:
                reported.add(leader)
            elif error_code == ErrorCode.REPLICA_NOT_AVAILABLE:
                is_plain = False
    except StructError as error:
        raise Truncated(f"partitions: they end before {at}") from error
    reader.position = start
    rows = Rows(bytes(reader.take(at - start, "partitions")), leaders, frozenset(reported), is_plain)
    return _rows_of(rows) if has_null else rows


def told_rows(version: int, rows: Rows, alive: frozenset[int]) -> Steps[bytes]:
    """Encode partitions for a client that reaches the brokers ``alive``, in Metadata ``version``. A partition whose
    leader is not among them gets LEADER_NOT_AVAILABLE, which makes the client ask again."""
    if rows.is_plain and rows.reported <= alive:
        return rows.body
    body, at = bytearray(rows.body), INT32.size
    for number in range(INT32.unpack_from(body)[0]):
        if number and number % METADATA_ROWS_PER_STEP == 0:
            yield
        error_code, index, leader, replicas = _HEAD_AND_COUNT.unpack_from(body, at)
        if leader not in alive and error_code in _LED:
            _HEAD.pack_into(body, at, ErrorCode.LEADER_NOT_AVAILABLE, index, NO_BROKER)
        elif version >= 1 and error_code == ErrorCode.REPLICA_NOT_AVAILABLE:
            # Said in v0 only: in later versions it makes new clients ask again without end.
            _HEAD.pack_into(body, at, ErrorCode.NONE, index, leader)
        at += _HEAD_AND_COUNT.size + INT32.size * replicas
        at += INT32.size + INT32.size * INT32.unpack_from(body, at)[0]
    return bytes(body)


def _behind_null(count: int, at: int) -> int:
    """Return the position after a negative length of a list: null (-1) is taken for an empty list. Raises Malformed for
    others."""
    if count != -1:
        raise Malformed(f"partitions: a list of {count} before {at}")
    return at


def _rows_of(partitions: Iterable[Partition]) -> Rows:
    encoded = [partition.encode() for partition in partitions]
    return at_once(read_rows(Reader(INT32.pack(len(encoded)) + b"".join(encoded))))
