"""Rules R15, R16, R18, R19, R20, each in the shortest scene in which exactly it matters: who is answered what and when,
and what goes to the broker how. Whole proxies on a virtual network, but for R19."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.proxy import limits
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import Outcome, Refused
from idemproxy.reactor import Wire
from idemproxy.state.entry import Entry, unpack
from testkit.stage.sequencer import Client, Stage
from testkit.virtual import client_bytes
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.client import ClientSettings
from testkit.virtual.world import TOPIC, World, WorldSettings

CORRUPT, TIMED_OUT, TOO_LARGE, HELD_BACK, INVALID = 2, 7, 10, 19, 87
REQUEST_SECONDS = 8.0
LATE_SECONDS_MAX = 0.12
"""Whose time is up is looked for ten times a second, and the network takes its time."""


def a_world(**settings: object) -> World:
    world = World(1, WorldSettings(brokers=1, **settings))  # type: ignore[arg-type]
    world.start()
    return world


def entries(world: World) -> list[Entry]:
    """What the store has of producers."""
    return [unpack(stored.value) for key, stored in world.redis.data.items() if b":{" in key]


def members(world: World) -> list[bytes]:
    return [key for key in world.redis.data if b":member:" in key]


class RawClient:
    """A connection that says what the test says, and keeps the answers' bodies."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.wire: Wire | None = None
        self.answers: list[bytes] = []
        self._data = b""
        world.network.host("raw").connect(world.proxies[0].address, self)
        assert world.network.run(1, lambda: self.wire is not None)

    def connected(self, wire: Wire) -> None:
        self.wire = wire

    def received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and len(self._data) >= (end := 4 + int.from_bytes(self._data[:4], "big")):
            self.answers.append(self._data[8:end])
            self._data = self._data[end:]

    def lost(self, reason: str) -> None:
        self.wire = None

    def ask(self, frame: bytes) -> bytes:
        """Send a request and wait for its answer."""
        count = len(self.answers)
        assert self.wire is not None
        self.wire.send(frame)
        assert self.world.network.run(5, lambda: len(self.answers) > count)
        return self.answers[-1]

    def producer_id(self) -> int:
        error, producer_id, _epoch = client_bytes.parse_init_producer_id(
            self.ask(client_bytes.init_producer_id(1, "raw"))
        )
        assert not error
        return producer_id


def produce(data: bytes, acks: int) -> bytes:
    return client_bytes.produce(2, "raw", 5000, [(TOPIC, 0, data)], acks)


def seen_by_the_broker(world: World) -> list[ProduceSeen]:
    seen: list[ProduceSeen] = []
    world.cluster.on_produce.append(seen.append)
    return seen


# ---------------------------------------------------------------------- R15
def test_a_proxy_that_is_ended_finishes_what_is_in_flight() -> None:
    world = a_world()
    world.cluster.choose_fault = lambda _seen: BrokerFault.SLOW
    (client,), (proxy,) = world.clients, world.proxies
    batch = client.send(TOPIC, 0)
    assert world.network.run(5, lambda: world.cluster.produce_count == 1)
    proxy.drain(down_seconds=None)
    world.network.run(5)
    assert [answer.error_code for answer in batch.answers] == [0]


def test_a_proxy_that_has_ended_leaves_no_unknown_outcome_and_no_lease() -> None:
    world = a_world()
    (client,), (proxy,) = world.clients, world.proxies
    client.send(TOPIC, 0)
    assert world.network.run(5, lambda: client.is_done)
    proxy.drain(down_seconds=None)
    world.network.run(1)
    assert [entry.has_open_intent for entry in entries(world)] == [False], "another proxy would have to read the log"
    assert members(world) == [], "another proxy would wait for it"


def test_a_proxy_that_is_ending_takes_nothing_new() -> None:
    world = a_world()
    world.cluster.choose_fault = lambda _seen: BrokerFault.SLOW
    (client,), (proxy,) = world.clients, world.proxies
    raw = RawClient(world)
    batch = client_bytes.batch_bytes([b"value"], raw.producer_id(), 0, 0, 0)
    client.send(TOPIC, 0)
    assert world.network.run(5, lambda: world.cluster.produce_count == 1)
    proxy.drain(down_seconds=None)
    answer = client_bytes.parse_produce(raw.ask(produce(batch, acks=-1)))
    assert answer[TOPIC, 0][0] == HELD_BACK
    world.network.run(5)
    assert world.cluster.produce_count == 1


# ---------------------------------------------------------------------- R16
@pytest.mark.promise("fewer-acks")
def test_what_is_sent_without_wanting_an_answer_is_written_though_its_client_hangs_up() -> None:
    world = a_world()
    raw = RawClient(world)
    raw.producer_id()  # else all that came before a FIN is served
    world.network.settings = replace(world.network.settings, latency=(0.001, 0.001))  # the FIN comes with the bytes
    count = 2 * limits.REQUESTS_PER_TURN_MAX  # so many wait for their turn meanwhile
    assert raw.wire is not None
    raw.wire.send(produce(encode_batch([Record(0, 0, None, b"plain")]), acks=0) * count)
    raw.wire.close()
    world.network.run(5)
    assert world.cluster.log(TOPIC, 0).end_offset == count


