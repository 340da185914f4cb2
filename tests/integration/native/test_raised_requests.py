"""Clients of versions that Kafka 4 dropped are served in front of a real 4.3.1: what they send is raised by the proxy.
Three brokers, as a group's coordinator is one of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.upward.table import RAISED_VERSIONS
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kafka_cluster import fresh_topic, librdkafka_settings, produce
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.client_runs import BARE_LIBRARIES, OLD_SARAMA, start_reader
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

BROKERS = 3
PARTITIONS = 4
RECORDS = 200
UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION

_names = itertools.count()


class World:
    """Brokers, and a proxy in front of them."""

    def __init__(self, cluster: LegacyCluster, proxy: ProxyProcess) -> None:
        self.cluster, self.proxy = cluster, proxy
        self.bootstrap = "{}:{}".format(*proxy.address)

    def client(self, broker: int = 0, client_id: str = "old") -> RawClient:
        """A connection to the listener of this broker."""
        host, port = self.proxy.address
        return RawClient((host, port + 1 + broker), client_id=client_id)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The id of the broker that leads it."""
        with RawClient(self.proxy.address) as client:
            (found,) = client.ask(ApiKey.METADATA, 1, topics=[{"name": topic}]).topics
        return int({one.partition_index: one.leader_id for one in found.partitions}[partition])


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """In front of Kafka 4."""
    directory = tmp_path_factory.mktemp("newest")
    with (
        KraftCluster(directory / "kafka", brokers=BROKERS, auto_create_topics=False) as cluster,
        ProxyProcess(directory / "proxy", cluster.address(0)) as proxy,
    ):
        yield World(cluster, proxy)


@pytest.fixture
def children() -> Iterator[ChildProcesses]:
    with ChildProcesses() as running:
        yield running


def translating(translate: str, directory: Path, cluster: LegacyCluster) -> ProxyProcess:
    """A proxy with this setting."""
    upstream = {"bootstrap": ["{}:{}".format(*cluster.address(0))]}
    return ConfiguredProxy(
        directory,
        {"upstream": upstream, "old_clients": {"translate": translate}},
        listener={},
        brokers=len(cluster.broker_ids),
    )


def committed(topic: str, offset: int, partition: int = 0, **more: Any) -> list[dict[str, Any]]:
    """Of an OffsetCommit: one partition."""
    one = {"partition_index": partition, "committed_offset": offset, "committed_metadata": "", **more}
    return [{"name": topic, "partitions": [one]}]


def asked_offsets(topic: str, timestamp: int, partition: int = 0) -> dict[str, Any]:
    """Of a ListOffsets 0."""
    one = {"partition_index": partition, "timestamp": timestamp, "max_num_offsets": 2}
    return {"replica_id": -1, "topics": [{"name": topic, "partitions": [one]}]}


def a_group() -> str:
    return f"group-{next(_names)}"


@pytest.mark.parametrize("version", [0, 1])
def test_an_old_commit_and_an_old_look_are_served_by_any_broker(newest: World, version: int) -> None:
    """Version 0 was about ZooKeeper, so clients ask any broker; version 1 goes to the group's coordinator."""
    topic, group = fresh_topic(newest.cluster, 1), a_group()
    with RawClient(newest.proxy.address) as client:
        coordinator = client.ask(ApiKey.FIND_COORDINATOR, 0, key=group)
    asked = range(BROKERS) if version == 0 else [max(coordinator.node_id, 0)]
    for number, broker in enumerate(asked):
        with newest.client(broker) as client:
            wanted = {"group_id": group, "topics": committed(topic, 7 + number, commit_timestamp=-1)}
            wait_until(
                lambda client=client, wanted=wanted: (  # type: ignore[misc]
                    client.ask(ApiKey.OFFSET_COMMIT, version, **wanted).topics[0].partitions[0].error_code
                    == ErrorCode.NONE
                ),
                "the group's coordinator is there",
            )
            look = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}
            (found,) = client.ask(ApiKey.OFFSET_FETCH, 0 if version == 0 else 1, **look).topics[0].partitions
            assert (found.error_code, found.committed_offset) == (ErrorCode.NONE, 7 + number)


def test_raised_requests_and_those_around_them_are_answered_in_order(newest: World) -> None:
    topic = fresh_topic(newest.cluster, 1)
    produce(librdkafka_settings(newest.bootstrap), topic, 1, RECORDS)
    old = (ApiKey.LIST_OFFSETS, 0, messages.encode_request(ApiKey.LIST_OFFSETS, 0, **asked_offsets(topic, -1)))
    new = (ApiKey.METADATA, 1, messages.encode_request(ApiKey.METADATA, 1, topics=[{"name": topic}]))
    refused = (ApiKey.FETCH, 0, messages.encode_request(ApiKey.FETCH, 0, replica_id=-1, max_wait_ms=0, min_bytes=0))
    for requests in ([new, new, old, old, new, refused, old, new], [old, new, old], [refused, old, refused]):
        with newest.client(newest.leader(topic)) as client:
            client.send_together(*requests)
            for number, (key, version, _) in enumerate(requests, 1):
                correlation_id, body = client.answer()
                assert correlation_id == number
                answer = messages.decode_response(key, version, body)
                if key == ApiKey.LIST_OFFSETS:
                    assert list(answer.topics[0].partitions[0].old_style_offsets) == [RECORDS, 0]


