"""upgrade-brokers.md, the way back and the way on: brokers that are upgraded in place under the proxy, and the proxy
taken away, or left in front as one that passes bytes. What consumers see is read by a client that knows nothing."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import ProxyProcess

pytestmark = pytest.mark.long

NEW_VERSION = "1.1.1"
OLD_FORMAT = {"inter.broker.protocol.version": "0.10.2", "log.message.format.version": "0.10.2"}
TOPIC = "orders"
COUNT = 20


@contextmanager
def broker(directory: Path, version: str, settings: Mapping[str, str | int] | None = None) -> Iterator[LegacyCluster]:
    """One broker in one of its lives; it ends in order, as in a rolling upgrade."""
    with LegacyCluster(directory, version=version, broker_settings=settings) as cluster:
        yield cluster
        cluster.stop_broker(0)


def try_to_produce(address: tuple[str, int], name: str) -> tuple[list[int], set[str]]:
    """Send numbered records as an idempotent producer; return their offsets, and the names of errors."""
    offsets: list[int] = []
    errors: set[str] = set()
    producer = Producer({"bootstrap.servers": "{}:{}".format(*address), "enable.idempotence": True, "linger.ms": 5})
    for number in range(COUNT):
        producer.produce(
            TOPIC,
            f"{name} {number}",
            key=str(number),
            on_delivery=lambda error, message: errors.add(error.name()) if error else offsets.append(message.offset()),
        )
    assert producer.flush(60) == 0
    return offsets, errors


def produce(address: tuple[str, int], name: str) -> list[int]:
    """Do so without any error."""
    offsets, errors = try_to_produce(address, name)
    assert errors == set()
    return offsets


def consume(address: tuple[str, int]) -> list[tuple[int, str, str]]:
    """Return offset, key and value of all records."""
    consumer = Consumer(
        {"bootstrap.servers": "{}:{}".format(*address), "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = []
    try:
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append((message.offset(), message.key().decode(), message.value().decode()))
    finally:
        consumer.close()
    return found


def records(*names: str) -> list[tuple[int, str, str]]:
    """Return what consumers have to see: the records of each name, one name after the other."""
    wanted = [(str(number), f"{name} {number}") for name in names for number in range(COUNT)]
    return [(offset, key, value) for offset, (key, value) in enumerate(wanted)]


@pytest.mark.promise("brokers-from-0-11")
@pytest.mark.timeout(400)
def test_brokers_are_upgraded_in_place_and_the_proxy_is_taken_away_or_passes_bytes(tmp_path: Path) -> None:
    kafka = tmp_path / "kafka"
    with broker(kafka, "0.10.2.2") as cluster:
        cluster.create_topic(TOPIC)
        with ProxyProcess(tmp_path / "proxy", cluster.address(0)) as proxy:
            produce(proxy.address, "old")
            assert consume(proxy.address) == consume(cluster.address(0)) == records("old")

    # New programs, message format v1: the proxy stays in front.
    with (
        broker(kafka, NEW_VERSION, OLD_FORMAT) as cluster,
        ProxyProcess(tmp_path / "proxy2", cluster.address(0)) as proxy,
    ):
        produce(proxy.address, "between")
        assert "has producer ids of its own" in proxy.log
        assert "keeps no batch markers" not in proxy.log
        assert consume(proxy.address) == records("old", "between")
        # With message format v1 the broker itself has no idempotence to give.
        refused, errors = try_to_produce(cluster.address(0), "too early")
        assert (refused, errors) == ([], {"UNSUPPORTED_FOR_MESSAGE_FORMAT"})

    # The new format, and producers that go to the brokers themselves.
    with broker(kafka, NEW_VERSION) as cluster:
        assert produce(cluster.address(0), "new") == list(range(2 * COUNT, 3 * COUNT))
        assert consume(cluster.address(0)) == records("old", "between", "new")
        # A proxy that gave producers their ids waits until they are gone.
        with ProxyProcess(tmp_path / "proxy2", cluster.address(0)) as proxy:
            proxy.wait_for_log("all brokers store message format v2, and Redis has entries of producers")
            assert consume(proxy.address) == records("old", "between", "new")
        # They are: it stays in front, and passes bytes.
        upstream = {"bootstrap": ["{}:{}".format(*cluster.address(0))], "allow_duplicates_in_flight": True}
        native = {"upstream": upstream}
        with ConfiguredProxy(tmp_path / "proxy2", native, listener={}) as proxy:
            assert produce(proxy.address, "on") == list(range(3 * COUNT, 4 * COUNT))
            assert consume(proxy.address) == records("old", "between", "new", "on")
