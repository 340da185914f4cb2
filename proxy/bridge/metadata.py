"""Metadata: the cluster as frozen data, the question to a broker and the answer to a client. Clients are answered
from memory.

Owns the layouts of Metadata v0 to v4 on both sides. Never decides what is asked or how old an answer may be. Source:
KafkaApis.handleTopicMetadataRequest 0.8.2 to 0.11, MetadataRequest and MetadataResponse (protocol guide).
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct, pack

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import LimitExceeded, UnsupportedVersion
from ...reactor import Buffer
from ..limits import ANSWERS_KEPT_BYTES_MAX, ANSWERS_KEPT_MAX
from ..versions import ApiKey, BrokerRanges
from .base import THROTTLE_NONE, Addresses
from .fields import INT16, INT32, Reader, nullable_string, string

CLIENT_VERSION_MAX = 4
QUESTION_VERSION_MAX = 4
CLUSTER_ID_VERSION_MIN = 2
TOPICS_ASKED_MAX = 100_000
"""Topics that one client may ask for by name: no cluster of these versions has so many, and each costs microseconds."""
TOPIC_NAME = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,255}")
"""What brokers take as a name; later ones only 249 characters."""
NO_BROKER = -1
_BROKER_BYTES_MIN = 10
_TOPIC_BYTES_MIN = 8
_PARTITION_BYTES_MIN = 18
_PARTITION_HEAD = Struct(">hii")
_LEADERLESS = (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE)


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


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic; ``partitions`` in the broker's order, which is none."""

    name: str
    error_code: int
    is_internal: bool
    partitions: tuple[Partition, ...]

    @property
    def has_leaders(self) -> bool:
        """Has every partition one? A topic that is being created has no partitions yet."""
        return bool(self.partitions) and all(one.leader != NO_BROKER for one in self.partitions)


@dataclass(frozen=True, slots=True)
class Cluster:
    """What one broker told. ``cluster_id`` None: it told none (before 0.10.1); ``controller_id`` None: before 0.10.0,
    or not known to it."""

    cluster_id: str | None
    controller_id: int | None
    brokers: Mapping[int, BrokerAddress] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClientQuestion:
    """What a client wants to know. ``topics`` None: all; empty: only the brokers."""

    topics: tuple[str, ...] | None
    allow_auto_topic_creation: bool


def synthetic_cluster_id(cluster_name: str) -> str:
    """A cluster id of Kafka's shape (22 characters) for a cluster whose brokers have none; the same for the same
    name."""
    digest = hashlib.blake2b(cluster_name.encode(), digest_size=16, person=b"idemproxyCluster").digest()
    return urlsafe_b64encode(digest).decode().rstrip("=")


def encode_question(
    ranges: BrokerRanges, topics: Sequence[str] | None, *, allow_auto_topic_creation: bool = True
) -> tuple[int, bytes]:
    """Return (version, body) for a broker with these ranges. See ``encode_request``."""
    version = min(ranges[ApiKey.METADATA][1], QUESTION_VERSION_MAX)
    return version, encode_request(version, topics, allow_auto_topic_creation)


def encode_request(version: int, topics: Sequence[str] | None, allow_auto_topic_creation: bool = True) -> bytes:
    """Return the body. ``topics`` None: all; empty: only the brokers, which can not be said in v0 (all come then).

    A broker before 0.11 may create what is named, whatever is allowed here: name only what is known to exist. Names
    that no topic can have are left out: clients choose them, at any length.
    """
    assert 0 <= version <= QUESTION_VERSION_MAX
    if topics is None:
        names = INT32.pack(0) if version == 0 else INT32.pack(-1)
    else:
        possible = [name for name in topics if TOPIC_NAME.fullmatch(name)]
        names = b"".join([INT32.pack(len(possible)), *map(string, possible)])
    return names + pack(">?", allow_auto_topic_creation) if version >= 4 else names


def parse_answer(version: int, body: Buffer) -> Cluster:
    """A broker's answer, v0 to v4. WireError for garbage and for bytes left over."""
    if not 0 <= version <= QUESTION_VERSION_MAX:
        raise UnsupportedVersion(ApiKey.METADATA, version)
    reader = Reader(body)
    if version >= 3:
        reader.int32("throttle_time_ms")
    brokers: dict[int, BrokerAddress] = {}
    for _ in range(reader.count("brokers", _BROKER_BYTES_MIN)):
        broker_id, host, port = reader.int32("node_id"), reader.string("host"), reader.int32("port")
        rack = reader.nullable_string("rack") if version >= 1 else None
        brokers[broker_id] = BrokerAddress(broker_id, host, port, rack)
    cluster_id = reader.nullable_string("cluster_id") if version >= CLUSTER_ID_VERSION_MIN else None
    controller_id = reader.int32("controller_id") if version >= 1 else NO_BROKER
    topics: dict[str, Topic] = {}
    for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
        topic = _parse_topic(reader, version)
        topics[topic.name] = topic
    reader.finish()
    return Cluster(cluster_id, controller_id if controller_id != NO_BROKER else None, brokers, topics)


def _parse_topic(reader: Reader, version: int) -> Topic:
    error_code, name = reader.int16("topic error_code"), reader.string("topic name")
    is_internal = reader.boolean("is_internal") if version >= 1 else False
    partitions = []
    for _ in range(reader.count("partitions", _PARTITION_BYTES_MIN)):
        partition_error, index, leader = reader.unpack(_PARTITION_HEAD, "partition")
        replicas, isr = reader.int32_array("replicas"), reader.int32_array("isr")
        partitions.append(Partition(partition_error, index, leader, replicas, isr))
    return Topic(name, error_code, is_internal, tuple(partitions))


