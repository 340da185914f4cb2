"""TLS on both sides and a network that breaks between any two bytes: every record is stored once, and in order."""

import time
from itertools import cycle, product
from pathlib import Path
from random import Random

import pytest
from chaos.pipe import Strike
from chaos.relay import Relay

from idemproxy.demo.child_processes import ChildProcesses
from testkit.real.brokers.secure_cluster import SecureCluster
from testkit.real.clients import java_clients
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.tls.certificates import PASSWORD, Authority
from testkit.real.tls.raw_client import TlsRawClient
from testkit.real.tls.settings import client_tls, listener_tls

TOPIC = "broken"
PARTITIONS = 2
RECORDS, RECORDS_PER_SECOND = 12_000, 500
PAUSE_SECONDS = 0.35


def has_seen_enough(relay: Relay, proxy: ConfiguredProxy) -> bool:
    """Did every kind of strike fall towards the broker, and one towards the proxy; is a batch in doubt through it?"""
    fell = [relay.strikes["broker", strike] for strike in Strike]
    return all(fell) and any(relay.strikes["proxy", strike] for strike in Strike) and "in doubt: " in proxy.log


@pytest.mark.promise("tls")
def test_records_are_stored_once_and_in_order_over_tls_connections_that_break(tmp_path: Path) -> None:
    authority, random = Authority(tmp_path / "certificates"), Random(1)
    places: dict[str, tuple[str, int]] = {}
    with Relay() as relay, ChildProcesses() as children:
        to_broker = relay.open("broker", "broker", ("127.0.0.1", 0), lambda: places.get("broker"))
        to_proxy = relay.open("proxy", "proxy", ("127.0.0.1", 0), lambda: places.get("proxy"))
        told = {0: to_broker.address}
        own = authority.issue("own")
        with SecureCluster(tmp_path / "kafka", authority, own, told=told) as cluster:
            cluster.create_topic(TOPIC, PARTITIONS)
            places["broker"] = cluster.tls_address(0)
            listener = {"tls": listener_tls(own), "advertised": "{}:{}".format(*to_proxy.address)}
            bootstrap = "{}:{}".format(*to_broker.address)
            settings = {"upstream": {"bootstrap": [bootstrap], "tls": client_tls(authority)}}
            with ConfiguredProxy(tmp_path / "proxy", settings, listener=listener) as proxy:
                places["proxy"] = (proxy.address[0], proxy.address[1] + 1)
                producer = java_clients.start_producer(
                    children,
                    tmp_path,
                    version=java_clients.LAST_3X_CLIENT,
                    bootstrap="{}:{}".format(*to_proxy.address),
                    topic=TOPIC,
                    partitions=PARTITIONS,
                    records=RECORDS,
                    name="r",
                    records_per_second=RECORDS_PER_SECOND,
                    settings={
                        "security.protocol": "SSL",
                        "ssl.truststore.location": str(authority.trust_store()),
                        "ssl.truststore.password": PASSWORD,
                    },
                )
                wait_until(lambda: bool(producer.progress()), "the producer has begun", 120)
                strikes = cycle(product(("broker", "broker", "proxy"), Strike))
                while not has_seen_enough(relay, proxy):
                    assert producer.process.exit_code is None, (relay.strikes, proxy.log)
                    link, strike = next(strikes)
                    relay.arm(link, 1.0, random, strike)
                    time.sleep(PAUSE_SECONDS)
                end = producer.wait(200)
                assert (end["acked"], end["failed"], end["offsets_in_order"]) == (RECORDS, 0, True)
                with TlsRawClient(proxy.address, authority) as reader:
                    for partition in range(PARTITIONS):
                        values = [value.decode() for value in reader.values(TOPIC, partition)]
                        assert values == [f"r:{partition}:{number}" for number in range(RECORDS // PARTITIONS)]
