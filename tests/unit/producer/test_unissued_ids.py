"""Batches under producer ids that nobody issued: the log is read for them together, only while their client waits, for
so many at a time, and nothing is left of them (rules R10, R17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from mutants.scenes import foreign

from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import FetchRecords
from idemproxy.proxy.events import BatchAnswered, UnknownOutcomeResolved
from idemproxy.proxy.producer.batch import Answer
from idemproxy.proxy.producer.unissued import Admitted, UnissuedOutcomes
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.commit import fresh, reserved
from idemproxy.state.entry import NO_ANCHOR, NO_PRINCIPAL, Intent, IntentBatch
from idemproxy.state.producer_ids import block_of, pack_block
from idemproxy.state.store import block_key
from testkit.real.clients.raw_client import RawClient, batch
from testkit.stage.sequencer import BLOCK_KEY, NEXT_DATA_GENERATION, Client, Stage
from testkit.virtual.line import Line, request
from testkit.virtual.producer import Identity
from testkit.virtual.proxy import CLUSTER_NAME
from testkit.virtual.redis_connection import RedisFault
from testkit.virtual.world import TOPIC, World, WorldSettings

OUT_OF_ORDER, TIMED_OUT, NOT_ENOUGH_REPLICAS, NO_LEADER = 45, 7, 19, 6
FIRST_ID = 2**61
MESSAGE_BYTES = 100_000
MESSAGES = 200
"""Twenty fetches."""


class Attacked:
    """One proxy, a long log, and a client that invents producer ids."""

    def __init__(self) -> None:
        self.world = World(1, WorldSettings(brokers=1, clients=1))
        self.world.start()
        self.client = self.world.clients[0]
        self.client.send(TOPIC, 0)
        assert self.world.network.run(60, lambda: self.client.is_done)
        log = self.world.cluster.log(TOPIC, 0)
        for number in range(MESSAGES):
            log.append(encode_set([(None, b"%d" % number + bytes(MESSAGE_BYTES), 0)], magic=1), 0.0)
        log.advance(log.end_offset)
        self.proxy = self.world.proxies[0]
        self.inventor = self.world.thief
        self.count = 0
        self.proxy.engine.context.instance.returning_until = 0.0  # it began long ago
        self.world.network.run(5)
        self.keys = self.stored()

    def stored(self) -> set[bytes]:
        """Every key in Redis."""
        server = self.world.redis.server
        return {key for key in list(server.data) if server.get(key) is not None}

    def invent(self, sequence: int = 5) -> None:
        self.count += 1
        self.inventor.produce(
            self.proxy.addresses[0], (TOPIC, 0), Identity(FIRST_ID + 1000 * self.count, 0, sequence, 1)
        )

    @property
    def codes(self) -> list[int]:
        return [code for _, _, code, _ in self.inventor.answers]


@pytest.fixture
def attacked() -> Attacked:
    return Attacked()


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[FetchRecords]:
    """Every fetch that a proxy sends."""
    found: list[FetchRecords] = []
    encode = FetchRecords.encode

    def seen(question: FetchRecords, version: int) -> bytes:
        found.append(question)
        return encode(question, version)

    monkeypatch.setattr(FetchRecords, "encode", seen)
    return found


def test_ids_that_nobody_issued_cost_two_readings_of_the_log_together(
    attacked: Attacked, fetched: list[FetchRecords]
) -> None:
    """Before, each of them had a reading of its own."""
    network = attacked.world.network
    attacked.invent()
    network.run(60, lambda: bool(fetched))
    begun = network.now
    network.run(60, lambda: bool(attacked.codes))
    one, seconds = len(fetched), network.now - begun
    assert one >= MESSAGES * MESSAGE_BYTES // limits.FETCH_BYTES
    network.run(5)
    fetched.clear()
    for _ in range(50):
        attacked.invent()
        network.run(seconds / 50)
    network.run(60)
    assert attacked.codes == [OUT_OF_ORDER] * 51
    assert len(fetched) <= 2.5 * one
    assert attacked.world.errors() == []


def test_nothing_is_left_of_an_id_that_nobody_issued(attacked: Attacked) -> None:
    known = len(attacked.proxy.engine._sequencers)
    for _ in range(20):
        attacked.invent()
    attacked.world.network.run(60)
    assert attacked.codes == [OUT_OF_ORDER] * 20
    assert attacked.stored() <= attacked.keys
    assert len(attacked.proxy.engine._sequencers) == known
    assert attacked.proxy.engine.context.unissued.count == 0


def test_an_id_that_nobody_issued_is_not_looked_for_again_to_be_renewed(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, each cost one read more within a minute."""
    redis, network = attacked.world.redis, attacked.world.network
    for _ in range(20):
        attacked.invent()
    network.run(limits.IDS_IN_USE_LOOK_SECONDS / 4, lambda: len(attacked.codes) == 20)
    keys = {block_key(CLUSTER_NAME, block_of(FIRST_ID + 1000 * (number + 1))) for number in range(20)}
    asked: list[bytes] = []
    fault_of = redis.fault_of

    def seen(arguments: Sequence[bytes]) -> RedisFault:
        asked.extend(key for key in arguments if key in keys)
        return fault_of(arguments)

    monkeypatch.setattr(redis, "fault_of", seen)
    network.run(2 * limits.IDS_IN_USE_LOOK_SECONDS)
    assert asked == []


