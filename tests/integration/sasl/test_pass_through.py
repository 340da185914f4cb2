"""Real clients show a real old broker themselves who they are, through the proxy; its ACLs say what they may do."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import KafkaError, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from kafka.structs import TopicPartition

from idemproxy.client import AuthenticationFailed, Client, NotDelivered, ProducerId, Record, Sasl, tls_context
from idemproxy.client.trio_client import TrioClient
from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.demo.ports import neighbouring_ports
from idemproxy.proxy import limits
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.sasl_cluster import SaslCluster
from testkit.real.clients.numbered_batches import SHELLS, new_producer_id, numbered, read_values, values_of
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
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
        """The settings of kafka-python."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": str(self.authority.ca_file),
            "sasl_mechanism": mechanism,
            "sasl_plain_username": name,
            "sasl_plain_password": password or USERS[name],
        }

    def own_client(self, name: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
        """The settings of the product's own client."""
        return {
            "bootstrap": self.bootstrap,
            "tls": tls_context(ca_file=self.authority.ca_file),
            "sasl": Sasl(mechanism, name, password or USERS[name]),
            "seconds_max": WAIT_SECONDS,
        }

    def librdkafka(self, name: str, mechanism: str, password: str | None = None) -> dict[str, Any]:
        """The settings of librdkafka."""
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
        for topic in ("python", "confluent", "own", "alices", "hidden", "late", "restarted"):
            cluster.create_topic(topic, 4)
        cluster.allow("Topic:python", {"idemproxy": OURS, "alice": RIGHTS})
        cluster.allow("Topic:confluent", {"idemproxy": OURS, "alice": RIGHTS})
        cluster.allow("Topic:own", {"idemproxy": OURS, "alice": RIGHTS})
        cluster.allow("Topic:restarted", {"idemproxy": OURS, "alice": RIGHTS})
        cluster.allow("Topic:alices", {"idemproxy": OURS, "alice": RIGHTS, "bob": ["Describe", "Read"]})
        cluster.allow("Topic:hidden", {"idemproxy": OURS, "alice": RIGHTS})
        cluster.allow("Topic:late", {"idemproxy": OURS, "alice": ["Describe", "Read"]})
        cluster.allow("Group:*", {"alice": ["Read"]})
        host, port = cluster.sasl_tls_address(0)
        sasl = {"mechanism": "SCRAM-SHA-256", "username": "idemproxy", "password": USERS["idemproxy"]}
        upstream = {"bootstrap": [f"{host}:{port}"], "tls": client_tls(authority), "sasl": sasl}
        listener = {"tls": listener_tls(authority.issue("listener")), "authentication": "pass_through"}
        lines = {"lines_per_minute_max": 0}
        proxy = ConfiguredProxy(directory / "proxy", {"upstream": upstream, "log": lines}, listener=listener)
        plain_port = neighbouring_ports(2)
        proxy.configuration["listeners"][0]["broker_ids"] = "0"
        plain = {"name": "plain", "bind": f"127.0.0.1:{plain_port}", "broker_ids": "0"}
        proxy.configuration["listeners"].append(plain | {"authentication": "pass_through"})
        with proxy:
            yield World(authority, cluster, proxy, ("127.0.0.1", plain_port + 1))


@pytest.mark.parametrize(("mechanism", "partition"), list(zip(MECHANISMS, range(3), strict=True)))
def test_kafka_python_shows_the_broker_who_it_is_and_produces_idempotently(
    world: World, mechanism: str, partition: int
) -> None:
    settings = world.kafka_python("alice", mechanism)
    producer = KafkaProducer(enable_idempotence=True, **settings)
    sent = [producer.send("python", b"%d" % number, partition=partition) for number in range(RECORDS)]
    assert [one.get(WAIT_SECONDS).offset for one in sent] == list(range(RECORDS))
    producer.close()
    reader = KafkaConsumer(auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings)
    reader.assign([TopicPartition("python", partition)])
    assert [next(reader).value for _ in range(RECORDS)] == [b"%d" % number for number in range(RECORDS)]
    reader.close()


@pytest.mark.parametrize(("mechanism", "partition"), list(zip(MECHANISMS, range(3), strict=True)))
def test_librdkafka_shows_the_broker_who_it_is_and_produces_idempotently(
    world: World, mechanism: str, partition: int
) -> None:
    offsets: list[int] = []
    producer = Producer({**world.librdkafka("alice", mechanism), "enable.idempotence": True})
    for number in range(RECORDS):
        value = b"%d" % number
        producer.produce("confluent", value, partition=partition, on_delivery=lambda _e, m: offsets.append(m.offset()))
    assert producer.flush(WAIT_SECONDS) == 0
    assert offsets == list(range(RECORDS))


@pytest.mark.parametrize(
    ("shell", "mechanism", "partition"),
    [("blocking", "PLAIN", 0), ("trio", "SCRAM-SHA-256", 1), ("blocking", "SCRAM-SHA-512", 2)],
)
def test_our_own_client_shows_the_broker_who_it_is_and_produces(
    world: World, shell: str, mechanism: str, partition: int
) -> None:
    settings = world.own_client("alice", mechanism)
    place, producer = ("own", partition), new_producer_id(**settings)
    receipts = SHELLS[shell](producer=producer, todo=list(numbered(place, 0, RECORDS)), **settings)
    assert [one.base_offset for one in receipts] == [3 * index for index in range(RECORDS)]
    assert read_values(place=place, **settings) == values_of(0, RECORDS)


@pytest.mark.parametrize("shell", SHELLS)
def test_our_own_client_fails_at_once_with_a_wrong_password(world: World, shell: str) -> None:
    settings = world.own_client("alice", "SCRAM-SHA-256", "not hers")
    with pytest.raises(AuthenticationFailed, match="authentication failed") as refused:
        new_producer_id(**settings)
    assert "not hers" not in str(refused.value)
    with pytest.raises(NotDelivered) as not_sent:
        SHELLS[shell](producer=ProducerId(1), todo=list(numbered(("own", 3), 0, 1)), **settings)
    assert isinstance(not_sent.value.__cause__, AuthenticationFailed)


@pytest.mark.parametrize("shell", SHELLS)
def test_our_own_client_asks_for_the_servers_certificate(world: World, shell: str) -> None:
    settings = world.own_client("alice", "PLAIN") | {"tls": tls_context()}
    with pytest.raises(NotDelivered):
        SHELLS[shell](
            producer=ProducerId(1), todo=list(numbered(("own", 3), 0, 1)),
            producer_options={"delivery_seconds_max": 1.0}, **settings,
        )  # fmt: skip


# ---------------------------------------------------------------------- who is not who he says
def test_librdkafka_reports_a_wrong_password_and_the_log_has_his_name(world: World) -> None:
    errors: list[KafkaError] = []
    settings = world.librdkafka("alice", "SCRAM-SHA-512", "not hers")
    producer = Producer({**settings, "error_cb": errors.append})
    wait_until(lambda: producer.poll(0.1) is not None and bool(errors), "librdkafka complains", WAIT_SECONDS)
    assert errors[0].code() in (KafkaError._AUTHENTICATION, KafkaError._ALL_BROKERS_DOWN)
    world.proxy.wait_for_log("authentication of 'alice' from 127.0.0.1 failed: ")
    assert "not hers" not in world.proxy.log


def authenticated(world: World, name: str, *, version: int = 1) -> RawClient:
    """A connection on which the broker has accepted this user."""
    client = RawClient(world.plain_address)
    answer = client.ask(ApiKey.SASL_HANDSHAKE, version, mechanism="PLAIN")
    assert (answer.error_code, sorted(answer.mechanisms)) == (0, sorted(MECHANISMS))
    token = b"\0" + name.encode() + b"\0" + USERS[name].encode()
    if version == 0:
        client.send_bytes(frame(token))
        assert client._receive(4) == bytes(4)
    else:
        assert client.ask(ApiKey.SASL_AUTHENTICATE, 1, auth_bytes=token).error_code == 0
    return client


@pytest.mark.promise("compared-19")
@pytest.mark.parametrize("version", [0, 1])
def test_tokens_pass_bare_and_in_requests(world: World, version: int) -> None:
    with authenticated(world, "alice", version=version) as client:
        assert "python" in {topic.name for topic in client.ask(ApiKey.METADATA, 1, topics=None).topics}
        assert client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 34
        assert client.new_producer_id() >= 0


def test_nothing_else_is_answered_before_authentication(world: World) -> None:
    for key, version, fields in (
        (ApiKey.METADATA, 1, {"topics": None}),
        (ApiKey.INIT_PRODUCER_ID, 0, {}),
        (ApiKey.LIST_GROUPS, 0, {}),
    ):
        with RawClient(world.plain_address) as client:
            assert {one.api_key for one in client.ask(ApiKey.API_VERSIONS, 0).api_keys} >= {17, 36}
            client.send(key, version, messages.encode_request(key, version, **fields))
            assert client.is_closed()
    world.proxy.wait_for_log("API 22 before authentication: this listener wants SASL")


def test_a_token_without_a_handshake_and_an_unknown_mechanism_are_refused(world: World) -> None:
    with RawClient(world.plain_address) as client:
        assert client.ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=b"\0a\0b").error_code == 34
        answer = client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
        assert (answer.error_code, sorted(answer.mechanisms)) == (33, sorted(MECHANISMS))


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"bob\0alice\0alice's secret", b"\0alice's secret", b"\xff" * 60])
def test_a_token_that_does_not_fit_is_answered_58_and_the_connection_ends(world: World, token: bytes) -> None:
    with RawClient(world.plain_address) as client:
        assert client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
        answer = client.ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=token)
        assert (answer.error_code, answer.error_message) == (58, "authentication failed")
        assert client.is_closed()


