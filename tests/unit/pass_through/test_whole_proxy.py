"""A client who shows the brokers who he is, through a whole proxy on a virtual network: what is appended, and as whose,
and what he hears of it (DESIGN section 7)."""

from collections.abc import Callable
from dataclasses import replace

from simulation.oracle import Oracle

from idemproxy.codecs.batch_marker import Identity as Marked
from idemproxy.codecs.batch_marker import encode_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message
from idemproxy.proxy import limits
from idemproxy.proxy.versions import ApiKey
from idemproxy.reactor import Wire
from testkit.real.clients.raw_client import RawClient
from testkit.virtual import client_bytes as wire_bytes
from testkit.virtual.broker_faults import BrokerFault, BrokerFaultRates, ProduceSeen
from testkit.virtual.line import Line, request
from testkit.virtual.pass_through_client import Introduced
from testkit.virtual.producer import Identity
from testkit.virtual.world import TOPIC, World, WorldSettings

UNKNOWN, TIMED_OUT, HELD_BACK, DENIED, INVALID_REQUEST, NOT_YOURS = 3, 7, 19, 29, 42, 49


class Scene:
    """One client, one proxy. ``seen``: what reached the brokers, with and without records."""

    def __init__(self, *, brokers: int = 1, thief_may_write: bool = False) -> None:
        settings = WorldSettings(
            brokers=brokers, has_principals=True, has_pass_through=True, thief_may_write=thief_may_write
        )
        self.world = World(1, settings)
        self.oracle = Oracle(self.world.cluster, self.world.clients)
        self.seen: list[ProduceSeen] = []
        self.world.cluster.on_produce.append(self.seen.append)
        self.world.start()
        (self.client,) = self.world.clients

    @property
    def batches(self) -> list[str]:
        """Who sent each request with records."""
        return [one.principal for one in self.seen if any(row[2] for row in one.body.partitions)]

    @property
    def questions(self) -> int:
        return len(self.seen) - len(self.batches)

    def let_write(self, principal: str, may_write: bool) -> None:
        """From now on the broker lets him, or does not."""
        users = self.world.cluster.users
        assert users is not None
        users[principal] = may_write

    def second_batch_meets(self, fault: BrokerFault) -> None:
        """Once; questions meet nothing."""

        def choose(seen: ProduceSeen) -> BrokerFault:
            is_batch = any(row[2] for row in seen.body.partitions)
            return fault if is_batch and len(self.batches) == 2 else BrokerFault.NONE

        self.world.cluster.choose_fault = choose

    def run(self, seconds: float, is_done: Callable[[], bool] = lambda: False) -> None:
        self.world.network.run(seconds, is_done)

    def send(self) -> None:
        """A batch, and its answer."""
        self.client.send(TOPIC, 0)
        self.run(30, lambda: self.client.is_done)
        assert self.client.is_done

    def steal(self, identity: Identity) -> list[tuple[int, int]]:
        """The error codes and offsets that the thief gets."""
        known = len(self.world.thief.answers)
        self.world.thief.produce(self.world.proxies[0].addresses[0], (TOPIC, 0), identity)
        self.run(5, lambda: len(self.world.thief.answers) > known)
        return [(code, offset) for _, _, code, offset in self.world.thief.answers[known:]]

    def check(self) -> None:
        """Nothing was wrong in all of it."""
        self.run(5)
        assert self.oracle.finish() + self.world.errors() == []


def test_what_a_client_sends_is_appended_as_his_own() -> None:
    scene = Scene()
    for _ in range(3):
        scene.send()
    assert scene.batches == ["client-1"] * 3
    scene.check()


def test_a_client_finds_the_leader_and_his_batch_goes_nowhere_else() -> None:
    scene = Scene(brokers=3)
    for broker in (2, 3, 1):
        scene.world.cluster.move_leader(TOPIC, 0, broker)
        scene.send()
    assert set(scene.batches) == {"client-1"}
    assert len(scene.world.cluster.log(TOPIC, 0).messages) == 3
    scene.check()


def test_an_unauthorized_client_gets_topic_authorization_failed_and_nothing_else() -> None:
    scene = Scene()
    scene.send()
    owner = scene.client.producer
    for epoch, sequence in ((0, 0), (0, 1), (0, 50), (1, 0)):
        assert scene.steal(Identity(owner.producer_id, epoch, sequence, 1)) == [(DENIED, -1)]
    scene.send()
    assert scene.batches == ["client-1"] * 2
    scene.check()


def test_who_begins_again_and_again_is_hung_up_on() -> None:
    """Each time a connection to the broker is opened for him."""
    scene = Scene()
    line = Line()
    scene.world.network.host("client").connect(scene.world.proxies[0].addresses[0], line)
    scene.run(1)
    assert line.wire is not None
    mechanism = b"\0\5PLAIN"
    for number in range(limits.SASL_HANDSHAKES_MAX):
        line.wire.send(request(number, ApiKey.SASL_HANDSHAKE, 1, mechanism))
        scene.run(0.2)
    assert (line.answers, line.is_lost) == (list(range(limits.SASL_HANDSHAKES_MAX)), False)
    line.wire.send(request(9, ApiKey.SASL_HANDSHAKE, 1, mechanism))
    scene.run(0.2)
    assert line.is_lost
    scene.check()


