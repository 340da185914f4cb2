"""The brokers give idempotence, and on some topics the proxy does (``topics.engine``): each partition has one kind of
writer, whatever client writes to both kinds of topics, and however its requests mix them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer

from idemproxy.codecs import messages, produce_topic_ids
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.logged import LoggedBatch, iterate_logged
from idemproxy.codecs.record_batch import CONTROL_FLAG
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.producer_ids import CONDITIONAL_ID
from idemproxy.state.store import issued_key, mode_key
from testkit.real.brokers.kafka_cluster import fresh_topic, librdkafka_settings, verdict
from testkit.real.brokers.kraft_cluster import KRAFT_FROM, KraftCluster
from testkit.real.clients.client_runs import JAVA_4, KAFKA_PYTHON, LIBRDKAFKA, start_producer
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.store.redis_process import RedisProcess

VERSIONS = [pytest.param("2.8.2", marks=pytest.mark.long), "3.9.1", pytest.param("4.3.1", marks=pytest.mark.long)]
PARTITIONS = 3
WAIT_SECONDS = 60
NAME = "shop"
MODE = mode_key(NAME).decode()
TOPICS = {"engine": ["orders-*"], "conditional": ["wal-*"]}
STORED_MODE = b'native ["orders-*", "wal-*"]'
pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class World:
    cluster: LegacyCluster
    redis: RedisProcess
    proxy: ConfiguredProxy

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.proxy.address)

    def topic(self, kind: str, partitions: int = PARTITIONS) -> str:
        """A new topic whose name begins so."""
        return fresh_topic(self.cluster, partitions, kind=kind)


def proxy_of(directory: Path, cluster: LegacyCluster, redis: RedisProcess, **more: Any) -> ConfiguredProxy:
    settings = {
        "upstream": {"bootstrap": [cluster.bootstrap.split(",")[0]], "idempotence": "native"},
        "redis": {"url": f"redis://127.0.0.1:{redis.port}/0"},
        "cluster_name": NAME,
        "topics": TOPICS,
        **more,
    }
    return ConfiguredProxy(directory, settings, listener={}, brokers=1)


@pytest.fixture(scope="module", params=VERSIONS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("engine-topics")
    kind = KraftCluster if int(request.param.split(".")[0]) >= KRAFT_FROM else LegacyCluster
    transactions = {"transaction.state.log.num.partitions": 1, "transaction.state.log.replication.factor": 1}
    (port, admin) = free_ports(2)
    (directory / "redis").mkdir()
    with (
        kind(
            directory / "kafka", version=request.param, auto_create_topics=False, broker_settings=transactions
        ) as cluster,
        RedisProcess(directory / "redis", port=port) as redis,
        proxy_of(
            *(directory / "proxy", cluster, redis),
            admin={"bind": f"{HOST}:{admin}"},
            journal=os.fspath(directory / "journal"),
        ) as proxy,
    ):
        yield World(cluster, redis, proxy)


@pytest.fixture
def raw(world: World) -> Iterator[RawClient]:
    host, port = world.proxy.address
    with RawClient((host, port + 1)) as client:
        yield client


def batches(world: World, topic: str, partition: int = 0) -> list[LoggedBatch]:
    """What is stored. A fetch ends with a segment of the log."""
    found: list[LoggedBatch] = []
    with RawClient(world.cluster.address(0)) as direct:
        while data := direct.fetch(topic, partition, found[-1].offset + 1 if found else 0, version=10):
            for one in iterate_logged(data):
                assert isinstance(one, LoggedBatch)
                found.append(one)
    return found


def appended(world: World, topic: str) -> int:
    """Records that the journal has of the topic."""
    lines = map(json.loads, Path(world.proxy.configuration["journal"]).read_text().splitlines())
    return sum(line["record_count"] for line in lines if line.get("verdict") == "appended" and line["topic"] == topic)


def test_a_producer_writes_both_kinds_of_topics_with_an_id_of_the_broker(world: World) -> None:
    ours, theirs = world.topic("orders"), world.topic("other")
    producer = Producer(librdkafka_settings(world.bootstrap, enable_idempotence=True))
    for number in range(300):
        for topic in (ours, theirs):
            producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(WAIT_SECONDS) == 0
    mine, others = batches(world, ours), batches(world, theirs)
    assert sum(one.record_count for one in mine) == sum(one.record_count for one in others) == 300
    assert all(one.marker is None and one.header.producer_id >= 0 for one in others)
    assert (appended(world, ours), appended(world, theirs)) == (300, 0)
    (producer_id,) = {one.header.producer_id for one in others}
    assert world.redis.call("EXISTS", issued_key(NAME, producer_id).decode()) == 1
    assert world.redis.call("GET", MODE) == STORED_MODE


@pytest.mark.parametrize("client", [LIBRDKAFKA, JAVA_4, KAFKA_PYTHON])
def test_a_client_of_each_kind_produces_once_to_both_kinds_of_topics(world: World, client: str, tmp_path: Path) -> None:
    records = 600
    for kind in ("orders", "other"):
        topic = world.topic(kind)
        with ChildProcesses() as children:
            common: dict[str, Any] = {"bootstrap": world.bootstrap, "topic": topic, "partitions": PARTITIONS}
            directory = tmp_path / kind
            directory.mkdir()
            outcome = start_producer(children, directory, client, records=records, **common).wait(WAIT_SECONDS)
        assert (outcome["acked"], outcome["failed"], outcome["offsets_in_order"]) == (records, 0, True)
        found = verdict(world.cluster, topic, PARTITIONS)
        assert (found.stored, found.is_exactly_once) == (records, True), found


# ---------------------------------------------------------------------- requests of both kinds
def test_a_request_for_both_kinds_of_topics_is_split_and_answered_in_order(world: World, raw: RawClient) -> None:
    ours, theirs = world.topic("orders", 2), world.topic("other", 2)
    producer_id = raw.new_producer_id()
    for sequence in (0, 0, 1, 1):
        parts = [
            (topic, partition, batch([b"value"], producer_id=producer_id, sequence=sequence))
            for partition in (0, 1)
            for topic in (ours, theirs)
        ]
        answers = raw.produce(parts, version=8)
        assert {(one.topic, one.partition) for one in answers} == {(topic, index) for topic, index, _ in parts}
        assert [(one.error_code, one.base_offset) for one in answers] == [(0, sequence)] * 4
    for topic in (ours, theirs):
        for partition in (0, 1):
            assert len(batches(world, topic, partition)) == 2
    assert (appended(world, ours), appended(world, theirs)) == (4, 0)


def test_a_request_for_both_kinds_that_wants_no_answer_is_split(world: World, raw: RawClient) -> None:
    ours, theirs = world.topic("orders", 1), world.topic("other", 1)
    raw.send_produce([(topic, 0, batch([b"value"])) for topic in (ours, theirs)], acks=0)
    for topic in (ours, theirs):
        assert raw.produce_one(topic, 0, batch([b"next"])).base_offset == 1


def test_requests_of_all_kinds_are_answered_in_their_order(world: World, raw: RawClient) -> None:
    ours, theirs = world.topic("orders", 1), world.topic("other", 1)
    producer_id, requests = raw.new_producer_id(), list[tuple[int, int, bytes]]()
    metadata = messages.encode_request(ApiKey.METADATA, 9, topics=[], allow_auto_topic_creation=False)
    for sequence in range(20):
        both = [
            (topic, 0, batch([b"both"], producer_id=producer_id, sequence=3 * sequence)) for topic in (ours, theirs)
        ]
        requests.append((ApiKey.PRODUCE, 8, RawClient.produce_body(both, version=8)))
        for at in (1, 2):
            for topic in (theirs, ours):
                one = topic, 0, batch([b"one"], producer_id=producer_id, sequence=3 * sequence + at)
                requests.append((ApiKey.PRODUCE, 8, RawClient.produce_body([one], version=8)))
        requests.append((ApiKey.METADATA, 9, metadata))
    raw.send_together(*requests)
    for _ in requests:
        raw.answer()
    for topic in (ours, theirs):
        assert sum(one.record_count for one in batches(world, topic)) == 60


def test_a_topic_id_leads_to_the_kind_of_its_topic(world: World, raw: RawClient) -> None:
    answer = raw.ask(ApiKey.API_VERSIONS, 0)
    if {one.api_key: one.max_version for one in answer.api_keys}[ApiKey.PRODUCE] < produce_topic_ids.VERSION:
        return  # the broker's clients do not know topic ids
    producer_id = raw.new_producer_id()
    for kind in ("orders", "other"):
        topic = world.topic(kind, 1)
        asked = raw.ask(ApiKey.METADATA, 13, topics=[{"name": topic}], allow_auto_topic_creation=False)
        topic_id = asked.topics[0].topic_id.hex
        for sequence in (0, 0, 1):
            records = batch([b"value"], producer_id=producer_id, sequence=sequence)
            body = b"".join(produce_topic_ids.encode_request(-1, 30_000, [(topic_id, 0, records)]))
            (found,), _ = produce_topic_ids.parse_response(raw.call(ApiKey.PRODUCE, produce_topic_ids.VERSION, body))
            assert (found.error_code, found.base_offset) == (0, sequence), found.message
        assert len(batches(world, topic)) == 2
        assert appended(world, topic) == (2 if kind == "orders" else 0)


# ---------------------------------------------------------------------- what is for one kind only
def test_a_transaction_is_committed_on_other_topics_and_refused_on_engine_topics(world: World) -> None:
    ours, theirs = world.topic("orders", 1), world.topic("other", 1)
    producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": f"mover-{ours}"})
    producer.init_transactions(WAIT_SECONDS)
    told: list[str] = []
    for topic in (theirs, ours, theirs):
        producer.begin_transaction()
        producer.produce(topic, b"value", partition=0, on_delivery=lambda error, _: told.append(str(error)))
        if topic == theirs:
            producer.commit_transaction(WAIT_SECONDS)
            continue
        with pytest.raises(KafkaException) as refused:
            producer.commit_transaction(WAIT_SECONDS)
        assert refused.value.args[0].txn_requires_abort()
        producer.abort_transaction(WAIT_SECONDS)
    assert [one.record_count for one in batches(world, ours) if not one.header.attributes & CONTROL_FLAG] == []
    assert [one.record_count for one in batches(world, theirs) if not one.header.attributes & CONTROL_FLAG] == [1, 1]
    assert any("topics.engine" in one or "INVALID_TOPIC" in one or "Invalid topic" in one for one in told), told


def test_conditional_publish_works_by_sequence_and_by_header_and_is_refused_elsewhere(
    world: World, raw: RawClient
) -> None:
    wal, theirs = world.topic("wal", 1), world.topic("other", 1)
    zero = batch([b"0"], producer_id=CONDITIONAL_ID, sequence=0)
    while (first := raw.produce_one(wal, 0, zero, version=8)).error_code == ErrorCode.REQUEST_TIMED_OUT:
        pass  # a proxy that has just begun waits for the leases of earlier ones
    assert (first.error_code, first.base_offset) == (0, 0), first.message
    late = raw.produce_one(wal, 0, batch([b"late"], producer_id=CONDITIONAL_ID, sequence=0), version=8)
    assert late.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, late.message
    producer = KafkaProducer(bootstrap_servers=world.bootstrap, acks="all", retries=0)
    sent = producer.send(wal, b"1", partition=0, headers=[("expected-offset", b"1")])
    assert sent.get(WAIT_SECONDS).offset == 1
    producer.close()
    assert sum(one.record_count for one in batches(world, wal)) == 2, batches(world, wal)
    for parts in ([theirs], [theirs, world.topic("orders", 1)]):
        records = batch([b"0"], producer_id=CONDITIONAL_ID, sequence=0)
        answers = {one.topic: one for one in raw.produce([(topic, 0, records) for topic in parts], version=8)}
        assert answers[theirs].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "topics.conditional" in (answers[theirs].message or "")
    assert batches(world, theirs) == []


def test_the_log_names_the_engine_topics(world: World) -> None:
    assert world.proxy.wait_for_log("engine topics: orders-\\*, wal-\\*; on all others the brokers give idempotence")


# ---------------------------------------------------------------------- one mode for all proxies
def test_a_proxy_with_other_patterns_or_another_mode_does_not_start(world: World, tmp_path: Path) -> None:
    upstream = {"bootstrap": [world.cluster.bootstrap.split(",")[0]]}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"topics": {"engine": ["payments"]}}, "the engine topics under cluster name 'shop' are orders-*, wal-*, and"),
        ({"topics": {}}, "and this proxy's are none"),
        ({"upstream": {**upstream, "idempotence": "auto"}, "topics": {}}, "and this proxy's are none"),
        ({"upstream": {**upstream, "idempotence": "proxy"}, "topics": {}}, "the brokers give idempotence under"),
    ]
    for number, (settings, why) in enumerate(cases):
        other = proxy_of(tmp_path / str(number), world.cluster, world.redis, **settings)
        other.launch()
        try:
            assert other.wait(WAIT_SECONDS) == 2
            (error,) = [line for line in other.log.splitlines() if " ERROR " in line]
            assert why in error
        finally:
            other.__exit__()
    assert world.redis.call("GET", MODE) == STORED_MODE
    with proxy_of(tmp_path / "same", world.cluster, world.redis, topics={"engine": ["wal-*", "orders-*"]}) as same:
        assert same.stop() == 0
    command = [sys.executable, "-P", "-m", "idemproxy", "check", os.fspath(world.proxy.file), "--connect"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert "engine topics: orders-*, wal-*; on all others requests pass through" in done.stdout + done.stderr


def test_settings_without_effect_name_the_engine_topics(world: World, tmp_path: Path) -> None:
    proxy = proxy_of(tmp_path, world.cluster, world.redis, producers={"upstream_idempotence": ["a"]})
    proxy.launch()
    try:
        assert proxy.wait(WAIT_SECONDS) != 0
        assert "producers.upstream_idempotence: has no effect with engine topics" in proxy.log
    finally:
        proxy.__exit__()


def test_a_proxy_that_gave_idempotence_on_all_topics_keeps_it_on_engine_topics(world: World, tmp_path: Path) -> None:
    """Once no producer has an entry any more (upstream.idempotence: auto)."""
    name = "was-proxy"
    mode, entry = mode_key(name).decode(), f"idem:{name}:{{gone/0}}:0000000000000001"
    world.redis.call("SET", mode, "proxy")
    world.redis.call("SET", entry, "x")
    upstream = {"bootstrap": [world.cluster.bootstrap.split(",")[0]]}
    ours, theirs = world.topic("orders", 1), world.topic("other", 1)
    with proxy_of(
        *(tmp_path, world.cluster, world.redis), upstream=upstream, cluster_name=name, topics={"engine": ["orders-*"]}
    ) as proxy:
        proxy.wait_for_log("the proxy keeps giving idempotence")
        proxy.wait_for_log("topics.engine: has no effect where the proxy gives idempotence")
        world.redis.call("DEL", entry)
        proxy.wait_for_log("from now on they give idempotence, but for orders-\\*", WAIT_SECONDS)
        assert world.redis.call("GET", mode) == b'native ["orders-*"]'
        host, port = proxy.address
        with RawClient((host, port + 1)) as client:
            wait_until(lambda: client.init_producer_id()[0] == 0, "the broker issues producer ids")
            producer_id = client.new_producer_id()
            for topic in (ours, theirs):
                for _ in range(2):
                    records = batch([b"value"], producer_id=producer_id, sequence=0)
                    answer = client.produce_one(topic, 0, records)
                    assert (answer.error_code, answer.base_offset) == (0, 0), answer.message
        assert world.redis.call("EXISTS", issued_key(name, producer_id).decode()) == 1
        assert world.redis.call("EXISTS", f"idem:{name}:{{{ours}/0}}:{producer_id:016x}") == 1
        assert world.redis.call("EXISTS", f"idem:{name}:{{{theirs}/0}}:{producer_id:016x}") == 0
        assert proxy.stop() == 0