@pytest.mark.promise("fewer-acks")
def test_idempotent_batches_are_written_to_all_replicas_whatever_the_client_asks_for() -> None:
    world = a_world()
    seen = seen_by_the_broker(world)
    raw = RawClient(world)
    producer_id = raw.producer_id()
    assert raw.wire is not None
    raw.wire.send(produce(client_bytes.batch_bytes([b"value"], producer_id, 0, 0, 0), acks=1))
    world.network.run(5)
    assert [one.body.acks for one in seen] == [-1]


# ---------------------------------------------------------------------- R18
@pytest.mark.promise("answered-in-time")
def test_a_produce_is_answered_after_three_quarters_of_its_own_time() -> None:
    world = a_world(client=ClientSettings(request_timeout=REQUEST_SECONDS))
    (client,), (broker,) = world.clients, world.cluster.brokers.values()
    client.send(TOPIC, 0)
    assert world.network.run(5, lambda: client.is_done)
    broker.host.pause(30)
    begun = world.network.now
    batch = client.send(TOPIC, 0)
    world.network.run(10)
    assert batch.answers
    first = batch.answers[0]
    assert first.error_code == TIMED_OUT
    assert 0 <= first.at - begun - 0.75 * REQUEST_SECONDS < LATE_SECONDS_MAX


@pytest.mark.promise("answered-in-time")
def test_a_time_below_a_second_counts_as_one() -> None:
    world = a_world()
    raw, (broker,) = RawClient(world), world.cluster.brokers.values()
    batch = client_bytes.batch_bytes([b"value"], raw.producer_id(), 0, 0, 0)
    broker.host.pause(30)
    begun, told = world.network.now, len(raw.answers)
    assert raw.wire is not None
    raw.wire.send(client_bytes.produce(2, "raw", 10, [(TOPIC, 0, batch)]))
    assert world.network.run(5, lambda: len(raw.answers) > told)
    assert client_bytes.parse_produce(raw.answers[-1])[TOPIC, 0][0] == TIMED_OUT
    assert 0 <= world.network.now - begun - 0.75 < LATE_SECONDS_MAX


# ---------------------------------------------------------------------- R19
def refusing_in_company(stage: Stage, code: int) -> Callable[[Append], Outcome]:
    """A broker that does not like an append of several batches."""
    return lambda effect: Refused(code) if len(effect.identities) > 1 else stage.succeeds(effect)


def test_batches_that_are_refused_together_are_tried_one_by_one() -> None:
    stage, client = Stage(), Client()
    stage.outcomes.extend([refusing_in_company(stage, TOO_LARGE)] * 5)
    stage.store_away = True
    requests = [stage.send(client, sequence) for sequence in range(3)]
    stage.store_away = False
    stage.run(5)
    assert [request.offset for request in requests] == [0, 1, 2]


def test_a_batch_that_the_broker_finds_corrupt_failed_for_good() -> None:
    stage = Stage()
    stage.outcomes.append(stage.refuses(CORRUPT))
    request = stage.send(Client(), 0)
    stage.run(1)
    assert request.code == INVALID, "its checksum was right: with code 2 it would be sent again for ever"


def test_one_producers_unknown_outcome_does_not_hold_another_one() -> None:
    world = a_world(clients=2)
    one, other = world.clients
    one.send(TOPIC, 0)
    other.send(TOPIC, 0)
    assert world.network.run(5, lambda: one.is_done and other.is_done)
    world.cluster.choose_fault = lambda seen: BrokerFault.LOST_ANSWER
    one.send(TOPIC, 0)
    assert world.network.run(5, lambda: world.cluster.produce_count == 3)
    world.cluster.choose_fault = lambda seen: BrokerFault.NONE
    other.send(TOPIC, 0)
    assert world.network.run(0.5, lambda: other.is_done)
    assert not one.is_done


# ---------------------------------------------------------------------- R20
@pytest.mark.promise("old-producers")
def test_a_batch_without_producer_id_keeps_acks_without_batch_marker_or_entry() -> None:
    world = a_world()
    seen = seen_by_the_broker(world)
    before = dict(world.redis.data)
    raw = RawClient(world)
    raw.ask(produce(encode_batch([Record(0, 0, None, b"plain")]), acks=1))
    assert [one.body.acks for one in seen] == [1]
    (stored,) = world.cluster.log(TOPIC, 0).messages
    assert (stored.message.key, [record.value for record in stored.message.records]) == (None, [b"plain"])
    assert set(world.redis.data) == set(before)
