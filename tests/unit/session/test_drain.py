"""A proxy that is ending (rule R15) reads nothing new of producers: what they have in flight is finished and answered,
so that a drain has an end however busy they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.admission.memory_budget import WAITING_COUNTS
from idemproxy.proxy.session.session import Session
from idemproxy.proxy.versions import ApiKey
from idemproxy.reactor import Wire
from testkit.real.clients.raw_client import RawClient, batch
from testkit.virtual.broker_faults import BrokerFault, BrokerFaultRates
from testkit.virtual.line import Line, request
from testkit.virtual.pass_through_client import Introduced
from testkit.virtual.world import TOPIC, World, WorldSettings

CLIENTS, IN_FLIGHT = 10, 5
DRAIN_SECONDS_MAX = 1.0
"""A produce takes some milliseconds here, and the drain looks twenty times a second."""


def produce(number: int, *, acks: int = -1) -> bytes:
    body = RawClient.produce_body([(TOPIC, 0, batch([b"value"]))], version=3, acks=acks, timeout_ms=30_000)
    return request(number, ApiKey.PRODUCE, 3, body)


def metadata(number: int) -> bytes:
    return request(number, ApiKey.METADATA, 1, b"\0\0\0\0")


class Busy(Line):
    """Asks again at each answer, for as long as it has its connection."""

    def __init__(self, ask: Callable[[int], bytes], in_flight: int) -> None:
        super().__init__()
        self._ask = ask
        self._in_flight = in_flight
        self.asked = 0

    def connected(self, wire: Wire) -> None:
        super().connected(wire)
        self._go_on()

    def received(self, data: bytes) -> None:
        super().received(data)
        self._go_on()

    def _go_on(self) -> None:
        assert self.wire is not None
        while self.asked - len(self.answers) < self._in_flight:
            self.asked += 1
            self.wire.send(self._ask(self.asked))


class Scene:
    def __init__(self, is_pass_through: bool = False) -> None:
        self.is_pass_through = is_pass_through
        settings = WorldSettings(brokers=1, has_principals=is_pass_through, has_pass_through=is_pass_through)
        self.world = World(1, settings)
        if self.world.cluster.users is not None:
            self.world.cluster.users["raw"] = True
        self.world.start()
        self.world.network.run(2)
        (self.proxy,) = self.world.proxies
        self.engine = self.proxy.engine

    def add(self, line: Line) -> None:
        """A client connects."""
        host = self.world.network.host("client")
        address = self.proxy.addresses[0]
        host.connect(address, Introduced("raw", line) if self.is_pass_through else line)
        assert self.world.network.run(5, lambda: line.wire is not None)

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        return self.world.network.run(seconds, until)

    def drain(self) -> None:
        """SIGTERM, and all that follows."""
        began = self.world.network.now
        self.proxy.drain(down_seconds=None)
        ended = self.run(DRAIN_SECONDS_MAX, lambda: not self.proxy.is_up)
        assert ended, f"not drained after {self.world.network.now - began:.1f} s"

    @property
    def stored(self) -> int:
        """Records in the log."""
        return self.world.cluster.log(TOPIC, 0).end_offset


@pytest.mark.promise("drain-finishes")
@pytest.mark.parametrize("is_pass_through", [False, True])
def test_a_drain_ends_though_producers_without_producer_ids_are_busy(is_pass_through: bool) -> None:
    scene = Scene(is_pass_through)
    lines = [Busy(produce, IN_FLIGHT) for _ in range(CLIENTS)]
    for line in lines:
        scene.add(line)
    scene.run(2)
    before = scene.stored
    scene.drain()
    scene.run(1)
    assert all(line.is_lost for line in lines)
    assert scene.stored - before <= 2 * CLIENTS * IN_FLIGHT, "what was in flight, and what had come already"
    assert sum(len(line.answers) for line in lines) == scene.stored, "a client would send again what is stored"
    assert scene.world.errors() == []


def test_a_drain_ends_though_many_quiet_producers_send_one_batch_each() -> None:
    """Each comes at another time: at each look one would be in flight."""
    scene = Scene()
    lines = [Line() for _ in range(200)]
    for line in lines:
        scene.add(line)
        assert line.wire is not None
        line.wire.send(produce(1))
    assert scene.run(5, lambda: all(line.answers for line in lines))
    scene.world.network.update(latency=(0.01, 0.02))
    for number, line in enumerate(lines):
        assert line.wire is not None
        wire = line.wire
        scene.world.network.schedule(0.01 * number, lambda wire=wire: wire.send(produce(2)))  # type: ignore[misc]
    scene.run(0.1)
    scene.drain()
    scene.run(3)
    assert sum(len(line.answers) for line in lines) == scene.stored


def test_a_drain_ends_though_a_producer_wants_no_answers() -> None:
    scene = Scene()
    line = Line()
    scene.add(line)

    def send() -> None:
        if line.wire is not None and not line.is_lost:
            line.wire.send(produce(1, acks=0) * 10)
            scene.world.network.schedule(0.001, send)

    send()
    scene.run(1)
    assert scene.stored
    scene.drain()
    assert scene.world.errors() == []


def test_what_was_read_is_passed_on_before_the_end_though_it_wants_no_answer() -> None:
    scene = Scene()
    line = Line()
    scene.add(line)
    assert line.wire is not None
    line.wire.send(produce(1))
    assert scene.run(5, lambda: bool(line.answers))
    (connection,) = scene.engine.sessions
    session = connection.handler
    assert isinstance(session, Session)
    count = 5 * limits.REQUESTS_PER_TURN_MAX
    waiting = [produce(1, acks=0)[4:]] * count
    session._waiting.extend(waiting)
    scene.engine.memory.hold_bytes(WAITING_COUNTS * sum(map(len, waiting)))
    connection.plan_turn()
    scene.drain()
    assert scene.stored == 1 + count


def test_a_drain_does_not_wait_for_the_rest_of_a_produce() -> None:
    scene = Scene()
    line = Line()
    scene.add(line)
    assert line.wire is not None
    line.wire.send(produce(1))
    assert scene.run(5, lambda: bool(line.answers))
    line.wire.send(produce(2) + produce(3)[:-1])
    assert scene.run(5, lambda: len(line.answers) == 2)
    scene.drain()
    assert scene.stored == 2


def test_others_are_served_until_the_drain_ends() -> None:
    """Consumers and programs for administration: nothing of theirs has to be finished."""
    scene = Scene()
    other, producer = Busy(metadata, 1), Line()
    scene.add(producer)
    scene.add(other)
    scene.run(1)
    (broker,) = scene.world.cluster.brokers.values()
    assert producer.wire is not None
    producer.wire.send(produce(1))
    scene.run(0.5)
    broker.host.pause(5)
    producer.wire.send(produce(2))
    scene.run(0.5)
    before = len(other.answers)
    scene.proxy.drain(down_seconds=None)
    scene.run(3)
    assert scene.proxy.is_up, "it waits for the producer"
    assert len(other.answers) > before + 20
    assert scene.run(5, lambda: not scene.proxy.is_up)
    scene.run(1)
    assert len(producer.answers) == 2


def test_of_a_producer_leaving_in_a_drain_only_acks_zero_is_stored() -> None:
    """Real sockets hand over what was not read when the peer hangs up: of that, only what wants no answer is sent."""
    scene = Scene()
    line, other = Line(), Line()
    scene.add(line)
    (session,) = scene.engine.sessions
    scene.add(other)
    for one in (line, other):
        assert one.wire is not None
        one.wire.send(produce(1))
    assert scene.run(5, lambda: bool(line.answers and other.answers))
    scene.world.cluster.rates = BrokerFaultRates(slow=(2.0, 2.0))
    scene.world.cluster.choose_fault = lambda _seen: BrokerFault.SLOW
    assert line.wire is not None
    assert other.wire is not None
    other.wire.send(produce(2))
    assert scene.run(1, lambda: scene.world.cluster.produce_count == 3)
    scene.world.cluster.choose_fault = lambda _seen: BrokerFault.NONE
    scene.proxy.drain(down_seconds=None)
    scene.run(0.1)
    not_read = produce(2) + produce(3, acks=0)
    line.wire.send(not_read)
    scene.run(0.1)
    assert scene.stored == 2, "nothing is read of it"
    session.received(not_read)
    session.lost("the peer hung up")
    scene.run(0.1)
    assert scene.proxy.is_up, "it waits for the other one"
    assert scene.stored == 3
    assert scene.run(10, lambda: not scene.proxy.is_up)
    scene.run(1)
    assert [len(one.answers) for one in (line, other)] == [1, 2]
    assert scene.stored == 4
