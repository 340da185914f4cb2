"""Real clients of a real 3.9 broker, which gives idempotence itself, through the proxy: everything passes as bytes."""

from __future__ import annotations

import json
import os
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import encode_request_header
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy.versions import NATIVE_MAX, ApiKey
from testkit.real.brokers.kafka_cluster import consume, fresh_topic, librdkafka_settings, produce, stored, verdict
from testkit.real.clients.client_runs import (
    IDEMPOTENT_CLIENTS,
    JAVA_4,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    start_producer,
    start_reader,
)
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.process_memory import resident_bytes
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

VERSION = "3.9.1"
PARTITIONS = 3
WAIT_SECONDS = 60.0


@dataclass(frozen=True)
class World:
    """Two brokers and the proxy."""

    cluster: LegacyCluster
    proxy: ProxyProcess
    admin: str

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.proxy.address)

    def address(self, broker: int) -> tuple[str, int]:
        """Where the proxy stands for a broker."""
        return HOST, self.proxy.address[1] + 1 + broker

    def asked(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=10) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("native")
    (admin_port,) = free_ports(1)
    admin = f"{HOST}:{admin_port}"
    with LegacyCluster(directory / "kafka", version=VERSION, brokers=2, auto_create_topics=False) as cluster:
        options = ("--admin-bind", admin)
        with ProxyProcess(directory / "proxy", cluster.address(0), brokers=2, options=options) as proxy:
            yield World(cluster, proxy, admin)


def leader_of(world: World, topic: str) -> tuple[str, int]:
    return world.address(world.cluster.leader(topic, 0))


# ---------------------------------------------------------------------- what the operator sees
def test_log_metrics_and_status_report_native_idempotence_and_no_redis(world: World) -> None:
    line = world.proxy.wait_for_log("upstream.idempotence: native")
    assert "may be another service" not in world.proxy.log
    assert "no Redis is used" in line
    assert not (world.proxy.data_directory / "redis").exists()
    assert 'idemproxy_upstream_idempotence{by="native"} 1' in world.asked("/metrics")
    assert "idemproxy_redis_up " not in world.asked("/metrics")
    assert world.asked("/readyz") == "ok\n"
    with RawClient(world.address(1)) as client:
        client.ask(ApiKey.METADATA, 1, topics=[])
    page = json.loads(world.asked("/api/v1/page"))
    status = page["status"]
    assert status["host"] == os.uname().nodename
    assert status["client_bytes"]["sent"] > 0
    assert {"api": "metadata", "requests": 1} in page["passing"]
    assert (status["idempotence"], status["ready"], status["concerns"]) == ("native", True, [])


# ---------------------------------------------------------------------- addresses
def names_of_brokers(answer: Any) -> list[tuple[str, int]]:
    return [(one.host, one.port) for one in answer.brokers]


def test_every_version_of_the_answers_with_addresses_has_the_proxys(world: World) -> None:
    topic = fresh_topic(world.cluster, PARTITIONS)
    there = [world.address(0), world.address(1)]
    with RawClient(world.address(1)) as client:
        told = {one.api_key: one.max_version for one in client.ask(ApiKey.API_VERSIONS, 0).api_keys}
        for version in range(told[ApiKey.METADATA] + 1):
            answer = client.ask(ApiKey.METADATA, version, topics=[{"name": topic}])
            assert sorted(names_of_brokers(answer)) == there
            assert [len(one.partitions) for one in answer.topics] == [PARTITIONS]
        for version in range(told[ApiKey.FIND_COORDINATOR] + 1):
            fields = {"coordinator_keys": ["group"]} if version >= 4 else {"key": "group"}

            def is_found(version: int = version, fields: dict[str, Any] = fields) -> bool:
                answer = client.ask(ApiKey.FIND_COORDINATOR, version, **fields)
                one = answer.coordinators[0] if version >= 4 else answer
                return one.error_code == 0 and (one.host, one.port) in there

            wait_until(is_found, f"the coordinator is found, version {version}")
        for version in range(told[ApiKey.DESCRIBE_CLUSTER] + 1):
            assert sorted(names_of_brokers(client.ask(ApiKey.DESCRIBE_CLUSTER, version))) == there
    counts = re.findall(r'idemproxy_request_duration_seconds_count{api="(\w+)"} (\d+)', world.asked("/metrics"))
    asked = dict(counts)
    assert int(asked["metadata"]) > told[ApiKey.METADATA]
    assert int(asked["describe_cluster"]) > told[ApiKey.DESCRIBE_CLUSTER]


