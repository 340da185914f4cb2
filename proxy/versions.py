"""API versions: which a broker has, which the proxy reports to a client, and how the broker's own version is found out.
The only place for this.

Pure tables and functions. Never talks to a broker, and knows no message's layout beyond the answers to its three probes
(``detect``). Sources: KafkaApis and Protocol.java of the releases, checked against real brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct, error, pack, unpack_from

from ..reactor import Buffer

BrokerRanges = Mapping[int, tuple[int, int]]
"""API key -> (lowest, highest version), both inclusive."""


class ApiKey(IntEnum):
    """Kafka's API keys that this proxy serves, passes on or mentions."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89


def api_title(api_key: int) -> str:
    """Return the name of a known API as Kafka's documentation has it."""
    return ApiKey(api_key).name.title().replace("_", "")


OWN_RANGES: BrokerRanges = {
    ApiKey.PRODUCE: (0, 8),
    ApiKey.METADATA: (0, 4),
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.DESCRIBE_CLUSTER: (0, 1),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
}
"""Answered by the proxy, whatever the brokers have. The minimum of Produce stays 0: librdkafka before 2.11.1 stops
compressing otherwise. Produce 7 is the first in which Java sends zstd, 8 the first whose answers have sentences.
Metadata 4 is what kafka-python wants to see before it takes a broker for one with producer ids; DescribeCluster 0 it
cannot read."""

READS_RANGES_SINCE = 3
"""Clients that ask in this version of ApiVersions or a later one (KIP-511) choose each API's version by its range."""
PRODUCE_TOLD_MAX = 7
"""The highest Produce that the proxy reports to clients which ask in an older version: aiokafka (up to 0.12) and
kafka-python-ng take a broker with Produce 8 for Kafka 2.4, and then join groups with JoinGroup 5 (kafka-python-ng only
as static members)."""

OWN_WHERE_MISSING: Mapping[int, int] = {ApiKey.DESCRIBE_CONFIGS: 2}
"""Answered by the proxy, up to these versions, where the brokers have none."""

EXPLAINED: Mapping[int, int] = {
    ApiKey.ALTER_CONFIGS: 1,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 0,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
}
"""Offered up to these versions where the brokers lack the API, so that the client gets an error with a sentence that
says so (``bridge/explained.py``)."""

RAISED_TO: Mapping[int, int] = {
    ApiKey.FETCH: 5,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.OFFSET_COMMIT: 3,
    ApiKey.OFFSET_FETCH: 3,
    ApiKey.FIND_COORDINATOR: 1,
    ApiKey.JOIN_GROUP: 2,
    ApiKey.HEARTBEAT: 1,
    ApiKey.LEAVE_GROUP: 1,
    ApiKey.SYNC_GROUP: 1,
    ApiKey.DESCRIBE_GROUPS: 1,
    ApiKey.LIST_GROUPS: 1,
    ApiKey.CREATE_TOPICS: 4,
    ApiKey.DELETE_TOPICS: 1,
}
"""The versions of Kafka 0.11, bridged where the broker has lower ones only: some clients (kafka-python 1.4) see
Metadata 4 and send these without looking at the ranges, and sarama configured as ``V0_11_0_0`` sends them without
asking. CreateTopics 4 is the first that leaves numbers to the broker."""

RAISED_FROM: Mapping[int, int] = {ApiKey.OFFSET_COMMIT: 1, ApiKey.OFFSET_FETCH: 1}
"""The broker has to have at least this version: v0 of these keeps offsets in ZooKeeper, which is something else, not
another layout."""

PASSED_MAX: Mapping[int, int] = {
    ApiKey.FETCH: 6,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.OFFSET_COMMIT: 7,
    ApiKey.OFFSET_FETCH: 5,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.JOIN_GROUP: 5,
    ApiKey.HEARTBEAT: 3,
    ApiKey.LEAVE_GROUP: 3,
    ApiKey.SYNC_GROUP: 3,
    ApiKey.DESCRIBE_GROUPS: 4,
    ApiKey.LIST_GROUPS: 2,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.CREATE_TOPICS: 4,
    ApiKey.DELETE_TOPICS: 3,
    ApiKey.DELETE_RECORDS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 3,
    ApiKey.DESCRIBE_ACLS: 1,
    ApiKey.CREATE_ACLS: 1,
    ApiKey.DELETE_ACLS: 1,
    ApiKey.DESCRIBE_CONFIGS: 2,
    ApiKey.ALTER_CONFIGS: 1,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.SASL_AUTHENTICATE: 1,
    ApiKey.CREATE_PARTITIONS: 1,
    ApiKey.CREATE_DELEGATION_TOKEN: 1,
    ApiKey.RENEW_DELEGATION_TOKEN: 1,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 1,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 1,
    ApiKey.DELETE_GROUPS: 1,
    ApiKey.ELECT_LEADERS: 1,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 0,
    ApiKey.OFFSET_DELETE: 0,
}
"""The highest version that goes through as it is when the brokers are newer; keys that are not here never go through.
Chosen so that no such body has the address of a broker or a topic id in it (but FindCoordinator's, which is rewritten),
no fetch session is kept at a broker (Fetch 7), no zstd comes (Fetch 10), no version is flexible (KIP-482), and no
client takes us for a release of Kafka whose Produce we do not speak."""