def test_an_unauthorized_client_gets_topic_authorization_failed_from_a_slow_broker_too() -> None:
    """Its no is believed for a second, and is older than that when it comes."""
    scene = Scene()
    scene.send()
    settings = scene.world.network.settings
    scene.world.network.settings = replace(settings, latency=(0.6, 0.6))
    before = scene.questions
    scene.steal(Identity(scene.client.producer.producer_id, 0, 0, 1))
    scene.run(20)
    scene.world.network.settings = settings
    assert [code for _, _, code, _ in scene.world.thief.answers] == [DENIED]
    assert scene.questions == before + 1
    scene.check()


def test_who_may_write_under_his_own_name_does_not_under_anothers() -> None:
    scene = Scene(thief_may_write=True)
    scene.send()
    for sequence in (0, 1):
        assert scene.steal(Identity(scene.client.producer.producer_id, 0, sequence, 1)) == [(NOT_YOURS, -1)]
    scene.check()


def wrapper(key: bytes | None) -> bytes:
    """One record as an old producer sends it, but for the key."""
    inner = encode_message(None, b"thief/1/0", magic=1, offset=0, timestamp=1, codec=Codec.NONE)
    value = compress(Codec.GZIP, inner, magic=1)
    return encode_message(key, value, magic=1, offset=0, timestamp=1, codec=Codec.GZIP)


def test_nobody_writes_the_batch_marker_of_anothers_batch_through_the_proxy() -> None:
    """Else it would be found in the log in place of the batch that did not arrive."""
    scene = Scene(thief_may_write=True)
    scene.send()
    line = Line()
    host = scene.world.network.host("thief's")
    host.connect(scene.world.proxies[0].addresses[0], Introduced("thief", line))
    scene.run(1)
    batch_marker = encode_batch_marker([Marked(scene.client.producer.producer_id, 0, 1, 1)])
    codes = []
    for number, records in enumerate(
        (wrapper(batch_marker), wrapper(None) + wrapper(batch_marker), wrapper(batch_marker[:-1]))
    ):
        body = RawClient.produce_body([(TOPIC, 0, records)], version=2, acks=1, timeout_ms=3_000)
        assert line.wire is not None
        line.wire.send(request(number, ApiKey.PRODUCE, 2, body))
        line.data.clear()
        scene.run(1)
        codes.append(wire_bytes.parse_produce(bytes(line.data[8:]))[TOPIC, 0][0])
    assert codes == [INVALID_REQUEST, INVALID_REQUEST, 0]
    log = scene.world.cluster.log(TOPIC, 0)
    assert log.end_offset == 2
    faults = iter([BrokerFault.LOST_REQUEST])
    scene.world.cluster.choose_fault = lambda seen: (
        next(faults, BrokerFault.NONE) if seen.principal == scene.client.name else BrokerFault.NONE
    )
    scene.send()
    assert next(faults, None) is None, "the first try was lost"
    acknowledged = scene.client.batches[-1].acknowledged
    assert acknowledged is not None
    assert (acknowledged[1], log.end_offset) == (2, 3)


class Raw:
    """A client that sends the same batch as often as it likes, and notes error codes and offsets."""

    def __init__(self, scene: Scene) -> None:
        scene.let_write("raw", True)
        self._scene = scene
        self._wire: Wire | None = None
        self._data = b""
        self.told: list[tuple[int, int]] = []
        host = scene.world.network.host("raw")
        host.connect(scene.world.proxies[0].addresses[0], Introduced("raw", self))
        scene.run(1)

    def connected(self, wire: Wire) -> None:
        self._wire = wire

    def received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and len(self._data) >= (end := 4 + int.from_bytes(self._data[:4], "big")):
            self.told.append(wire_bytes.parse_produce(self._data[8:end])[TOPIC, 0])
            self._data = self._data[end:]

    def lost(self, reason: str) -> None:
        raise AssertionError(reason)

    def produce(self, producer_id: int, sequence: int, timeout_ms: int = 10_000) -> tuple[int, int]:
        """One batch, and the error code and offset that it gets."""
        assert self._wire is not None
        data = wire_bytes.batch_bytes([b"raw/%d" % sequence], producer_id, 0, sequence, 0)
        self._wire.send(wire_bytes.produce(1, "raw", timeout_ms, [(TOPIC, 0, data)]))
        known = len(self.told)
        self._scene.run(30, lambda: len(self.told) > known)
        self._scene.run(0.1)
        return self.told[known]


