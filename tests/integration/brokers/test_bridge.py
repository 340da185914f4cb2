"""Real old brokers answer what the bridges and the proxy's own questions send them, on plain sockets."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from idemproxy.codecs import message_set, messages, produce
from idemproxy.codecs.framing import FrameSplitter, frame
from idemproxy.codecs.headers import encode_request_header, parse_response_header
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.bridge.asks import (
    LOG_END_REPLICA_ID,
    EarliestOffset,
    FetchRecords,
    LatestOffset,
    Metadata,
    Question,
)
from idemproxy.proxy.bridge.base import RequestRefused
from idemproxy.proxy.bridge.metadata import encode_client_answer, parse_answer
from idemproxy.proxy.bridge.table import plan
from idemproxy.proxy.versions import (
    EXPLAINED,
    KNOWN,
    OWN_RANGES,
    OWN_WHERE_MISSING,
    ApiKey,
    BrokerRanges,
    Detected,
    Probe,
    advertised,
    detect,
)
from idemproxy.reactor import Buffer

T = TypeVar("T")
RELEASES = {"0.8.2.2": "0.8.2", "0.9.0.1": "0.9.0", "0.10.0.1": "0.10.0", "0.10.1.1": "0.10.1", "0.10.2.2": "0.10.2"}
TIMEOUT_SECONDS = 15
COORDINATOR_SECONDS = 30
PROXY = ("proxy.example", 19092)
LEVELS = range(4)
"""A client at level n speaks version n of each API, or the highest that it is offered."""

_names = itertools.count(1)


@dataclass
class Link:
    """One connection to a broker, one request after the other."""

    connection: socket.socket
    splitter: FrameSplitter = field(default_factory=lambda: FrameSplitter(100_000_000))
    correlation_id: int = 0

    def ask(self, api_key: int, version: int, *chunks: Buffer) -> bytes:
        """Send a body, return the body of the answer."""
        self.correlation_id += 1
        header = encode_request_header(api_key, version, self.correlation_id, "bridge-test")
        self.connection.sendall(frame(header, *chunks))
        frames: list[bytes | bytearray] = []
        while not frames:
            data = self.connection.recv(65536)
            assert data, f"closed over API {api_key} version {version}"
            frames = self.splitter.feed(data)
        correlation_id, start = parse_response_header(frames[0], api_key, version)
        assert correlation_id == self.correlation_id
        return bytes(frames[0][start:])

    def question(self, ranges: BrokerRanges, question: Question[T]) -> T:
        """Ask one of the proxy's own questions."""
        version = question.version_for(ranges)
        return question.parse(version, self.ask(question.api_key, version, question.encode(version)))


@dataclass
class Broker:
    """A running broker and what was found out about it."""

    cluster: LegacyCluster
    release: str
    link: Link
    ranges: BrokerRanges

    def client(self, api_key: int, version: int, /, **fields: Any) -> Any:
        """Ask as a client of the proxy would; return the decoded answer."""
        bridge = plan(api_key, version, self.ranges, {0: PROXY})
        assert not isinstance(bridge, RequestRefused), bridge
        request = bridge.request(memoryview(messages.encode_request(api_key, version, **fields)))
        if isinstance(request, RequestRefused):
            assert request.answer is not None
            return messages.decode_response(api_key, version, request.answer)
        answer = self.link.ask(api_key, bridge.broker_version, *request)
        return messages.decode_response(api_key, version, b"".join(bridge.response(memoryview(answer))))

    def at_level(self, api_key: int, level: int, /, **fields: Any) -> Any:
        """Ask in version ``level``, or in the highest that is advertised."""
        return self.client(api_key, min(level, advertised([self.ranges])[api_key][1]), **fields)

    def topic(self) -> str:
        """A new topic with one partition."""
        name = f"bridge-{next(_names)}"
        self.cluster.create_topic(name)
        return name

    def produce(self, topic: str, *values: bytes) -> int:
        """Append plain messages; return the first one's offset."""
        version = self.ranges[ApiKey.PRODUCE][1]
        magic = 1 if version >= 2 else 0
        records = message_set.encode_set([(None, value, 1_500_000_000_000) for value in values], magic=magic)
        body = self.link.ask(0, version, *produce.encode_request(version, -1, 10_000, [(topic, 0, records)]))
        answers, _ = produce.parse_response(body, 0, version)
        assert answers[0].error_code == 0
        return answers[0].base_offset


