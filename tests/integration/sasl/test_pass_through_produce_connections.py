"""What a client produces reaches a real old broker as that client's own: over the connection on which he has shown who
he is, judged by the broker's ACLs at that moment. The proxy's own principal may not write."""

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers import kafka_cluster
from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until

pytestmark = pytest.mark.long

BROKERS, PARTITIONS = 2, 4
RIGHTS = ("Read", "Write", "Describe")
OURS = ("Read", "Describe")
USERS = {"idemproxy": "our secret", "alice": "alice's secret", "bob": "bob's secret"}
UNKNOWN, NOT_LEADER, DENIED = 3, 6, 29
_RIGHT = re.compile(r"Principal = User:(\w+) is (Allowed|Denied) Operation = (\w+) .*Topic:(\w+)")


@dataclass(frozen=True)
class World:
    """Two brokers that ask who is there, and a proxy in front of both."""

    cluster: SaslCluster
    proxy: ConfiguredProxy
    bootstrap_port: int

    def librdkafka(self, name: str) -> dict[str, Any]:
        """The settings of an idempotent librdkafka producer."""
        return kafka_cluster.librdkafka_settings(
            f"127.0.0.1:{self.bootstrap_port}",
            enable_idempotence=True,
            security_protocol="sasl_plaintext",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username=name,
            sasl_password=USERS[name],
        )

    def connect(self, name: str, broker: int = 0) -> RawClient:
        """A connection on which this broker has accepted this user."""
        client = RawClient(("127.0.0.1", self.bootstrap_port + 1 + broker))
        try:
            assert client.ask(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN").error_code == 0
            client.send_bytes(frame(b"\0" + name.encode() + b"\0" + USERS[name].encode()))
            assert client._receive(4) == bytes(4)
        except BaseException:
            client.close()
            raise
        return client

    def serves(self, broker: int) -> bool:
        """Has the proxy found this broker again? Until then it hangs up, and a client comes again."""
        try:
            self.connect("alice", broker).close()
        except ConnectionError:
            return False
        return True

    def leaders(self, topic: str) -> dict[int, int]:
        """Who leads which partition."""
        with self.connect("alice") as client:
            (found,) = client.ask(ApiKey.METADATA, 1, topics=[{"name": topic}]).topics
            return {one.partition_index: one.leader_id for one in found.partitions}

    def rights(self, topic: str) -> set[tuple[str, str, str]]:
        """(user, Allowed or Denied, operation) of everything that the brokers have decided about a topic."""
        text = "".join(self.cluster.output(broker).read_text() for broker in range(BROKERS))
        return {(user, what, operation) for user, what, operation, name in _RIGHT.findall(text) if name == topic}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("produce_connections")
    options: dict[str, Any] = {"brokers": BROKERS, "auto_create_topics": False, "tells_rights": True}
    options["session_timeout_ms"] = 1500
    with SaslCluster(directory / "kafka", USERS, **options) as cluster:
        for topic in ("client", "taken", "moved", "alone", "faults"):
            cluster.create_topic(topic, PARTITIONS, replication=1 if topic == "alone" else BROKERS)
            cluster.allow(f"Topic:{topic}", {"idemproxy": OURS, "alice": RIGHTS, "bob": ["Describe", "Read"]})
        sasl = {"mechanism": "SCRAM-SHA-256", "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream = {"bootstrap": ["{}:{}".format(*cluster.sasl_address(0))], "sasl": sasl}
        listener, settings = {"authentication": "pass_through"}, {"upstream": upstream}
        with ConfiguredProxy(directory / "proxy", settings, listener=listener, brokers=BROKERS) as proxy:
            yield World(cluster, proxy, proxy.address[1])


@pytest.mark.promise("principal")
def test_the_broker_sees_the_client_and_never_the_proxy_write(world: World) -> None:
    told = kafka_cluster.produce(world.librdkafka("alice"), "client", PARTITIONS, 400, "alice")
    found = kafka_cluster.verdict(world.cluster, "client", PARTITIONS, told)
    assert found.is_exactly_once, found
    decided = world.rights("client")
    assert ("alice", "Allowed", "Write") in decided
    assert not {one for one in decided if one[0] == "idemproxy" and one[2] == "Write"}


@pytest.mark.promise("right-to-write")
def test_a_right_to_write_that_is_taken_counts_at_once(world: World) -> None:
    partition, leader = next(iter(world.leaders("taken").items()))
    with world.connect("alice", leader) as alice:
        producer_id = alice.new_producer_id()
        records = [batch([b"%d" % n], producer_id=producer_id, sequence=n) for n in range(3)]
        assert alice.produce_one("taken", partition, records[0]).base_offset == 0
        world.cluster.allow("Topic:taken", {"idemproxy": OURS, "alice": ["Describe", "Read"]})
        answer = alice.produce_one("taken", partition, records[1])
        assert (answer.error_code, answer.base_offset) == (DENIED, -1)
        answer = alice.produce_one("taken", partition, records[0])
        assert (answer.error_code, answer.base_offset) == (DENIED, -1), "not even of what she has written herself"
        world.cluster.allow("Topic:taken", {"idemproxy": OURS, "alice": RIGHTS})
        wait_until(lambda: alice.produce_one("taken", partition, records[1]).base_offset == 1, "she may again")
        assert alice.produce_one("taken", partition, records[0]).base_offset == 0
        assert alice.values("taken", partition) == [b"0", b"1"]


def test_a_duplicate_is_answered_only_after_the_broker_was_asked_again(world: World) -> None:
    """Between two appends it would be believed for ten seconds that she may."""
    partition, leader = list(world.leaders("taken").items())[1]
    with world.connect("alice", leader) as alice:
        first = batch([b"0"], producer_id=alice.new_producer_id(), sequence=0)
        assert alice.produce_one("taken", partition, first).base_offset == 0
        world.cluster.allow("Topic:taken", {"idemproxy": OURS, "alice": ["Describe", "Read"]})
        assert alice.produce_one("taken", partition, first).error_code == DENIED
        world.cluster.allow("Topic:taken", {"idemproxy": OURS, "alice": RIGHTS})


def test_a_batch_goes_to_the_broker_of_its_connection_or_nowhere(world: World) -> None:
    partition, leader = next(iter(world.leaders("moved").items()))
    with world.connect("alice", 1 - leader) as elsewhere, world.connect("alice", leader) as there:
        producer_id = there.new_producer_id()
        records = [batch([b"%d" % n], producer_id=producer_id, sequence=n) for n in range(2)]
        answer = elsewhere.produce_one("moved", partition, records[0])
        assert (answer.error_code, answer.base_offset) == (NOT_LEADER, -1)
        assert there.produce_one("moved", partition, records[0]).base_offset == 0
        assert elsewhere.produce_one("moved", partition, records[0]).base_offset == 0, "a duplicate is one everywhere"
        assert elsewhere.produce_one("moved", partition, records[1]).error_code == NOT_LEADER
        assert there.produce_one("moved", partition, records[1]).base_offset == 1
        assert there.values("moved", partition) == [b"0", b"1"]


def test_a_broker_without_a_replica_says_what_it_says_to_its_own_clients(world: World) -> None:
    partition, leader = next(iter(world.leaders("alone").items()))
    with world.connect("alice", 1 - leader) as elsewhere:
        records = batch([b"0"], producer_id=elsewhere.new_producer_id(), sequence=0)
        answer = elsewhere.produce_one("alone", partition, records)
        assert (answer.error_code, answer.base_offset) == (UNKNOWN, -1)


def test_a_fetch_waiting_at_the_broker_delays_a_batch_without_stopping_it(world: World) -> None:
    partition, leader = list(world.leaders("moved").items())[1]
    with world.connect("alice", leader) as alice:
        producer_id = alice.new_producer_id()
        first = batch([b"0"], producer_id=producer_id, sequence=0)
        assert alice.produce_one("moved", partition, first).base_offset == 0
        wanted = {"partition": partition, "fetch_offset": 1, "partition_max_bytes": 1_000}
        topics = [{"topic": "moved", "partitions": [wanted]}]
        body = messages.encode_request(
            ApiKey.FETCH, 3, replica_id=-1, max_wait_ms=1_500, min_bytes=1, max_bytes=1_000, topics=topics
        )
        fetched = alice.send(ApiKey.FETCH, 3, body)
        alice.send_produce([("moved", partition, batch([b"1"], producer_id=producer_id, sequence=1))])
        listed = alice.send(ApiKey.METADATA, 1, b"\0\0\0\0")
        assert alice.answer()[0] == fetched
        assert [one.base_offset for one in alice.produce_answer()] == [1]
        assert alice.answer()[0] == listed


@pytest.mark.promise("principal")
def test_each_batch_is_there_once_when_brokers_end_and_leaders_move(world: World) -> None:
    told: dict[tuple[str, int, int], int] = {}

    def trouble() -> None:
        for broker, end in ((1, world.cluster.kill_broker), (0, world.cluster.stop_broker)):
            time.sleep(2)
            end(broker)
            time.sleep(2)
            world.cluster.start_broker(broker)
            world.cluster.wait_in_sync("faults", PARTITIONS)

    breaking = threading.Thread(target=trouble)
    breaking.start()
    rounds = 0
    while breaking.is_alive() or not told:
        told |= kafka_cluster.produce(world.librdkafka("alice"), "faults", PARTITIONS, 400, f"alice-{rounds}")
        rounds += 1
    breaking.join()
    wait_until(lambda: all(map(world.serves, range(BROKERS))), "the proxy has found both brokers again")
    found = kafka_cluster.verdict(world.cluster, "faults", PARTITIONS, told)
    assert found.is_exactly_once, found
    assert not {one for one in world.rights("faults") if one[0] == "idemproxy" and one[2] == "Write"}


def test_clients_that_leave_with_a_batch_out_cause_no_unknown_outcome(world: World) -> None:
    partition, leader = list(world.leaders("client").items())[2]
    before = len(re.findall("in doubt", world.proxy.log))
    for number in range(20):
        with world.connect("alice", leader) as alice:
            records = batch([b"gone %d" % number], producer_id=alice.new_producer_id(), sequence=0)
            alice.produce_one("client", partition, batch([b"x"], producer_id=alice.new_producer_id(), sequence=0))
            alice.send_produce([("client", partition, records)])
            time.sleep(0.001 * (number % 5))
    time.sleep(1)
    assert len(re.findall("in doubt", world.proxy.log)) == before
