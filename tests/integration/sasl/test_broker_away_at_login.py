"""Real clients show a real old broker themselves who they are, through the proxy; its ACLs say what they may do."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from idemproxy.client import Client, Record, Sasl, tls_context
from idemproxy.client.trio_client import TrioClient
from idemproxy.demo.ports import neighbouring_ports
from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.tls.certificates import Authority
from testkit.real.tls.settings import client_tls, listener_tls

RECORDS = 300
WAIT_SECONDS = 60.0
RIGHTS = ("Read", "Write", "Describe")
OURS = ("Read", "Describe")
"""The proxy's own principal appends nothing here."""
USERS = {"idemproxy": "our secret", "alice": "alice's secret", "bob": "bob's secret"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class World:
    """A broker that asks who is there, and a proxy that lets clients answer themselves."""

    authority: Authority
    cluster: SaslCluster
    proxy: ConfiguredProxy
    plain_address: tuple[str, int]
    """Of the broker, without TLS."""

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.proxy.address)

    def kafka_python(self, name: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
        """What kafka-python is told."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.authority.ca_file),
            "sasl_mechanism": mechanism,
            "sasl_plain_username": name,
            "sasl_plain_password": password or USERS[name],
        }

    def own_client(self, name: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
        """What the product's own client is told."""
        return {
            "bootstrap": self.bootstrap,
            "tls": tls_context(ca_file=self.authority.ca_file),
            "sasl": Sasl(mechanism, name, password or USERS[name]),
            "seconds_max": WAIT_SECONDS,
        }

    def librdkafka(self, name: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
        """What librdkafka is told."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self.authority.ca_file),
            "sasl.mechanism": mechanism,
            "sasl.username": name,
            "sasl.password": password or USERS[name],
        }


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("pass-through")
    authority = Authority(directory / "ours")
    own = authority.issue("broker")
    with SaslCluster(directory / "kafka", USERS, auto_create_topics=False, authority=authority, own=own) as cluster:
        for topic in ("python", "confluent", "own", "alices", "hidden", "late"):
            cluster.create_topic(topic, 4)
        cluster.allow("Topic:python", {"idemproxy": OURS, "alice": RIGHTS})
        cluster.allow("Topic:confluent", {"idemproxy": OURS, "alice": RIGHTS})
        cluster.allow("Topic:own", {"idemproxy": OURS, "alice": RIGHTS})
        cluster.allow("Topic:alices", {"idemproxy": OURS, "alice": RIGHTS, "bob": ["Describe", "Read"]})
        cluster.allow("Topic:hidden", {"idemproxy": OURS, "alice": RIGHTS})
        cluster.allow("Topic:late", {"idemproxy": OURS, "alice": ["Describe", "Read"]})
        cluster.allow("Group:*", {"alice": ["Read"]})
        host, port = cluster.sasl_tls_address(0)
        sasl = {"mechanism": "SCRAM-SHA-256", "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream = {"bootstrap": [f"{host}:{port}"], "tls": client_tls(authority), "sasl": sasl}
        listener = {"tls": listener_tls(authority.issue("listener")), "authentication": "pass_through"}
        many = {"failed_logins_per_minute_max": 0}  # else the first tests of refusals shut the later ones out
        lines = {"lines_per_minute_max": 0}
        proxy = ConfiguredProxy(
            directory / "proxy", {"upstream": upstream, "limits": many, "log": lines}, listener=listener
        )
        plain_port = neighbouring_ports(2)
        proxy.configuration["listeners"][0]["broker_ids"] = "0"
        plain = {"name": "plain", "bind": f"127.0.0.1:{plain_port}", "broker_ids": "0"}
        proxy.configuration["listeners"].append(plain | {"authentication": "pass_through"})
        with proxy:
            yield World(authority, cluster, proxy, ("127.0.0.1", plain_port + 1))


@pytest.mark.parametrize("shell", ["blocking", "trio"])
def test_a_producer_outlives_a_restart_of_its_broker(world: World, shell: str) -> None:
    """While the broker is away the proxy closes each connection at the handshake: that refuses nobody."""
    settings = world.own_client("alice", "SCRAM-SHA-256")
    partition = ["blocking", "trio"].index(shell)
    receipts = []
    if shell == "blocking":
        with Client(**settings) as client, client.producer(client.init_producer_id()) as producer:
            receipts.append(producer.publish("own", partition, [Record(b"1")]))
            world.cluster.kill_broker(0)
            future = producer.send("own", partition, [Record(b"2")])
            time.sleep(3)
            world.cluster.start_broker(0)
            receipts.append(future.result())
    else:

        async def program() -> None:
            async with (
                TrioClient(**settings) as client,
                client.producer(await client.init_producer_id()) as producer,
            ):
                receipts.append(await producer.publish("own", partition, [Record(b"1")]))
                await trio.to_thread.run_sync(world.cluster.kill_broker, 0)
                delivery = await producer.send("own", partition, [Record(b"2")])
                await trio.sleep(3)
                await trio.to_thread.run_sync(world.cluster.start_broker, 0)
                receipts.append(await delivery.receipt())

        trio.run(program)
    assert [one.base_offset for one in receipts] == [0, 1]