def test_a_request_in_pieces_of_one_byte_is_raised(newest: World) -> None:
    topic = fresh_topic(newest.cluster, 1)
    with newest.client(newest.leader(topic)) as client:
        body = messages.encode_request(ApiKey.LIST_OFFSETS, 0, **asked_offsets(topic, -2))
        _, request = client._framed(ApiKey.LIST_OFFSETS, 0, body)
        for byte in request:
            client.send_bytes(bytes([byte]))
        answer = messages.decode_response(ApiKey.LIST_OFFSETS, 0, client.answer()[1])
        assert list(answer.topics[0].partitions[0].old_style_offsets) == [0]


def test_what_came_in_front_of_a_fin_is_raised_and_answered(newest: World) -> None:
    topic = fresh_topic(newest.cluster, 1)
    body = messages.encode_request(ApiKey.LIST_OFFSETS, 0, **asked_offsets(topic, -1))
    new = messages.encode_request(ApiKey.METADATA, 1, topics=[{"name": topic}])
    with newest.client(newest.leader(topic)) as client:
        old = (ApiKey.LIST_OFFSETS, 0, body)
        client.send_together(old, (ApiKey.METADATA, 1, new), old)
        client.half_close()
        assert [client.answer()[0] for _ in range(3)] == [1, 2, 3]
        assert client.is_closed()


def test_garbage_in_a_raised_request_closes_the_connection_and_is_named(newest: World) -> None:
    with newest.client(client_id="garbler") as client:
        client.send(ApiKey.OFFSET_COMMIT, 1, b"\0\5group\0\0\0\1\0\0\x7f\xff\xff\xff")
        assert client.is_closed()
    wait_until(lambda: "garbler" in newest.proxy.log, "the line about it")


def test_a_raised_request_above_its_limit_is_refused_and_no_neighbour_waits(newest: World) -> None:
    with newest.client(1, "witness") as witness, newest.client(0, "too large") as client:
        topics = [{"name": f"{number:0200d}", "partitions": []} for number in range(6000)]
        body = messages.encode_request(ApiKey.OFFSET_COMMIT, 1, group_id="g", topics=topics)
        assert len(body) > limits.RAISED_REQUEST_BYTES_MAX
        client.send(ApiKey.OFFSET_COMMIT, 1, body)
        assert witness.ask(ApiKey.METADATA, 1, topics=[]).brokers
        assert client.is_closed()
    wait_until(lambda: "OffsetCommit 1 is not served by the broker" in newest.proxy.log, "the line about it")


def test_clients_are_told_that_these_versions_are_served(newest: World) -> None:
    with newest.client() as client:
        told = {one.api_key: one for one in client.ask(ApiKey.API_VERSIONS, 0).api_keys}
    assert {key: told[key].min_version for key in RAISED_VERSIONS if key in told} == dict.fromkeys(
        [key for key in RAISED_VERSIONS if key in told], 0
    )
    assert told[ApiKey.FETCH].min_version == told[ApiKey.PRODUCE].min_version == 0


@pytest.mark.parametrize("client", [*BARE_LIBRARIES, OLD_SARAMA])
def test_an_old_group_reads_commits_and_after_a_restart_reads_nothing_twice(
    newest: World, children: ChildProcesses, tmp_path: Path, client: str
) -> None:
    topic, group = fresh_topic(newest.cluster, PARTITIONS), a_group()
    for turn in range(2):
        produce(librdkafka_settings(newest.bootstrap), topic, PARTITIONS, RECORDS)
        (tmp_path / str(turn)).mkdir()
        program = start_reader(
            *(children, tmp_path / str(turn), client),
            bootstrap=newest.bootstrap,
            topic=topic,
            partitions=PARTITIONS,
            records=RECORDS,
            group=group,
        )
        outcome = program.wait()
        assert outcome["records"] == RECORDS
        assert sum(outcome["committed"].values()) == (turn + 1) * RECORDS


def test_always_raises_what_the_broker_serves_itself(tmp_path: Path) -> None:
    """So it is tried in front of 3.9 before the brokers are upgraded: the offset of v0 by time is then exact."""
    with ExitStack() as stack:
        cluster = stack.enter_context(KraftCluster(tmp_path / "kafka", version="3.9.1", auto_create_topics=False))
        proxy = stack.enter_context(translating("always", tmp_path / "proxy", cluster))
        topic = fresh_topic(cluster, 1)
        world = World(cluster, proxy)
        produce(librdkafka_settings(world.bootstrap), topic, 1, RECORDS)
        with world.client() as client:
            answer = client.ask(ApiKey.LIST_OFFSETS, 0, **asked_offsets(topic, 1))
            assert list(answer.topics[0].partitions[0].old_style_offsets) == [0]
        with RawClient(cluster.address(0)) as direct:
            answer = direct.ask(ApiKey.LIST_OFFSETS, 0, **asked_offsets(topic, 1))
            assert list(answer.topics[0].partitions[0].old_style_offsets) != [0]


def test_never_refuses_them(newest: World, tmp_path: Path) -> None:
    with translating("never", tmp_path, newest.cluster) as proxy:
        world = World(newest.cluster, proxy)
        with world.client() as client:
            told = {one.api_key: one.min_version for one in client.ask(ApiKey.API_VERSIONS, 0).api_keys}
            assert told[ApiKey.OFFSET_COMMIT] == 2
            answer = client.ask(ApiKey.OFFSET_COMMIT, 1, group_id="g", topics=committed("t", 0, commit_timestamp=-1))
            assert answer.topics[0].partitions[0].error_code == UNSUPPORTED
