"""A real Kafka 4 closes connections over versions that it dropped, and answers them when they are raised."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.bridge.fields import INT16, INT32, INT64, Reader, string
from idemproxy.proxy.bridge.upward.table import RAISED_VERSIONS, announced, plan
from idemproxy.proxy.versions import ApiKey, BrokerRanges, served
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.raw_client import RawClient, batch

COORDINATOR_SECONDS_MAX = 30
FIRST_TIMESTAMP = 1_700_000_000_000
"""Of the records of ``batch``; each next one is a millisecond later."""
LATEST, EARLIEST = -1, -2
BROKER_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}

_names = itertools.count()


@dataclass
class OldClient:
    """A client of dropped versions, with what raises its requests in between."""

    raw: RawClient
    ranges: BrokerRanges

    def call(self, key: int, version: int, body: bytes) -> bytes:
        """Send one request and return the body of its answer."""
        raised = plan(key, version, self.ranges)
        assert raised is not None
        bodies = [self.raw.call(key, raised.broker_version, bytes(one)) for one in at_once(raised.requests(body))]
        return bytes(at_once(raised.response(bodies)))

    def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        """The same, with the protocol library's fields."""
        answer = self.call(key, version, messages.encode_request(key, version, **fields))
        return messages.decode_response(key, version, answer)

    def create(self, version: int = 0, **of_topic: Any) -> str:
        """Make a topic of two partitions."""
        name = f"topic-{next(_names)}"
        topic = {"name": name, "num_partitions": 2, "replication_factor": 1, **of_topic}
        answer = self.ask(ApiKey.CREATE_TOPICS, version, topics=[topic], timeout_ms=20_000)
        assert [(one.name, one.error_code) for one in answer.topics] == [(name, ErrorCode.NONE)]
        deadline = time.monotonic() + COORDINATOR_SECONDS_MAX
        while self._is_unfinished(name):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        return name

    def _is_unfinished(self, topic: str) -> bool:
        """Does a partition have no log yet? The broker reports a leader some moments before."""
        partitions = [{"partition_index": number, "timestamp": LATEST} for number in range(2)]
        topics = [{"name": topic, "partitions": partitions}]
        answer = self.raw.ask(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=topics)
        return any(one.error_code for one in answer.topics[0].partitions)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftCluster]:
    """One broker, with rules for principals."""
    directory: Path = tmp_path_factory.mktemp("kraft")
    with KraftCluster(directory, auto_create_topics=False, broker_settings=BROKER_SETTINGS) as running:
        yield running


@pytest.fixture
def client(cluster: KraftCluster) -> Iterator[OldClient]:
    """A connection of its own for each test."""
    with RawClient(cluster.address(0)) as raw:
        listed = raw.ask(ApiKey.API_VERSIONS, 0).api_keys
        yield OldClient(raw, {one.api_key: (one.min_version, one.max_version) for one in listed})


@pytest.fixture
def group(client: OldClient) -> str:
    """A group whose coordinator is there."""
    name = f"group-{next(_names)}"
    deadline = time.monotonic() + COORDINATOR_SECONDS_MAX
    while (
        client.raw.ask(ApiKey.FIND_COORDINATOR, 0, key=name).error_code
        or client.raw.ask(ApiKey.OFFSET_FETCH, 2, group_id=name, topics=None).error_code
    ):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return name


def test_each_version_below_the_raised_one_ends_the_connection_if_it_is_not_raised(
    cluster: KraftCluster, client: OldClient
) -> None:
    assert {key: client.ranges[key][0] for key in RAISED_VERSIONS} == dict(RAISED_VERSIONS)
    for key, version in [(key, version) for key, top in RAISED_VERSIONS.items() for version in range(top)]:
        with RawClient(cluster.address(0)) as raw:
            raw.send(key, version, b"\0" * 20)
            assert raw.is_closed()


def test_ranges_are_announced_as_old_clients_need_them(client: OldClient) -> None:
    ranges = announced(client.ranges)
    assert ranges.keys() == client.ranges.keys()
    assert {ranges[key][0] for key in RAISED_VERSIONS} == {0}
    assert (ranges[ApiKey.PRODUCE][0], ranges[ApiKey.FETCH][0]) == (0, 0)
    assert served(client.ranges)[ApiKey.PRODUCE][0] == 3