def test_clients_get_the_brokers_version_ranges_but_for_what_cannot_pass(world: World) -> None:
    software = {"client_software_name": "test", "client_software_version": "1"}

    def ranges(client: RawClient, version: int) -> dict[int, tuple[int, int]]:
        answer = client.ask(ApiKey.API_VERSIONS, version, **software)
        assert answer.error_code == 0
        return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}

    with RawClient(world.cluster.address(0)) as direct, RawClient(world.proxy.address) as client:
        own, told = ranges(direct, 3), ranges(client, 3)
        sasl = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
        wanted = {key: (first, min(last, NATIVE_MAX[key])) for key, (first, last) in own.items() if key in NATIVE_MAX}
        assert told == {key: one for key, one in wanted.items() if key not in sasl}
        assert told[ApiKey.PRODUCE] == own[ApiKey.PRODUCE]
        assert ranges(client, 4) == ranges(client, 0) == told


def test_a_request_that_does_not_pass_is_refused_in_its_turn(world: World) -> None:
    with RawClient(world.proxy.address) as client:
        first = client.send(ApiKey.METADATA, 1, messages.encode_request(ApiKey.METADATA, 1, topics=[]))
        refused = client.send(ApiKey.DESCRIBE_QUORUM, 2, b"\x01\x00")
        last = client.send(ApiKey.METADATA, 1, messages.encode_request(ApiKey.METADATA, 1, topics=[]))
        answers = [client.answer() for _ in range(3)]
        assert [correlation_id for correlation_id, _ in answers] == [first, refused, last]
        answer = messages.decode_response(ApiKey.DESCRIBE_QUORUM, 2, answers[1][1])
        assert answer.error_code == 35
    world.proxy.wait_for_log(r"API 55 is not served in version 2")
    for key, version in ((78, 1), (ApiKey.SASL_HANDSHAKE, 1), (ApiKey.FETCH, 16)):
        with RawClient(world.proxy.address) as client:
            client.send(key, version, bytes(20))
            try:
                _, body = client.answer()
                assert messages.decode_response(key, version, body).error_code == 35
            except (ConnectionError, OSError):
                pass


# ---------------------------------------------------------------------- clients
@pytest.mark.parametrize("client", IDEMPOTENT_CLIENTS)
def test_a_client_produces_idempotently_and_a_group_reads_it(world: World, client: str, tmp_path: Path) -> None:
    topic, records = fresh_topic(world.cluster, PARTITIONS, 2), 900
    with ChildProcesses() as children:
        common: dict[str, Any] = {"bootstrap": world.bootstrap, "topic": topic, "partitions": PARTITIONS}
        program = start_producer(children, tmp_path, client, records=records, **common)
        outcome = program.wait(WAIT_SECONDS)
        assert (outcome["acked"], outcome["failed"], outcome["offsets_in_order"]) == (records, 0, True)
        # kafka-python 3.0.12 joins its group now and then before it has the topic's metadata, and then waits for
        # minutes with no partition: one time in twenty, at the brokers themselves too.
        read_by = LIBRDKAFKA if client == KAFKA_PYTHON else client
        reader = start_reader(children, tmp_path, read_by, records=records, group=f"g-{client}", **common)
        assert reader.wait(WAIT_SECONDS)["records"] == records
    found = verdict(world.cluster, topic, PARTITIONS)
    assert (found.stored, found.is_exactly_once) == (records, True), found


