"""What takes several steps, but for producing: who leads, a producer id, offsets, reading, what groups have committed.
Coroutines that await only the effects in ``asking.py``. Pure: no sockets, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..codecs.error_codes import ErrorCode
from ..producing.cluster import Address
from ..producing.numbered_batch import Place, ProducerId
from . import limits
from .asking import (
    Ask,
    Now,
    Servers,
    TimedTries,
    Tries,
    ask_all_topics,
    ask_any,
    ask_at,
    fetch_cluster,
    find_leader,
    only_partition,
    patiently,
)
from .errors import AuthenticationFailed, ConnectionFailed, RequestRefused, UnsupportedServer
from .log_flows import fetch_stored, find_offsets
from .reading import records_from
from .records import CommittedOffset, Stopped, StoredRecord

INIT_PRODUCER_ID, DESCRIBE_PRODUCERS = 22, 61
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
_INIT_PRODUCER_ID_VERSIONS: Final = (0, 1)
_DESCRIBE_PRODUCERS_VERSIONS: Final = (0, 0)
_FIND_COORDINATOR_VERSIONS: Final = (0, 1)
_OFFSET_COMMIT_VERSIONS: Final = (2, 4)
"""The versions in which a request has a retention time (KIP-211 has removed it from version 5)."""
_OFFSET_FETCH_VERSIONS: Final = (1, 3)
"""From version 1 on offsets are those of the group coordinator; version 0 reads them from ZooKeeper."""
_OF_NO_MEMBER: Final = {"generation_id_or_member_epoch": -1, "member_id": ""}
_NO_TRANSACTIONS: Final = 0
"""The transaction timeout in InitProducerId. With a name it says that this is a producer name, as brokers refuse it:
where they have transactions, a proxy passes them the requests of others."""


async def find_topics(servers: Servers, seconds_max: float) -> tuple[str, ...]:
    """Return the names of all topics. None is named, so that none is created. Raises what ``Ask`` raises."""
    found = await patiently(TimedTries(await Now(), seconds_max), lambda: ask_all_topics(servers))
    return tuple(sorted(found.partitions))


async def find_partitions(servers: Servers, topic: str, seconds_max: float) -> tuple[int, ...]:
    """Return the partitions of a topic. Raises RequestRefused when there is no such topic, and what ``Ask`` raises."""

    async def ask() -> tuple[int, ...]:
        found = await fetch_cluster(servers, [topic])
        code = found.errors.get(topic, ErrorCode.NONE)
        if code != ErrorCode.NONE or not found.partitions.get(topic):
            raise RequestRefused(f"topic {topic!r}", code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found.partitions[topic]

    return await patiently(TimedTries(await Now(), seconds_max), ask)


async def init_producer_id(servers: Servers, seconds_max: float, name: str | None = None) -> ProducerId:
    """Return a fresh producer id with its epoch; with a ``name`` that of the name, with a higher epoch, by which all
    earlier instances of the name are fenced. Raises RequestRefused, and what ``Ask`` raises."""
    fields = {"transactional_id": name, "transaction_timeout_ms": _NO_TRANSACTIONS}

    async def ask() -> ProducerId:
        answer = await ask_any(servers, INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSIONS, "InitProducerId", fields)
        if answer.error_code != ErrorCode.NONE:
            raise RequestRefused("InitProducerId", answer.error_code)
        return ProducerId(answer.producer_id, answer.producer_epoch)

    return await patiently(TimedTries(await Now(), seconds_max), ask)


@dataclass(slots=True)
class Cursor:
    """Where a reader stands in one partition."""

    place: Place
    offset: int
    """The offset of the next record."""
    fetch_bytes: int = limits.FETCH_BYTES
    high_watermark: int = -1
    """Where the log ended for consumers, as the last fetch had it."""


async def find_offset(servers: Servers, place: Place, timestamp: int, seconds_max: float) -> int:
    """Return the offset for ``LATEST`` or ``EARLIEST``. Raises RequestRefused, and what ``Ask`` raises."""
    servers.leaders.pop(place, None)  # one that was deposed, and does not know it, would tell of an old end
    return (await find_offsets(servers, {place: timestamp}, TimedTries(await Now(), seconds_max)))[place]


async def where_they_stopped(servers: Servers, place: Place, seconds_max: float) -> list[Stopped]:
    """Return what the leader tells of the producers of a partition (DescribeProducers). Raises RequestRefused, and what
    ``Ask`` raises."""
    fields = {"topics": [{"name": place.topic, "partition_indexes": [place.partition]}]}
    what = "DescribeProducers"
    servers.leaders.pop(place, None)

    async def ask() -> list[Stopped]:
        leader = await find_leader(servers, place)
        answer = await ask_at(servers, leader, DESCRIBE_PRODUCERS, _DESCRIBE_PRODUCERS_VERSIONS, what, fields)
        one = only_partition(answer.topics, what)
        if one.error_code != ErrorCode.NONE:
            raise servers.refused(
                place, what + (f" ({one.error_message})" if one.error_message else ""), one.error_code
            )
        return _stopped(one)

    return await patiently(TimedTries(await Now(), seconds_max), ask)


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
    """Return the next records and move past them; empty: half a second has brought none. Raises OffsetOutOfRange,
    UnreadableLog, RequestRefused, and what ``Ask`` raises."""
    begun = await Now()
    tries = TimedTries(begun, seconds_max)
    waited_until = begun + limits.FETCH_WAIT_MS_MAX / 1000
    while True:
        records = await _fetch(servers, cursor, tries, limits.FETCH_WAIT_MS_MAX)
        # Below the high watermark an empty answer proves nothing: a proxy gives one at once where hidden ranges leave
        # everything out (rule R24).
        if records or cursor.high_watermark <= cursor.offset or await Now() >= waited_until:
            return records


async def fetch_to_end(servers: Servers, cursor: Cursor, seconds_max: float) -> list[StoredRecord]:
    """Return the next records below the high watermark and move past them, without waiting for more; empty: there are
    none. Raises as ``fetch_records``."""
    return await _fetch(servers, cursor, TimedTries(await Now(), seconds_max), 0)


async def _fetch(servers: Servers, cursor: Cursor, tries: Tries, wait_ms: int) -> list[StoredRecord]:
    """Return what lies at the cursor, and move past it; empty: the server has sent nothing."""
    while True:
        before = cursor.offset
        fetched = await fetch_stored(servers, cursor.place, before, cursor.fetch_bytes, tries, wait_ms)
        cursor.high_watermark = fetched.high_watermark
        records, cursor.offset = records_from(fetched.records, before)
        if records or not fetched.records:
            cursor.fetch_bytes = limits.FETCH_BYTES
            return records
        if cursor.offset == before:  # only a part of a message: old brokers cut it off at the size asked for
            if cursor.fetch_bytes >= limits.FETCH_BYTES_MAX:
                raise RequestRefused(f"a message of {cursor.place} above {cursor.fetch_bytes} bytes", 10)
            cursor.fetch_bytes *= 2


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

    async def ask() -> Any:
        if group not in servers.coordinators:
            servers.coordinators[group] = await _find_coordinator(servers, group)
        # After an error another one is looked for.
        coordinator = servers.coordinators.pop(group)
        answer = await Ask(coordinator, api_key, versions, what, fields)
        code = _first_error(answer)
        if code != ErrorCode.NONE:
            raise RequestRefused(f"{what} of group {group!r}", code)
        servers.coordinators[group] = coordinator
        return answer

    return await patiently(TimedTries(await Now(), seconds_max), ask)


async def _find_coordinator(servers: Servers, group: str) -> Address:
    fields = {"key": group, "key_type": 0}
    versions = _FIND_COORDINATOR_VERSIONS
    answer = await ask_any(servers, FIND_COORDINATOR, versions, "FindCoordinator", fields)
    if answer.error_code != ErrorCode.NONE:
        raise RequestRefused(f"coordinator of group {group!r}", answer.error_code)
    return answer.host, answer.port


def _first_error(answer: Any) -> int:
    """Return the first error code in a coordinator's answer, of the group or of a partition."""
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    group_code = getattr(answer, "error_code", None) or ErrorCode.NONE  # OffsetFetch has one from version 2 on
    return next((int(code) for code in (group_code, *codes) if code != ErrorCode.NONE), int(ErrorCode.NONE))
