"""Producers without idempotence at a real Kafka 4 and at a real 3.9: the proxy writes their batches with producer ids,
so answers that are lost between it and the brokers duplicate nothing. Others are left alone."""

from __future__ import annotations

import itertools
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient

from idemproxy.codecs import messages
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.record_batch import StoredBatch, iterate_stored
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.fault_relay import FaultPlan, FaultRelay
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.demo.verdict import Verdict
from idemproxy.proxy.native.conditional import NOT_SERVED
from idemproxy.proxy.producer.grouping import EXPECTED_OFFSET_HEADER
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kafka_cluster import consume, told, verdict
from testkit.real.brokers.kraft_cluster import NEWEST, KraftCluster
from testkit.real.clients.client_runs import JAVA_4, KAFKA_GO, KAFKA_PYTHON, KAFKAJS, LIBRDKAFKA, start_producer
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.scenes.faulty import BREAKING_KINDS

BEFORE_4 = "3.9.1"
PATTERN = "lent-*"
RECORDS, PARTITIONS = 600, 3
CONTROLS_MAX = 4
"""Which batch meets which fault is a matter of time: a run without the setting may have no duplicate."""
BY_ID = 13
BATCH_START = 16
"""Before it, base offset, length and leader epoch are the broker's."""
RECORDS_AT = 57
CHANGED = 43
WAIT_SECONDS_MAX = 120.0
"""On a busy machine: a hundred requests without acks are served one after the other, with faults."""
_names = itertools.count()