def find_out(link: Link) -> Detected:
    """Run the detection over a connection."""
    answers: list[bytes | None] = []
    while isinstance(step := detect(answers), Probe):
        answers.append(link.ask(step.api_key, step.api_version, step.body))
    return step


@pytest.fixture(scope="module", params=RELEASES)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of each release in turn."""
    directory: Path = tmp_path_factory.mktemp("broker")
    settings: dict[str, str | int] = {
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "delete.topic.enable": "true",
    }
    with (
        LegacyCluster(directory, version=request.param, broker_settings=settings) as cluster,
        socket.create_connection(cluster.address(0), TIMEOUT_SECONDS) as connection,
    ):
        link = Link(connection)
        found = find_out(link)
        yield Broker(cluster, request.param, link, found.ranges)


def test_the_version_is_found_out_and_has_the_known_ranges(broker: Broker) -> None:
    found = find_out(broker.link)
    assert found.version == RELEASES[broker.release]
    assert found.ranges == KNOWN[found.version]


def test_the_version_is_the_same_when_topics_are_there(broker: Broker) -> None:
    broker.topic()
    assert find_out(broker.link).version == RELEASES[broker.release]


def test_offsets_and_records_are_what_was_produced(broker: Broker) -> None:
    topic = broker.topic()
    ask, ranges = broker.link.question, broker.ranges
    assert ask(ranges, LatestOffset(topic, 0)).offset == 0
    assert broker.produce(topic, b"one", b"two") == 0
    assert broker.produce(topic, b"three") == 2
    assert ask(ranges, LatestOffset(topic, 0)).offset == 3
    assert ask(ranges, LatestOffset(topic, 0, LOG_END_REPLICA_ID)).offset == 3
    assert ask(ranges, EarliestOffset(topic, 0)).offset == 0
    answer = ask(ranges, FetchRecords(topic, 0, 1, 100_000))
    stored = [(one.offset, bytes(one.value or b"")) for one in message_set.iterate_shallow(answer.records)]
    assert (answer.error_code, answer.high_watermark) == (0, 3)
    assert stored == [(1, b"two"), (2, b"three")]
    assert not ask(ranges, FetchRecords(topic, 0, 3, 100_000)).records
    assert ask(ranges, FetchRecords(topic, 0, 4, 100_000)).error_code == 1


def test_an_unknown_partition_is_answered_with_a_code(broker: Broker) -> None:
    topic = broker.topic()
    ask, ranges = broker.link.question, broker.ranges
    for question in (LatestOffset(topic, 7), LatestOffset(topic, 7, LOG_END_REPLICA_ID), EarliestOffset(topic, 7)):
        assert ask(ranges, question).error_code == 3
    assert ask(ranges, FetchRecords(topic, 7, 0, 1000)).error_code == 3


def test_metadata_is_answered(broker: Broker) -> None:
    topic = broker.topic()
    ask, ranges = broker.link.question, broker.ranges
    for topics in (None, (topic,)):
        cluster = ask(ranges, Metadata(topics))
        assert (cluster.brokers[0].host, cluster.brokers[0].port) == broker.cluster.address(0)
        assert cluster.topics[topic].partitions[0].leader == 0
        assert cluster.controller_id == (0 if ranges[ApiKey.METADATA][1] >= 1 else None)
        assert (cluster.cluster_id is None) == (ranges[ApiKey.METADATA][1] < 2)
        for version in range(5):
            told = parse_answer(
                version, encode_client_answer(version, cluster, topics, {0: PROXY}, fallback_cluster_id="c")
            )
            assert (told.brokers[0].host, told.brokers[0].port) == PROXY
            assert told.topics[topic] == cluster.topics[topic]


@pytest.mark.parametrize("version", range(5))
def test_a_client_fetches_what_is_stored(broker: Broker, version: int) -> None:
    topic = broker.topic()
    broker.produce(topic, b"one", b"two" * 1000)
    where = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    told = broker.client(
        ApiKey.FETCH,
        version,
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1_000_000,
        topics=[{"topic": topic, "partitions": [where, {**where, "partition": 9}]}],
    )
    parts = {one.partition_index: one for one in told.responses[0].partitions}
    assert (parts[0].error_code, parts[0].high_watermark, parts[9].error_code) == (0, 2, 3)
    values = [bytes(one.value or b"") for one in message_set.iterate_shallow(parts[0].records)]
    assert values[0] == b"one"
    bridged = version >= 3 > broker.ranges[ApiKey.FETCH][1]
    assert len(values) == (2 if bridged else 1), "what was bridged down is asked for with enough bytes"


@pytest.mark.parametrize("version", range(3))
def test_a_client_asks_for_offsets(broker: Broker, version: int) -> None:
    topic = broker.topic()
    broker.produce(topic, b"one", b"two")
    times = (-1, -2, 1_400_000_000_000) if version else (-1, -2)
    found = []
    for timestamp in times:
        where = {"partition_index": 0, "timestamp": timestamp, "max_num_offsets": 1}
        topics = [{"name": topic, "partitions": [where]}]
        part = broker.client(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=topics).topics[0].partitions[0]
        found.append((part.error_code, part.old_style_offsets[0] if version == 0 else part.offset))
    by_time = (0, 0) if broker.ranges[ApiKey.LIST_OFFSETS][1] >= 1 else (43, -1)
    assert found == [(0, 2), (0, 0), by_time][: len(times)]


def coordinator_is_there(broker: Broker, group: str) -> None:
    """Wait until the broker coordinates the group: it creates the topic of offsets first."""
    deadline = time.monotonic() + COORDINATOR_SECONDS
    while (told := broker.at_level(ApiKey.FIND_COORDINATOR, 1, key=group, key_type=0)).error_code == 15:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (told.error_code, told.node_id, told.host, told.port) == (0, 0, *PROXY)


def settled(broker: Broker, group: str, topic: str) -> None:
    """Wait until the coordinator has loaded the group: until then it says 14, 15 or 16."""
    topics = [{"name": topic, "partition_indexes": [0]}]
    deadline = time.monotonic() + COORDINATOR_SECONDS
    while broker.at_level(9, 1, group_id=group, topics=topics).topics[0].partitions[0].error_code in (14, 15, 16):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_client_commits_and_finds_its_offsets(broker: Broker, level: int) -> None:
    topic, group = broker.topic(), f"offsets-{level}"
    coordinator_is_there(broker, group)
    settled(broker, group, topic)
    part = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "here"}
    answer = broker.at_level(
        ApiKey.OFFSET_COMMIT,
        level,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=-1,
        topics=[{"name": topic, "partitions": [part]}],
    )
    assert answer.topics[0].partitions[0].error_code == 0
    topics = [{"name": topic, "partition_indexes": [0]}]
    told = broker.at_level(ApiKey.OFFSET_FETCH, level, group_id=group, topics=topics)
    found = told.topics[0].partitions[0]
    assert (found.error_code, found.committed_offset, found.metadata) == (0, 7, "here")
    if level >= 2:
        told = broker.at_level(ApiKey.OFFSET_FETCH, level, group_id=group, topics=None)
        knows_all = broker.ranges[ApiKey.OFFSET_FETCH][1] >= 2
        assert (told.error_code, len(told.topics)) == ((0, 1) if knows_all else (35, 0))


@pytest.mark.parametrize("level", LEVELS)
def test_a_group_lives_from_join_to_leave(broker: Broker, level: int) -> None:
    if ApiKey.JOIN_GROUP not in broker.ranges:
        assert ApiKey.JOIN_GROUP not in advertised([broker.ranges])
        return
    group = f"group-{level}"
    coordinator_is_there(broker, group)
    settled(broker, group, broker.topic())
    joined = broker.at_level(
        ApiKey.JOIN_GROUP,
        level,
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"meta"}],
    )
    assert (joined.error_code, joined.protocol_name, joined.members[0].metadata) == (0, "range", b"meta")
    me = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
    mine = [{"member_id": joined.member_id, "assignment": b"all"}]
    synced = broker.at_level(ApiKey.SYNC_GROUP, level, **me, assignments=mine)
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert broker.at_level(ApiKey.HEARTBEAT, level, **me).error_code == 0
    described = broker.at_level(ApiKey.DESCRIBE_GROUPS, level, groups=[group]).groups[0]
    assert (described.error_code, described.group_state, described.members[0].member_assignment) == (
        0,
        "Stable",
        b"all",
    )
    listed = broker.at_level(ApiKey.LIST_GROUPS, level)
    assert group in {one.group_id for one in listed.groups}
    left = broker.at_level(ApiKey.LEAVE_GROUP, level, group_id=group, member_id=joined.member_id)
    assert left.error_code == 0


@pytest.mark.parametrize("version", range(5))
def test_topics_are_created_and_deleted(broker: Broker, version: int) -> None:
    if ApiKey.CREATE_TOPICS not in broker.ranges:
        assert ApiKey.CREATE_TOPICS not in advertised([broker.ranges])
        return
    name = f"created-{version}"
    wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
    if version >= 1:
        dry = broker.client(ApiKey.CREATE_TOPICS, version, topics=wanted, timeout_ms=10_000, validate_only=True)
        assert dry.topics[0].error_code == (0 if broker.ranges[ApiKey.CREATE_TOPICS][1] >= 1 else 35)
    for code in (0, 36):
        made = broker.client(ApiKey.CREATE_TOPICS, version, topics=wanted, timeout_ms=10_000, validate_only=False)
        assert (made.topics[0].name, made.topics[0].error_code) == (name, code)
    gone = broker.client(ApiKey.DELETE_TOPICS, min(version, 1), topic_names=[name], timeout_ms=10_000)
    assert gone.responses[0].error_code == 0


def test_the_mechanism_of_a_handshake_goes_through(broker: Broker) -> None:
    if ApiKey.SASL_HANDSHAKE not in broker.ranges:
        assert ApiKey.SASL_HANDSHAKE not in advertised([broker.ranges])
        return
    assert broker.client(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN").error_code == 34


def test_offsets_in_zookeeper_stay_with_clients_of_version_0(broker: Broker) -> None:
    topic = broker.topic()
    part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    topics = [{"name": topic, "partitions": [part]}]
    told = broker.client(ApiKey.OFFSET_COMMIT, 0, group_id="old", topics=topics)
    assert told.topics[0].partitions[0].error_code == 0
    asked = [{"name": topic, "partition_indexes": [0]}]
    found = broker.client(ApiKey.OFFSET_FETCH, 0, group_id="old", topics=asked)
    assert found.topics[0].partitions[0].committed_offset == 5


def test_every_api_that_is_advertised_was_tried_on_this_broker(broker: Broker) -> None:
    tried = {1, 2, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 19, 20}
    not_of_the_broker = OWN_RANGES.keys() | OWN_WHERE_MISSING.keys() | EXPLAINED.keys()
    assert advertised([broker.ranges]).keys() - not_of_the_broker <= tried