def test_a_duplicate_is_confirmed_only_after_the_broker_was_asked_again() -> None:
    scene = Scene()
    scene.send()
    raw, producer_id = Raw(scene), 4711
    assert raw.produce(producer_id, 0) == (0, 1)
    before = scene.questions
    for sequence in (1, 2):
        assert raw.produce(producer_id, sequence) == (0, 1 + sequence)
    assert scene.questions == before, "an append that is taken says it as well"
    before = scene.questions
    assert raw.produce(producer_id, 1) == (0, 2)
    assert scene.questions == before + 1
    scene.let_write("raw", False)
    for sequence in (0, 2, 3, 9):  # stored, due, never sent
        assert raw.produce(producer_id, sequence) == (DENIED, -1)
    assert scene.batches == ["client-1"] + ["raw"] * 3


def test_a_lost_answer_is_found_by_who_may_not_write() -> None:
    scene = Scene()
    scene.send()
    scene.second_batch_meets(BrokerFault.LOST_ANSWER)
    scene.send()
    assert scene.batches == ["client-1"] * 2
    scene.check()


def test_a_lost_request_is_sent_again_when_its_client_brings_it() -> None:
    scene = Scene()
    scene.send()
    scene.second_batch_meets(BrokerFault.LOST_REQUEST)
    scene.send()
    assert scene.batches == ["client-1"] * 3
    scene.check()


def test_a_new_instance_id_resets_what_a_client_has_out_though_he_has_gone() -> None:
    scene = Scene()
    scene.send()
    scene.world.cluster.rates = BrokerFaultRates(slow=(3.0, 3.0), straggle=(0.8, 0.8))
    scene.world.cluster.choose_fault = lambda seen: BrokerFault.SLOW
    scene.client.send(TOPIC, 0)
    scene.run(0.3, lambda: len(scene.batches) == 2)
    scene.client.close()
    scene.run(0.1)
    (proxy,) = scene.world.proxies
    assert proxy.engine.statistics().client_pools == 1, "his connection waits for the answer"
    proxy.engine.lease_lost()
    assert proxy.engine.statistics().client_pools == 0
    scene.run(10)
    assert scene.world.errors() == []


def test_a_client_that_goes_while_his_batch_is_out_leaves_no_unknown_outcome() -> None:
    scene = Scene()
    scene.send()
    scene.world.cluster.rates = BrokerFaultRates(slow=(0.5, 0.5))
    scene.world.cluster.choose_fault = lambda seen: BrokerFault.SLOW
    scene.client.send(TOPIC, 0)
    scene.run(0.2, lambda: len(scene.batches) == 2)
    scene.client.close()
    scene.run(5)
    (proxy,) = scene.world.proxies
    assert [event for _, _, event in proxy.events if type(event).__name__ == "UnknownOutcomeOpened"] == []
    assert proxy.engine.statistics().client_pools == 0
    assert len(scene.world.cluster.log(TOPIC, 0).messages) == 2


def test_what_waits_for_a_word_of_the_broker_is_answered_in_time() -> None:
    """Rule R18: a duplicate is known at once, and the broker is silent on whether this client may hear it."""
    scene = Scene()
    scene.send()
    raw = Raw(scene)
    assert raw.produce(4711, 0) == (0, 1)
    scene.world.cluster.rates = BrokerFaultRates(slow=(9.0, 9.0))
    scene.world.cluster.choose_fault = lambda seen: BrokerFault.SLOW
    began = scene.world.network.now
    code, _ = raw.produce(4711, 0, timeout_ms=4_000)
    assert (code, scene.world.network.now - began < 4) == (TIMED_OUT, True)
    assert scene.world.errors() == []


def test_nothing_is_a_gap_after_a_batch_that_was_refused_for_now() -> None:
    """Rule R11: UNKNOWN_TOPIC_OR_PARTITION for a topic that he may not know of yet is retriable; the batch after it
    comes when he may."""
    scene = Scene()
    scene.send()
    raw = Raw(scene)
    scene.world.cluster.partitions[TOPIC, 0].is_deleted = True
    assert raw.produce(4711, 0)[0] == UNKNOWN
    scene.world.cluster.partitions[TOPIC, 0].is_deleted = False
    scene.run(2)
    assert raw.produce(4711, 1)[0] == HELD_BACK
    assert [raw.produce(4711, sequence)[0] for sequence in (0, 1)] == [0, 0]
    assert scene.world.errors() == []


def test_a_client_whose_broker_has_moved_is_sent_to_the_new_place() -> None:
    scene = Scene()
    scene.send()
    (proxy,) = scene.world.proxies
    opened = scene.client.connections_opened
    place = proxy.engine.topology.cluster.brokers[1]
    proxy.engine.topology._update_brokers({1: replace(place, host="elsewhere")})
    proxy.engine.topology._update_brokers({1: place})
    scene.run(1)
    scene.send()
    assert scene.client.connections_opened > opened
    scene.check()
