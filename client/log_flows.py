"""What a program asks that reads whole logs: every partition, offsets by time, where a log ends and whether that is
certain, and bytes as they are stored. Coroutines that await only the effects in ``asking.py``. Pure: no sockets, no
clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ..codecs.error_codes import ErrorCode
from ..producing.cluster import Address
from ..producing.numbered_batch import Place
from ..values import value
from . import limits
from .asking import (
    FETCH,
    FETCH_VERSIONS,
    LATEST,
    LIST_OFFSETS,
    LIST_OFFSETS_VERSIONS,
    Ask,
    Now,
    Offered,
    Servers,
    Tries,
    ask_all_topics,
    ask_at,
    empty_fetches_max,
    fetch_cluster,
    find_leader,
    leaves_out,
    only_partition,
    patiently,
)
from .errors import (
    AuthenticationFailed,
    ConnectionFailed,
    OffsetOutOfRange,
    RequestRefused,
    TimesUnsupported,
    UnsupportedServer,
)

_TIMES_FROM: Final = 1
"""The version of ListOffsets from which on the first record of a time is found; 0 knows the times of whole segments."""
_DESCRIBE_CONFIGS: Final = 32
_DESCRIBE_CONFIGS_VERSIONS: Final = (0, 1)
_TOPIC: Final = 2
"""The type of a resource that is a topic."""
_CLEANUP_POLICY, _COMPACT = "cleanup.policy", "compact"
HIGH_WATERMARK_REPLICA_ID, LOG_END_REPLICA_ID = -1, -3
"""Replica ids for ListOffsets: as a consumer, to get the high watermark; or so that a leader tells its log end offset.
The proxy uses the same ones (``proxy/bridge/asks.py``, which has the reasons)."""


@value(frozen=True, slots=True)
class Fetched:
    """Stored bytes from an offset on; they may end in a part of an entry. ``high_watermark``: an offset."""

    records: memoryview
    high_watermark: int


@value(frozen=True, slots=True)
class Ends:
    """Where the log of one partition ends, as offsets. ``is_contested``: another replica says that it leads, too, so
    one of them was deposed and does not know it yet."""

    leader: Address
    log_end: int
    high_watermark: int
    is_contested: bool


async def find_all_partitions(servers: Servers) -> dict[str, list[int]]:
    """Return every topic with its partitions, without topics of which none can be seen: they are being made, or a right
    is missing. One try. Raises what ``Ask`` raises."""
    found = await ask_all_topics(servers)
    return {topic: [*partitions] for topic, partitions in found.partitions.items() if partitions}


async def find_brokers(servers: Servers) -> list[Address]:
    """Return all brokers that are there now. One try. Raises what ``Ask`` raises."""
    return [*(await fetch_cluster(servers, ())).brokers.values()]


async def led(servers: Servers, places: Iterable[Place]) -> list[Place]:
    """Return those that have a leader now. One try. Raises what ``Ask`` raises."""
    found = []
    for place in places:
        try:
            await find_leader(servers, place)
        except RequestRefused:
            continue
        found.append(place)
    return found


async def find_offsets(servers: Servers, times: Mapping[Place, int], tries: Tries) -> dict[Place, int]:
    """Return for each partition the first offset that is as late as this, -1 if there is none. Times: ms, ``EARLIEST``,
    ``LATEST`` (the high watermark). Leaders are asked once each. Raises TimesUnsupported, RequestRefused,
    and what ``Ask`` raises."""
    found: dict[Place, int] = {}

    async def ask() -> None:
        by_leader: dict[Address, dict[Place, int]] = {}
        for place, time_ms in times.items():
            if place not in found:
                by_leader.setdefault(await find_leader(servers, place), {})[place] = time_ms
        refusals = []
        for address, asked in by_leader.items():
            offsets, refused = await _offsets_of(servers, address, asked)
            found.update(offsets)
            refusals += refused
        if refusals:
            raise refusals[0]
        if len(found) < len(times):
            raise ConnectionFailed("the answer to ListOffsets lacks a partition")

    await patiently(tries, ask)
    return found


async def has_holes(servers: Servers, topic: str, tries: Tries) -> bool | None:
    """Return whether offsets may be missing in a topic: it is compacted, or a proxy may leave records out. None: no
    server tells. Raises what ``Ask`` raises."""

    async def ask() -> bool | None:
        failed: ConnectionFailed | None = None
        for address in servers:
            try:
                return await _has_holes_at(address, topic)
            except AuthenticationFailed:
                raise
            except ConnectionFailed as error:
                failed = error
        assert failed is not None
        raise failed

    return await patiently(tries, ask)


async def find_ends(servers: Servers, place: Place, tries: Tries) -> Ends:
    """Ask the present leader where the log ends, and all other replicas whether they lead, too. Raises RequestRefused,
    and what ``Ask`` raises."""

    async def ask() -> Ends:
        told_at = servers.told_at.get(place.topic)
        if told_at is None or await Now() - told_at > limits.LEADERS_SECONDS_MAX:
            servers.leaders.pop(place, None)  # one answer has the leaders of all partitions of a topic
        leader = await find_leader(servers, place)
        ended = await _end_at(servers, leader, place, LOG_END_REPLICA_ID)
        shown = await _end_at(servers, leader, place, HIGH_WATERMARK_REPLICA_ID)
        if ended is None or shown is None:
            raise servers.refused(place, "the end", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        others = [one for one in servers.replicas.get(place, ()) if one != leader]
        leading = [await _leads_too(servers, one, place) for one in others]
        return Ends(leader, ended, shown, any(leading))

    return await patiently(tries, ask)


async def is_awake(servers: Servers, broker: Address, place: Place) -> bool:
    """Return whether this broker answers a question about a partition, whether or not it leads that. One try."""
    try:
        await _end_at(servers, broker, place, HIGH_WATERMARK_REPLICA_ID)
    except (ConnectionFailed, UnsupportedServer):
        return False
    return True


async def fetch_stored(
    servers: Servers, place: Place, offset: int, bytes_max: int, tries: Tries, wait_ms: int = 0
) -> Fetched:
    """Return what is stored from the offset on. No records, though the high watermark is above the offset: nothing
    below it is left, as of compaction or hidden ranges. ``wait_ms``: for records to come, if there are none; then an
    empty answer proves nothing. Raises OffsetOutOfRange, RequestRefused (THROTTLING_QUOTA_EXCEEDED: for too long), and
    what ``Ask`` raises."""

    async def ask() -> Fetched:
        # All fetches go over one connection, and begin again after an error: a proxy remembers only for a connection
        # where its next fetch begins, and forgets that with an error.
        leader = await find_leader(servers, place)
        fetched = await _fetch(servers, leader, place, offset, bytes_max, tries, wait_ms)
        if wait_ms or fetched.records or fetched.high_watermark <= offset:
            return fetched
        for _ in range(empty_fetches_max(await Offered(leader), fetched.high_watermark - offset)):
            fetched = await _fetch(servers, leader, place, offset, bytes_max, tries, wait_ms)
            if fetched.records:
                break
        return fetched

    return await patiently(tries, ask)


async def _offsets_of(
    servers: Servers, address: Address, times: Mapping[Place, int]
) -> tuple[dict[Place, int], list[RequestRefused]]:
    """Return what this broker tells, and for other partitions why it does not: mostly it does not lead them any
    more."""
    if max(times.values()) >= 0 and (await Offered(address)).get(LIST_OFFSETS, (0, 0))[1] < _TIMES_FROM:
        raise TimesUnsupported("the broker finds no offsets by time, as those before 0.10.1")
    fields = _offset_fields(times, HIGH_WATERMARK_REPLICA_ID)
    answer = await ask_at(servers, address, LIST_OFFSETS, LIST_OFFSETS_VERSIONS, "ListOffsets", fields)
    found: dict[Place, int] = {}
    refusals: list[RequestRefused] = []
    for topic in answer.topics:
        for one in topic.partitions:
            place = Place(topic.name, one.partition_index)
            if one.error_code == ErrorCode.NONE:
                found[place] = _offset_in(one)
            elif one.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                raise TimesUnsupported(f"{place} is in format v0, which has no times")
            else:
                refusals.append(servers.refused(place, "ListOffsets", one.error_code))
    return found, refusals


async def _end_at(servers: Servers, broker: Address, place: Place, replica_id: int) -> int | None:
    """Return what this very broker tells of the end; None if it does not lead the partition."""
    fields = _offset_fields({place: LATEST}, replica_id)
    answer = await ask_at(servers, broker, LIST_OFFSETS, LIST_OFFSETS_VERSIONS, "ListOffsets", fields)
    one = only_partition(answer.topics, "ListOffsets")
    return None if one.error_code != ErrorCode.NONE else _offset_in(one)


async def _leads_too(servers: Servers, broker: Address, place: Place) -> bool:
    try:
        return await _end_at(servers, broker, place, LOG_END_REPLICA_ID) is not None
    except AuthenticationFailed:
        raise
    except ConnectionFailed:
        return False  # as in the proxies: a broker that cannot be reached serves nobody


def _offset_fields(times: Mapping[Place, int], replica_id: int) -> dict[str, Any]:
    topics: dict[str, list[dict[str, int]]] = {}
    for place, time_ms in sorted(times.items()):
        wanted = {"partition_index": place.partition, "timestamp": time_ms, "max_num_offsets": 1}
        topics.setdefault(place.topic, []).append(wanted)
    asked = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    return {"replica_id": replica_id, "topics": asked}


def _offset_in(partition: Any) -> int:
    old_style = getattr(partition, "old_style_offsets", None)
    return int(old_style[0] if old_style else partition.offset)


async def _has_holes_at(address: Address, topic: str) -> bool | None:
    if leaves_out(await Offered(address)):
        return True
    resource = {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": [_CLEANUP_POLICY]}
    fields = {"resources": [resource]}
    try:
        answer = await Ask(address, _DESCRIBE_CONFIGS, _DESCRIBE_CONFIGS_VERSIONS, "DescribeConfigs", fields)
    except UnsupportedServer:  # before 0.11
        return None
    for told in answer.results:
        for config in () if told.error_code else told.configs:
            if config.name == _CLEANUP_POLICY and config.value is not None:
                return _COMPACT in config.value
    return None


async def _fetch(
    servers: Servers, leader: Address, place: Place, offset: int, bytes_max: int, tries: Tries, wait_ms: int
) -> Fetched:
    """Fetch once. Brokers since 2.0 answer without any partition where the quota of consumers is used up, and tell how
    long to wait (KIP-219). Until 2.6 they never sent an answer larger than the quota allows in all its windows, some
    ten seconds, so less is asked for from then on."""
    while True:
        size = min(bytes_max, servers.fetch_bytes_max)
        partition = {"partition": place.partition, "fetch_offset": offset, "partition_max_bytes": size}
        fields = {"replica_id": -1, "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": size, "isolation_level": 0,
                  "topics": [{"topic": place.topic, "partitions": [partition]}]}  # fmt: skip
        answer = await ask_at(servers, leader, FETCH, FETCH_VERSIONS, "Fetch", fields)
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if answer.responses or throttle_ms <= 0:
            break
        servers.fetch_bytes_max = max(size // 2, limits.THROTTLED_FETCH_BYTES_MIN)
        throttled = RequestRefused(f"fetch of {place}", ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        await tries.again_after(throttled, throttle_ms / 1000)
    one = only_partition(answer.responses, "Fetch")
    if one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRange(f"fetch of {place} from offset {offset} on", one.error_code)
    if one.error_code != ErrorCode.NONE:
        raise servers.refused(place, "fetch", one.error_code)
    return Fetched(memoryview(one.records or b""), one.high_watermark)
