"""Addresses that clients get and what they lead to, with real brokers: fixed ports, brokers that come and go, IPv6."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.forwarder import Forwarder
from testkit.real.brokers.kafka_cluster import librdkafka_settings
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until

pytestmark = pytest.mark.long

Place = tuple[str, int]

BACK_SECONDS_MAX = 90.0


class MovingCluster(LegacyCluster):
    """Brokers that tell another address after a restart."""

    def move(self, broker: int, address: tuple[str, int]) -> None:
        """Stop the broker, and start it with this address."""
        self.stop_broker(broker)
        self._advertised[broker] = address
        self.start_broker(broker)


def brokers_of(address: tuple[str, int]) -> dict[int, tuple[str, int]]:
    """The addresses of the brokers that a client gets here."""
    with RawClient(address) as client:
        answer = client.ask(ApiKey.METADATA, 1, topics=[])
    return {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}


def can_append(address: tuple[str, int], topic: str, partition: int, sequence: int, producer_id: int) -> bool:
    """Does a batch get through here?"""
    try:
        with RawClient(address) as client:
            records = batch([b"a"], producer_id=producer_id, sequence=sequence)
            return client.produce_one(topic, partition, records).error_code == 0
    except OSError:
        return False


@pytest.mark.promise("compared-11", "compared-12")
def test_a_brokers_port_stays_the_same_over_restarts_of_broker_and_proxy(tmp_path: Path) -> None:
    ports = sorted(free_ports(3))
    with LegacyCluster(tmp_path / "kafka", brokers=2) as cluster:
        cluster.create_topic("t", 2, 2)
        with RawClient(cluster.address(0)) as direct:
            place = direct.ask(ApiKey.METADATA, 1, topics=[])
        assert len(place.brokers) == 2
        settings: dict[str, Any] = {
            "upstream": {"bootstrap": cluster.bootstrap},
            "listeners": [{"bind": f"127.0.0.1:{ports[0]}", "first_broker_port": ports[1], "broker_ids": "1,0"}],
        }
        wanted = {1: ("127.0.0.1", ports[1]), 0: ("127.0.0.1", ports[1] + 1)}
        with ConfiguredProxy(tmp_path, settings) as proxy:
            proxy.wait_for_log("point clients at")
            assert brokers_of(("127.0.0.1", ports[0])) == wanted
            with RawClient(wanted[1]) as client:
                producer_id = client.new_producer_id()
            assert can_append(wanted[1], "t", 0, 0, producer_id)

            cluster.stop_broker(1)
            wait_until(lambda: brokers_of(wanted[0]) == {0: wanted[0]}, "broker 1 is gone", BACK_SECONDS_MAX)
            assert can_append(wanted[1], "t", 0, 1, producer_id), "the port of a broker that is away still leads on"

            assert proxy.stop() == 0
            proxy.start()
            proxy.wait_for_log("point clients at")
            assert brokers_of(wanted[1]) == {0: wanted[0]}
            wait_until(lambda: can_append(wanted[1], "t", 0, 2, producer_id), "it goes on", BACK_SECONDS_MAX)

            cluster.start_broker(1)
            wait_until(lambda: brokers_of(wanted[0]) == wanted, "broker 1 is back", BACK_SECONDS_MAX)
            assert can_append(wanted[1], "t", 0, 3, producer_id)
            with RawClient(wanted[0]) as client:
                assert client.end_offset("t", 0) == 4


def test_brokers_that_are_reached_by_ipv6_alone_serve_clients_that_came_by_ipv6(tmp_path: Path) -> None:
    bootstrap, first = sorted(free_ports(2))
    with Forwarder("::1") as forwarder:
        with LegacyCluster(tmp_path / "kafka", advertised={0: forwarder.address}) as cluster:
            forwarder.target = cluster.address(0)
            settings: dict[str, Any] = {
                "upstream": {"bootstrap": [f"[::1]:{forwarder.address[1]}"]},
                "listeners": [
                    {"bind": f"[::1]:{bootstrap}", "first_broker_port": first, "advertised": "[{host}]:{port}"}
                ],
            }
            with ConfiguredProxy(tmp_path, settings) as proxy:
                proxy.wait_for_log(rf"point clients at \[::1\]:{bootstrap} ")
                told = librdkafka_settings(f"[::1]:{bootstrap}", enable_idempotence=True)
                producer = Producer(told)
                for number in range(100):
                    producer.produce("six", str(number).encode(), partition=0)
                assert producer.flush(30) == 0
                consumer = KafkaConsumer(
                    "six",
                    bootstrap_servers=f"[::1]:{bootstrap}",
                    auto_offset_reset="earliest",
                    consumer_timeout_ms=20_000,
                )
                try:
                    read = [int(next(consumer).value) for _ in range(100)]
                finally:
                    consumer.close()
                assert read == list(range(100))
        assert forwarder.connections >= 3, "control, produce connection and pipe"


@pytest.mark.promise("compared-12")
def test_a_moved_broker_keeps_its_port_and_its_producers_continue(tmp_path: Path) -> None:
    ports = sorted(free_ports(2))
    with (
        Forwarder("127.0.0.1") as old,
        Forwarder("127.0.0.1") as new,
        MovingCluster(tmp_path / "kafka", advertised={0: old.address}) as cluster,
    ):
        cluster.create_topic("t", 1, 1)
        old.target = new.target = cluster.address(0)
        settings: dict[str, Any] = {
            "upstream": {"bootstrap": cluster.bootstrap},
            "listeners": [{"bind": f"127.0.0.1:{ports[0]}", "first_broker_port": ports[1]}],
        }
        with ConfiguredProxy(tmp_path, settings) as proxy:
            proxy.wait_for_log("point clients at")
            offsets: list[int] = []
            producer = Producer(librdkafka_settings(f"127.0.0.1:{ports[0]}", enable_idempotence=True))

            def send(records: int) -> None:
                for _ in range(records):
                    producer.produce("t", b"x", partition=0, on_delivery=lambda _e, m: offsets.append(m.offset()))

            send(100)
            assert producer.flush(30) == 0
            assert new.connections == 0 < old.connections
            cluster.move(0, new.address)
            send(100)
            assert producer.flush(60) == 0
            wait_until(lambda: new.connections > 0, "the proxy looks where its brokers are", BACK_SECONDS_MAX)
            send(100)
            assert producer.flush(60) == 0
            assert offsets == list(range(300))
            assert brokers_of(("127.0.0.1", ports[0])) == {0: ("127.0.0.1", ports[1])}


@pytest.mark.promise("compared-13")
def test_a_client_is_led_by_the_advertised_names_of_the_listener_it_came_to(
    legacy_broker: LegacyCluster, place: Place, tmp_path: Path
) -> None:
    ports = sorted(free_ports(2))
    with Forwarder("127.0.0.1", ("127.0.0.1", ports[1])) as gate:
        settings: dict[str, Any] = {
            "upstream": {"bootstrap": legacy_broker.bootstrap},
            "listeners": [
                {
                    "bind": f"127.0.0.1:{ports[0]}",
                    "first_broker_port": ports[1],
                    "advertised": f"localhost:{{port{gate.address[1] - ports[1]:+d}}}",
                }
            ],
        }
        with ConfiguredProxy(tmp_path, settings) as proxy:
            proxy.wait_for_log("point clients at")
            producer = Producer(librdkafka_settings(f"127.0.0.1:{ports[0]}", enable_idempotence=True))
            producer.produce(place[0], b"through the gate", partition=place[1])
            assert producer.flush(30) == 0
    assert gate.connections >= 1, "it went where it was told to"
