"""What takes several steps besides producing: who leads, a producer id, offsets, reading, what groups have committed.
Coroutines that await only the effects below; a shell performs these, by blocking or on trio. Pure: no sockets, no
clock."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..codecs.error_codes import ErrorCode
from ..producing.backoff import backoff_seconds
from ..producing.cluster import METADATA, METADATA_VERSIONS, Address, Cluster, cluster_of, metadata_fields
from ..producing.errors import ClientError
from ..producing.limits import THROTTLE_SECONDS_MAX
from ..producing.numbered_batch import Place, ProducerId
from ..values import value
from . import limits
from .errors import AuthenticationFailed, ConnectionFailed, OffsetOutOfRange, RequestRefused, UnsupportedServer
from .reading import records_from
from .records import CommittedOffset, Stopped, StoredRecord

FETCH, LIST_OFFSETS, INIT_PRODUCER_ID, DESCRIBE_PRODUCERS = 1, 2, 22, 61
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
_ALL_TOPICS_VERSIONS: Final = (1, 4)
"""From version 1 on a null list of topics means all of them."""
_FETCH_VERSIONS: Final = (0, 4)
"""Below version 7, which brings fetch sessions (KIP-227); 4 is the first one with record batches."""
_LIST_OFFSETS_VERSIONS: Final = (0, 1)
_INIT_PRODUCER_ID_VERSIONS: Final = (0, 1)
_DESCRIBE_PRODUCERS_VERSIONS: Final = (0, 0)
_FIND_COORDINATOR_VERSIONS: Final = (0, 1)
_OFFSET_COMMIT_VERSIONS: Final = (2, 4)
"""The versions in which a request has a retention time (KIP-211 has removed it from version 5)."""
_OFFSET_FETCH_VERSIONS: Final = (1, 3)
"""From version 1 on offsets are those of the group coordinator; version 0 reads them from ZooKeeper."""
_OF_NO_MEMBER: Final = {"generation_id_or_member_epoch": -1, "member_id": ""}
_PRODUCER_ID_TIMEOUT_MS: Final = 60_000
"""The transaction timeout in InitProducerId: without transactions it has no effect."""
LATEST, EARLIEST = -1, -2
"""Timestamps that ListOffsets takes for the end, and the start, of what consumers may read."""

_MOVED: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}
"""Errors after which the leader is looked for anew: another broker may serve the request, or this one soon."""


@value(frozen=True, slots=True)
class Ask:
    """Ask one server, over a connection that is kept. The result is the decoded answer. Raises ConnectionFailed,
    AuthenticationFailed, UnsupportedServer."""

    address: Address
    api_key: int
    versions: tuple[int, int]
    what: str
    fields: Mapping[str, Any]

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield self)


@value(frozen=True, slots=True)
class Sleep:
    """Wait for so many seconds."""

    seconds: float

    def __await__(self) -> Generator[Any, Any, None]:
        yield self


@value(frozen=True, slots=True)
class Now:
    """The result is the time in seconds, of a clock that never jumps."""

    def __await__(self) -> Generator[Any, Any, float]:
        now: float = yield self
        return now


Effect = Ask | Sleep | Now


class Servers:
    """Addresses to ask: those that were given, and the brokers that were named since."""

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        assert bootstrap
        self._bootstrap = tuple(bootstrap)
        self._named: tuple[Address, ...] = ()
        self._first: Address | None = None
        """The server to ask first: the one that answered last. After a request that no server answered it is the next
        one in turn, as a silent server may have used up all the time."""
        self.coordinators: dict[str, Address] = {}
        """By group: its coordinator, as found last."""

    def learned(self, cluster: Cluster) -> None:
        """These brokers can be asked, too."""
        self._named = tuple(cluster.brokers.values())

    def __iter__(self) -> Any:
        all_of_them = [*dict.fromkeys((*self._bootstrap, *self._named))]
        at = all_of_them.index(self._first) if self._first in all_of_them else 0
        return iter((*all_of_them[at:], *all_of_them[:at]))

    def answered(self, address: Address) -> None:
        """This server has answered: ask it first."""
        self._first = address

    def nobody_answered(self) -> None:
        """Begin the next request with another server."""
        _, *others = self
        self._first = others[0] if others else None


class _Tries:
    """Tries again with a growing pause, until the time is over."""

    def __init__(self, now: float, seconds_max: float) -> None:
        self._end = now + seconds_max
        self.failures = 0

    async def again_after(self, error: ClientError, seconds: float | None = None) -> None:
        """Wait for the next try. ``seconds``: for how long, if the server has said it. Raises the error when there is
        no time for another try."""
        pause = backoff_seconds(self.failures)
        if seconds is not None:
            pause = min(seconds, THROTTLE_SECONDS_MAX)
        self.failures += 1
        if await Now() + pause >= self._end:
            raise error
        await Sleep(pause)


async def _ask_any(
    servers: Servers, api_key: int, versions: tuple[int, int], what: str, fields: Mapping[str, Any]
) -> Any:
    """Return the answer of the first server that gives one. Raises the last ConnectionFailed where none does; at once
    AuthenticationFailed and UnsupportedServer."""
    failed: ConnectionFailed | None = None
    for address in servers:
        try:
            answer = await Ask(address, api_key, versions, what, fields)
        except AuthenticationFailed:
            raise
        except ConnectionFailed as error:
            failed = error
        else:
            servers.answered(address)
            return answer
    servers.nobody_answered()
    assert failed is not None
    raise failed


async def fetch_cluster(servers: Servers, topics: Iterable[str]) -> Cluster:
    """Return what the first server that answers says of these topics. One try. Raises what ``Ask`` raises."""
    found = cluster_of(await _ask_any(servers, METADATA, METADATA_VERSIONS, "Metadata", metadata_fields(topics)))
    servers.learned(found)
    return found


async def find_topics(servers: Servers, seconds_max: float) -> tuple[str, ...]:
    """Return the names of all topics. None is named, so that none is created. Raises what ``Ask`` raises."""
    fields = {"topics": None, "allow_auto_topic_creation": False}
    tries = _Tries(await Now(), seconds_max)
    while True:
        try:
            answer = await _ask_any(servers, METADATA, _ALL_TOPICS_VERSIONS, "Metadata", fields)
        except AuthenticationFailed:
            raise
        except ConnectionFailed as error:
            await tries.again_after(error)
        else:
            return tuple(sorted(cluster_of(answer).partitions))


async def find_partitions(servers: Servers, topic: str, seconds_max: float) -> tuple[int, ...]:
    """Return the partitions of a topic. Raises RequestRefused when there is no such topic, and what ``Ask`` raises."""
    tries = _Tries(await Now(), seconds_max)
    while True:
        error: ClientError
        try:
            found = await fetch_cluster(servers, [topic])
        except AuthenticationFailed:
            raise
        except ConnectionFailed as failed:
            error = failed
        else:
            code = found.errors.get(topic, ErrorCode.NONE)
            if code == ErrorCode.NONE and found.partitions.get(topic):
                return found.partitions[topic]
            error = RequestRefused(f"topic {topic!r}", code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await tries.again_after(error)


async def init_producer_id(servers: Servers, seconds_max: float, name: str | None = None) -> ProducerId:
    """Return a fresh producer id with its epoch; with a ``name`` that of the name, with a higher epoch, by which all
    earlier instances of the name are fenced. Raises RequestRefused, and what ``Ask`` raises."""
    fields = {"transactional_id": name, "transaction_timeout_ms": _PRODUCER_ID_TIMEOUT_MS}
    tries = _Tries(await Now(), seconds_max)
    while True:
        error: ClientError
        try:
            answer = await _ask_any(servers, INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSIONS, "InitProducerId", fields)
        except AuthenticationFailed:
            raise
        except ConnectionFailed as failed:
            error = failed
        else:
            if answer.error_code == ErrorCode.NONE:
                return ProducerId(answer.producer_id, answer.producer_epoch)
            error = RequestRefused("InitProducerId", answer.error_code)
            if not _is_retriable(answer.error_code):
                raise error
        await tries.again_after(error)


@dataclass(slots=True)
class Cursor:
    """Where a reader stands in one partition."""

    place: Place
    offset: int
    """The offset of the next record."""
    leader: Address | None = None
    fetch_bytes: int = limits.FETCH_BYTES
    usual_fetch_bytes: int = limits.FETCH_BYTES
    """The size to go back to after a large message. Halved where a consumer quota lets no larger answer through."""
    high_watermark: int = -1
    """Where the log ended for consumers, as the last fetch had it."""


async def find_offset(servers: Servers, place: Place, timestamp: int, seconds_max: float) -> int:
    """Return the offset for ``LATEST`` or ``EARLIEST``. Raises RequestRefused, and what ``Ask`` raises."""
    cursor = Cursor(place, 0)
    tries = _Tries(await Now(), seconds_max)
    partition = {"partition_index": place.partition, "timestamp": timestamp, "max_num_offsets": 1}
    fields = {"replica_id": -1, "topics": [{"name": place.topic, "partitions": [partition]}]}
    while True:
        answer = await _ask_leader(servers, cursor, LIST_OFFSETS, _LIST_OFFSETS_VERSIONS, "ListOffsets", fields, tries)
        one = _only_partition(answer.topics, "ListOffsets")
        offsets = [*(one.old_style_offsets or ())] if answer.version == 0 else [one.offset]
        if one.error_code == ErrorCode.NONE and offsets:
            offset: int = offsets[0]
            return offset
        await _go_on(cursor, RequestRefused(f"ListOffsets of {place}", one.error_code), tries)


async def where_they_stopped(servers: Servers, place: Place, seconds_max: float) -> list[Stopped]:
    """Return what the leader tells of the producers of a partition (DescribeProducers). Raises RequestRefused, and what
    ``Ask`` raises."""
    cursor = Cursor(place, 0)
    tries = _Tries(await Now(), seconds_max)
    fields = {"topics": [{"name": place.topic, "partition_indexes": [place.partition]}]}
    what = "DescribeProducers"
    while True:
        answer = await _ask_leader(
            servers, cursor, DESCRIBE_PRODUCERS, _DESCRIBE_PRODUCERS_VERSIONS, what, fields, tries
        )
        one = _only_partition(answer.topics, what)
        if one.error_code == ErrorCode.NONE:
            return _stopped(one)
        said = f"{what} of {place}" + (f" ({one.error_message})" if one.error_message else "")
        await _go_on(cursor, RequestRefused(said, one.error_code), tries)


async def where_it_stopped(servers: Servers, number: int, places: Iterable[Place]) -> dict[Place, Stopped]:
    """Return where one producer stopped, by partition, with one question for each leader. One try: partitions without a
    leader, of which a server tells an error, or nothing of this producer, are left out. Raises what ``Ask`` raises for
    Metadata, and AuthenticationFailed."""
    wanted = list(places)
    cluster = await fetch_cluster(servers, sorted({place.topic for place in wanted}))
    by_leader: dict[int, dict[str, list[int]]] = {}
    for place in wanted:
        if (leader := cluster.leaders.get(place)) is not None:
            by_leader.setdefault(leader, {}).setdefault(place.topic, []).append(place.partition)
    told: dict[Place, Stopped] = {}
    for leader, topics in by_leader.items():
        address = cluster.brokers[leader]
        fields = {"topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]}
        try:
            answer = await Ask(address, DESCRIBE_PRODUCERS, _DESCRIBE_PRODUCERS_VERSIONS, "DescribeProducers", fields)
        except AuthenticationFailed:
            raise
        except (ConnectionFailed, UnsupportedServer):
            continue
        for topic in answer.topics or ():
            for one in topic.partitions or ():
                if one.error_code == ErrorCode.NONE:
                    place = Place(topic.name, one.partition_index)
                    told.update((place, found) for found in _stopped(one) if found.producer_id.number == number)
    return {place: told[place] for place in wanted if place in told}


def _stopped(partition: Any) -> list[Stopped]:
    return [
        Stopped(ProducerId(found.producer_id, found.producer_epoch), found.last_sequence, found.last_timestamp)
        for found in partition.active_producers or ()
    ]


async def fetch_records(servers: Servers, cursor: Cursor, seconds_max: float) -> list[StoredRecord]:
    """Return the next records and move on behind them; empty: half a second has brought none. Raises OffsetOutOfRange,
    UnreadableLog, RequestRefused, and what ``Ask`` raises."""
    begun = await Now()
    tries = _Tries(begun, seconds_max)
    waited_until = begun + limits.FETCH_WAIT_MS_MAX / 1000
    while True:
        records = await _fetch(servers, cursor, limits.FETCH_WAIT_MS_MAX, tries)
        # Below the high watermark an empty answer proves nothing: a proxy gives one at once where tombstones leave
        # everything out (rule R24).
        if records or cursor.high_watermark <= cursor.offset or await Now() >= waited_until:
            return records


async def fetch_to_end(servers: Servers, cursor: Cursor, seconds_max: float) -> list[StoredRecord]:
    """Return the next records below the high watermark and move on behind them, without waiting for more; empty: there
    are none. Raises as ``fetch_records``."""
    tries = _Tries(await Now(), seconds_max)
    records = await _fetch(servers, cursor, 0, tries)
    # A proxy gives an empty answer where tombstones leave everything out, and goes on behind that with the next fetch
    # (rule R24). Each such answer skips at least one offset and one message of the list of tombstones, so there are no
    # more of them than of either; twice as many, as the proxy begins anew where the list changes meanwhile. It also
    # begins anew on another connection (after a failure): then the count begins anew.
    left = most = 2 * min(cursor.high_watermark - cursor.offset, limits.LEFT_OUT_MESSAGES_MAX)
    failures = tries.failures
    while not records and left > 0:
        records = await _fetch(servers, cursor, 0, tries)
        left -= 1
        if tries.failures > failures:
            left, failures = most, tries.failures
    return records


async def _fetch(servers: Servers, cursor: Cursor, wait_ms: int, tries: _Tries) -> list[StoredRecord]:
    """Return what lies at the cursor, and move on behind it; empty: the server has sent nothing."""
    place = cursor.place
    while True:
        partition = {"partition": place.partition, "fetch_offset": cursor.offset,
                     "partition_max_bytes": cursor.fetch_bytes}  # fmt: skip
        fields = {"replica_id": -1, "max_wait_ms": wait_ms, "min_bytes": 1,
                  "max_bytes": cursor.fetch_bytes, "isolation_level": 0,
                  "topics": [{"topic": place.topic, "partitions": [partition]}]}  # fmt: skip
        answer = await _ask_leader(servers, cursor, FETCH, _FETCH_VERSIONS, "Fetch", fields, tries)
        if not answer.responses and (throttle_ms := getattr(answer, "throttle_time_ms", 0)) > 0:
            # Brokers since 2.0 name no partition where the quota of consumers is used up (KIP-219).
            # Until 2.6 an answer larger than the quota allows in all its windows was never sent: ask for less.
            cursor.usual_fetch_bytes = max(cursor.usual_fetch_bytes // 2, limits.THROTTLED_FETCH_BYTES_MIN)
            cursor.fetch_bytes = cursor.usual_fetch_bytes
            refused = RequestRefused(f"fetch of {place}", ErrorCode.THROTTLING_QUOTA_EXCEEDED)
            await tries.again_after(refused, throttle_ms / 1000)
            continue
        one = _only_partition(answer.responses, "Fetch")
        if one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRange(f"fetch of {place} from offset {cursor.offset} on", one.error_code)
        if one.error_code != ErrorCode.NONE:
            await _go_on(cursor, RequestRefused(f"fetch of {place}", one.error_code), tries)
            continue
        cursor.high_watermark = one.high_watermark
        before = cursor.offset
        data = one.records or b""
        records, cursor.offset = records_from(data, before)
        if records or not data:
            cursor.fetch_bytes = cursor.usual_fetch_bytes
            return records
        if cursor.offset == before:  # only a part of a message: old brokers cut it off at the size asked for
            if cursor.fetch_bytes >= limits.FETCH_BYTES_MAX:
                raise RequestRefused(f"a message of {place} above {cursor.fetch_bytes} bytes", 10)
            cursor.fetch_bytes *= 2


async def _ask_leader(
    servers: Servers,
    cursor: Cursor,
    api_key: int,
    versions: tuple[int, int],
    what: str,
    fields: Mapping[str, Any],
    tries: _Tries,
) -> Any:
    """Return the answer of the partition's leader, which is looked for if it is not known."""
    while True:
        try:
            if cursor.leader is None:
                cursor.leader = await _find_leader(servers, cursor.place)
            return await Ask(cursor.leader, api_key, versions, what, fields)
        except AuthenticationFailed:
            raise
        except (ConnectionFailed, RequestRefused) as error:
            await _go_on(cursor, error, tries)


