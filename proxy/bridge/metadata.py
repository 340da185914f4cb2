"""Metadata: the question to a broker and the answer to a client. Clients are answered from memory.

Owns the layouts of Metadata v0 to v4 on both sides. Never decides what is asked or how old an answer may be. Source:
KafkaApis.handleTopicMetadataRequest 0.8.2 to 0.11, MetadataRequest and MetadataResponse (protocol guide).
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import pack

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import LimitExceeded, UnsupportedVersion
from ...codecs.steps import Steps, at_once
from ...reactor import Buffer
from ..limits import (
    METADATA_REQUEST_BYTES_MAX,
    METADATA_ROWS_PER_STEP,
    METADATA_TOPICS_ASKED_MAX,
    TOPIC_CHARACTERS_MAX,
)
from ..versions import ApiKey, BrokerRanges
from .base import THROTTLE_NONE, Addresses
from .cluster import NO_BROKER, BrokerAddress, Cluster, Topic, read_rows, told_rows
from .fields import INT16, INT32, Reader, nullable_string, string

CLIENT_VERSION_MAX = 4
QUESTION_VERSION_MAX = 4
CLUSTER_ID_VERSION_MIN = 2
TOPIC_NAME = re.compile(rf"(?!\.{{1,2}}\Z)[a-zA-Z0-9._-]{{1,{TOPIC_CHARACTERS_MAX}}}")
"""What brokers take as a name. Clients may send other names, of any length:
these are answered as invalid topics, and remembered nowhere. An answer of "unknown" would make a client ask for its
name until its time is up."""
_BROKER_BYTES_MIN = 10
_TOPIC_BYTES_MIN = 8
_NONE_KNOWN: Mapping[str, Topic] = {}


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
    return at_once(read_answer(version, body, _NONE_KNOWN))


def read_answer(version: int, body: Buffer, known: Mapping[str, Topic]) -> Steps[Cluster]:
    """The same in steps. ``known``: topics of an earlier answer; one whose bytes have not changed is returned as that
    very object, and its partitions are not read again."""
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
    read = 0
    for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
        if read >= METADATA_ROWS_PER_STEP:
            yield
            read = 0
        error_code, name = reader.int16("topic error_code"), reader.string("topic name")
        is_internal = reader.boolean("is_internal") if version >= 1 else False
        before = known.get(name)
        if before is not None and reader.begins_with(before.rows.body):
            rows = before.rows
            reader.position += len(rows.body)
            read += 1
        else:
            rows = yield from read_rows(reader)
            read += 1 + len(rows.leaders)
        topic = Topic(name, error_code, is_internal, rows)
        topics[name] = before if before is not None and before == topic else topic
    reader.finish()
    return Cluster(cluster_id, controller_id if controller_id != NO_BROKER else None, brokers, topics)


def parse_client_request(version: int, body: Buffer) -> ClientQuestion:
    """A client's request body, v0 to v4. LimitExceeded for more than ``METADATA_TOPICS_ASKED_MAX`` topics or
    ``METADATA_REQUEST_BYTES_MAX`` bytes, UnsupportedVersion for a later version, other WireErrors for garbage."""
    if not 0 <= version <= CLIENT_VERSION_MAX:
        raise UnsupportedVersion(ApiKey.METADATA, version)
    if len(body) > METADATA_REQUEST_BYTES_MAX:
        raise LimitExceeded(f"metadata request: {len(body)} bytes, the limit is {METADATA_REQUEST_BYTES_MAX}")
    reader = Reader(body)
    count = reader.count("topics", 2, null_is=-1 if version >= 1 else None)
    if count > METADATA_TOPICS_ASKED_MAX:
        raise LimitExceeded(f"metadata request: {count} topics, the limit is {METADATA_TOPICS_ASKED_MAX}")
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

    ``topics`` None: all that the cluster lists. One that it does not list gets UNKNOWN_TOPIC_OR_PARTITION, or
    INVALID_TOPIC_EXCEPTION if no topic can have that name. A partition whose leader has no address here gets
    LEADER_NOT_AVAILABLE, which makes the client ask again. The controller is the cluster's, else the lowest broker with
    an address.
    """
    return at_once(tell_client(version, cluster, topics, addresses, fallback_cluster_id))


def tell_client(
    version: int, cluster: Cluster, topics: Sequence[str] | None, addresses: Addresses, fallback_cluster_id: str
) -> Steps[bytes]:
    """``encode_client_answer`` in steps."""
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
    if topics is not None and len(topics) > METADATA_ROWS_PER_STEP:
        yield  # reading so many names, and checking which of them have to be asked for, took long enough
    reached, reported = frozenset(alive), 0
    for name in names:
        if reported >= METADATA_ROWS_PER_STEP:
            yield
            reported = 0
        topic = cluster.topics.get(name) or _unknown(name)
        rows = yield from told_rows(version, topic.rows, reached)
        reported += 1 if rows is topic.rows.body else 1 + len(topic.rows.leaders)
        parts += (INT16.pack(topic.error_code), string(name))
        if version >= 1:
            parts.append(b"\x01" if topic.is_internal else b"\x00")
        parts.append(rows)
    return b"".join(parts)


def _controller(reported: int | None, alive: list[int]) -> int:
    if reported is not None and reported in alive:
        return reported
    return alive[0] if alive else NO_BROKER


def _unknown(name: str) -> Topic:
    is_possible = TOPIC_NAME.fullmatch(name) is not None
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_possible else ErrorCode.INVALID_TOPIC_EXCEPTION
    return Topic(name, code, False)