@dataclass
class World:
    """One broker, a relay in front of it, and proxies that differ in their setting."""

    cluster: KraftCluster
    relay: FaultRelay
    proxy: ConfiguredProxy
    lends_to_all: ConfiguredProxy
    lends_to_nobody: ConfiguredProxy

    @property
    def produce_version_max(self) -> int:
        return BY_ID if self.cluster.version == NEWEST else 11

    def topic(self, partitions: int = 1, **config: str | int) -> str:
        name = f"upstream-{next(_names)}"
        self.cluster.create_topic(name, partitions, config={key.replace("_", "."): one for key, one in config.items()})
        return name

    def client(self, client_id: str | None, proxy: ConfiguredProxy | None = None) -> RawClient:
        host, port = (proxy or self.proxy).address
        return RawClient((host, port + 1), WAIT_SECONDS_MAX, client_id=client_id)

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Between the proxies and the broker."""
        self.relay.set_faults(True)
        try:
            yield
        finally:
            self.relay.set_faults(False)

    def batches(self, topic: str) -> list[StoredBatch]:
        with RawClient(self.cluster.address(0)) as reader:
            found: list[StoredBatch] = []
            offset, end = 0, reader.end_offset(topic, 0)
            while offset < end:
                for one in iterate_stored(reader.fetch(topic, 0, offset, version=10)):
                    found.append(one)
                    offset = one.base_offset + one.header.last_offset_delta + 1
            return found

    def topic_id(self, topic: str) -> UUID:
        with RawClient(self.cluster.address(0)) as client:
            (found,) = client.ask(ApiKey.METADATA, 12, topics=[{"topic_id": UUID(int=0), "name": topic}]).topics
        return UUID(str(found.topic_id))


@pytest.fixture(scope="module", params=[NEWEST, BEFORE_4])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory: Path = tmp_path_factory.mktemp("upstream")
    (port,) = free_ports(1)
    cluster = KraftCluster(
        directory / "kafka", version=request.param, advertised={0: (HOST, port)}, auto_create_topics=False
    )
    plan = FaultPlan(seed=1, kinds=BREAKING_KINDS, every_nth_produce=3, evenly=True)
    with ExitStack() as stack:
        relay = stack.enter_context(FaultRelay(cluster.address(0), plan=plan, port=port))
        relay.set_faults(False)
        stack.enter_context(cluster)
        proxies = []
        for number, patterns in enumerate(([PATTERN, ""], ["*"], [])):
            settings = {
                "upstream": {"bootstrap": [f"{HOST}:{port}"]},
                "producers": {"upstream_idempotence": patterns},
            }
            proxy = ConfiguredProxy(directory / f"proxy-{number}", settings, listener={})
            proxies.append(stack.enter_context(proxy))
        yield World(cluster, relay, *proxies)


def produce(
    client: RawClient, topic: str | UUID, records: bytes, *, version: int, acks: int = -1, timeout_ms: int = 30_000
) -> Any:
    """To partition 0, and return its part of the answer; both by the library."""
    client.send(ApiKey.PRODUCE, version, body_of(topic, records, version, acks, timeout_ms))
    return None if acks == 0 else answered(client, version)


def body_of(topic: str | UUID, records: bytes, version: int, acks: int = -1, timeout_ms: int = 30_000) -> bytes:
    name = {"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}
    data = [{**name, "partition_data": [{"index": 0, "records": records}]}]
    fields: dict[str, Any] = {"transactional_id": None, "acks": acks, "timeout_ms": timeout_ms}
    return bytes(messages.encode_request(ApiKey.PRODUCE, version, **fields, topic_data=data))


def answered(client: RawClient, version: int) -> Any:
    _, body = client.answer()
    (topic,) = messages.decode_response(ApiKey.PRODUCE, version, body).responses
    (part,) = topic.partition_responses
    return part


# ---------------------------------------------------------------------- batches
@pytest.mark.parametrize("codec", Codec)
def test_batches_of_every_version_are_stored_under_a_producer_id_as_they_were_sent(world: World, codec: Codec) -> None:
    topic = world.topic()
    sent: list[bytes] = []
    versions = [one for one in range(3, world.produce_version_max + 1) if codec is not Codec.ZSTD or one >= 7]
    with world.client("lent-1") as client:
        for version in versions:
            for acks in (-1, 1):
                data = batch([b"%d" % version * 50, b"w" * 50], key=b"k", headers=(("h", b"1"),), codec=codec)
                place = world.topic_id(topic) if version == BY_ID else topic
                part = produce(client, place, data, version=version, acks=acks)
                assert (part.error_code, part.base_offset) == (ErrorCode.NONE, 2 * len(sent))
                assert part.log_start_offset == (0 if version >= 5 else -1)
                sent.append(data)
    stored = world.batches(topic)
    assert [bytes(one.records[RECORDS_AT:]) for one in stored] == [one[RECORDS_AT:] for one in sent]
    assert [bytes(one.records[21:CHANGED]) for one in stored] == [one[21:CHANGED] for one in sent]
    by_id: dict[int, int] = {}
    for one in stored:
        assert one.header.producer_id >= 0
        assert one.header.base_sequence == by_id.get(one.header.producer_id, one.header.base_sequence)
        by_id[one.header.producer_id] = one.header.base_sequence + 2
    read = consume(world.cluster.bootstrap, topic, f"{topic}-reader", 2 * len(sent))
    assert read == [one for version in versions for _ in range(2) for one in (b"%d" % version * 50, b"w" * 50)]


def test_log_append_time_is_returned(world: World) -> None:
    topic = world.topic(message_timestamp_type="LogAppendTime")
    with world.client("lent-1") as client:
        part = produce(client, topic, batch([b"v"]), version=9)
    assert part.log_append_time_ms > 1_700_000_100_000


def test_the_broker_refuses_with_its_own_code_and_words(world: World) -> None:
    compacted, small = world.topic(cleanup_policy="compact"), world.topic(max_message_bytes=1_000)
    version = min(world.produce_version_max, 12)
    with world.client("lent-1") as through, world.client("other") as direct:
        for topic, data in ((compacted, batch([b"no key"])), (small, batch([b"x" * 600] * 3)), ("none", batch([b"v"]))):
            mine, its_own = (produce(one, topic, data, version=version) for one in (through, direct))
            said, its_own_words = ((one.error_code, one.base_offset, one.error_message) for one in (mine, its_own))
            assert said == its_own_words
            assert mine.error_code != ErrorCode.NONE
        part = produce(through, compacted, batch([b"v"], key=b"k"), version=version)
        assert (part.error_code, part.base_offset) == (ErrorCode.NONE, 0)


def test_what_the_broker_refuses_of_any_client_it_refuses_of_this_one(world: World) -> None:
    topic = world.topic()
    version = 8
    bodies = {
        "two batches": body_of(topic, batch([b"v"]) * 2, version),
        "acks 5": body_of(topic, batch([b"v"]), version, acks=5),
        "a wrong checksum": body_of(topic, batch([b"v"])[:-1] + b"\x01", version),
    }
    for what, body in bodies.items():
        codes = []
        for name in ("lent-1", "other"):
            with world.client(name) as client:
                assert produce(client, topic, batch([b"first"]), version=version).error_code == 0
                client.send(ApiKey.PRODUCE, version, body)
                codes.append(answered(client, version).error_code)
        assert codes[0] == codes[1] != ErrorCode.NONE, what


def test_batches_without_acks_are_stored_in_order(world: World) -> None:
    topic = world.topic()
    sent = [b"%d" % number for number in range(100)]
    with world.faults(), world.client("lent-1") as client:
        for number, value in enumerate(sent):
            produce(client, topic, batch([value]), version=3 + number % 8, acks=0)
        part = produce(client, topic, batch([b"last"]), version=8)
    assert (part.error_code, part.base_offset) == (ErrorCode.NONE, len(sent))
    assert consume(world.cluster.bootstrap, topic, f"{topic}-reader", len(sent) + 1) == [*sent, b"last"]


def test_a_conditional_batch_is_refused(world: World) -> None:
    topic = world.topic()
    with world.client("lent-1") as client:
        assert produce(client, topic, batch([b"v"]), version=8).error_code == ErrorCode.NONE
        conditional = batch([b"v"], headers=((EXPECTED_OFFSET_HEADER, b"1"),))
        part = produce(client, topic, conditional, version=8)
        assert (part.error_code, part.base_offset) == (NOT_SERVED.error_code, -1)
        assert produce(client, topic, batch([b"v"]), version=8).base_offset == 1


@pytest.mark.parametrize("client_id", [None, ""])
def test_an_empty_pattern_lends_to_clients_without_a_client_id(world: World, client_id: str | None) -> None:
    """As kafka-go's writer is, unless it is given one."""
    topic = world.topic()
    with world.faults(), world.client(client_id) as client:
        for number in range(30):
            part = produce(client, topic, batch([b"%d" % number]), version=7)
            assert (part.error_code, part.base_offset) == (ErrorCode.NONE, number)
    assert all(one.header.producer_id >= 0 for one in world.batches(topic))


