"""What a bridge does beyond layout: what a broker cannot be asked, what a client must not see, and how it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.codecs import messages, produce
from idemproxy.codecs.errors import LimitExceeded, Malformed, WireError
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.base import RequestRefused
from idemproxy.proxy.bridge.fetch import PARTITION_BYTES_MIN
from idemproxy.proxy.bridge.list_offsets import LOOKED_AT_BYTES_MAX
from idemproxy.proxy.bridge.refusals import REFUSED_BYTES_MAX, refusal
from idemproxy.proxy.bridge.table import plan
from idemproxy.proxy.bridge.topics import (
    created_topics,
    creates_topics,
    deleted_topics,
)
from idemproxy.proxy.settings.config import TopicDefaults
from idemproxy.proxy.versions import KNOWN, ApiKey

from .both_sides import ADDRESSES, ask, bridge_for, tell

# Fetch


def fetch_of(bytes_max: int, replica_id: int = -1) -> dict[str, Any]:
    """The fields of a fetch of two partitions, the second with a large limit."""
    partitions = [
        {"partition": 0, "fetch_offset": 5, "partition_max_bytes": bytes_max},
        {"partition": 1, "fetch_offset": 6, "partition_max_bytes": 3_000_000},
    ]
    return {"replica_id": replica_id, "max_bytes": 50_000_000, "topics": [{"topic": "t", "partitions": partitions}]}


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("release", ["0.8.2", "0.9.0", "0.10.0"])
def test_brokers_that_cut_messages_are_asked_for_enough_to_hold_one(version: int, release: str) -> None:
    asked = ask(bridge_for(1, version, release), 1, version, **fetch_of(1000))
    limits = [one.partition_max_bytes for one in asked.topics[0].partitions]
    assert limits == [PARTITION_BYTES_MIN, 3_000_000]
    assert [one.fetch_offset for one in asked.topics[0].partitions] == [5, 6]


@pytest.mark.parametrize(("version", "release"), [(5, "0.10.2"), (4, "0.10.2"), (2, "0.8.2"), (0, "0.10.2")])
def test_limits_stay_where_the_broker_or_the_client_knows_what_they_do(version: int, release: str) -> None:
    asked = ask(bridge_for(1, version, release), 1, version, **fetch_of(1000))
    assert asked.topics[0].partitions[0].partition_max_bytes == 1000


@pytest.mark.parametrize("version", range(6))
def test_a_client_that_says_it_is_a_replica_is_not_let_through(version: int) -> None:
    with pytest.raises(Malformed, match="replica"):
        ask(bridge_for(1, version, "0.10.2"), 1, version, **fetch_of(1000, replica_id=2))


@pytest.mark.parametrize("release", ["0.8.2", "0.10.2"])
def test_an_old_brokers_log_start_offset_is_not_asked_and_returned_unknown(release: str) -> None:
    bridge = bridge_for(1, 5, release)
    ask(bridge, 1, 5, **fetch_of(1000))
    part = {"partition_index": 1, "error_code": 0, "high_watermark": 9, "records": b"as stored"}
    (topic,) = tell(bridge, 1, 5, responses=[{"topic": "t", "partitions": [part, part]}]).responses
    for one in topic.partitions:
        assert (one.high_watermark, one.last_stable_offset, one.log_start_offset) == (9, 9, -1)
        assert (one.aborted_transactions, bytes(one.records)) == ([], b"as stored")


def test_a_fetch_of_more_partitions_than_are_rewritten_in_a_step_is_refused() -> None:
    partitions = [{"partition": number} for number in range(100_000)]
    with pytest.raises(LimitExceeded, match="Fetch"):
        ask(bridge_for(1, 5, "0.10.2"), 1, 5, replica_id=-1, topics=[{"topic": "t", "partitions": partitions}])


def test_a_fetch_whose_answer_could_not_be_rewritten_in_a_step_is_refused() -> None:
    partitions = [{"partition": number} for number in range(100_000)]
    with pytest.raises(LimitExceeded, match="Fetch"):
        ask(bridge_for(1, 4, "0.10.2"), 1, 4, replica_id=-1, topics=[{"topic": "t", "partitions": partitions}])


def test_a_broker_that_supports_fetch_up_to_v4_is_asked_in_v3() -> None:
    bridge = plan(1, 5, {1: (0, 4)})
    assert not isinstance(bridge, RequestRefused)
    assert bridge.broker_version == 3


@pytest.mark.parametrize("version", [4, 5])
def test_records_of_a_fetch_are_never_copied(version: int) -> None:
    records = b"x" * 100_000
    part = {"partition_index": 0, "error_code": 0, "high_watermark": 9, "records": records}
    body = messages.encode_response(1, 3, responses=[{"topic": "t", "partitions": [part, part]}])
    chunks = bridge_for(1, version, "0.10.2").response(memoryview(body))
    large = [chunk for chunk in chunks if len(chunk) > 1000]
    assert len(large) == 2
    assert all(isinstance(chunk, memoryview) and chunk.obj is body for chunk in large)


# Offsets


@pytest.mark.parametrize(("version", "release"), [(2, "0.10.1"), (3, "0.10.1"), (3, "0.8.2")])
def test_all_offsets_of_a_group_are_refused_where_the_broker_can_not_list_them(version: int, release: str) -> None:
    refused = ask(bridge_for(9, version, release), 9, version, group_id="g", topics=None)
    assert isinstance(refused, RequestRefused)
    assert refused.answer is not None
    told = messages.decode_response(9, version, refused.answer)
    assert (told.error_code, told.topics) == (35, [])


def test_offsets_of_more_partitions_than_are_looked_at_in_a_step_are_refused() -> None:
    topics = [{"name": "t", "partition_indexes": list(range(200_000))}]
    with pytest.raises(LimitExceeded, match="OffsetFetch"):
        ask(bridge_for(9, 2, "0.10.1"), 9, 2, group_id="g", topics=topics)


@pytest.mark.parametrize(("code", "of_the_group"), [(14, 14), (15, 15), (16, 16), (30, 30), (3, 0), (0, 0)])
def test_a_group_wide_error_is_returned_where_newer_clients_look_for_it(code: int, of_the_group: int) -> None:
    parts = [{"partition_index": n, "committed_offset": -1, "metadata": "", "error_code": code} for n in (0, 1)]
    told = tell(bridge_for(9, 3, "0.9.0"), 9, 3, topics=[{"name": "t", "partitions": parts}])
    assert told.error_code == of_the_group
    assert [one.error_code for one in told.topics[0].partitions] == [code, code]


def test_a_commit_to_0_8_2_leaves_the_time_to_the_broker() -> None:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 7, "committed_metadata": None}]}]
    asked = ask(bridge_for(8, 3, "0.8.2"), 8, 3, group_id="g", retention_time_ms=1000, topics=topics)
    assert asked.topics[0].partitions[0].commit_timestamp == -1


# ListOffsets


def by_time(*timestamps: int) -> dict[str, Any]:
    """The fields of a question for one partition per time stamp."""
    partitions = [{"partition_index": index, "timestamp": value} for index, value in enumerate(timestamps)]
    return {"replica_id": -1, "topics": [{"name": "t", "partitions": partitions}]}


@pytest.mark.parametrize("version", [1, 2])
def test_time_searches_get_unsupported_for_message_format_and_the_rest_is_forwarded(version: int) -> None:
    bridge = bridge_for(2, version, "0.10.0")
    asked = ask(bridge, 2, version, **by_time(-1, 1_500_000_000_000))
    assert [(one.partition_index, one.timestamp) for one in asked.topics[0].partitions] == [(0, -1)]
    part = {"partition_index": 0, "error_code": 0, "old_style_offsets": [9]}
    told = tell(bridge, 2, version, topics=[{"name": "t", "partitions": [part]}])
    found = {one.partition_index: (one.error_code, one.offset) for topic in told.topics for one in topic.partitions}
    assert found == {0: (0, 9), 1: (43, -1)}


HIGHEST_TIME_STAMP = -3


@pytest.mark.parametrize(("version", "release"), [(1, "0.10.0"), (2, "0.10.0"), (1, "0.10.2"), (2, "0.10.2")])
def test_an_unknown_kind_of_offset_is_refused_and_the_rest_is_forwarded(version: int, release: str) -> None:
    bridge = bridge_for(2, version, release)
    asked = ask(bridge, 2, version, **by_time(-1, HIGHEST_TIME_STAMP, -2))
    assert [(one.partition_index, one.timestamp) for one in asked.topics[0].partitions] == [(0, -1), (2, -2)]
    parts = [
        {"partition_index": index, "error_code": 0, "offset": 9, "timestamp": -1, "old_style_offsets": [9]}
        for index in (0, 2)
    ]
    told = tell(bridge, 2, version, topics=[{"name": "t", "partitions": parts}])
    found = {one.partition_index: (one.error_code, one.offset) for topic in told.topics for one in topic.partitions}
    assert found == {0: (0, 9), 1: (35, -1), 2: (0, 9)}


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("kind", [HIGHEST_TIME_STAMP, -4, -(2**63)])
def test_such_offsets_alone_need_no_broker(version: int, kind: int) -> None:
    bridge = plan(2, version, {**KNOWN["0.10.2"], 2: (0, 3)})
    assert not isinstance(bridge, RequestRefused)
    refused = ask(bridge, 2, version, **by_time(kind, kind))
    assert isinstance(refused, RequestRefused)
    assert refused.answer is not None
    told = messages.decode_response(2, version, refused.answer)
    assert [(one.error_code, one.offset) for one in told.topics[0].partitions] == [(35, -1), (35, -1)]


def test_what_takes_too_long_to_be_looked_at_is_not_asked_for() -> None:
    with pytest.raises(LimitExceeded):
        ask(bridge_for(2, 2, "0.10.2"), 2, 2, **by_time(*range(LOOKED_AT_BYTES_MAX // 12)))


@pytest.mark.parametrize("version", [1, 2])
def test_a_search_by_time_alone_needs_no_broker(version: int) -> None:
    refused = ask(bridge_for(2, version, "0.9.0"), 2, version, **by_time(5, 6))
    assert isinstance(refused, RequestRefused)
    assert refused.answer is not None
    told = messages.decode_response(2, version, refused.answer)
    assert [one.error_code for one in told.topics[0].partitions] == [43, 43]


def test_a_search_by_time_is_forwarded_to_a_broker_that_supports_it() -> None:
    asked = ask(bridge_for(2, 2, "0.10.1"), 2, 2, **by_time(1_500_000_000_000))
    assert asked.topics[0].partitions[0].timestamp == 1_500_000_000_000


# CreateTopics


@pytest.mark.parametrize("version", range(5))
def test_numbers_that_are_left_to_the_broker_are_the_proxys_defaults(version: int) -> None:
    """In every version: kafkajs says -1 in those that it knows, 0 to 3, and brokers from 2.4 on take it in each."""
    wanted = [
        {"name": "both", "num_partitions": -1, "replication_factor": -1},
        {"name": "one", "num_partitions": 7, "replication_factor": -1, "configs": [{"name": "x", "value": None}]},
        {"name": "the other", "num_partitions": -1, "replication_factor": 2},
        {"name": "none", "num_partitions": 5, "replication_factor": 1},
        {
            "name": "assigned",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}],
        },
    ]
    bridge = plan(ApiKey.CREATE_TOPICS, version, KNOWN["0.10.2"], {}, TopicDefaults(12, 3))
    assert not isinstance(bridge, RequestRefused)
    validate_only = {"validate_only": True} if version >= 1 else {}
    asked = ask(bridge, ApiKey.CREATE_TOPICS, version, topics=wanted, timeout_ms=1, **validate_only)
    numbers = {one.name: (one.num_partitions, one.replication_factor) for one in asked.topics}
    assert numbers == {"both": (12, 3), "one": (7, 3), "the other": (12, 2), "none": (5, 1), "assigned": (-1, -1)}
    assert version == 0 or asked.validate_only is True


@pytest.mark.parametrize("version", [1, 4])
def test_numbers_that_are_left_to_a_broker_that_can_choose_are_left_to_it(version: int) -> None:
    bridge = plan(
        ApiKey.CREATE_TOPICS, version, {**KNOWN["0.10.2"], ApiKey.CREATE_TOPICS: (0, 4)}, {}, TopicDefaults(12, 3)
    )
    assert not isinstance(bridge, RequestRefused)
    wanted = [{"name": "both", "num_partitions": -1, "replication_factor": -1}]
    asked = ask(bridge, ApiKey.CREATE_TOPICS, version, topics=wanted, timeout_ms=1, validate_only=False)
    assert (asked.topics[0].num_partitions, asked.topics[0].replication_factor) == (-1, -1)


@pytest.mark.parametrize("version", range(5))
def test_a_large_create_topics_request_is_forwarded_unchanged(version: int) -> None:
    """It would keep everybody waiting while its numbers are looked for."""
    body = memoryview(bytes(limits.CREATE_TOPICS_NUMBERS_BYTES_MAX + 1))
    request = bridge_for(ApiKey.CREATE_TOPICS, version, "0.10.2").request(body)
    assert not isinstance(request, RequestRefused)
    assert b"".join(request) == body


def test_a_request_whose_answer_would_take_a_long_step_is_refused() -> None:
    bridge = bridge_for(ApiKey.CREATE_TOPICS, 1, "0.10.1")
    with pytest.raises(WireError, match=f"the limit is {limits.CREATE_TOPICS_BYTES_MAX}"):
        bridge.request(memoryview(bytes(limits.CREATE_TOPICS_BYTES_MAX + 1)))
    shorter = bridge.request(memoryview(bytes(limits.CREATE_TOPICS_BYTES_MAX)))
    assert not isinstance(shorter, RequestRefused)
    assert len(b"".join(shorter)) == limits.CREATE_TOPICS_BYTES_MAX - 1, "the flag is the last byte"


def test_more_deleted_topics_than_are_read_in_one_step_are_refused() -> None:
    most = limits.DELETED_TOPICS_MAX
    request = messages.encode_request(ApiKey.DELETE_TOPICS, 0, topic_names=["a"] * most, timeout_ms=1)
    assert deleted_topics(memoryview(request)) == ("a",) * most
    request = messages.encode_request(ApiKey.DELETE_TOPICS, 0, topic_names=["a"] * (most + 1), timeout_ms=1)
    with pytest.raises(WireError, match=f"the limit is {most}"):
        deleted_topics(memoryview(request))


@pytest.mark.parametrize("version", range(6))
def test_the_topics_that_a_broker_has_created_are_known_from_its_answer(version: int) -> None:
    """Up to version 4; longer answers are not looked at."""
    results = [{"name": "a", "error_code": 0}, {"name": "b", "error_code": 36}, {"name": "c", "error_code": 0}]
    answer = messages.encode_response(ApiKey.CREATE_TOPICS, version, topics=results)
    assert created_topics(version, answer) == (("a", "c") if version <= 4 else ())
    many = messages.encode_response(
        ApiKey.CREATE_TOPICS, version, topics=results * (limits.CREATE_TOPICS_NUMBERS_BYTES_MAX // 10)
    )
    assert created_topics(version, many) == ()


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("validate_only", [False, True])
def test_topics_that_are_only_validated_are_not_created(version: int, validate_only: bool) -> None:
    fields = {"validate_only": validate_only} if version >= 1 else {}
    topics = [{"name": "a", "num_partitions": 1, "replication_factor": 1}]
    request = messages.encode_request(ApiKey.CREATE_TOPICS, version, topics=topics, timeout_ms=256, **fields)
    assert creates_topics(version, memoryview(request)) == (version == 0 or (version <= 4 and not validate_only))
    assert creates_topics(version, memoryview(b"")) == (version == 0)


@pytest.mark.parametrize("version", range(5))
def test_garbage_instead_of_topics_is_a_wire_error(version: int) -> None:
    with pytest.raises(WireError):
        bridge_for(ApiKey.CREATE_TOPICS, version, "0.10.2").request(memoryview(b"whatever this is"))


@pytest.mark.parametrize("version", [1, 2])
def test_a_validate_only_request_creates_no_topics_and_is_refused(version: int) -> None:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("a", "b")]
    refused = ask(bridge_for(19, version, "0.10.1"), 19, version, topics=topics, timeout_ms=1, validate_only=True)
    assert isinstance(refused, RequestRefused)
    assert refused.answer is not None
    told = messages.decode_response(19, version, refused.answer)
    assert [(one.name, one.error_code) for one in told.topics] == [("a", 35), ("b", 35)]
    assert "validate" in told.topics[0].error_message


# FindCoordinator

FOUND = {"error_code": 0, "node_id": 2, "host": "old-2.internal", "port": 9092}


@pytest.mark.parametrize(("version", "release"), [(0, "0.8.2"), (1, "0.8.2"), (0, "0.10.2"), (1, "0.10.2")])
def test_a_coordinator_is_found_at_the_proxy(version: int, release: str) -> None:
    bridge = bridge_for(10, version, release)
    assert ask(bridge, 10, version, key="g", key_type=0).key == "g"
    told = tell(bridge, 10, version, **FOUND)
    assert (told.error_code, told.node_id, told.host, told.port) == (0, 2, *ADDRESSES[2])


@pytest.mark.parametrize("version", [1, 2])
def test_a_coordinator_of_a_newer_broker_is_found_at_the_proxy_too(version: int) -> None:
    bridge = plan(10, version, {10: (0, 4)}, ADDRESSES)
    assert not isinstance(bridge, RequestRefused)
    told = tell(bridge, 10, version, **FOUND, error_message="fine")
    assert (told.host, told.port, told.error_message) == (*ADDRESSES[2], "fine")


@pytest.mark.promise("compared-1")
@pytest.mark.parametrize("version", [0, 1])
def test_an_address_of_a_real_broker_never_gets_out(version: int) -> None:
    bridge = bridge_for(10, version, "0.10.2")
    for fields, code in (({**FOUND, "node_id": 7}, 15), ({**FOUND, "error_code": 16}, 16)):
        told = tell(bridge, 10, version, **fields)
        assert (told.error_code, told.node_id, told.host, told.port) == (code, -1, "", -1)


@pytest.mark.parametrize(("key_type", "code"), [(1, 53), (2, 42)])
def test_only_groups_have_coordinators(key_type: int, code: int) -> None:
    refused = ask(bridge_for(10, 1, "0.10.2"), 10, 1, key="writer", key_type=key_type)
    assert isinstance(refused, RequestRefused)
    assert refused.answer is not None
    told = messages.decode_response(10, 1, refused.answer)
    assert (told.error_code, told.node_id) == (code, -1)
    assert told.error_message == refused.reason


# Refusals


def error_codes(value: Any) -> list[int]:
    """All error codes in a decoded message, in order, that are not 0."""
    if isinstance(value, dict):
        own = [one for name, one in value.items() if name.endswith("error_code") and one]
        return own + [code for one in value.values() for code in error_codes(one)]
    return [code for one in value for code in error_codes(one)] if isinstance(value, list) else []


def refused_codes(key: int, version: int, /, **fields: Any) -> list[int]:
    """Refuse a request and return the codes in the answer."""
    body = refusal(key, version, messages.encode_request(key, version, **fields))
    assert body is not None
    return error_codes(messages.decode_response(key, version, body).to_dict(json=False))


COMMITTED = [{"name": "t", "partitions": [{"partition_index": 0}, {"partition_index": 1}]}]


REFUSABLE: list[tuple[int, range, dict[str, Any]]] = [
    (ApiKey.FETCH, range(18), {"topics": [{"topic": "t", "partitions": [{"partition": 0}, {"partition": 1}]}]}),
    (ApiKey.LIST_OFFSETS, range(12), {"topics": COMMITTED}),
    (ApiKey.METADATA, range(14), {"topics": [{"name": "a"}, {"name": "b"}]}),
    (ApiKey.OFFSET_COMMIT, range(11), {"topics": COMMITTED}),
    (ApiKey.OFFSET_FETCH, range(8), {"topics": [{"name": "t", "partition_indexes": [0, 1]}]}),
    (ApiKey.OFFSET_FETCH, range(8, 11), {"groups": [{"group_id": "g"}]}),
    (ApiKey.FIND_COORDINATOR, range(4), {"key": "g"}),
    (ApiKey.FIND_COORDINATOR, range(4, 7), {"coordinator_keys": ["g"]}),
    (ApiKey.JOIN_GROUP, range(10), {}),
    (ApiKey.HEARTBEAT, range(5), {}),
    (ApiKey.LEAVE_GROUP, range(6), {}),
    (ApiKey.SYNC_GROUP, range(6), {}),
    (ApiKey.DESCRIBE_GROUPS, range(6), {"groups": ["g"]}),
    (ApiKey.LIST_GROUPS, range(6), {}),
    (ApiKey.CREATE_TOPICS, range(8), {"topics": [{"name": "t"}]}),
    (ApiKey.DELETE_TOPICS, range(6), {"topic_names": ["t"]}),
    (ApiKey.DELETE_TOPICS, range(6, 7), {"topics": [{"name": "t"}]}),
    (ApiKey.INIT_PRODUCER_ID, range(6), {}),
    (ApiKey.SASL_AUTHENTICATE, range(3), {}),
]


@pytest.mark.parametrize(("key", "versions", "fields"), REFUSABLE)
def test_a_refusal_is_read_in_the_clients_own_version_and_says_35(
    key: int, versions: range, fields: dict[str, Any]
) -> None:
    for version in versions:
        codes = refused_codes(key, version, **fields)
        assert codes
        assert set(codes) == {35}


TRANSACTIONAL: list[tuple[int, range, dict[str, Any]]] = [
    (ApiKey.ADD_PARTITIONS_TO_TXN, range(4), {"v3_and_below_topics": [{"name": "t", "partitions": [0, 1]}]}),
    (ApiKey.ADD_PARTITIONS_TO_TXN, range(4, 6), {}),
    (ApiKey.ADD_OFFSETS_TO_TXN, range(5), {}),
    (ApiKey.END_TXN, range(6), {}),
    (ApiKey.TXN_OFFSET_COMMIT, range(6), {"topics": COMMITTED}),
]


@pytest.mark.parametrize(("key", "versions", "fields"), TRANSACTIONAL)
def test_transactions_are_refused_with_a_code_that_no_client_tries_again_on(
    key: int, versions: range, fields: dict[str, Any]
) -> None:
    for version in versions:
        codes = refused_codes(key, version, **fields)
        assert codes
        assert set(codes) == {53}


@pytest.mark.parametrize("version", range(10))
def test_a_produce_is_refused_partition_by_partition(version: int) -> None:
    partitions = [{"index": 0, "records": b""}, {"index": 1, "records": b""}]
    topics = [{"name": "t", "partition_data": partitions}]
    body = messages.encode_request(0, version, acks=-1, timeout_ms=1, topic_data=topics)
    answer = refusal(ApiKey.PRODUCE, version, body)
    assert answer is not None
    assert error_codes(messages.decode_response(0, version, answer).to_dict(json=False)) == [35, 35]


def test_a_produce_that_waits_for_no_answer_gets_none() -> None:
    assert refusal(ApiKey.PRODUCE, 2, b"".join(produce.encode_request(2, 0, 1000, [("t", 0, b"")]))) is None


@pytest.mark.parametrize(("key", "version"), [(4, 0), (7, 1), (27, 0), (99, 0), (-5, 0), (1, 99), (1, -1), (32, 0)])
def test_where_nothing_can_be_said_the_connection_is_to_be_closed(key: int, version: int) -> None:
    assert refusal(key, version, b"") is None


def test_a_refused_request_that_can_not_be_read_closes_the_connection() -> None:
    assert refusal(ApiKey.OFFSET_COMMIT, 2, b"\xff\xff\xff") is None


def test_a_refused_request_is_not_taken_apart_at_the_cost_of_everybody_else() -> None:
    def asking(count: int) -> bytes:
        return count.to_bytes(4, "big") + bytes(2 * count) + b"\1"

    assert refusal(ApiKey.METADATA, 5, asking(1_000)) is not None
    assert refusal(ApiKey.METADATA, 5, asking(REFUSED_BYTES_MAX // 2)) is None, (
        "its decoding takes seconds if it is large"
    )
    told_at_the_top = refusal(ApiKey.FETCH, 11, bytes(REFUSED_BYTES_MAX + 1))
    assert told_at_the_top is not None


def test_an_unknown_version_of_api_versions_gets_what_every_client_can_read() -> None:
    body = refusal(ApiKey.API_VERSIONS, 9, b"")
    assert body is not None
    told = messages.decode_response(18, 0, body)
    assert (told.error_code, told.api_keys[0].api_key) == (35, 18)


@pytest.mark.parametrize(("key", "version"), [(24, 0), (4, 0), (65, 0), (1, 7), (99, 0)])
def test_what_is_not_served_has_no_bridge_even_where_the_broker_has_it(key: int, version: int) -> None:
    refused = plan(key, version, {1: (0, 17), 4: (0, 7), 24: (0, 5), 65: (0, 2), 99: (0, 0)})
    assert isinstance(refused, RequestRefused)
    assert refused.error_code == 35
    assert refused.reason


@pytest.mark.parametrize(
    ("key", "version", "release"),
    [(ApiKey.LIST_OFFSETS, 1, "0.10.0"), (ApiKey.CREATE_TOPICS, 1, "0.10.1"), (ApiKey.FETCH, 4, "0.10.0")],
)
def test_a_request_that_would_keep_everybody_waiting_while_it_is_rewritten_is_refused(
    key: int, version: int, release: str
) -> None:
    body = memoryview(b"\xff" * 4 + bytes(messages.REQUEST_BYTES_MAX))
    with pytest.raises(LimitExceeded):
        bridge_for(key, version, release).request(body)


def test_a_large_request_that_goes_through_as_it_is_may_be_large() -> None:
    body = memoryview(bytes(messages.REQUEST_BYTES_MAX + 1))
    assert bridge_for(ApiKey.SYNC_GROUP, 1, "0.10.2").request(body) == (body,)


def test_garbage_from_a_broker_is_a_wire_error() -> None:
    for key in (ApiKey.FETCH, ApiKey.FIND_COORDINATOR, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH, ApiKey.CREATE_TOPICS):
        release = "0.10.1" if key == ApiKey.CREATE_TOPICS else "0.8.2"
        version = {ApiKey.FETCH: 4, ApiKey.OFFSET_FETCH: 2}.get(key, 1)
        with pytest.raises(WireError):
            bridge_for(key, version, release).response(memoryview(b"\x7f" * 40))