# ---------------------------------------------------------------------- one of them
def a_stage(*, log_seconds: float = 1.0) -> Stage:
    """A log of a hundred fetches, and a producer id that nobody issued."""
    stage = Stage()
    foreign(stage, *(b"%d" % number + bytes(900_000) for number in range(100)))
    del stage.values[BLOCK_KEY]
    stage.log_seconds = log_seconds
    return stage


def reads(stage: Stage) -> int:
    return sum(isinstance(question, FetchRecords) for _, question in stage.asked)


def test_the_log_is_not_read_on_for_a_client_that_has_left() -> None:
    stage = a_stage()
    client = Client()
    request = stage.send(client, 5)
    stage.run(20)
    known = reads(stage)
    assert known > 10
    client.is_closed = True
    stage.run(200)
    assert reads(stage) <= known + limits.HAND_OVER_SECONDS + 2
    assert (request.code, stage.values, stage.swapped) == (None, {}, [])
    assert stage.sequencer.is_idle
    assert stage.context.unissued.count == 0
    assert [event.result for event in stage.events if isinstance(event, UnknownOutcomeResolved)] == ["left_open"]


def test_the_log_is_read_to_its_end_for_a_client_that_comes_again() -> None:
    """It is answered after three quarters of its timeout, and is away for a second."""
    stage = a_stage()
    client = Client()
    for _ in range(10):
        request = stage.send(client, 5)
        stage.run(22.5, until=lambda request=request: request.is_done)  # type: ignore[misc]
        if request.is_done:
            break
        request.answers.append(Answer(TIMED_OUT))
        stage.run(1)
    assert request.code == OUT_OF_ORDER
    assert reads(stage) <= 105
    stage.run(1)
    assert stage.values == {}


def test_a_proxy_that_ends_reads_no_log_for_an_id_that_nobody_issued() -> None:
    stage = a_stage()
    requests = [stage.send(Client(), 5)]
    stage.run(5)
    stage.context.instance.is_draining = True
    known = reads(stage)
    requests.append(stage.send(Client(), 6))
    stage.run(3)
    assert [request.code for request in requests] == [NOT_ENOUGH_REPLICAS] * 2
    assert reads(stage) <= known + 1
    assert stage.sequencer.is_idle


def test_a_batch_of_an_id_that_nobody_issued_is_rebuilt_and_appended_once() -> None:
    """A program resumes with an id that it has saved; Redis has forgotten all."""
    stage = Stage()
    client = Client()
    for sequence in range(3):
        stage.send(client, sequence)
        stage.run(1)
    stage.values.clear()
    stage.die()
    again = Client()
    requests = [stage.send(again, sequence) for sequence in (2, 3)]
    stage.run(30)
    assert [(request.code, request.offset) for request in requests] == [(0, 2), (0, 3)]
    assert stage.stored_values() == [b"value %d" % number for number in range(4)]


