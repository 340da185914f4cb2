"""Metadata, ApiVersions and InitProducerId bodies, byte for byte against the message library."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import LimitExceeded, UnsupportedVersion, WireError
from idemproxy.proxy import limits
from idemproxy.proxy.bridge import api_versions, metadata
from idemproxy.proxy.bridge.cluster import BrokerAddress, Cluster, Partition, Topic
from idemproxy.proxy.bridge.describe_cluster import encode_describe_cluster, refused_describe_cluster
from idemproxy.proxy.bridge.init_producer_id import (
    InitProducerIdRequest,
    encode_init_producer_id,
    parse_init_producer_id,
)
from idemproxy.proxy.bridge.metadata import (
    ClientQuestion,
    encode_client_answer,
    parse_answer,
    parse_client_request,
    synthetic_cluster_id,
)
from idemproxy.proxy.versions import KNOWN, advertised

METADATA = 3
VERSIONS = range(5)
BROKERS = {1: BrokerAddress(1, "old-1.internal", 9092, "a"), 3: BrokerAddress(3, "old-3.internal", 9092)}
ADDRESSES = {1: ("proxy", 19091), 3: ("proxy", 19093)}
TOPICS = {
    "pain": Topic("pain", 0, False, (Partition(0, 0, 1, (1, 3), (1,)), Partition(5, 1, -1, (3,), ()))),
    "__consumer_offsets": Topic("__consumer_offsets", 0, True, (Partition(0, 0, 3, (3,), (3,)),)),
    "größer": Topic("größer", 5, False, ()),
}
CLUSTER = Cluster("cluster", 3, BROKERS, TOPICS)


def library_answer(version: int, cluster: Cluster, addresses: dict[int, tuple[str, int]]) -> bytes:
    """The same as the message library writes it."""
    fields: dict[str, Any] = {
        "brokers": [
            {"node_id": one.id, "host": addresses[one.id][0], "port": addresses[one.id][1], "rack": one.rack}
            for one in cluster.brokers.values()
        ],
        "topics": [
            {
                "error_code": topic.error_code,
                "name": topic.name,
                "is_internal": topic.is_internal,
                "partitions": [
                    {
                        "error_code": one.error_code,
                        "partition_index": one.index,
                        "leader_id": one.leader,
                        "replica_nodes": list(one.replicas),
                        "isr_nodes": list(one.isr),
                    }
                    for one in topic.partitions
                ],
            }
            for topic in cluster.topics.values()
        ],
        "cluster_id": cluster.cluster_id,
        "controller_id": -1 if cluster.controller_id is None else cluster.controller_id,
    }
    return messages.encode_response(METADATA, version, **fields)


def what_version_tells(version: int) -> Cluster:
    """CLUSTER as a broker of this version would tell it."""
    brokers = BROKERS if version >= 1 else {key: BrokerAddress(key, one.host, one.port) for key, one in BROKERS.items()}
    topics = {
        name: Topic(name, one.error_code, one.is_internal and version >= 1, one.partitions)
        for name, one in TOPICS.items()
    }
    return Cluster("cluster" if version >= 2 else None, 3 if version >= 1 else None, brokers, topics)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_brokers_answer_is_read_as_the_library_writes_it(version: int) -> None:
    own = {key: (one.host, one.port) for key, one in BROKERS.items()}
    assert parse_answer(version, library_answer(version, CLUSTER, own)) == what_version_tells(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clients_answer_is_what_the_library_writes_with_our_addresses(version: int) -> None:
    answer = encode_client_answer(version, CLUSTER, None, ADDRESSES, fallback_cluster_id="unused")
    assert answer == library_answer(version, CLUSTER, ADDRESSES)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broken_answer_of_a_broker_is_a_wire_error(version: int) -> None:
    body = library_answer(version, CLUSTER, ADDRESSES)
    for broken in [*(body[:cut] for cut in range(len(body))), body + b"\0"]:
        with pytest.raises(WireError):
            parse_answer(version, broken)


def test_versions_that_are_not_spoken_are_said_to_be_so() -> None:
    for call in (parse_answer, parse_client_request):
        for version in (-1, 5):
            with pytest.raises(UnsupportedVersion):
                call(version, b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_only_requested_topics_are_returned_unknown_ones_with_unknown_topic_or_partition(version: int) -> None:
    asked = ["nowhere", "pain", "nowhere"]
    body = encode_client_answer(version, CLUSTER, asked, ADDRESSES, fallback_cluster_id="x")
    told = parse_answer(version, body).topics
    assert list(told) == ["nowhere", "pain"]
    assert (told["nowhere"].error_code, told["nowhere"].partitions) == (3, ())
    assert told["pain"].partitions == TOPICS["pain"].partitions
    assert encode_client_answer(version, CLUSTER, [], ADDRESSES, fallback_cluster_id="x").endswith(bytes(4))


def test_a_broker_without_proxy_address_is_left_out_and_its_partitions_leaderless() -> None:
    told = parse_answer(4, encode_client_answer(4, CLUSTER, None, {3: ("proxy", 1)}, fallback_cluster_id="x"))
    assert list(told.brokers) == [3]
    assert told.topics["pain"].partitions[0] == Partition(5, 0, -1, (1, 3), (1,))
    assert told.topics["__consumer_offsets"] == TOPICS["__consumer_offsets"]


@pytest.mark.parametrize(("told", "expected"), [(None, 1), (3, 3), (1, 1), (8, 1)])
def test_the_controller_is_the_brokers_or_else_the_lowest_broker(told: int | None, expected: int) -> None:
    cluster = Cluster(None, told, BROKERS, {})
    answer = parse_answer(1, encode_client_answer(1, cluster, None, ADDRESSES, fallback_cluster_id="x"))
    assert answer.controller_id == expected


def test_without_brokers_there_is_no_controller() -> None:
    answer = encode_client_answer(1, Cluster(None, 1), None, {}, fallback_cluster_id="x")
    assert parse_answer(1, answer) == Cluster(None, None)


def test_a_cluster_without_an_id_gets_a_stable_one_of_kafkas_shape() -> None:
    first, second = synthetic_cluster_id("orders"), synthetic_cluster_id("payments")
    assert first == synthetic_cluster_id("orders") != second
    assert len(first) == 22
    answer = encode_client_answer(2, Cluster(None, None), None, {}, fallback_cluster_id=first)
    assert parse_answer(2, answer).cluster_id == first


@pytest.mark.parametrize(("version", "code"), [(0, 9), (1, 0), (4, 0)])
def test_a_missing_replica_is_reported_in_v0_only(version: int, code: int) -> None:
    cluster = Cluster(None, None, BROKERS, {"t": Topic("t", 0, False, (Partition(9, 0, 1, (1, 2), (1,)),))})
    answer = parse_answer(version, encode_client_answer(version, cluster, None, ADDRESSES, fallback_cluster_id="x"))
    assert answer.topics["t"].partitions[0].error_code == code


@pytest.mark.parametrize(
    ("version", "names"),
    [
        (version, names)
        for version in VERSIONS
        for names in (None, [], ["a"], ["a", "ü" * 100])
        if version or names is not None
    ],
)
@pytest.mark.parametrize("allowed", [True, False])
def test_a_clients_question_is_read_as_the_library_writes_it(
    version: int, names: list[str] | None, allowed: bool
) -> None:
    topics = None if names is None else [{"name": name} for name in names]
    body = messages.encode_request(METADATA, version, topics=topics, allow_auto_topic_creation=allowed)
    wants_all = names is None or (version == 0 and not names)
    expected = ClientQuestion(None if wants_all else tuple(names or ()), allowed or version < 4)
    assert parse_client_request(version, body) == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("names", [None, [], ["a", "b"]])
def test_our_question_is_what_the_library_writes(version: int, names: list[str] | None) -> None:
    chosen, body = metadata.encode_question({3: (0, version)}, names, allow_auto_topic_creation=False)
    topics = None if names is None else [{"name": name} for name in names]
    if version == 0 and topics is None:
        topics = []
    assert chosen == version
    assert body == messages.encode_request(METADATA, version, topics=topics, allow_auto_topic_creation=False)


LONGEST = "x" * 249
NO_TOPICS_NAMES = ["", ".", "..", "a b", "a/b", "größer", "x" * 250, "a\n"]


@pytest.mark.parametrize("name", NO_TOPICS_NAMES)
def test_an_impossible_topic_name_is_invalid_and_not_asked_of_brokers(name: str) -> None:
    told = encode_client_answer(1, Cluster(None, 1, BROKERS), [name, LONGEST], ADDRESSES, fallback_cluster_id="x")
    assert {one.name: one.error_code for one in parse_answer(1, told).topics.values()} == {name: 17, LONGEST: 3}

    for version in (1, 4):
        asked = metadata.encode_request(version, [name, LONGEST])
        assert asked == metadata.encode_request(version, [LONGEST])


@pytest.mark.parametrize("count", [-2, 2**31 - 1])
def test_an_impossible_number_of_topics_is_a_wire_error(count: int) -> None:
    with pytest.raises(WireError):
        parse_client_request(1, count.to_bytes(4, "big", signed=True))


def test_more_topics_than_one_step_can_answer_are_refused_before_they_are_read() -> None:
    def asking(count: int, length: int) -> bytes:
        return count.to_bytes(4, "big") + (length.to_bytes(2, "big") + b"x" * length) * count

    longest, most = 249, limits.METADATA_TOPICS_ASKED_MAX
    named = parse_client_request(1, asking(most, longest)).topics
    assert named is not None
    assert len(named) == most
    for count, length in ((most + 1, 0), (limits.METADATA_REQUEST_BYTES_MAX // 30_000 + 1, 30_000)):
        with pytest.raises(LimitExceeded):
            parse_client_request(1, asking(count, length))


def test_a_null_list_in_version_0_is_a_wire_error() -> None:
    with pytest.raises(WireError):
        parse_client_request(0, b"\xff" * 4)


# ApiVersions


@pytest.mark.parametrize("version", range(4))
def test_api_versions_is_answered_in_full(version: int) -> None:
    known = advertised([KNOWN["0.10.2"]])
    ranges = {**known, 0: (0, 8 if version >= 3 else 7)}
    told = messages.decode_response(18, version, api_versions.answer(version, known))
    assert told.error_code == 0
    assert {one.api_key: (one.min_version, one.max_version) for one in told.api_keys} == ranges
    keys = [{"api_key": key, "min_version": ranges[key][0], "max_version": ranges[key][1]} for key in sorted(ranges)]
    assert api_versions.answer(version, known) == messages.encode_response(18, version, api_keys=keys)


@pytest.mark.parametrize("version", [-1, 4, 5, 99])
def test_an_unknown_api_versions_version_is_answered_in_v0_with_its_range(version: int) -> None:
    told = messages.decode_response(18, 0, api_versions.answer(version, {0: (0, 3)}))
    assert told.error_code == 35
    assert [(one.api_key, one.min_version, one.max_version) for one in told.api_keys] == [(18, 0, 3)]


# DescribeCluster


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("wants_operations", [False, True])
def test_describe_cluster_is_answered_as_the_library_writes_it_with_what_metadata_tells(
    version: int, wants_operations: bool
) -> None:
    asked = messages.encode_request(60, version, include_cluster_authorized_operations=wants_operations)
    assert refused_describe_cluster(version, asked) is None
    brokers = [
        {"node_id": 1, "host": "proxy", "port": 1001, "rack": None},
        {"node_id": 2, "host": "proxy", "port": 1002, "rack": "b"},
    ]
    metadata = messages.encode_response(3, 4, brokers=brokers, cluster_id="c" * 22, controller_id=2, topics=[])
    told = messages.decode_response(60, version, encode_describe_cluster(version, metadata))
    assert (told.error_code, told.error_message, told.cluster_id, told.controller_id) == (0, None, "c" * 22, 2)
    assert [(one.broker_id, one.host, one.port, one.rack) for one in told.brokers] == [
        (1, "proxy", 1001, None),
        (2, "proxy", 1002, "b"),
    ]
    fields = messages.fields_of(told)
    assert messages.encode_response(60, version, **fields) == encode_describe_cluster(version, metadata)


@pytest.mark.parametrize(("kind", "code"), [(2, 114), (7, 115)])
def test_describe_cluster_for_other_endpoints_than_brokers_is_refused(kind: int, code: int) -> None:
    answer = refused_describe_cluster(1, messages.encode_request(60, 1, endpoint_type=kind))
    assert answer is not None
    told = messages.decode_response(60, 1, answer)
    assert (told.error_code, told.brokers, told.controller_id) == (code, [], -1)
    assert "asked for" in told.error_message or "not known" in told.error_message


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\0\0", b"\0\xff"])
def test_what_is_no_describe_cluster_is_a_wire_error(body: bytes) -> None:
    with pytest.raises(WireError):
        refused_describe_cluster(0, body)


# InitProducerId


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("name", [None, "", "writer-7"])
def test_init_producer_id_is_read_as_the_library_writes_it(version: int, name: str | None) -> None:
    body = messages.encode_request(
        22, version, transactional_id=name, transaction_timeout_ms=60000, producer_id=2**40, producer_epoch=7
    )
    carried = (2**40, 7) if version >= 3 else (-1, -1)
    assert parse_init_producer_id(body, version) == InitProducerIdRequest(name, 60000, *carried)
    for broken in (body[:-1], body + b"\0"):
        with pytest.raises(WireError):
            parse_init_producer_id(broken, version)


@pytest.mark.parametrize("version", range(7))
def test_init_producer_id_is_answered_as_the_library_writes_it(version: int) -> None:
    fields: dict[str, Any] = {"throttle_time_ms": 250, "producer_id": 2**62 - 1, "producer_epoch": 3}
    assert encode_init_producer_id(version, 0, 2**62 - 1, 3, 250) == messages.encode_response(22, version, **fields)
    failed = messages.decode_response(22, version, encode_init_producer_id(version, 14, 5, 5))
    assert (failed.error_code, failed.producer_id, failed.producer_epoch) == (14, -1, -1)


def test_init_producer_id_beyond_version_6_is_said_to_be_unsupported() -> None:
    with pytest.raises(UnsupportedVersion):
        parse_init_producer_id(b"", 7)
