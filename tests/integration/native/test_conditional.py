"""Conditional publish in front of a real 3.9 broker, which knows nothing of it: it is refused, and nothing is appended
(rule R23)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
import trio
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer
from kafka.errors import InvalidTopicError

from idemproxy.client import CONDITIONAL, Client, ProduceError, Record, UnsupportedServer
from idemproxy.client.trio_client import TrioClient
from idemproxy.codecs import messages
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.produce_walk import Part
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy import limits
from idemproxy.proxy.native.conditional import refused
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.real.brokers.kafka_cluster import fresh_topic, stored
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess

VERSION = "3.9.1"
WAIT_SECONDS = 30.0
NOT_SERVED, COME_AGAIN = 17, 19
HEADER = (("expected-offset", b"0"),)
EXPLAINED, NEWEST, BY_TOPIC_ID = 8, 11, 13
"""Versions of Produce: the first whose answers have sentences, the newest that the broker has, and the first in which
topics have ids."""


@dataclass(frozen=True)
class World:
    cluster: LegacyCluster
    proxy: ProxyProcess

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.proxy.address)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("native-conditional")
    with (
        LegacyCluster(directory / "kafka", version=VERSION, auto_create_topics=False) as cluster,
        ProxyProcess(directory / "proxy", cluster.address(0)) as proxy,
    ):
        yield World(cluster, proxy)


@pytest.fixture
def topic(world: World) -> str:
    return fresh_topic(world.cluster, 4)


@pytest.fixture
def writer(world: World) -> Iterator[RawClient]:
    with RawClient(world.proxy.address) as client:
        yield client


def conditional(expected: int, *values: bytes, codec: Codec = Codec.NONE) -> bytes:
    return batch(values, producer_id=CONDITIONAL_ID, sequence=expected, codec=codec)


def in_log(world: World, topic: str) -> list[bytes | None]:
    return [record.value for records in stored(world.cluster, topic, 4).values() for record in records]


# ---------------------------------------------------------------------- our own client, and raw bytes
def test_two_writers_at_one_offset_are_both_refused_and_neither_is_appended(world: World, topic: str) -> None:
    with RawClient(world.proxy.address) as one, RawClient(world.proxy.address) as other:
        answers = [
            client.produce_one(topic, 0, conditional(0, value, codec=codec), version=EXPLAINED)
            for client, value, codec in ((one, b"one", Codec.NONE), (other, b"other", Codec.GZIP))
        ]
    assert [(one.error_code, one.base_offset) for one in answers] == [(NOT_SERVED, -1)] * 2
    assert all("the brokers give idempotence on this topic" in str(one.message) for one in answers)
    assert in_log(world, topic) == []
    world.proxy.wait_for_log("Produce: no conditional publish: the brokers give idempotence on this topic")


@pytest.mark.parametrize("version", range(3, NEWEST + 1))
def test_a_conditional_batch_is_refused_in_its_turn_in_every_version(
    writer: RawClient, world: World, topic: str, version: int
) -> None:
    usual, refused = batch([b"usual"]), batch([b"refused"], headers=HEADER)
    for records in (usual, refused, usual):
        writer.send_produce([(topic, 0, records)], version=version)
    answers = [writer.produce_answer(version)[0] for _ in range(3)]
    assert [one.error_code for one in answers] == [0, NOT_SERVED, 0]
    assert [answers[0].base_offset, answers[2].base_offset] == [0, 1]
    assert in_log(world, topic) == [b"usual"] * 2


def test_other_batches_of_a_refused_request_get_a_retriable_error(writer: RawClient, world: World, topic: str) -> None:
    usual = [(topic, at, batch([b"%d" % at])) for at in range(2)]
    answers = writer.produce([*usual, (topic, 2, conditional(0, b"refused"))], version=NEWEST)
    assert [(one.partition, one.error_code) for one in answers] == [(0, COME_AGAIN), (1, COME_AGAIN), (2, NOT_SERVED)]
    assert [one.error_code for one in writer.produce(usual, version=NEWEST)] == [0, 0]
    assert sorted(map(str, in_log(world, topic))) == ["b'0'", "b'1'"]


def send_in_pieces(client: RawClient, body: bytes) -> None:
    _, data = client._framed(ApiKey.PRODUCE, EXPLAINED, body)
    for start in range(0, len(data), 50_000):
        client.send_bytes(data[start : start + 50_000])
        time.sleep(0.02)


def test_one_that_arrives_in_pieces_is_refused_by_its_code(writer: RawClient, world: World, topic: str) -> None:
    send_in_pieces(writer, writer.produce_body([(topic, 1, conditional(0, bytes(700_000)))], version=EXPLAINED))
    assert [one.error_code for one in writer.produce_answer(EXPLAINED)] == [NOT_SERVED]
    assert in_log(world, topic) == []


def test_one_that_comes_when_its_request_has_gone_on_ends_the_connection(
    writer: RawClient, world: World, topic: str
) -> None:
    for late in (conditional(0, b"refused"), batch([bytes(200_000)], headers=HEADER)):
        with RawClient(world.proxy.address) as client:
            parts = [(topic, 0, batch([bytes(300_000)])), (topic, 1, late)]
            send_in_pieces(client, client.produce_body(parts, version=EXPLAINED))
            assert client.is_closed()
    assert in_log(world, topic) == []


def test_a_request_before_one_that_ends_the_connection_is_answered_after_fin(world: World, topic: str) -> None:
    rows = [{"partition": 2, "fetch_offset": 0, "partition_max_bytes": 1000}]
    fields = {"replica_id": -1, "max_wait_ms": 2000, "min_bytes": 1, "topics": [{"topic": topic, "partitions": rows}]}
    with RawClient(world.proxy.address) as client:
        asked = client.send(ApiKey.FETCH, 2, messages.encode_request(ApiKey.FETCH, 2, **fields))
        parts = [(topic, 0, batch([bytes(300_000)])), (topic, 1, conditional(0, b"refused"))]
        send_in_pieces(client, client.produce_body(parts, version=EXPLAINED))
        time.sleep(0.3)
        client.half_close()
        assert client.answer()[0] == asked
        assert client.is_closed()


def test_a_batch_that_is_too_large_or_without_acks_ends_the_connection(world: World, topic: str) -> None:
    too_large = conditional(0, bytes(limits.CONDITIONAL_REFUSED_BYTES_MAX))
    for records, acks in ((too_large, -1), (conditional(0, b"no answer"), 0), (batch([b"b"], headers=HEADER), 0)):
        with RawClient(world.proxy.address) as client:
            client.send_produce([(topic, 0, records)], acks=acks)
            assert client.is_closed()
    assert in_log(world, topic) == []


def test_the_client_says_that_nobody_serves_it_at_the_proxy_and_at_the_broker(world: World, topic: str) -> None:
    for address in (world.bootstrap, "{}:{}".format(*world.cluster.address(0))):
        with Client(address) as client, contextlib.closing(client.producer(CONDITIONAL)) as producer:
            with pytest.raises(ProduceError, match="no conditional publish") as raised:
                producer.publish(topic, 0, [Record(b"c")], expected_offset=0)
            assert isinstance(raised.value.__cause__, UnsupportedServer)
            assert raised.value.in_log is False
            with pytest.raises(UnsupportedServer):
                producer.publish(topic, 0, [Record(b"c")], expected_offset=0)

        async def on_trio(address: str = address) -> None:
            async with TrioClient(address) as client:
                with pytest.raises(ProduceError, match="no conditional publish"):
                    async with client.producer(CONDITIONAL) as producer:
                        await (await producer.send(topic, 0, [Record(b"c")], expected_offset=0)).receipt()

        trio.run(on_trio)
    assert in_log(world, topic) == []


# ---------------------------------------------------------------------- others' clients, by the header
def test_other_clients_get_invalid_topic_exception_and_continue_with_usual_records(world: World, topic: str) -> None:
    for settings in ({}, {"enable_idempotence": False}):
        python = KafkaProducer(bootstrap_servers=world.bootstrap, **settings)
        python.send(topic, b"python", partition=0).get(WAIT_SECONDS)
        with pytest.raises(InvalidTopicError):
            python.send(topic, b"refused", partition=0, headers=list(HEADER)).get(WAIT_SECONDS)
        python.close()
    told: list[Any] = []
    producer = Producer({"bootstrap.servers": world.bootstrap})
    producer.produce(topic, b"refused", partition=1, headers=list(HEADER), on_delivery=lambda e, _: told.append(e))
    producer.flush(WAIT_SECONDS)
    producer.produce(topic, b"c", partition=1, headers=[("trace", b"1")], on_delivery=lambda e, _: told.append(e))
    producer.flush(WAIT_SECONDS)
    assert [None if one is None else one.code() for one in told] == [KafkaError.TOPIC_EXCEPTION, None]
    assert in_log(world, topic) == [b"python", b"python", b"c"]


def test_a_value_that_looks_like_one_passes(writer: RawClient, world: World, topic: str) -> None:
    values = [CONDITIONAL_ID.to_bytes(8, "big"), b"\x1eexpected-offset\x020"]
    answer = writer.produce_one(topic, 0, batch(values, headers=(("expected", b"expected-offset"),)), version=7)
    assert answer.error_code == 0
    assert in_log(world, topic) == values


def test_the_refusal_has_the_topic_id_in_the_newest_version() -> None:
    topic = UUID(int=5)
    body = refused(BY_TOPIC_ID, [Part(topic.bytes, 3, True), Part(topic.bytes, 4, False)])
    (told,) = messages.decode_response(ApiKey.PRODUCE, BY_TOPIC_ID, body).responses
    assert told.topic_id == topic
    assert [(one.index, one.error_code) for one in told.partition_responses] == [(3, NOT_SERVED), (4, COME_AGAIN)]