# ---------------------------------------------------------------------- how many
def fill(stage: Stage, count: int, address: str, principal: bytes = NO_PRINCIPAL) -> list[Admitted]:
    admitted = [stage.context.unissued.admit(address, principal, is_after_loss=False) for _ in range(count)]
    assert all(admitted)
    return [one for one in admitted if one is not None]


@pytest.mark.parametrize("by", ["address", "principal", "proxy"])
def test_batches_above_the_limit_fail_retriably_at_once_and_are_handled_later(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNISSUED_OUTCOMES_MAX", 12)
    monkeypatch.setattr(limits, "UNISSUED_OUTCOMES_OF_ONE_MAX", 4)
    stage = a_stage(log_seconds=0.001)
    client = Client("somebody")
    if by == "proxy":
        others = [one for number in range(12) for one in fill(stage, 1, f"10.1.0.{number}")]
    else:
        who = (client.address, b"another.") if by == "address" else ("10.9.9.9", client.principal)
        others = fill(stage, 4, *who)
    request = stage.send(client, 5)
    stage.run(0.01)
    assert (request.code, reads(stage)) == (TIMED_OUT, 0)
    assert client.rested_seconds == limits.UNISSUED_REST_SECONDS
    assert stage.sequencer.is_idle
    others.pop().end()
    again = stage.send(client, 5)
    stage.run(30)
    assert again.code == OUT_OF_ORDER


def test_a_client_whose_batches_are_refused_brings_a_few_a_second(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends the next ones as soon as it is answered, and each reads Redis."""
    monkeypatch.setattr(limits, "UNISSUED_OUTCOMES_OF_ONE_MAX", 0)
    network, seconds, line = attacked.world.network, 100.0, Line()
    network.host("inventor").connect(attacked.proxy.addresses[0], line)
    network.run(1, lambda: line.wire is not None)
    ends, sent = network.now + seconds, 0
    while network.now < ends:
        assert line.wire is not None
        records = batch([b"x"], producer_id=FIRST_ID + 1000 * sent, sequence=5)
        body = RawClient.produce_body([(TOPIC, 0, records)])
        line.wire.send(request(sent, ApiKey.PRODUCE, 3, body))
        sent += 1
        network.run(ends - network.now, lambda sent=sent: len(line.answers) == sent)  # type: ignore[misc]
    assert 0.4 <= len(line.answers) * limits.UNISSUED_REST_SECONDS / seconds <= 1.1
    assert attacked.world.errors() == []


@pytest.mark.parametrize("is_after_loss", [False, True])
def test_one_address_or_principal_does_not_use_up_what_all_have(is_after_loss: bool) -> None:
    outcomes = UnissuedOutcomes()
    few, many = limits.UNISSUED_OUTCOMES_OF_ONE_MAX, limits.UNISSUED_OUTCOMES_OF_ONE_AFTER_LOSS_MAX
    most = many if is_after_loss else few
    assert most < limits.UNISSUED_OUTCOMES_MAX
    admitted = [outcomes.admit("10.0.0.1", b"%d" % number, is_after_loss=is_after_loss) for number in range(most + 5)]
    assert [one is None for one in admitted] == [False] * most + [True] * 5
    assert outcomes.admit("10.0.0.2", b"0", is_after_loss=False) is not None
    for one in admitted:
        if one is not None:
            one.end()
    assert outcomes.count == 1
    assert outcomes.admit("10.0.0.1", NO_PRINCIPAL, is_after_loss=False) is not None


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_partition_without_a_leader_takes_no_place_of_others(is_begun: bool) -> None:
    """Its log cannot be read, perhaps for hours, and its clients come again and again."""
    stage = a_stage()
    client = Client()
    if is_begun:
        stage.send(client, 5)
        stage.run(10)
        assert stage.context.unissued.count == 1
    stage.leader = None
    codes = []
    for _ in range(10):
        request = stage.send(client, 5)
        stage.run(22.5, until=lambda request=request: request.is_done)  # type: ignore[misc]
        codes.append(request.code)
        request.answers.append(Answer(TIMED_OUT))
        stage.run(1)
    assert stage.context.unissued.count == 0
    assert codes[-1] == NO_LEADER
    assert stage.sequencer.is_idle
    stage.leader = 1
    again = stage.send(client, 5)
    stage.run(200)
    assert again.code == OUT_OF_ORDER


def test_an_address_is_not_counted_where_it_stands_for_many_clients(
    attacked: Attacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a load balancer: connections of one address are not counted either."""
    monkeypatch.setattr(limits, "UNISSUED_OUTCOMES_OF_ONE_MAX", 2)
    engine = attacked.proxy.engine
    for _ in range(5):
        attacked.invent()
    attacked.world.network.run(30)
    assert attacked.codes.count(TIMED_OUT) == 3
    attacked.inventor.answers.clear()
    engine.caps = replace(engine.caps, connections_per_ip_max=0)
    for _ in range(5):
        attacked.invent()
    attacked.world.network.run(30)
    assert attacked.codes == [OUT_OF_ORDER] * 5
    assert engine.context.unissued.count == 0


def test_an_id_whose_block_is_known_is_not_counted() -> None:
    """Its entry is unverified, as Redis has begun another life; the id was issued all the same."""
    stage = a_stage()
    stage.values[BLOCK_KEY] = pack_block(NEXT_DATA_GENERATION, 0)
    fill(stage, limits.UNISSUED_OUTCOMES_OF_ONE_MAX, Client().address)
    request = stage.send(Client(), 5)
    stage.run(1.5)
    assert (request.code, reads(stage) > 0) == (None, True)


def test_another_proxy_that_has_written_meanwhile_is_not_overwritten() -> None:
    """Model row P15: it has read the log as well, and has reserved the batch."""
    stage = Stage()
    del stage.values[BLOCK_KEY]
    stage.log_seconds = 1.0
    foreign(stage, b"somebody's")
    request = stage.send(Client(), 0)
    stage.run(1.5)
    begun = fresh(stage.context.instance.data_generation, NO_PRINCIPAL, 0, 0)
    intent = Intent(b"somebody", 0, (IntentBatch(0, 1, b"digest-5"),), 1, NO_ANCHOR, b"content!", 1)
    stage.alive.add(b"somebody")
    stage.put(reserved(begun, intent))
    stage.run(20)
    assert request.code is None
    assert stage.entry().intent == intent
    assert stage.sent == []


@pytest.mark.parametrize("limit", ["UNISSUED_OUTCOMES_OF_ONE_AFTER_LOSS_MAX", "UNISSUED_OUTCOMES_OF_ONE_MAX"])
def test_after_all_of_redis_was_lost_all_producers_of_an_address_are_rebuilt(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy has begun again, too, so it knows none of them, and nobody has issued their ids. Only then many come at
    once, and the usual limit is none."""
    monkeypatch.setattr(limits, limit, 5)
    world = World(1, WorldSettings(brokers=1, clients=40))
    world.start()
    for _ in range(2):
        for client in world.clients:
            client.send(TOPIC, 0)
        assert world.network.run(60, lambda: all(client.is_done for client in world.clients))
    world.proxies[0].crash(down_seconds=0.5)
    world.redis.server.data.clear()
    world.network.run(10)
    for client in world.clients:
        client.send(TOPIC, 0)
    assert world.network.run(120, lambda: all(client.is_done for client in world.clients))
    limited = [
        event
        for _, _, event in world.proxies[0].events
        if isinstance(event, BatchAnswered) and event.verdict == "limited"
    ]
    assert bool(limited) == (limit == "UNISSUED_OUTCOMES_OF_ONE_AFTER_LOSS_MAX")
    values = [record.value for one in world.cluster.log(TOPIC, 0).messages for record in one.message.records]
    assert len(values) == len(set(values)) == sum(len(b.values) for c in world.clients for b in c.batches)
    assert world.errors() == []