NATIVE_MAX: Mapping[int, int] = {
    ApiKey.PRODUCE: 13,
    ApiKey.FETCH: 15,
    ApiKey.LIST_OFFSETS: 11,
    ApiKey.METADATA: 13,
    ApiKey.OFFSET_COMMIT: 10,
    ApiKey.OFFSET_FETCH: 10,
    ApiKey.FIND_COORDINATOR: 6,
    ApiKey.JOIN_GROUP: 9,
    ApiKey.HEARTBEAT: 4,
    ApiKey.LEAVE_GROUP: 5,
    ApiKey.SYNC_GROUP: 5,
    ApiKey.DESCRIBE_GROUPS: 6,
    ApiKey.LIST_GROUPS: 5,
    ApiKey.SASL_HANDSHAKE: 1,
    ApiKey.API_VERSIONS: 4,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 6,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 5,
    ApiKey.ADD_OFFSETS_TO_TXN: 4,
    ApiKey.END_TXN: 5,
    ApiKey.WRITE_TXN_MARKERS: 2,
    ApiKey.TXN_OFFSET_COMMIT: 5,
    ApiKey.DESCRIBE_ACLS: 3,
    ApiKey.CREATE_ACLS: 3,
    ApiKey.DELETE_ACLS: 3,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_CONFIGS: 2,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 5,
    ApiKey.SASL_AUTHENTICATE: 2,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.CREATE_DELEGATION_TOKEN: 3,
    ApiKey.RENEW_DELEGATION_TOKEN: 2,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 2,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 3,
    ApiKey.DELETE_GROUPS: 2,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.OFFSET_DELETE: 0,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.DESCRIBE_QUORUM: 1,
    ApiKey.UPDATE_FEATURES: 2,
    ApiKey.DESCRIBE_CLUSTER: 2,
    ApiKey.DESCRIBE_PRODUCERS: 0,
    ApiKey.UNREGISTER_BROKER: 0,
    ApiKey.DESCRIBE_TRANSACTIONS: 0,
    ApiKey.LIST_TRANSACTIONS: 2,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: 1,
    ApiKey.CONSUMER_GROUP_DESCRIBE: 1,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: 0,
    ApiKey.PUSH_TELEMETRY: 0,
    ApiKey.LIST_CONFIG_RESOURCES: 1,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
    ApiKey.STREAMS_GROUP_HEARTBEAT: 0,
    ApiKey.STREAMS_GROUP_DESCRIBE: 0,
}
"""The highest version that passes as bytes where the brokers give idempotence (mode native); keys that are not here
never pass. Read off the schemas of Kafka 4.3: no body up to here has the address of a broker, but those that
``native/rewrites.py`` knows. Fetch 16 and DescribeQuorum 2 tell addresses at the end of a body that is not read. Share
groups are not here: all that they fetch tells addresses."""

KAFKA_4_FROM: Mapping[int, int] = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 2,
    ApiKey.WRITE_TXN_MARKERS: 1,
    ApiKey.DESCRIBE_ACLS: 1,
    ApiKey.CREATE_ACLS: 1,
    ApiKey.DELETE_ACLS: 1,
    ApiKey.DESCRIBE_CONFIGS: 1,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 1,
    ApiKey.DESCRIBE_LOG_DIRS: 1,
    ApiKey.CREATE_DELEGATION_TOKEN: 1,
    ApiKey.RENEW_DELEGATION_TOKEN: 1,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 1,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 1,
}
"""The lowest version that Kafka 4 serves, of each API of which it dropped some (KIP-896). Read off the ApiVersions of
3.9.1 and 4.3.1. All others keep version 0, JoinGroup and SaslHandshake among them."""
DROPPED_MAX = max(KAFKA_4_FROM.values()) - 1
"""No dropped version is higher: one comparison with it passes nearly every request of a client that is not old."""

SASL_KEYS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
"""For clients that authenticate at the broker."""


def native(ranges: Iterable[BrokerRanges]) -> BrokerRanges:
    """Return the ranges that the proxy reports in mode native: what all brokers have, as far as it passes."""
    common = _intersection(list(ranges) or [{}])
    last = {key: min(common[key][1], NATIVE_MAX[key]) for key in common if key in NATIVE_MAX}
    return {int(key): (common[key][0], last[key]) for key in last if common[key][0] <= last[key]}


