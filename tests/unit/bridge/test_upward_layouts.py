"""What each raised API loses, makes up and keeps; the library decodes both sides, tokens are written out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.errors import LimitExceeded, WireError
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.bridge.fields import INT16, INT32, INT64, string
from idemproxy.proxy.bridge.upward.layouts import ENTRIES_PER_STEP
from idemproxy.proxy.versions import ApiKey

from .upwards import RAISED, TOKENS, answered, ask, raised, sent, steps_of, tell

NULL = b"\xff\xff"
NO_ERROR = INT16.pack(0)


def commit(**of_partition: Any) -> dict[str, Any]:
    """One topic with one partition."""
    partition = {"partition_index": 3, "committed_offset": 2**40, "committed_metadata": "m", **of_partition}
    return {"group_id": "g", "topics": [{"name": "t", "partitions": [partition]}]}


def test_a_commit_to_zookeeper_becomes_one_of_no_member() -> None:
    request = ask(raised(8, 0), 8, 0, **commit())
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
    assert request.retention_time_ms == -1
    (partition,) = request.topics[0].partitions
    assert (partition.partition_index, partition.committed_offset) == (3, 2**40)
    assert partition.committed_metadata == "m"


def test_a_commit_1_keeps_its_member_and_loses_its_time() -> None:
    fields = commit(commit_timestamp=1_500_000_000_000) | {"generation_id_or_member_epoch": 7, "member_id": "me"}
    (body,) = sent(raised(8, 1), messages.encode_request(8, 1, **fields))
    by_hand = [
        string("g"),
        INT32.pack(7),
        string("me"),
        INT64.pack(-1),  # retention
        INT32.pack(1) + string("t") + INT32.pack(1),
        INT32.pack(3) + INT64.pack(2**40) + string("m"),
    ]
    assert body == b"".join(by_hand)


@pytest.mark.parametrize("metadata", [None, "", "x"])
@pytest.mark.parametrize("version", [0, 1])
def test_metadata_stays_null_empty_or_as_it_is(version: int, metadata: str | None) -> None:
    request = ask(raised(8, version), 8, version, **commit(committed_metadata=metadata))
    assert request.topics[0].partitions[0].committed_metadata == metadata


@pytest.mark.parametrize(
    ("offset", "code", "reported"),
    [(-1, 0, 3), (-1, 16, 16), (-1, 29, 29), (0, 0, 0), (5, 0, 0), (-1, 88, 14)],
)
def test_a_partition_without_an_offset_is_unknown_to_fetch_0(offset: int, code: int, reported: int) -> None:
    after = {"partition_index": 1, "committed_offset": 9, "metadata": "kept", "error_code": 0}
    before = {"partition_index": 0, "committed_offset": offset, "metadata": None, "error_code": code}
    answer = tell(9, 0, topics=[{"name": "t", "partitions": [before, after]}])
    first, second = answer.topics[0].partitions
    assert (first.committed_offset, first.metadata, first.error_code) == (offset, None, reported)
    assert (second.committed_offset, second.metadata, second.error_code) == (9, "kept", 0)


@pytest.mark.parametrize(("version", "asked", "sent_on"), [(0, False, False), (1, False, False), (1, True, True)])
def test_topics_are_validated_only_if_the_client_says_so(version: int, asked: bool, sent_on: bool) -> None:
    topic = {"name": "t", "num_partitions": 2, "replication_factor": 1, "configs": [{"name": "a", "value": None}]}
    request = ask(raised(19, version), 19, version, topics=[topic], timeout_ms=5, validate_only=asked)
    assert (request.validate_only, request.timeout_ms) == (sent_on, 5)
    assert request.topics[0].configs[0].value is None


@pytest.mark.parametrize(("version", "message"), [(0, ""), (1, "too many")])
def test_the_message_of_a_refused_topic_is_lost_in_version_0(version: int, message: str) -> None:
    results = [{"name": "t", "error_code": 37, "error_message": "too many"}]
    answer = tell(19, version, throttle_time_ms=70, topics=results)
    (topic,) = answer.topics
    assert (topic.name, topic.error_code, topic.error_message) == ("t", 37, message)


def test_a_deletion_is_answered_without_throttle_time() -> None:
    (body,) = sent(raised(20, 0), messages.encode_request(20, 0, topic_names=["t"], timeout_ms=5))
    assert body == INT32.pack(1) + string("t") + INT32.pack(5)
    answer = INT32.pack(70) + INT32.pack(1) + string("t") + NO_ERROR
    assert answered(raised(20, 0), answer) == INT32.pack(1) + string("t") + NO_ERROR


@pytest.mark.parametrize("keys", [None, [], ["a", "b"]])
def test_null_and_no_configuration_keys_stay_apart(keys: list[str] | None) -> None:
    resource = {"resource_type": 2, "resource_name": "t", "configuration_keys": keys}
    request = ask(raised(32, 0), 32, 0, resources=[resource])
    assert request.resources[0].configuration_keys == keys
    assert request.include_synonyms is False


@pytest.mark.parametrize(("source", "is_default"), [(1, False), (2, False), (3, False), (4, False), (5, True)])
def test_only_the_source_default_is_a_default(source: int, is_default: bool) -> None:
    synonym = {"name": "log.a", "value": None, "source": 5}
    entries = [
        {"name": "a", "value": None, "read_only": True, "config_source": source, "synonyms": [synonym, synonym]},
        {"name": "b", "value": "1", "read_only": False, "config_source": 1, "is_sensitive": True, "synonyms": []},
    ]
    results = [{"error_code": 0, "error_message": None, "resource_type": 2, "resource_name": "t", "configs": entries}]
    answer = tell(32, 0, throttle_time_ms=70, results=results)
    first, second = answer.results[0].configs
    assert answer.throttle_time_ms == 70
    assert (first.name, first.value, first.read_only, first.is_default, first.is_sensitive) == (
        "a",
        None,
        True,
        is_default,
        False,
    )
    assert (second.name, second.value, second.read_only, second.is_default, second.is_sensitive) == (
        "b",
        "1",
        False,
        False,
        True,
    )


RULE = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
RESOURCE = {"resource_type": 2, "resource_name": "t"}


def acls_answer(key: int, pattern: int) -> dict[str, Any]:
    """One rule, for names of this pattern type."""
    if key == ApiKey.DESCRIBE_ACLS:
        return {"error_code": 0, "resources": [{**RESOURCE, "pattern_type": pattern, "acls": [RULE]}]}
    matching = {**RESOURCE, **RULE, "error_code": 0, "pattern_type": pattern}
    return {"filter_results": [{"error_code": 0, "matching_acls": [matching]}]}


def test_rules_are_literal() -> None:
    creation = ask(raised(30, 0), 30, 0, creations=[{**RESOURCE, **RULE}]).creations[0]
    assert (creation.resource_pattern_type, creation.resource_name, creation.principal) == (3, "t", "User:a")
    wanted = {"resource_type_filter": 2, "resource_name_filter": None, "principal_filter": None, "host_filter": None}
    described = ask(raised(29, 0), 29, 0, **wanted, operation=1, permission_type=1)
    deleted = ask(raised(31, 0), 31, 0, filters=[{**wanted, "operation": 1, "permission_type": 1}]).filters[0]
    for one in (described, deleted):
        assert (one.pattern_type_filter, one.resource_name_filter, one.operation) == (3, None, 1)


@pytest.mark.parametrize("key", [ApiKey.DESCRIBE_ACLS, ApiKey.DELETE_ACLS])
def test_a_rule_for_a_prefix_is_never_shown_as_one_for_a_name(key: ApiKey) -> None:
    assert tell(key, 0, **acls_answer(key, pattern=3))
    with pytest.raises(WireError, match="pattern_type"):
        tell(key, 0, **acls_answer(key, pattern=4))


@pytest.mark.parametrize(("version", "epoch"), [(0, -1), (1, 4)])
def test_an_end_offset_is_asked_for_without_fencing(version: int, epoch: int) -> None:
    partition = {"partition": 2, "leader_epoch": 5}
    request = ask(raised(23, version), 23, version, topics=[{"topic": "t", "partitions": [partition]}])
    asked = request.topics[0].partitions[0]
    assert (asked.partition, asked.current_leader_epoch, asked.leader_epoch) == (2, -1, 5)
    end = {"error_code": 75, "partition": 2, "leader_epoch": 4, "end_offset": 2**40}
    answer = tell(23, version, throttle_time_ms=1, topics=[{"topic": "t", "partitions": [end]}])
    reported = answer.topics[0].partitions[0]
    assert (reported.error_code, reported.partition, reported.leader_epoch, reported.end_offset) == (6, 2, epoch, 2**40)


@pytest.mark.parametrize("topics", [None, [], [{"topic": "t", "partitions": [0, 1]}]])
def test_null_and_no_topics_of_log_directories_stay_apart(topics: list[dict[str, Any]] | None) -> None:
    body = messages.encode_request(35, 0, topics=topics)
    assert sent(raised(35, 0), body) == [body]


def test_log_directories_are_answered_as_they_are_but_for_codes() -> None:
    size = {"partition_index": 1, "partition_size": 2**40, "offset_lag": 3, "is_future_key": True}
    topic = {"name": "t", "partitions": [size]}
    results = [{"error_code": 57, "log_dir": "/a", "topics": [topic]}, {"error_code": 74, "log_dir": "/b"}]
    answer = tell(35, 0, throttle_time_ms=70, results=results)
    assert [(one.error_code, one.log_dir) for one in answer.results] == [(57, "/a"), (6, "/b")]
    reported = answer.results[0].topics[0].partitions[0]
    assert (reported.partition_index, reported.partition_size, reported.offset_lag, reported.is_future_key) == (
        1,
        2**40,
        3,
        True,
    )


def test_moves_of_replicas_pass() -> None:
    dirs = [{"path": "/a", "topics": [{"name": "t", "partitions": [0, 1]}]}]
    assert ask(raised(34, 0), 34, 0, dirs=dirs).dirs[0].topics[0].partitions == [0, 1]
    part = {"partition_index": 1, "error_code": 57}
    reported = tell(34, 0, results=[{"topic_name": "t", "partitions": [part]}]).results[0].partitions[0]
    assert (reported.partition_index, reported.error_code) == (1, 57)


PRINCIPAL = string("User") + string("a")
HMAC = INT32.pack(3) + b"abc"
TIMES = INT64.pack(1) + INT64.pack(2) + INT64.pack(3)
THROTTLE = INT32.pack(70)
TOKEN_REQUESTS = {
    ApiKey.CREATE_DELEGATION_TOKEN: INT32.pack(1) + PRINCIPAL + INT64.pack(-1),
    ApiKey.RENEW_DELEGATION_TOKEN: HMAC + INT64.pack(5),
    ApiKey.EXPIRE_DELEGATION_TOKEN: HMAC + INT64.pack(5),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: INT32.pack(1) + PRINCIPAL,
}
TOKEN = PRINCIPAL + TIMES + string("id") + HMAC
TOKEN_ANSWERS = {
    ApiKey.CREATE_DELEGATION_TOKEN: TOKEN + THROTTLE,
    ApiKey.RENEW_DELEGATION_TOKEN: INT64.pack(5) + THROTTLE,
    ApiKey.EXPIRE_DELEGATION_TOKEN: INT64.pack(5) + THROTTLE,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: INT32.pack(1) + TOKEN + INT32.pack(1) + PRINCIPAL + THROTTLE,
}
"""After the error code."""


@pytest.mark.parametrize("key", TOKEN_REQUESTS)
def test_requests_for_tokens_pass(key: ApiKey) -> None:
    assert sent(raised(key, 0), TOKEN_REQUESTS[key]) == [TOKEN_REQUESTS[key]]


@pytest.mark.parametrize(("code", "reported"), [(0, 0), (66, 66), (71, 71), (72, 5), (97, -1), (31, 31)])
@pytest.mark.parametrize("key", TOKEN_ANSWERS)
def test_answers_about_tokens_pass_but_for_codes_after_1_1(key: ApiKey, code: int, reported: int) -> None:
    rest = TOKEN_ANSWERS[key]
    assert answered(raised(key, 0), INT16.pack(code) + rest) == INT16.pack(reported) + rest


def test_all_owners_of_tokens_are_asked_for_with_null() -> None:
    key = ApiKey.DESCRIBE_DELEGATION_TOKEN
    assert sent(raised(key, 0), INT32.pack(-1)) == [INT32.pack(-1)]
    with pytest.raises(WireError):
        sent(raised(ApiKey.CREATE_DELEGATION_TOKEN, 0), INT32.pack(-1) + INT64.pack(0))


LAST_KNOWN = {
    **{key: 44 for key in (2, 8, 9, 19, 20)},
    **{key: 55 for key in (23, 29, 30, 31, 32)},
    **{key: 60 for key in (34, 35)},
}
"""API -> the last error code of the release that brought the versions below the raised one: 0.10.2, 0.11.0, 1.0."""


def code_for(key: int, version: int, code: int) -> int:
    """The code that the client gets in the first structure that has one."""
    part = {"partition_index": 0, "error_code": code, "committed_offset": 1, "metadata": ""}
    acl = {"error_code": code, **RESOURCE, **RULE, "pattern_type": 3}
    config = {"error_code": code, "resource_type": 2, "resource_name": "t", "configs": []}

    def of_parts(*names: str) -> dict[str, Any]:
        return {name: part[name] for name in ("partition_index", "error_code", *names)}

    fields: dict[int, dict[str, Any]] = {
        8: {"topics": [{"name": "t", "partitions": [of_parts()]}]},
        9: {"topics": [{"name": "t", "partitions": [of_parts("committed_offset", "metadata")]}]},
        19: {"topics": [{"name": "t", "error_code": code}]},
        20: {"responses": [{"name": "t", "error_code": code}]},
        23: {"topics": [{"topic": "t", "partitions": [{"partition": 0, "error_code": code}]}]},
        29: {"error_code": code, "resources": []},
        30: {"results": [{"error_code": code}]},
        31: {"filter_results": [{"error_code": 0, "matching_acls": [acl]}]},
        32: {"results": [config]},
        34: {"results": [{"topic_name": "t", "partitions": [of_parts()]}]},
        35: {"results": [{"error_code": code, "log_dir": "/a", "topics": []}]},
    }
    found = tell(key, version, **fields[key])
    (outer,) = fields[key].keys() - {"error_code", "resources"} or ("",)
    first = getattr(found, outer)[0] if outer else found
    for inner in ("partitions", "matching_acls"):
        first = getattr(first, inner)[0] if hasattr(first, inner) else first
    return int(first.error_code)


@pytest.mark.parametrize(("key", "version"), [one for one in RAISED if one[0] not in TOKENS and one[0] != 2])
def test_no_client_gets_a_code_that_its_release_did_not_have(key: int, version: int) -> None:
    last_known = LAST_KNOWN[key]
    for code in [*range(-1, 140), 32767]:
        reported = code_for(key, version, code)
        if code <= last_known:
            assert reported == code
        else:
            assert reported <= 44
            assert reported != ErrorCode.NONE


@pytest.mark.parametrize(("key", "version"), [one for one in RAISED if one[0] != ApiKey.LIST_OFFSETS])
def test_garbage_is_a_wire_error_on_the_way_up_and_down(key: int, version: int) -> None:
    for body in (b"\xff" * 40, b"\x7f" * 40, b"\0\1a\0\0\0\1", b"\0" * 400 + b"\x7f"):
        with pytest.raises(WireError):
            sent(raised(key, version), body)
        with pytest.raises(WireError):
            answered(raised(key, version), body)


def test_an_announced_million_entries_is_refused_unread() -> None:
    head = string("g") + INT32.pack(1_000_000) + b"\0" * 100
    with pytest.raises(WireError, match="1000000 entries announced"):
        sent(raised(8, 0), head)


def test_a_request_above_the_limit_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="16777216 bytes"):
        sent(raised(8, 0), bytes((16 << 20) + 1))


def test_large_bodies_are_walked_in_steps() -> None:
    count = 20 * ENTRIES_PER_STEP
    partitions = [{"partition_index": n, "committed_offset": n, "committed_metadata": None} for n in range(count)]
    topics = [{"name": "t", "partitions": partitions}]
    assert steps_of(raised(8, 0).requests(messages.encode_request(8, 0, group_id="g", topics=topics))) > 20
    fetched = [{"partition_index": n, "committed_offset": n, "metadata": "", "error_code": 0} for n in range(count)]
    answer = messages.encode_response(9, 1, topics=[{"name": "t", "partitions": fetched}])
    one = raised(9, 0)
    assert steps_of(one.response([answer])) > 20
    assert bytes(at_once(raised(9, 0).response([answer]))) == answer