# ---------------------------------------------------------------------- others
def test_a_client_of_another_name_is_passed_as_bytes(world: World) -> None:
    topic, asked = world.topic(), world.relay.init_producer_id_requests
    sent = [batch([b"%d" % number], codec=Codec.GZIP) for number in range(5)]
    with world.client("other") as client:
        client.send_together(*((ApiKey.PRODUCE, 7, body_of(topic, data, 7)) for data in sent))
        assert [answered(client, 7).base_offset for _ in sent] == list(range(5))
    assert [bytes(one.records[BATCH_START:]) for one in world.batches(topic)] == [one[BATCH_START:] for one in sent]
    assert world.relay.init_producer_id_requests == asked


def test_a_client_with_idempotence_of_its_own_is_left_alone(world: World) -> None:
    topic = world.topic()
    with world.client("lent-own") as client:
        own, asked = client.new_producer_id(), world.relay.init_producer_id_requests
        sent = [batch([b"%d" % number], producer_id=own, sequence=number) for number in range(5)]
        client.send_together(*((ApiKey.PRODUCE, 9, body_of(topic, data, 9)) for data in sent))
        assert [answered(client, 9).base_offset for _ in sent] == list(range(5))
        gap = produce(client, topic, batch([b"gap"], producer_id=own, sequence=9), version=9)
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [bytes(one.records[BATCH_START:]) for one in world.batches(topic)] == [one[BATCH_START:] for one in sent]
    assert world.relay.init_producer_id_requests == asked