def in_both(one: BrokerRanges, other: BrokerRanges) -> BrokerRanges:
    """Return what both have."""
    return _intersection([one, other])


def is_dropped(api_key: int, api_version: int) -> bool:
    """Does Kafka 4 lack this version of an API, and Kafka 3 have it?"""
    return 0 <= api_version < KAFKA_4_FROM.get(api_key, 0)


def is_unserved(ranges: BrokerRanges, api_key: int, api_version: int) -> bool:
    """Would a broker that lists these ranges close the connection at this dropped version, without a response?"""
    return api_version < served(ranges).get(api_key, (0, 0))[0]


def served(ranges: BrokerRanges) -> BrokerRanges:
    """Return what a broker serves that lists these ranges.

    Kafka 4 lists Produce from 0, as librdkafka before 2.11.1 stops compressing otherwise (apache/kafka pull request
    18727), and serves it from 3. Its range of Fetch, which is what it serves, shows such a broker.
    """
    first, last = ranges.get(ApiKey.PRODUCE, (0, -1))
    produce_from = KAFKA_4_FROM[ApiKey.PRODUCE]
    if ranges.get(ApiKey.FETCH, (0, 0))[0] < KAFKA_4_FROM[ApiKey.FETCH] or last < produce_from:
        return ranges
    return {**ranges, ApiKey.PRODUCE: (max(first, produce_from), last)}


def advertised(ranges: Iterable[BrokerRanges]) -> dict[int, tuple[int, int]]:
    """Return the ranges that the proxy reports to clients: what all brokers have, raised to what the bridges can serve,
    and the proxy's own APIs.

    While no broker is known: as for the oldest release, so that no client later finds less than the proxy reported.
    """
    common = _intersection(list(ranges) or [KNOWN["0.8.2"]])
    result = {int(key): own for key, own in OWN_RANGES.items()}
    for key, (first, last) in common.items():
        if key in OWN_RANGES or key not in PASSED_MAX:
            continue
        served = (first, client_version_max(key, last))
        if served[0] <= served[1]:
            result[int(key)] = served
    for key, last in {**OWN_WHERE_MISSING, **EXPLAINED}.items():
        result.setdefault(int(key), (0, last))
    return result


def reported(ranges: BrokerRanges, api_versions_version: int) -> BrokerRanges:
    """Return the ranges for a client that asks in this version of ApiVersions."""
    if api_versions_version >= READS_RANGES_SINCE:
        return ranges
    first, last = ranges[ApiKey.PRODUCE]
    return {**ranges, ApiKey.PRODUCE: (first, min(last, PRODUCE_TOLD_MAX))}


def client_version_max(api_key: int, broker_version_max: int) -> int:
    """Return the highest version of a passed API that clients can be served in, by a broker that has it up to this
    version."""
    if broker_version_max >= RAISED_FROM.get(api_key, 0):
        broker_version_max = max(broker_version_max, RAISED_TO.get(api_key, 0))
    return min(broker_version_max, PASSED_MAX[api_key])


def _intersection(ranges: Sequence[BrokerRanges]) -> dict[int, tuple[int, int]]:
    common: dict[int, tuple[int, int]] = {}
    for key in set.intersection(*(set(broker) for broker in ranges)):
        first, last = max(broker[key][0] for broker in ranges), min(broker[key][1] for broker in ranges)
        if first <= last:
            common[key] = (first, last)
    return common


def _up_to(**highest: int) -> dict[int, tuple[int, int]]:
    return {int(ApiKey[name.upper()]): (0, last) for name, last in highest.items()}


_GROUPS = _up_to(join_group=0, heartbeat=0, leave_group=0, sync_group=0, describe_groups=0, list_groups=0)
_INTERNAL = {4: (0, 0), 5: (0, 0), 6: (0, 2), 7: (1, 1)}
_V0_8_2 = _up_to(produce=0, fetch=0, list_offsets=0, metadata=0, offset_commit=1, offset_fetch=1, find_coordinator=0)
_V0_9_0 = {**_V0_8_2, **_up_to(produce=1, fetch=1, offset_commit=2), **_GROUPS}
_V0_10_0 = {**_V0_9_0, **_INTERNAL, **_up_to(produce=2, fetch=2, metadata=1, sasl_handshake=0, api_versions=0)}
_V0_10_1 = {**_V0_10_0, **_up_to(fetch=3, list_offsets=1, metadata=2, join_group=1, create_topics=0, delete_topics=0)}
_V0_10_2 = {**_V0_10_1, **_up_to(update_metadata=3, offset_fetch=2, create_topics=1)}

