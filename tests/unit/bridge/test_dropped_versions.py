"""Which versions Kafka 4 dropped, and the response that refuses each of them: its bytes, written out by the protocol's
schemas, as the message library writes most of them itself."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.proxy.bridge.api_versions import software
from idemproxy.proxy.bridge.refusals import refusal
from idemproxy.proxy.versions import DROPPED_MAX, KAFKA_4_FROM, ApiKey, BrokerRanges, api_title, is_dropped, is_unserved

KAFKA_4: BrokerRanges = {
    **{ApiKey.PRODUCE: (0, 13), ApiKey.FETCH: (4, 18), ApiKey.LIST_OFFSETS: (1, 11), ApiKey.METADATA: (0, 13)},
    **{ApiKey.OFFSET_COMMIT: (2, 10), ApiKey.JOIN_GROUP: (0, 9)},
}
KAFKA_3: BrokerRanges = {**KAFKA_4, ApiKey.FETCH: (0, 17), ApiKey.LIST_OFFSETS: (0, 9), ApiKey.OFFSET_COMMIT: (0, 9)}
DROPPED = [(int(key), version) for key, first in KAFKA_4_FROM.items() for version in range(first)]


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def array(*entries: bytes) -> bytes:
    return struct.pack(">i", len(entries)) + b"".join(entries)


def by_partition(*fields: bytes) -> bytes:
    """One topic "t" with one partition of these fields."""
    return array(text("t") + array(b"".join(fields)))


REFUSED = struct.pack(">h", 35)
INDEX = struct.pack(">i", 3)
NO_OFFSET = struct.pack(">q", -1)
NO_THROTTLE = bytes(4)
NULL = b"\xff\xff"
T3 = {"name": "t", "partition_index": 3}

REQUESTS: dict[int, dict[str, Any]] = {
    ApiKey.PRODUCE: {
        **{"acks": 1, "timeout_ms": 5},
        "topic_data": [{"name": "t", "partition_data": [{"index": 3, "records": bytes(20)}]}],
    },
    ApiKey.FETCH: {"replica_id": -1, "topics": [{"topic": "t", "partitions": [{"partition": 3}]}]},
    ApiKey.LIST_OFFSETS: {"topics": [{"name": "t", "partitions": [{"partition_index": 3, "timestamp": -1}]}]},
    ApiKey.OFFSET_COMMIT: {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 3}]}]},
    ApiKey.OFFSET_FETCH: {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [3]}]},
    ApiKey.CREATE_TOPICS: {"topics": [{"name": "t", "assignments": [], "configs": []}]},
    ApiKey.DELETE_TOPICS: {"topic_names": ["t"]},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"topics": [{"topic": "t", "partitions": [{"partition": 3}]}]},
    ApiKey.WRITE_TXN_MARKERS: {
        "markers": [{"producer_id": 7, "topics": [{"name": "t", "partition_indexes": [3]}]}],
    },
    ApiKey.DESCRIBE_ACLS: {"resource_type_filter": 1},
    ApiKey.CREATE_ACLS: {"creations": [{"resource_name": "r"}, {"resource_name": "s"}]},
    ApiKey.DELETE_ACLS: {"filters": [{}]},
    ApiKey.DESCRIBE_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": "t"}]},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {"dirs": [{"path": "/d", "topics": [{"name": "t", "partitions": [3]}]}]},
    ApiKey.DESCRIBE_LOG_DIRS: {"topics": None},
}
RESPONSES: dict[tuple[int, int], bytes] = {
    (ApiKey.PRODUCE, 0): by_partition(INDEX, REFUSED, NO_OFFSET),
    (ApiKey.PRODUCE, 1): by_partition(INDEX, REFUSED, NO_OFFSET) + NO_THROTTLE,
    (ApiKey.PRODUCE, 2): by_partition(INDEX, REFUSED, NO_OFFSET, NO_OFFSET) + NO_THROTTLE,
    (ApiKey.FETCH, 0): by_partition(INDEX, REFUSED, NO_OFFSET, bytes(4)),
    **{
        (ApiKey.FETCH, version): NO_THROTTLE + by_partition(INDEX, REFUSED, NO_OFFSET, bytes(4))
        for version in (1, 2, 3)
    },
    (ApiKey.LIST_OFFSETS, 0): by_partition(INDEX, REFUSED, array()),
    (ApiKey.OFFSET_COMMIT, 0): by_partition(INDEX, REFUSED),
    (ApiKey.OFFSET_COMMIT, 1): by_partition(INDEX, REFUSED),
    (ApiKey.OFFSET_FETCH, 0): by_partition(INDEX, NO_OFFSET, text(""), REFUSED),
    (ApiKey.CREATE_TOPICS, 0): array(text("t") + REFUSED),
    (ApiKey.CREATE_TOPICS, 1): array(text("t") + REFUSED + text("")),
    (ApiKey.DELETE_TOPICS, 0): array(text("t") + REFUSED),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 0): by_partition(REFUSED, INDEX, NO_OFFSET),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 1): by_partition(REFUSED, INDEX, struct.pack(">i", -1), NO_OFFSET),
    (ApiKey.WRITE_TXN_MARKERS, 0): array(struct.pack(">q", 7) + by_partition(INDEX, REFUSED)),
    (ApiKey.DESCRIBE_ACLS, 0): NO_THROTTLE + REFUSED + text("") + array(),
    (ApiKey.CREATE_ACLS, 0): NO_THROTTLE + array(REFUSED + NULL, REFUSED + NULL),
    (ApiKey.DELETE_ACLS, 0): NO_THROTTLE + array(REFUSED + NULL + array()),
    (ApiKey.DESCRIBE_CONFIGS, 0): NO_THROTTLE + array(REFUSED + NULL + b"\x02" + text("t") + array()),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, 0): NO_THROTTLE + by_partition(INDEX, REFUSED),
    (ApiKey.DESCRIBE_LOG_DIRS, 0): NO_THROTTLE + array(REFUSED + text("") + array()),
    # Error, owner (type and name), times of issue, expiry and the latest expiry, token id, HMAC, throttling.
    (ApiKey.CREATE_DELEGATION_TOKEN, 0): REFUSED + text("") * 2 + bytes(24) + text("") + bytes(4) + NO_THROTTLE,
    (ApiKey.RENEW_DELEGATION_TOKEN, 0): REFUSED + bytes(8) + NO_THROTTLE,
    (ApiKey.EXPIRE_DELEGATION_TOKEN, 0): REFUSED + bytes(8) + NO_THROTTLE,
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, 0): REFUSED + array() + NO_THROTTLE,
}


@pytest.mark.parametrize(("key", "version"), DROPPED, ids=[f"{api_title(key)}-{version}" for key, version in DROPPED])
def test_a_dropped_version_is_refused_in_its_own_layout(key: int, version: int) -> None:
    body = messages.encode_request(key, version, **REQUESTS[key]) if key in REQUESTS else b""
    assert int(ErrorCode.UNSUPPORTED_VERSION) == 35
    assert refusal(key, version, body) == RESPONSES[key, version]


def test_a_produce_that_wants_no_response_gets_none() -> None:
    fields = {**REQUESTS[ApiKey.PRODUCE], "acks": 0}
    assert refusal(ApiKey.PRODUCE, 2, messages.encode_request(ApiKey.PRODUCE, 2, **fields)) is None


@pytest.mark.parametrize(
    ("key", "version", "is_so"),
    [
        *((ApiKey.PRODUCE, version, version < 3) for version in range(5)),
        *((ApiKey.FETCH, version, version < 4) for version in range(6)),
        *((ApiKey.JOIN_GROUP, 0, False), (ApiKey.SASL_HANDSHAKE, 0, False), (ApiKey.METADATA, 0, False)),
        *((ApiKey.FETCH, -1, False), (ApiKey.PRODUCE, -1, False), (12_345, 0, False)),
    ],
)
def test_a_version_is_dropped_by_the_table_and_no_other(key: int, version: int, is_so: bool) -> None:
    assert is_dropped(key, version) is is_so
    assert not is_so or version <= DROPPED_MAX


def test_the_range_of_fetch_shows_that_a_broker_lists_produce_versions_it_does_not_serve() -> None:
    assert is_unserved(KAFKA_4, ApiKey.PRODUCE, 2)
    assert not is_unserved(KAFKA_4, ApiKey.PRODUCE, 3)
    assert not is_unserved(KAFKA_3, ApiKey.PRODUCE, 2)


@pytest.mark.parametrize(("key", "version"), [(ApiKey.FETCH, 3), (ApiKey.LIST_OFFSETS, 0), (ApiKey.OFFSET_COMMIT, 1)])
def test_a_broker_serves_other_apis_from_the_version_that_it_lists(key: int, version: int) -> None:
    assert is_unserved(KAFKA_4, key, version)
    assert not is_unserved(KAFKA_3, key, version)
    assert not is_unserved({}, key, version), "a broker that lists nothing of it judges the request itself"


@pytest.mark.parametrize(
    ("version", "body", "stated"),
    [
        (3, b"\x07sarama\x071.40.0\x00", "sarama 1.40.0"),
        (4, b"\x07sarama\x01\x00", "sarama"),
        (2, b"\x07sarama\x071.40.0\x00", ""),
        (3, b"\x07sar", ""),
        (3, b"\x03\xff\xfe\x011\x00", ""),
        (3, b"\x80\x01" + b"s" * 127 + b"\x02v\x00", "s" * 64),
    ],
)
def test_the_software_is_what_the_client_states_if_it_can_be_read(version: int, body: bytes, stated: str) -> None:
    assert software(version, body) == stated