def test_a_frame_above_64_kib_is_refused_before_it_has_arrived(world: World) -> None:
    with RawClient(world.plain_address) as client:
        client.send_bytes((64 * 1024 + 1).to_bytes(4, "big"))
        assert client.is_closed()
    world.proxy.wait_for_log("65537 bytes, the limit is 65536 bytes")


def test_requests_that_do_not_wait_for_the_end_of_authentication_are_refused(world: World) -> None:
    token = b"\0alice\0" + USERS["alice"].encode()
    with RawClient(world.plain_address) as client:
        client.send_together(
            (ApiKey.SASL_HANDSHAKE, 1, messages.encode_request(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")),
            (ApiKey.SASL_AUTHENTICATE, 0, messages.encode_request(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=token)),
            (ApiKey.METADATA, 1, messages.encode_request(ApiKey.METADATA, 1, topics=None)),
        )
        assert client.is_closed()
    with RawClient(world.plain_address) as client:
        assert client.ask(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN").error_code == 0
        client.send_bytes(frame(token) + frame(token))
        assert client.is_closed()


def test_bytes_that_come_one_by_one_are_as_good_as_any(world: World) -> None:
    with RawClient(world.plain_address) as client:
        assert client.ask(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN").error_code == 0
        for byte in frame(b"\0alice\0" + USERS["alice"].encode()):
            client.send_bytes(bytes((byte,)))
            time.sleep(0.001)
        assert client._receive(4) == bytes(4)
        assert client.new_producer_id() >= 0


def test_who_does_not_show_who_he_is_in_ten_seconds_is_hung_up_on(world: World) -> None:
    with RawClient(world.plain_address) as silent, RawClient(world.plain_address) as slow:
        began = time.monotonic()
        assert slow.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-256").error_code == 0
        assert slow.ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=b"n,,n=alice,r=abcdef").error_code == 0
        assert silent.is_closed()
        assert slow.is_closed()
        assert 9 < time.monotonic() - began < 60, "ten, and not the ten minutes of an idle connection"
    world.proxy.wait_for_log("no authentication within 10 s")


def test_clients_that_leave_keep_no_connection_to_the_broker(world: World) -> None:
    port = world.cluster.sasl_tls_address(0)[1]

    def connections() -> int:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        return sum(row[2].endswith(f":{port:04X}") and row[3] == "01" for row in rows)

    counted = [connections()]

    def is_quiet() -> bool:
        time.sleep(1)
        counted.append(connections())
        return counted[-1] == counted[-2]

    wait_until(is_quiet, "what tests before this one have left is closed")
    before = counted[-1]
    clients = [authenticated(world, "alice", version=number % 2) for number in range(10)]
    unfinished = [RawClient(world.plain_address) for _ in range(10)]
    for client in unfinished:
        assert client.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
    wait_until(lambda: connections() == before + 20, "each of them has one")
    for client in (*clients, *unfinished):
        client.close()
    wait_until(lambda: connections() == before, "all of them are closed")


def test_a_wrong_bare_token_ends_the_connection_without_a_word(world: World) -> None:
    with RawClient(world.plain_address) as client:
        assert client.ask(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN").error_code == 0
        client.send_bytes(frame(b"\0bob\0not his"))
        assert client.is_closed()
    world.proxy.wait_for_log("authentication of 'bob' from 127.0.0.1 failed: ")


@pytest.mark.parametrize("version", [0, 1])
def test_wrong_passwords_lock_no_other_client_of_the_address_out(world: World, version: int) -> None:
    failing = [RawClient(world.plain_address) for _ in range(limits.UNAUTHENTICATED_PER_IP_MAX // 2)]
    for client in failing:
        assert client.ask(ApiKey.SASL_HANDSHAKE, version, mechanism="PLAIN").error_code == 0
    for client in failing:
        if version == 0:
            client.send_bytes(frame(b"\0alice\0wrong"))
        else:
            body = messages.encode_request(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=b"\0alice\0wrong")
            client.send(ApiKey.SASL_AUTHENTICATE, 0, body)
    with authenticated(world, "alice", version=version) as alice:
        assert alice.new_producer_id() >= 0, "a good one comes in meanwhile"
    assert [client.is_closed() for client in failing] == [version == 0] * len(failing), "each has its answer"
    with authenticated(world, "alice", version=version) as alice:
        assert alice.new_producer_id() >= 0, "and behind them"
    for client in failing:
        client.close()


def test_connections_that_never_authenticate_lock_no_other_client_of_the_address_out(world: World) -> None:
    silent = [RawClient(world.plain_address) for _ in range(2 * limits.UNAUTHENTICATED_PER_IP_MAX)]
    with authenticated(world, "alice") as alice:
        assert alice.new_producer_id() >= 0
    assert silent[0].is_closed(), "the oldest have made room"
    for client in silent:
        client.close()


@pytest.mark.parametrize("version", [0, 1])
def test_a_failed_login_is_answered_late(world: World, version: int) -> None:
    with RawClient(world.plain_address) as client:
        assert client.ask(ApiKey.SASL_HANDSHAKE, version, mechanism="PLAIN").error_code == 0
        began = time.monotonic()
        if version == 0:
            client.send_bytes(frame(b"\0alice\0wrong"))
        else:
            assert client.ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=b"\0alice\0wrong").error_code == 58
        assert client.is_closed()
        assert time.monotonic() - began >= limits.LOGIN_REFUSAL_SECONDS
    world.proxy.wait_for_log("authentication of 'alice' from 127.0.0.1 failed: ")


# ---------------------------------------------------------------------- what they may do
@pytest.mark.promise("right-to-write", "compared-20")
def test_who_may_not_write_learns_nothing_and_moves_nothing(world: World) -> None:
    with authenticated(world, "alice") as alice, authenticated(world, "bob") as bob:
        producer_id = alice.new_producer_id()
        first = batch([b"hers"], producer_id=producer_id, sequence=0)
        assert alice.produce_one("alices", 0, first).error_code == 0
        for stolen in (
            first,
            batch([b"his"], producer_id=producer_id, sequence=1),
            batch([b"his"], producer_id=producer_id, epoch=9, sequence=0),
            batch([b"his"], producer_id=bob.new_producer_id(), sequence=0),
            batch([b"his"]),
        ):
            answer = bob.produce_one("alices", 0, stolen)
            assert (answer.error_code, answer.base_offset) == (29, -1)
        assert bob.produce_one("hidden", 0, first).error_code == 3, "not even whether it is there"
        second = batch([b"hers too"], producer_id=producer_id, sequence=1)
        assert alice.produce_one("alices", 0, second).base_offset == 1
        assert alice.values("alices", 0) == [b"hers", b"hers too"]


@pytest.mark.promise("producer-id-owner")
def test_a_producer_id_belongs_to_who_got_it(world: World) -> None:
    world.cluster.allow("Topic:alices", {"idemproxy": OURS, "alice": RIGHTS, "bob": RIGHTS})
    with authenticated(world, "alice") as alice, authenticated(world, "bob", version=0) as bob:
        producer_id = alice.new_producer_id()
        assert alice.produce_one("alices", 1, batch([b"a"], producer_id=producer_id, sequence=0)).error_code == 0
        wait_until(lambda: bob.produce_one("alices", 2, batch([b"b"])).error_code == 0, "bob may write")
        for sequence in (0, 1):
            stolen = batch([b"b"], producer_id=producer_id, sequence=sequence)
            assert bob.produce_one("alices", 1, stolen).error_code == 49
        assert alice.produce_one("alices", 1, batch([b"a"], producer_id=producer_id, sequence=1)).base_offset == 1


def test_one_topic_that_is_closed_leaves_the_others_of_a_request_alone(world: World) -> None:
    with authenticated(world, "bob") as bob, authenticated(world, "alice") as alice:
        world.cluster.allow("Topic:confluent", {"idemproxy": OURS, "alice": RIGHTS, "bob": RIGHTS})
        producer_id = bob.new_producer_id()
        records = batch([b"x"], producer_id=producer_id, sequence=0)
        wait_until(lambda: bob.produce_one("confluent", 3, batch([b"y"])).error_code == 0, "bob may write")
        answers = bob.produce([("confluent", 3, records), ("python", 3, records)])
        assert {one.topic: one.error_code for one in answers} == {"confluent": 0, "python": 3}
        assert alice.values("confluent", 3)[-1] == b"x"
        assert alice.values("python", 3) == []


def test_a_request_may_name_more_topics_than_are_remembered(world: World) -> None:
    records = batch([b"x"])
    with authenticated(world, "alice") as alice:
        for first in (0, 700, 1400):
            topics = [f"none-{number}" for number in range(first, first + 1400)]
            answers = alice.produce([(topic, 0, records) for topic in topics])
            assert {one.topic: one.error_code for one in answers} == dict.fromkeys(topics, 3)
        assert alice.produce_one("alices", 3, records).error_code == 0


def test_metadata_shows_what_the_broker_shows_him(world: World) -> None:
    with authenticated(world, "bob") as bob:
        assert "hidden" not in {topic.name for topic in bob.ask(ApiKey.METADATA, 1, topics=None).topics}
        for version in (1, 4):
            asked = [{"name": "alices"}, {"name": "hidden"}, {"name": "none"}]
            answer = bob.ask(ApiKey.METADATA, version, topics=asked, allow_auto_topic_creation=False)
            codes = {topic.name: topic.error_code for topic in answer.topics}
            assert codes == {"alices": 0, "hidden": 3, "none": 3}, "as from the broker: not even whether it is there"
            assert [(one.host, one.port) for one in answer.brokers] == [world.plain_address]


@pytest.mark.promise("right-to-write")
def test_rights_that_are_given_and_taken_count_within_seconds(world: World) -> None:
    with authenticated(world, "alice") as alice:
        producer_id = alice.new_producer_id()
        records = [batch([b"%d" % n], producer_id=producer_id, sequence=n) for n in range(3)]
        assert alice.produce_one("late", 0, records[0]).error_code == 29
        world.cluster.allow("Topic:late", {"idemproxy": OURS, "alice": RIGHTS})
        wait_until(lambda: alice.produce_one("late", 0, records[0]).error_code == 0, "she may write")
        assert alice.produce_one("late", 0, records[1]).base_offset == 1
        world.cluster.allow("Topic:late", {"idemproxy": OURS, "alice": ["Describe", "Read"]})
        wait_until(lambda: alice.produce_one("late", 0, records[1]).error_code == 29, "she may not")
        assert alice.produce_one("late", 0, records[2]).error_code == 29
        assert alice.values("late", 0) == [b"0", b"1"]


def test_without_an_answer_a_denied_produce_ends_the_connection(world: World) -> None:
    with authenticated(world, "bob") as bob:
        bob.send_produce([("late", 0, batch([b"no"]))], acks=0)
        assert bob.is_closed()


def test_librdkafka_and_kafka_python_get_topic_authorization_failed(world: World) -> None:
    told: list[int] = []
    producer = Producer({**world.librdkafka("bob", "SCRAM-SHA-256"), "enable.idempotence": True})
    world.cluster.allow("Topic:late", {"idemproxy": OURS, "bob": ["Describe"]})
    producer.produce("late", b"no", partition=1, on_delivery=lambda error, _m: told.append(error.code()))
    producer.flush(WAIT_SECONDS)
    assert told == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    other = KafkaProducer(enable_idempotence=True, **world.kafka_python("bob", "PLAIN"))
    with pytest.raises(TopicAuthorizationFailedError):
        other.send("late", b"no", partition=1).get(WAIT_SECONDS)
    other.close(timeout=1)


@pytest.mark.parametrize("shell", ["blocking", "trio"])
def test_a_producer_outlives_a_restart_of_its_broker(world: World, shell: str) -> None:
    """The last one here. A proxy whose broker is away closes connections at the handshake: that refuses nobody."""
    settings = world.own_client("alice", "SCRAM-SHA-256")
    partition = ["blocking", "trio"].index(shell)
    receipts = []
    if shell == "blocking":
        with Client(**settings) as client, client.producer(client.init_producer_id()) as producer:
            receipts.append(producer.publish("restarted", partition, [Record(b"1")]))
            world.cluster.kill_broker(0)
            future = producer.send("restarted", partition, [Record(b"2")])
            time.sleep(3)
            world.cluster.start_broker(0)
            receipts.append(future.result())
    else:

        async def program() -> None:
            async with (
                TrioClient(**settings) as client,
                client.producer(await client.init_producer_id()) as producer,
            ):
                receipts.append(await producer.publish("restarted", partition, [Record(b"1")]))
                await trio.to_thread.run_sync(world.cluster.kill_broker, 0)
                delivery = await producer.send("restarted", partition, [Record(b"2")])
                await trio.sleep(3)
                await trio.to_thread.run_sync(world.cluster.start_broker, 0)
                receipts.append(await delivery.receipt())

        trio.run(program)
    assert [one.base_offset for one in receipts] == [0, 1]