def test_a_transaction_moves_records_and_offsets_or_neither(world: World) -> None:
    """librdkafka: consume, transform, produce; one transaction is aborted, one committed."""
    source, target = fresh_topic(world.cluster, 1), fresh_topic(world.cluster, 1)
    produce(librdkafka_settings(world.bootstrap, enable_idempotence=True), source, 1, 20)
    settings = {"bootstrap.servers": world.bootstrap, "group.id": "mover", "enable.auto.commit": False}
    reader = Consumer({**settings, "auto.offset.reset": "earliest"})
    producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": "mover-1"})
    try:
        reader.subscribe([source])
        producer.init_transactions(WAIT_SECONDS)
        read: list[bytes] = []
        end = time.monotonic() + WAIT_SECONDS
        while len(read) < 20 and time.monotonic() < end:
            read += [message.value() or b"" for message in reader.consume(20, 1.0)]
        assert len(read) == 20
        for committed in (False, True):
            producer.begin_transaction()
            for value in read:
                producer.produce(target, b"%d-" % committed + value)
            producer.send_offsets_to_transaction([Place(source, 0, 20)], reader.consumer_group_metadata(), WAIT_SECONDS)
            if committed:
                producer.commit_transaction(WAIT_SECONDS)
            else:
                producer.flush(WAIT_SECONDS)
                producer.abort_transaction(WAIT_SECONDS)
        assert reader.committed([Place(source, 0)], WAIT_SECONDS)[0].offset == 20
    finally:
        reader.close()
    values = consume(world.bootstrap, target, "after", 20, isolation_level="read_committed")
    assert values == [b"1-" + value for value in read]


def test_kafka_python_commits_a_transaction(world: World) -> None:
    topic = fresh_topic(world.cluster, 1)
    producer = KafkaProducer(bootstrap_servers=world.bootstrap, transactional_id="python")
    producer.init_transactions()
    producer.begin_transaction()
    sent = [producer.send(topic, b"%d" % number) for number in range(10)]
    producer.commit_transaction()
    assert [one.get(WAIT_SECONDS).offset for one in sent] == list(range(10))
    producer.close()
    reader = KafkaConsumer(
        bootstrap_servers=world.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=60_000,
    )
    reader.assign([TopicPartition(topic, 0)])
    assert [next(reader).value for _ in range(10)] == [b"%d" % number for number in range(10)]
    reader.close()


def test_admin_calls_reach_the_broker_that_they_are_for(world: World) -> None:
    admin = AdminClient({"bootstrap.servers": world.bootstrap})
    cluster = admin.describe_cluster().result(WAIT_SECONDS)
    assert sorted((node.host, node.port) for node in cluster.nodes) == [world.address(0), world.address(1)]
    for broker in (0, 1):
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        found = admin.describe_configs([resource])[resource].result(WAIT_SECONDS)
        assert found["broker.id"].value == str(broker)


# ---------------------------------------------------------------------- flow
def test_what_wants_no_answer_arrives_and_what_comes_after_it_is_answered(world: World) -> None:
    topic = fresh_topic(world.cluster, 1)
    with RawClient(leader_of(world, topic)) as client:
        for number in range(3):
            client.send_produce([(topic, 0, batch([b"%d" % number]))], acks=0)
        (answer,) = client.produce([(topic, 0, batch([b"last"]))], version=7)
        assert (answer.error_code, answer.base_offset) == (0, 3)
    assert [record.value for record in stored(world.cluster, topic, 1)[0]] == [b"0", b"1", b"2", b"last"]


def test_a_request_in_pieces_and_many_in_one_piece_pass(world: World) -> None:
    topic = fresh_topic(world.cluster, 1)
    with RawClient(leader_of(world, topic)) as client:
        whole = b"".join(
            len(one).to_bytes(4, "big") + one
            for number in range(20)
            for one in [
                b"\x00\x03\x00\x01" + number.to_bytes(4, "big") + b"\x00\x01c" + bytes(4)  # Metadata v1 of no topic
            ]
        )
        for start in range(0, len(whole), 7):
            client.send_bytes(whole[start : start + 7])
            time.sleep(0.002)
        client.send_bytes(whole)
        answers = client._receive(4)  # the first of forty
        assert int.from_bytes(answers, "big") > 0


