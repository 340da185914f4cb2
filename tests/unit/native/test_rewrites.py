"""Addresses in brokers' answers become the proxy's, in every version; compared with the protocol library."""

from typing import Any
from uuid import UUID

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import Truncated
from idemproxy.proxy.bridge.base import Addresses
from idemproxy.proxy.native.rewrites import NOTHING, REWRITES, REWRITTEN_FROM, Replaced, api_versions, metadata
from idemproxy.proxy.versions import NATIVE_MAX, ApiKey, BrokerRanges

PLACES = {0: ("proxy", 9092), 1: ("proxy", 9093), 7: ("proxy.with.a.longer.name", 19099)}


def addresses() -> Addresses:
    return PLACES


BROKERS = [
    {"node_id": 0, "host": "kafka-0.inside", "port": 1, "rack": None},
    {"node_id": 7, "host": "k", "port": 65_535, "rack": "r"},
]
STRANGER = {"node_id": 9, "host": "kafka-9.inside", "port": 3, "rack": None}
TOPICS = [
    {
        "error_code": 0,
        "name": "orders",
        "is_internal": False,
        "partitions": [
            {
                "error_code": 0,
                "partition_index": 3,
                "leader_id": 7,
                "leader_epoch": 5,
                "replica_nodes": [7, 0],
                "isr_nodes": [7],
                "offline_replicas": [0],
            }
        ],
    }
]


def applied(body: bytes, replaced: Replaced) -> bytes:
    return replaced.instead + body[replaced.taken :]


def rewritten(api_key: int, version: int, **fields: Any) -> tuple[Any, Replaced]:
    """The answer as the client reads it."""
    body = messages.encode_response(api_key, version, **fields)
    replaced = REWRITES[api_key](version, memoryview(body), addresses)
    return messages.decode_response(api_key, version, applied(body, replaced)), replaced


@pytest.mark.parametrize("version", range(NATIVE_MAX[ApiKey.METADATA] + 1))
def test_metadata_has_the_proxys_addresses_and_all_else_as_it_was(version: int) -> None:
    fields: dict[str, Any] = {"throttle_time_ms": 4, "cluster_id": "c", "controller_id": 7, "topics": TOPICS}
    answer, replaced = rewritten(ApiKey.METADATA, version, brokers=BROKERS, **fields)
    assert [(one.node_id, one.host, one.port) for one in answer.brokers] == [(0, *PLACES[0]), (7, *PLACES[7])]
    assert replaced.strangers == frozenset()
    told = (PLACES[0], PLACES[7])
    there = [{**one, "host": place[0], "port": place[1]} for one, place in zip(BROKERS, told, strict=True)]
    whole = messages.encode_response(ApiKey.METADATA, version, brokers=there, **fields)
    body = messages.encode_response(ApiKey.METADATA, version, brokers=BROKERS, **fields)
    assert applied(body, metadata(version, memoryview(body), addresses)) == whole


@pytest.mark.parametrize("version", range(NATIVE_MAX[ApiKey.METADATA] + 1))
def test_metadata_is_rewritten_as_soon_as_all_brokers_are_there(version: int) -> None:
    body = messages.encode_response(ApiKey.METADATA, version, brokers=BROKERS, topics=TOPICS, controller_id=7)
    wanted = metadata(version, memoryview(body), addresses)
    for count in range(wanted.taken):
        with pytest.raises(Truncated):
            metadata(version, memoryview(body)[:count], addresses)
    for count in range(wanted.taken, len(body) + 1):
        assert metadata(version, memoryview(body)[:count], addresses) == wanted


@pytest.mark.parametrize("version", [0, 1, 8, 9, 13])
def test_a_broker_without_a_proxy_address_is_returned_at_another_brokers(version: int) -> None:
    answer, replaced = rewritten(ApiKey.METADATA, version, brokers=[*BROKERS, STRANGER], topics=TOPICS)
    assert {(one.host, one.port) for one in answer.brokers} <= set(PLACES.values())
    assert [one.node_id for one in answer.brokers] == [0, 7, 9]
    assert replaced.strangers == {9}
    body = messages.encode_response(ApiKey.METADATA, version, brokers=[STRANGER], topics=[])
    nobody = metadata(version, memoryview(body), dict)
    assert messages.decode_response(ApiKey.METADATA, version, applied(body, nobody)).brokers == []


@pytest.mark.parametrize("version", range(NATIVE_MAX[ApiKey.FIND_COORDINATOR] + 1))
def test_coordinators_are_returned_at_the_proxys_addresses(version: int) -> None:
    def told(node_id: int, error_code: int = 0) -> tuple[Any, Replaced]:
        one = {"key": "group", "node_id": node_id, "host": "kafka.inside", "port": 3, "error_code": error_code}
        several: dict[str, Any] = {"coordinators": [one]} if version >= 4 else {**one}
        several.pop("key", None)
        answer, replaced = rewritten(ApiKey.FIND_COORDINATOR, version, **several)
        return answer.coordinators[0] if version >= 4 else answer, replaced

    here, _ = told(7)
    assert (here.node_id, here.host, here.port, here.error_code) == (7, *PLACES[7], 0)
    away, replaced = told(9)
    assert (away.node_id, away.host, away.port, away.error_code) == (-1, "", -1, 15)
    assert replaced.strangers == {9}
    refused, replaced = told(-1, 16)
    assert (refused.error_code, refused.node_id, replaced.strangers) == (16, -1, frozenset())