@pytest.mark.parametrize("version", [0, 1])
def test_an_offset_is_committed_and_fetched_back(client: OldClient, group: str, version: int) -> None:
    topic = client.create()
    partition = {"partition_index": 1, "committed_offset": 2**40, "committed_metadata": "mine"}
    topics = [{"name": topic, "partitions": [partition, {**partition, "partition_index": 9}]}]
    committed = client.ask(ApiKey.OFFSET_COMMIT, version, group_id=group, topics=topics)
    assert {one.partition_index: one.error_code for one in committed.topics[0].partitions} == {
        1: ErrorCode.NONE,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    wanted = [{"name": topic, "partition_indexes": [0, 1]}]
    fetched = client.ask(ApiKey.OFFSET_FETCH, 0, group_id=group, topics=wanted).topics[0].partitions
    assert {one.partition_index: (one.committed_offset, one.metadata, one.error_code) for one in fetched} == {
        0: (-1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        1: (2**40, "mine", ErrorCode.NONE),
    }


def test_a_commit_of_a_member_that_is_none_is_refused(client: OldClient, group: str) -> None:
    topic = client.create()
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None, "commit_timestamp": 5}
    topics = [{"name": topic, "partitions": [partition]}]
    answer = client.ask(
        ApiKey.OFFSET_COMMIT, 1, group_id=group, generation_id_or_member_epoch=3, member_id="nobody", topics=topics
    )
    assert answer.topics[0].partitions[0].error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


@pytest.mark.parametrize("version", [0, 1])
def test_a_topic_is_created_once_and_deleted(client: OldClient, version: int) -> None:
    name = client.create(version)
    again = {"name": name, "num_partitions": 1, "replication_factor": 1}
    (refused,) = client.ask(ApiKey.CREATE_TOPICS, version, topics=[again], timeout_ms=20_000).topics
    assert refused.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert bool(refused.error_message) is (version == 1)
    gone = client.ask(ApiKey.DELETE_TOPICS, 0, topic_names=[name, "never-there"], timeout_ms=20_000)
    assert {one.name: one.error_code for one in gone.responses} == {
        name: ErrorCode.NONE,
        "never-there": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_validated_topic_is_not_created(client: OldClient) -> None:
    topic = {"name": "only-validated", "num_partitions": 1, "replication_factor": 1}
    answer = client.ask(ApiKey.CREATE_TOPICS, 1, topics=[topic], timeout_ms=20_000, validate_only=True)
    assert answer.topics[0].error_code == ErrorCode.NONE
    gone = client.ask(ApiKey.DELETE_TOPICS, 0, topic_names=["only-validated"], timeout_ms=20_000)
    assert gone.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("keys", [None, ["retention.ms", "max.message.bytes"]])
def test_settings_are_described_with_their_defaults(client: OldClient, keys: list[str] | None) -> None:
    topic = client.create(configs=[{"name": "retention.ms", "value": "77000"}])
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": keys}
    (result,) = client.ask(ApiKey.DESCRIBE_CONFIGS, 0, resources=[resource]).results
    assert (result.error_code, result.resource_name) == (ErrorCode.NONE, topic)
    settings = {one.name: (one.value, one.is_default, one.is_sensitive) for one in result.configs}
    assert settings["retention.ms"] == ("77000", False, False)
    assert settings["max.message.bytes"] == ("1048588", True, False)
    assert (len(settings) == 2) is (keys is not None)


def test_offsets_are_listed(client: OldClient) -> None:
    topic = client.create()
    assert client.raw.produce_one(topic, 0, batch([b"a", b"b", b"c", b"d"])).error_code == ErrorCode.NONE
    asked = [
        (LATEST, 1, [4]),
        (EARLIEST, 1, [0]),
        (LATEST, 9, [4, 0]),
        (EARLIEST, 9, [0]),
        (FIRST_TIMESTAMP + 2, 1, [2]),
        (FIRST_TIMESTAMP + 2, 2, [2, 0]),
        (FIRST_TIMESTAMP + 100, 2, [4, 0]),
    ]
    for timestamp, count, expected in asked:
        partition = {"partition_index": 0, "timestamp": timestamp, "max_num_offsets": count}
        topics = [{"name": topic, "partitions": [partition, {**partition, "partition_index": 9}]}]
        found = client.ask(ApiKey.LIST_OFFSETS, 0, replica_id=-1, topics=topics).topics[0].partitions
        assert {one.partition_index: (one.error_code, one.old_style_offsets) for one in found} == {
            0: (ErrorCode.NONE, expected),
            9: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        }


@pytest.mark.parametrize(("version", "epoch"), [(0, -1), (1, 0)])
def test_the_end_of_an_epoch_is_known(client: OldClient, version: int, epoch: int) -> None:
    topic = client.create()
    assert client.raw.produce_one(topic, 0, batch([b"a", b"b"])).error_code == ErrorCode.NONE
    topics = [{"topic": topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]
    (end,) = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=topics).topics[0].partitions
    assert (end.error_code, end.leader_epoch, end.end_offset) == (ErrorCode.NONE, epoch, 2)


def test_rules_are_created_found_and_deleted_but_those_for_prefixes(client: OldClient) -> None:
    rule = {"resource_type": 2, "principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    created = client.ask(ApiKey.CREATE_ACLS, 0, creations=[{**rule, "resource_name": "orders"}])
    assert created.results[0].error_code == ErrorCode.NONE
    prefixed = [{**rule, "resource_name": "ord", "resource_pattern_type": 4}]
    assert client.raw.ask(ApiKey.CREATE_ACLS, 1, creations=prefixed).results[0].error_code == ErrorCode.NONE
    wanted = {
        "resource_type_filter": 2,
        "resource_name_filter": None,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    described = client.ask(ApiKey.DESCRIBE_ACLS, 0, **wanted)
    assert described.error_code == ErrorCode.NONE
    assert [(one.resource_name, one.acls[0].principal) for one in described.resources] == [("orders", "User:a")]
    (deleted,) = client.ask(ApiKey.DELETE_ACLS, 0, filters=[wanted]).filter_results
    assert [one.resource_name for one in deleted.matching_acls] == ["orders"]
    assert client.ask(ApiKey.DESCRIBE_ACLS, 0, **wanted).resources == []


def test_log_directories_are_described_and_a_replica_moves_only_to_one_of_them(
    cluster: KraftCluster, client: OldClient
) -> None:
    topic = client.create()
    (result,) = client.ask(ApiKey.DESCRIBE_LOG_DIRS, 0, topics=[{"topic": topic, "partitions": [0, 1]}]).results
    assert (result.error_code, result.log_dir) == (ErrorCode.NONE, str(cluster.log_directories[0]))
    assert {one.partition_index for one in result.topics[0].partitions} == {0, 1}
    everything = client.ask(ApiKey.DESCRIBE_LOG_DIRS, 0, topics=None).results[0]
    assert topic in {one.name for one in everything.topics}
    for path, code in ((result.log_dir, ErrorCode.NONE), ("/nowhere", ErrorCode.LOG_DIR_NOT_FOUND)):
        dirs = [{"path": path, "topics": [{"name": topic, "partitions": [0]}]}]
        (moved,) = client.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 0, dirs=dirs).results
        assert [(one.partition_index, one.error_code) for one in moved.partitions] == [(0, code)]


OWNER = string("User") + string("a")
HMAC = INT32.pack(3) + b"abc"
TOKEN_REQUESTS = {
    ApiKey.CREATE_DELEGATION_TOKEN: INT32.pack(1) + OWNER + INT64.pack(-1),
    ApiKey.RENEW_DELEGATION_TOKEN: HMAC + INT64.pack(5),
    ApiKey.EXPIRE_DELEGATION_TOKEN: HMAC + INT64.pack(5),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: INT32.pack(-1),
}


@pytest.mark.parametrize("key", TOKEN_REQUESTS)
def test_requests_for_tokens_are_read_and_answered(client: OldClient, key: ApiKey) -> None:
    """A client that has not logged in gets no token."""
    reader = Reader(client.call(key, 0, TOKEN_REQUESTS[key]))
    refused = (ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    assert INT16.unpack(reader.take(INT16.size, "error_code"))[0] in refused
