"""What real producers do with each answer to a produce, as the table in docs/reference/error-codes.md says: a relay
answers one produce in the place of the proxy, and what comes after it gets through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kafka_cluster import fresh_topic, librdkafka_settings
from testkit.real.clients import client_runs
from testkit.real.clients.java_clients import LAST_3X_CLIENT, start_producer
from testkit.real.clients.raw_client import RawClient
from testkit.real.scenes.lossy import LossyScene
from testkit.real.scenes.refusing import RefusingRelay, client_rows

pytestmark = pytest.mark.long

SECONDS = 15
ROWS = client_rows()
Address = tuple[str, int]
Produce = Callable[[Address, str, Path], int]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyScene]:
    with LossyScene(tmp_path_factory.mktemp("answers")) as running:
        yield running


@pytest.fixture
def relay(scene: LossyScene) -> Iterator[RefusingRelay]:
    with RawClient(scene.proxy.address) as client:
        (broker,) = client.ask(ApiKey.METADATA, 1, topics=None).brokers
    with RefusingRelay((broker.host, broker.port)) as running:
        yield running


def java(address: Address, topic: str, directory: Path) -> int:
    with ChildProcesses() as children:
        settings = {"linger.ms": "300", "delivery.timeout.ms": str(SECONDS * 1000)}
        bootstrap = "{}:{}".format(*address)
        program = start_producer(
            children,
            directory,
            version=LAST_3X_CLIENT,
            bootstrap=bootstrap,
            topic=topic,
            partitions=1,
            records=2,
            settings=settings,
        )
        return int(program.wait()["acked"])


def librdkafka(address: Address, topic: str, _directory: Path) -> int:
    stored = 0

    def told(error: object, _message: object) -> None:
        nonlocal stored
        stored += error is None

    settings = librdkafka_settings("{}:{}".format(*address), delivery_seconds=SECONDS, enable_idempotence=True)
    producer = Producer({**settings, "linger.ms": 300})
    for value in (b"one", b"two"):
        producer.produce(topic, value, partition=0, on_delivery=told)
    try:
        producer.flush(SECONDS + 5)
    except KafkaException:
        return stored
    return stored


def kafka_python(address: Address, topic: str, _directory: Path) -> int:
    producer = KafkaProducer(
        bootstrap_servers="{}:{}".format(*address),
        enable_idempotence=True,
        acks="all",
        retries=1000,
        request_timeout_ms=5000,
        delivery_timeout_ms=SECONDS * 1000,
        linger_ms=300,
    )
    stored = 0
    for sent in [producer.send(topic, value, partition=0) for value in (b"one", b"two")]:
        try:
            sent.get(SECONDS + 5)
            stored += 1
        except KafkaError:
            pass
    with suppress(KafkaError):  # it waits for records that it has failed
        producer.close(timeout=2)
    return stored


def other(client: str) -> Produce:
    """Of Go or Node. One record: they are not told to wait until a batch has two."""

    def produce(address: Address, topic: str, directory: Path) -> int:
        with ChildProcesses() as children:
            program = client_runs.start_producer(
                children,
                directory,
                client,
                bootstrap="{}:{}".format(*address),
                topic=topic,
                partitions=1,
                records=1,
                delivery_seconds=SECONDS,
            )
            return int(program.wait()["acked"])

    return produce


OTHERS = (client_runs.FRANZ, client_runs.SARAMA, client_runs.KAFKAJS)
PRODUCERS: dict[str, Produce] = {
    "Java": java,
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    **{client: other(client) for client in OTHERS},
}


def test_each_client_of_the_table_is_run() -> None:
    assert all(cells.keys() == PRODUCERS.keys() for cells in ROWS.values())


@pytest.mark.parametrize("client", PRODUCERS)
@pytest.mark.parametrize("code", ROWS, ids=lambda code: ErrorCode(code).name)
def test_a_client_does_what_the_table_says(
    scene: LossyScene, relay: RefusingRelay, tmp_path: Path, code: int, client: str
) -> None:
    topic = fresh_topic(scene.cluster, 1)
    relay.codes.append(code)
    stored = PRODUCERS[client](relay.address, topic, tmp_path)
    assert not relay.codes, "the client has sent it to the relay"
    cell = ROWS[code][client]
    sent = 1 if client in OTHERS else 2
    assert stored == (0 if cell == "drop" else sent), cell
    with RawClient(scene.proxy.address) as reader:
        assert reader.end_offset(topic, 0) == stored