def test_a_reader_that_stops_reading_costs_little_memory_and_stops_nobody(world: World) -> None:
    topic, value = fresh_topic(world.cluster, 1, config={"max.message.bytes": 20_000_000}), bytes(900_000)
    with RawClient(leader_of(world, topic)) as client:
        for _ in range(40):
            (answer,) = client.produce([(topic, 0, batch([value]))], version=7)
            assert answer.error_code == 0
    before = resident_bytes(world.proxy.pid)
    deaf = []
    for _ in range(8):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(leader_of(world, topic))
        deaf.append(one)
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 40_000_000}
        body = messages.encode_request(
            ApiKey.FETCH,
            4,
            replica_id=-1,
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=40_000_000,
            topics=[{"topic": topic, "partitions": [part]}],
        )
        header = b"\x00\x01\x00\x04\x00\x00\x00\x07\x00\x01c"
        one.sendall((len(header) + len(body)).to_bytes(4, "big") + header + body)
    time.sleep(2)
    assert resident_bytes(world.proxy.pid) - before < 60_000_000
    with RawClient(leader_of(world, topic)) as client:
        assert len(client.fetch(topic, 0, 0)) > 900_000
    for one in deaf:
        one.close()


def test_a_broker_that_goes_and_comes_back_is_followed(world: World, tmp_path: Path) -> None:
    topic = fresh_topic(world.cluster, PARTITIONS, 2)
    with ChildProcesses() as children:
        program = start_producer(
            children,
            tmp_path,
            JAVA_4,
            bootstrap=world.bootstrap,
            topic=topic,
            partitions=PARTITIONS,
            records=30_000,
        )
        wait_until(
            lambda: program.progress().get("acked", 0) > 0 or program.process.exit_code is not None, "it began", 120
        )
        world.cluster.stop_broker(1)
        world.cluster.start_broker(1)
        outcome = program.wait(120)
    assert (outcome["acked"], outcome["failed"]) == (30_000, 0), outcome
    found = verdict(world.cluster, topic, PARTITIONS)
    assert (found.stored, found.is_exactly_once) == (30_000, True), found


def test_a_drain_finishes_what_is_under_way_and_ends(world: World) -> None:
    """The last test here: the proxy ends."""
    topic = fresh_topic(world.cluster, 1)
    with RawClient(leader_of(world, topic)) as client:
        client.produce_one(topic, 0, batch([b"before"]), version=7)
        assert world.proxy.stop() == 0
        assert client.is_closed()
    world.proxy.start()
    assert consume(world.bootstrap, topic, "drained", 1) == [b"before"]


@pytest.mark.promise("complete-requests")
@pytest.mark.parametrize("end", ["FIN", "FIN within a request", "garbage"])
def test_complete_requests_before_a_fin_or_garbage_are_served_and_answered(world: World, end: str) -> None:
    topic = fresh_topic(world.cluster, 1)
    with RawClient(leader_of(world, topic)) as client:
        wait_until(lambda: client.init_producer_id()[0] == 0, "the broker gives producer ids")
        producer_id = client.new_producer_id()
        bodies = [
            client.produce_body([(topic, 0, batch([b"%d" % number], producer_id=producer_id, sequence=number))])
            for number in range(12)
        ]
        metadata = messages.encode_request(ApiKey.METADATA, 1, topics=None)
        client.send_together(*((ApiKey.PRODUCE, 3, body) for body in bodies), (ApiKey.METADATA, 1, metadata))
        if end == "garbage":
            client.send_bytes(b"\xff\xff\xff\xff garbage")
        else:
            if end == "FIN within a request":
                client.send_bytes(frame(encode_request_header(ApiKey.PRODUCE, 3, 99, "raw"), bodies[0])[:-1])
            client.half_close()
        assert [client.produce_answer()[0].base_offset for _ in bodies] == list(range(len(bodies)))
        client.answer()
        assert client.is_closed()
    with RawClient(leader_of(world, topic)) as client:
        assert client.end_offset(topic, 0) == len(bodies), "what was cut is not there"