@pytest.mark.parametrize("version", range(NATIVE_MAX[ApiKey.DESCRIBE_CLUSTER] + 1))
def test_described_brokers_are_returned_at_the_proxys_addresses(version: int) -> None:
    brokers = [{**one, "broker_id": one["node_id"]} for one in (*BROKERS, STRANGER)]
    for one in brokers:
        del one["node_id"]
    answer, replaced = rewritten(ApiKey.DESCRIBE_CLUSTER, version, cluster_id="c", controller_id=7, brokers=brokers)
    assert [(one.broker_id, one.host, one.port, one.rack) for one in answer.brokers] == [
        (0, *PLACES[0], None),
        (7, *PLACES[7], "r"),
    ]
    assert (answer.cluster_id, answer.controller_id) == ("c", 7)
    assert replaced.strangers == {9}


def produced(version: int, error_code: int) -> list[dict[str, Any]]:
    partition: dict[str, Any] = {"index": 1, "error_code": error_code, "base_offset": 5}
    if error_code and version >= 8:
        partition["record_errors"] = [{"batch_index": 0, "batch_index_error_message": "why"}]
        partition["error_message"] = "not here"
    if error_code == 6 and version >= 10:
        partition["current_leader"] = {"leader_id": 7, "leader_epoch": 3}
    named = {"topic_id": UUID(int=1 << 80)} if version >= 13 else {"name": "orders"}
    return [{**named, "partition_responses": [partition, {**partition, "index": 2}]}] * 2


@pytest.mark.parametrize("version", range(REWRITTEN_FROM[ApiKey.PRODUCE], NATIVE_MAX[ApiKey.PRODUCE] + 1))
@pytest.mark.parametrize("error_code", [0, 6])
def test_an_answer_to_produce_without_endpoints_is_unchanged(version: int, error_code: int) -> None:
    body = messages.encode_response(ApiKey.PRODUCE, version, responses=produced(version, error_code))
    assert REWRITES[ApiKey.PRODUCE](version, memoryview(body), addresses) == NOTHING


@pytest.mark.parametrize("version", range(REWRITTEN_FROM[ApiKey.PRODUCE], NATIVE_MAX[ApiKey.PRODUCE] + 1))
def test_new_leaders_in_an_answer_to_produce_get_the_proxys_addresses(version: int) -> None:
    answer, replaced = rewritten(
        ApiKey.PRODUCE, version, responses=produced(version, 6), node_endpoints=[*BROKERS, STRANGER]
    )
    assert [(one.node_id, one.host, one.port) for one in answer.node_endpoints] == [
        (0, *PLACES[0]),
        (7, *PLACES[7]),
    ]
    partition = answer.responses[1].partition_responses[1]
    assert (partition.index, partition.error_code, partition.error_message) == (2, 6, "not here")
    assert (partition.current_leader.leader_id, partition.record_errors[0].batch_index_error_message) == (7, "why")
    assert replaced.strangers == {9}


def as_listed(listed: BrokerRanges) -> BrokerRanges:
    """Nothing is raised."""
    return listed


@pytest.mark.parametrize("version", range(NATIVE_MAX[ApiKey.API_VERSIONS] + 1))
def test_version_ranges_are_cut_to_what_goes_through_and_features_kept(version: int) -> None:
    def told(first: int, last: int, key: int) -> dict[str, int]:
        return {"api_key": key, "min_version": first, "max_version": last}

    keys = [told(0, 13, 0), told(4, 18, 1), told(0, 3, 7), told(2, 3, 30), told(0, 2, 78)]
    features = [{"name": "transaction.version", "min_version": 0, "max_version": 2}]
    fields: dict[str, Any] = {"supported_features": features} if version >= 3 else {}
    body = messages.encode_response(ApiKey.API_VERSIONS, version, api_keys=keys, throttle_time_ms=8, **fields)
    ours = {0: (3, 13), 1: (4, 15), 30: (0, 1), 99: (0, 1)}
    answer = messages.decode_response(
        ApiKey.API_VERSIONS, version, applied(body, api_versions(version, memoryview(body), ours, as_listed))
    )
    assert [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys] == [(0, 3, 13), (1, 4, 15)]
    if version >= 1:
        assert answer.throttle_time_ms == 8
    if version >= 3:
        assert [one.name for one in answer.supported_features] == ["transaction.version"]


def test_an_answer_about_an_unknown_version_of_api_versions_is_unchanged() -> None:
    body = messages.encode_response(ApiKey.API_VERSIONS, 0, error_code=35, api_keys=[])
    assert api_versions(4, memoryview(body), {}, as_listed) == NOTHING