KNOWN: Mapping[str, BrokerRanges] = {
    "0.8.2": _V0_8_2,
    "0.9.0": _V0_9_0,
    "0.10.0": _V0_10_0,
    "0.10.1": _V0_10_1,
    "0.10.2": _V0_10_2,
}
"""What each release serves. Of 0.8.2 and 0.9 only what clients may use: they have no ApiVersions, and read a request of
another version as if it were of their own."""

NEWER = "newer"
UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask this next, on the same connection."""

    api_key: int
    api_version: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Detected:
    """``version``: a key of KNOWN, "newer", or "unsure" (then ``reason`` says why and a configured version is needed).

    ``ranges``: what the broker said itself, or the table of its version; empty when unsure.
    """

    version: str
    ranges: BrokerRanges = field(default_factory=dict)
    reason: str = ""


FIRST_PROBE = Probe(ApiKey.METADATA, 1, pack(">i", 0))
"""Every broker answers it, with few bytes."""
_FETCH_PROBE = Probe(ApiKey.FETCH, 1, pack(">iiii", -1, 0, 0, 0))
_API_VERSIONS_PROBE = Probe(ApiKey.API_VERSIONS, 0, b"")
_OLD_BY_FETCH_ANSWER_BYTES = {4: "0.8.2", 8: "0.9.0"}


def detect(answers: Sequence[Buffer | None]) -> Probe | Detected:
    """Return the next probe, given the answers to all earlier ones (bodies; None: closed or silent), or the result.

    Starts with ``detect([])``. ApiVersions is never the first probe: 0.9 does not answer it, and loses requests of
    other connections when it comes.
    """
    if not answers:
        return FIRST_PROBE
    if answers[-1] is None:
        return Detected(UNSURE, reason=f"no answer to probe {len(answers)}")
    metadata = answers[0]
    assert metadata is not None
    old, new = _is_metadata(metadata, version=0), _is_metadata(metadata, version=1)
    if old == new:
        return Detected(UNSURE, reason="the answer to Metadata is in neither layout" if not old else "in both layouts")
    if len(answers) == 1:
        return _FETCH_PROBE if old else _API_VERSIONS_PROBE
    last = answers[1]
    assert last is not None
    if not old:
        return _by_api_versions(last)
    name = _OLD_BY_FETCH_ANSWER_BYTES.get(len(last))
    if name is None:
        return Detected(UNSURE, reason=f"{len(last)} bytes in answer to an empty Fetch")
    return Detected(name, KNOWN[name])


def _by_api_versions(body: Buffer) -> Detected:
    try:
        error_code, count = unpack_from(">hi", body)
        if error_code or count < 0 or len(body) != 6 + 6 * count:
            return Detected(UNSURE, reason=f"ApiVersions answered with error {error_code}, {len(body)} bytes")
        ranges = {key: (first, last) for key, first, last in Struct(">hhh").iter_unpack(memoryview(body)[6:])}
    except error:
        return Detected(UNSURE, reason="the answer to ApiVersions is cut short")
    if ApiKey.PRODUCE not in ranges or ApiKey.FETCH not in ranges or ApiKey.METADATA not in ranges:
        return Detected(UNSURE, reason="ApiVersions lists no Produce, Fetch or Metadata")
    if ranges[ApiKey.PRODUCE][1] > 2 or ApiKey.INIT_PRODUCER_ID in ranges:
        return Detected(NEWER, ranges)
    if ApiKey.CREATE_TOPICS not in ranges:
        return Detected("0.10.0", ranges)
    offset_fetch_max = ranges.get(ApiKey.OFFSET_FETCH, (0, 0))[1]
    return Detected("0.10.1" if offset_fetch_max < 2 else "0.10.2", ranges)


def _is_metadata(body: Buffer, *, version: int) -> bool:
    """Is this a Metadata answer of v0, or v1, to the last byte?"""
    try:
        at = 4
        for _ in range(_array_length(body, 0)):
            at = _after_string(body, at + 4) + 4
            if version >= 1:
                at = _after_string(body, at)
        at += 4 * version
        topics, at = _array_length(body, at), at + 4
        for _ in range(topics):
            at = _after_string(body, at + 2) + version
            partitions, at = _array_length(body, at), at + 4
            for _ in range(partitions):
                at += 10
                at += 4 + 4 * _array_length(body, at)
                at += 4 + 4 * _array_length(body, at)
    except error:
        return False
    return at == len(body)


def _array_length(body: Buffer, at: int) -> int:
    length: int = unpack_from(">i", body, at)[0]
    if not 0 <= length <= len(body):
        raise error
    return length


def _after_string(body: Buffer, at: int) -> int:
    length: int = unpack_from(">h", body, at)[0]
    if length < -1:
        raise error
    return at + 2 + max(length, 0)