def parse_client_request(version: int, body: Buffer) -> ClientQuestion:
    """A client's request body, v0 to v4. LimitExceeded for more than ``TOPICS_ASKED_MAX`` topics."""
    if not 0 <= version <= CLIENT_VERSION_MAX:
        raise UnsupportedVersion(ApiKey.METADATA, version)
    reader = Reader(body)
    count = reader.count("topics", 2, null_is=-1 if version >= 1 else None)
    if count > TOPICS_ASKED_MAX:
        raise LimitExceeded(f"metadata request: {count} topics, the limit is {TOPICS_ASKED_MAX}")
    names = tuple(reader.string("topic name") for _ in range(count))
    allow_auto_topic_creation = reader.boolean("allow_auto_topic_creation") if version >= 4 else True
    reader.finish()
    wants_all = count == -1 or (version == 0 and count == 0)
    return ClientQuestion(None if wants_all else names, allow_auto_topic_creation)


def encode_client_answer(
    version: int, cluster: Cluster, topics: Sequence[str] | None, addresses: Addresses, *, fallback_cluster_id: str
) -> bytes:
    """Return the body for a client at v0 to v4: the brokers of ``addresses`` only, so no address of a real broker
    gets out.

    ``topics`` None: all that the cluster lists. One that it does not list gets 3, or 17 if no topic can have that name.
    A leader that has no address here is told as "no leader now" (5), which makes the client ask again. The controller
    is the cluster's, else the lowest broker with an address.
    """
    assert 0 <= version <= CLIENT_VERSION_MAX
    alive = sorted(broker_id for broker_id in cluster.brokers if broker_id in addresses)
    parts = [THROTTLE_NONE if version >= 3 else b"", INT32.pack(len(alive))]
    for broker_id in alive:
        host, port = addresses[broker_id]
        rack = nullable_string(cluster.brokers[broker_id].rack) if version >= 1 else b""
        parts += (INT32.pack(broker_id), string(host), INT32.pack(port), rack)
    if version >= 2:
        parts.append(string(cluster.cluster_id or fallback_cluster_id))
    if version >= 1:
        parts.append(INT32.pack(_controller(cluster.controller_id, alive)))
    names = list(cluster.topics) if topics is None else list(dict.fromkeys(topics))
    parts.append(INT32.pack(len(names)))
    for name in names:
        _append_topic(parts, version, name, cluster.topics.get(name), frozenset(alive))
    return b"".join(parts)


class ClientAnswers:
    """Answers to clients, each made once: a client that asks for all of a large cluster costs milliseconds, and after
    a restart all of them ask the same. ``fallback_cluster_id``: where the cluster tells none."""

    def __init__(self, fallback_cluster_id: str) -> None:
        self._fallback_cluster_id = fallback_cluster_id
        self._cluster: Cluster | None = None
        self._made: dict[tuple[int, tuple[str, ...] | None, tuple[object, ...]], bytes] = {}
        self._made_bytes = 0

    def answer(self, version: int, cluster: Cluster, topics: tuple[str, ...] | None, addresses: Addresses) -> bytes:
        """Return the body. See ``encode_client_answer``."""
        key = version, topics, tuple(sorted(addresses.items()))
        if cluster is not self._cluster:
            self._cluster = cluster
            self._forget()
        body = self._made.get(key)
        if body is None:
            body = encode_client_answer(
                version, cluster, topics, addresses, fallback_cluster_id=self._fallback_cluster_id
            )
            if self._made_bytes > ANSWERS_KEPT_BYTES_MAX or len(self._made) >= ANSWERS_KEPT_MAX:
                self._forget()
            self._made[key] = body
            self._made_bytes += len(body) + sum(map(len, topics or ()))
        return body

    def _forget(self) -> None:
        self._made.clear()
        self._made_bytes = 0


def _controller(told: int | None, alive: list[int]) -> int:
    if told is not None and told in alive:
        return told
    return alive[0] if alive else NO_BROKER


def _append_topic(parts: list[bytes], version: int, name: str, topic: Topic | None, alive: frozenset[int]) -> None:
    if topic is None:
        is_possible = TOPIC_NAME.fullmatch(name) is not None
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_possible else ErrorCode.INVALID_TOPIC_EXCEPTION
        topic = Topic(name, code, False, ())
    parts += (INT16.pack(topic.error_code), string(name))
    if version >= 1:
        parts.append(b"\x01" if topic.is_internal else b"\x00")
    parts.append(INT32.pack(len(topic.partitions)))
    for partition in topic.partitions:
        error_code, leader = partition.error_code, partition.leader
        if leader not in alive and error_code in _LEADERLESS:
            error_code, leader = ErrorCode.LEADER_NOT_AVAILABLE, NO_BROKER
        elif version >= 1 and error_code == ErrorCode.REPLICA_NOT_AVAILABLE:
            error_code = ErrorCode.NONE  # said in v0 only: in later versions it makes new clients ask again without end
        replicas, isr = partition.replicas, partition.isr
        layout = f">hiii{len(replicas)}ii{len(isr)}i"
        parts.append(pack(layout, error_code, partition.index, leader, len(replicas), *replicas, len(isr), *isr))