def test_batches_with_and_without_a_producer_id_keep_their_order_on_one_connection(world: World) -> None:
    topic = world.topic()
    sent: list[tuple[int, int, bytes]] = []
    with world.client("lent-mixed") as client:
        assert produce(client, topic, batch([b"first"]), version=7).error_code == ErrorCode.NONE
        own = client.new_producer_id()
        for number in range(30):
            its_id = own if number % 3 == 1 else -1
            data = batch([b"%d" % number], producer_id=its_id, sequence=number // 3)
            sent.append((ApiKey.PRODUCE, 7, body_of(topic, data, 7)))
        client.send_together(*sent)
        assert [answered(client, 7).base_offset for _ in sent] == list(range(1, 31))
        assert client.ask(ApiKey.METADATA, 1, topics=[{"name": topic}]).topics[0].error_code == ErrorCode.NONE
    stored = world.batches(topic)
    assert [one.header.producer_id == own for one in stored[1:]] == [number % 3 == 1 for number in range(30)]
    assert all(one.header.producer_id >= 0 for one in stored)
    read = consume(world.cluster.bootstrap, topic, f"{topic}-reader", 31)
    assert read == [b"first", *(b"%d" % number for number in range(30))]


@pytest.mark.parametrize("client", [LIBRDKAFKA, KAFKA_PYTHON, JAVA_4])
def test_a_real_idempotent_client_has_its_own_ids(world: World, tmp_path: Path, client: str) -> None:
    before = world.relay.producer_ids
    found, _ = run(world, world.lends_to_all, client, tmp_path, idempotent=True)
    assert found.is_exactly_once, found
    assert len(world.relay.producer_ids - before) == 1


# ---------------------------------------------------------------------- faults
@pytest.mark.parametrize("acks", [-1, 1])
def test_batches_are_stored_once_and_in_order_when_answers_are_lost_and_requests_cut(world: World, acks: int) -> None:
    topic = world.topic()
    sent: list[bytes] = []
    topic_id = world.topic_id(topic)
    before = Counter(world.relay.counts)
    with world.faults(), world.client("lent-1") as client:
        for number in range(150):
            version = 3 + number % (world.produce_version_max - 2)
            values = [b"%d-%d" % (number, index) for index in range(1 + number % 4)]
            data = batch(values, codec=(Codec.NONE, Codec.GZIP, Codec.LZ4)[number % 3])
            place = topic_id if version == BY_ID else topic
            part = produce(client, place, data, version=version, acks=acks)
            assert (part.error_code, part.base_offset) == (ErrorCode.NONE, len(sent))
            sent += values
    assert all(world.relay.counts[kind] > before[kind] + 3 for kind in BREAKING_KINDS), world.relay.counts
    assert consume(world.cluster.bootstrap, topic, f"{topic}-reader", len(sent)) == sent


@pytest.mark.timeout(900)  # in a fresh clone their packages are fetched and compiled first
@pytest.mark.parametrize("client", [KAFKAJS, KAFKA_GO])
def test_a_real_client_without_idempotence_duplicates_without_the_setting_and_not_with_it(
    world: World, tmp_path: Path, client: str
) -> None:
    with world.faults():
        for number in range(CONTROLS_MAX):
            without, _ = run(world, world.lends_to_nobody, client, tmp_path / f"without-{number}")
            if without.duplicates:
                break
        found, outcome = run(world, world.lends_to_all, client, tmp_path / "with")
    assert without.duplicates > 0
    assert found.is_exactly_once, found
    assert (outcome["acked"], outcome["failed"], outcome["errors"]) == (RECORDS, 0, [])
    assert outcome["offsets_in_order"]


def run(
    world: World, proxy: ConfiguredProxy, client: str, directory: Path, *, idempotent: bool = False
) -> tuple[Verdict, dict[str, Any]]:
    """Let a client produce; return what became of its records, and its last line."""
    directory.mkdir(exist_ok=True)
    topic = world.topic(PARTITIONS)
    with ChildProcesses() as children:
        program = start_producer(
            *(children, directory, client),
            bootstrap="{}:{}".format(*proxy.address),
            topic=topic,
            partitions=PARTITIONS,
            records=RECORDS,
            idempotent=idempotent,
            delivery_seconds=300,
        )
        outcome = program.wait(300)
        acknowledged = told(client, program.acknowledged())
    return verdict(world.cluster, topic, PARTITIONS, acknowledged), outcome


# ---------------------------------------------------------------------- topic ids
def test_a_topic_that_was_recreated_gets_nothing_by_its_old_id(world: World) -> None:
    if world.produce_version_max < BY_ID:
        with world.client("lent-1") as client:
            told_max = {one.api_key: one.max_version for one in client.ask(ApiKey.API_VERSIONS, 0).api_keys}
        assert told_max[ApiKey.PRODUCE] < BY_ID
        return
    topic = world.topic()
    old = world.topic_id(topic)
    with world.client("lent-1") as client:
        assert produce(client, old, batch([b"v"]), version=BY_ID).error_code == ErrorCode.NONE
        admin = AdminClient({"bootstrap.servers": world.cluster.bootstrap})
        admin.delete_topics([topic])[topic].result(60)
        world.cluster.create_topic(topic)
        assert produce(client, old, batch([b"v"]), version=BY_ID).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert produce(client, world.topic_id(topic), batch([b"v"]), version=BY_ID).base_offset == 0


# ---------------------------------------------------------------------- reload
def test_a_reload_concerns_connections_that_have_not_produced_yet(world: World) -> None:
    topic, proxy = world.topic(), world.lends_to_nobody
    settings = dict(proxy.configuration)
    with world.client("reloaded", proxy) as old, world.client("reloaded", proxy) as fresh:
        assert produce(old, topic, batch([b"v"]), version=8).error_code == ErrorCode.NONE
        proxy.write({**settings, "producers": {"upstream_idempotence": ["reload?d", "re*aded"]}})
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("reloaded: producers.upstream_idempotence changed")
        assert produce(old, topic, batch([b"v"]), version=8).error_code == ErrorCode.NONE
        assert produce(fresh, topic, batch([b"v"]), version=8).error_code == ErrorCode.NONE
    proxy.write(settings)
    proxy.signal(signal.SIGHUP)
    assert [one.header.producer_id >= 0 for one in world.batches(topic)] == [False, False, True]
