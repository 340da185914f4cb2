"""The relay that makes services of a real broker: whole clients run through it, and what they say it says itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from testkit.real.brokers.kafka_cluster import consume, librdkafka_settings
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.brokers.service_relay import (
    AnswersOutOfOrder,
    FewVersions,
    IgnoresIds,
    ListsNoIds,
    Rebuilds,
    ReturnsNoOffset,
    Service,
    ServiceRelay,
)
from testkit.real.clients.raw_client import RawClient, batch

RECORDS = 300
INIT_PRODUCER_ID = 22
SERVICES = (Service(), IgnoresIds(), ListsNoIds(), Rebuilds(), ReturnsNoOffset(), FewVersions())


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftCluster]:
    with KraftCluster(tmp_path_factory.mktemp("kafka"), version="3.9.1", auto_create_topics=False) as running:
        yield running


def name_of(service: Service) -> str:
    return type(service).__name__


@pytest.mark.parametrize("compression", ["lz4", pytest.param("none", marks=pytest.mark.long)])
@pytest.mark.parametrize("service", SERVICES, ids=name_of)
def test_whole_clients_produce_and_read_through_it(kafka: KraftCluster, service: Service, compression: str) -> None:
    topic = f"{name_of(service)}-{compression}"
    kafka.create_topic(topic, 3)
    sent = [b"%d" % number for number in range(RECORDS)]
    offsets: list[int | None] = []
    is_idempotent = INIT_PRODUCER_ID not in service.unlisted
    with ServiceRelay(kafka.address(0), service) as relay:
        settings = librdkafka_settings(relay.bootstrap, enable_idempotence=is_idempotent, compression_type=compression)
        producer = Producer(settings)
        for number, value in enumerate(sent):
            producer.produce(topic, value, partition=number % 3, on_delivery=lambda _e, m: offsets.append(m.offset()))
        assert producer.flush(60) == 0
        read = consume(relay.bootstrap, topic, f"{topic}-readers", RECORDS)
        reader = KafkaConsumer(
            bootstrap_servers=relay.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000
        )
        reader.assign([TopicPartition(topic, partition) for partition in range(3)])
        read_by_another = [next(reader).value for _ in range(RECORDS)]
        reader.close()
        assert bool(relay.requests[INIT_PRODUCER_ID]) == is_idempotent
        assert bool(relay.producer_ids) == is_idempotent
    assert Counter(read) == Counter(read_by_another) == Counter(sent)
    if not isinstance(service, ReturnsNoOffset):  # librdkafka counts from -1 then
        assert Counter(offsets) == Counter(list(range(RECORDS // 3)) * 3)
    assert Counter(consume(kafka.bootstrap, topic, f"{topic}-direct", RECORDS)) == Counter(sent)


@pytest.mark.parametrize("service", SERVICES, ids=name_of)
def test_what_is_sent_again_is_stored_again_by_those_that_check_no_ids(kafka: KraftCluster, service: Service) -> None:
    topic = f"{name_of(service)}-again"
    kafka.create_topic(topic, 1)
    with RawClient(kafka.address(0)) as direct:
        producer_id = direct.new_producer_id()
    data = batch([b"v", b"w"], producer_id=producer_id)
    version = 8
    with ServiceRelay(kafka.address(0), service) as relay, RawClient(relay.address) as client:
        for _ in range(2):
            assert client.produce_one(topic, 0, data, version=version).error_code == 0
        assert relay.producer_ids == {producer_id}
    with RawClient(kafka.address(0)) as direct:
        assert direct.end_offset(topic, 0) == (4 if isinstance(service, IgnoresIds) else 2)


def test_only_requests_that_are_out_together_are_answered_out_of_order(kafka: KraftCluster) -> None:
    kafka.create_topic("order", 1)
    body = RawClient.produce_body([("order", 0, batch([b"v"]))], version=8)
    with ServiceRelay(kafka.address(0), AnswersOutOfOrder()) as relay, RawClient(relay.address) as client:
        assert client.produce_one("order", 0, batch([b"first"]), version=8).base_offset == 0
        client.send_together((0, 8, body), (0, 8, body))
        first, second = (client.answer()[0] for _ in range(2))
        assert first > second