def _only_partition(topics: Any, what: str) -> Any:
    """Return what an answer says of the one partition that was asked for. Raises ConnectionFailed."""
    if not topics or not topics[0].partitions:
        raise ConnectionFailed(f"the answer to {what} lacks the partition")
    return topics[0].partitions[0]


async def _find_leader(servers: Servers, place: Place) -> Address:
    found = await fetch_cluster(servers, [place.topic])
    broker = found.leaders.get(place)
    if broker is None:
        code = found.errors.get(place.topic)
        if code is None:
            exists = place.partition in found.partitions.get(place.topic, ())
            code = ErrorCode.LEADER_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise RequestRefused(f"leader of {place}", code)
    return found.brokers[broker]


async def _go_on(cursor: Cursor, error: ClientError, tries: _Tries) -> None:
    """Look for the leader anew after a pause. Raises the error when that is of no use."""
    cursor.leader = None
    if isinstance(error, RequestRefused) and error.code not in _MOVED and not _is_retriable(error.code):
        raise error
    await tries.again_after(error)


async def commit_offsets(
    servers: Servers, group: str, offsets: Mapping[Place, CommittedOffset], seconds_max: float
) -> None:
    """Store offsets for a group without members, all or none. Raises RequestRefused, also when the group has members,
    and what ``Ask`` raises. A commit whose answer was lost is sent again."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for place, one in offsets.items():
        partition = {"partition_index": place.partition, "committed_offset": one.offset,
                     "committed_metadata": one.metadata}  # fmt: skip
        topics.setdefault(place.topic, []).append(partition)
    fields = {
        **_OF_NO_MEMBER,
        "group_id": group,
        "retention_time_ms": limits.OFFSETS_KEPT_MS,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    what = "OffsetCommit"
    await _ask_coordinator(servers, group, OFFSET_COMMIT, _OFFSET_COMMIT_VERSIONS, what, fields, seconds_max)


async def committed_offsets(
    servers: Servers, group: str, places: Iterable[Place], seconds_max: float
) -> dict[Place, CommittedOffset]:
    """Return what a group has stored for these partitions; those without an offset are left out. Raises RequestRefused,
    and what ``Ask`` raises."""
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    wanted = [{"name": name, "partition_indexes": partitions} for name, partitions in topics.items()]
    fields = {"group_id": group, "topics": wanted}
    what = "OffsetFetch"
    answer = await _ask_coordinator(servers, group, OFFSET_FETCH, _OFFSET_FETCH_VERSIONS, what, fields, seconds_max)
    return {
        Place(topic.name, one.partition_index): CommittedOffset(one.committed_offset, one.metadata or "")
        for topic in answer.topics
        for one in topic.partitions
        if one.committed_offset >= 0
    }


async def _ask_coordinator(
    servers: Servers,
    group: str,
    api_key: int,
    versions: tuple[int, int],
    what: str,
    fields: Mapping[str, Any],
    seconds_max: float,
) -> Any:
    """Return the answer of the group's coordinator, in which no partition has an error."""
    tries = _Tries(await Now(), seconds_max)
    while True:
        error: ClientError
        try:
            if group not in servers.coordinators:
                servers.coordinators[group] = await _find_coordinator(servers, group)
            answer = await Ask(servers.coordinators[group], api_key, versions, what, fields)
            code = _first_error(answer)
            if code == ErrorCode.NONE:
                return answer
            raise RequestRefused(f"{what} of group {group!r}", code)
        except AuthenticationFailed:
            raise
        except ConnectionFailed as failed:
            error = failed
        except RequestRefused as refused:
            if not _is_retriable(refused.code):
                raise
            error = refused
        servers.coordinators.pop(group, None)
        await tries.again_after(error)


async def _find_coordinator(servers: Servers, group: str) -> Address:
    fields = {"key": group, "key_type": 0}
    versions = _FIND_COORDINATOR_VERSIONS
    answer = await _ask_any(servers, FIND_COORDINATOR, versions, "FindCoordinator", fields)
    if answer.error_code != ErrorCode.NONE:
        raise RequestRefused(f"coordinator of group {group!r}", answer.error_code)
    return answer.host, answer.port


def _first_error(answer: Any) -> int:
    """Return the first error code in a coordinator's answer, of the group or of a partition."""
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    group_code = getattr(answer, "error_code", None) or ErrorCode.NONE  # OffsetFetch has one from version 2 on
    return next((int(code) for code in (group_code, *codes) if code != ErrorCode.NONE), int(ErrorCode.NONE))


def _is_retriable(code: int) -> bool:
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False
