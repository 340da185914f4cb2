"""Batches that take long to convert: no client keeps the others, or the lease, waiting for more than a few of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest

from idemproxy.codecs import convert
from idemproxy.codecs.steps import STEP_RECORDS
from idemproxy.proxy import limits
from idemproxy.proxy.session.produce import ProduceCall
from idemproxy.proxy.versions import ApiKey
from idemproxy.reactor import Reactor
from testkit.real.clients.raw_client import RawClient, batch
from testkit.virtual.line import Line, request
from testkit.virtual.world import TOPIC, World, WorldSettings

CONVERSION_SECONDS = 0.3
MANY = 20


class SlowClock:
    """Of a machine on which every conversion takes long."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self.spent = 0.0

    def now(self) -> float:
        return self._reactor.now() + self.spent


class Scene:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, conversion_seconds: float = CONVERSION_SECONDS) -> None:
        self.conversion_seconds = conversion_seconds
        self.world = World(1, WorldSettings(brokers=1))
        self.world.start()
        self.run(2)
        (self.proxy,) = self.world.proxies
        self.engine = self.proxy.engine
        self.slow = SlowClock(self.engine.reactor)
        self.engine.loop_budget._now = self.slow.now
        self.conversions: list[float] = []
        """When each was made; those of one pass are at one time."""
        monkeypatch.setattr(convert, "converting", self.slowed(convert.converting))

    def slowed(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*values: Any, **named: Any) -> Any:
            self.slow.spent += self.conversion_seconds
            self.conversions.append(self.world.network.now)
            return make(*values, **named)

        return made

    def run(self, seconds: float) -> None:
        self.world.network.run(seconds)

    def line(self) -> Line:
        line = Line()
        self.world.network.host("client").connect(self.proxy.address, line)
        assert self.world.network.run(5, lambda: line.wire is not None)
        return line

    @property
    def longest_pass(self) -> int:
        """Conversions in it."""
        return max(self.conversions.count(at) for at in self.conversions)


def produce(number: int, producer_ids: list[int], sequence: int = 0) -> bytes:
    """A batch for each partition from 0 on."""
    parts = [(TOPIC, at, batch([b"a"], producer_id=one, sequence=sequence)) for at, one in enumerate(producer_ids)]
    return request(number, ApiKey.PRODUCE, 3, RawClient.produce_body(parts, version=3, acks=-1, timeout_ms=30_000))


@pytest.mark.parametrize("is_named", [True, False])
def test_requests_of_many_clients_have_several_passes(monkeypatch: pytest.MonkeyPatch, is_named: bool) -> None:
    scene = Scene(monkeypatch)
    lines = [scene.line() for _ in range(MANY)]
    for number, line in enumerate(lines):
        assert line.wire is not None
        line.wire.send(produce(number, [number if is_named else -1]))
    scene.run(60)
    assert [line.answers for line in lines] == [[number] for number in range(MANY)]
    assert len(scene.conversions) == MANY
    assert scene.longest_pass <= limits.PASS_SECONDS // CONVERSION_SECONDS + 1
    assert scene.engine.memory.bytes_held == 0
    assert scene.world.errors() == []


def test_what_is_ready_does_not_wait_until_many_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch, conversion_seconds=0.0004)
    lines = [scene.line() for _ in range(MANY)]
    for sequence in range(3):
        for number, line in enumerate(lines):
            assert line.wire is not None
            line.wire.send(produce(sequence, [number], sequence))
    scene.run(60)
    assert [line.answers for line in lines] == [[0, 1, 2]] * MANY
    assert scene.longest_pass <= limits.TURN_SECONDS / 0.0004 + 1
    assert scene.world.errors() == []


def large(producer_id: int = -1, sequence: int = 0, count: int = 3 * STEP_RECORDS) -> bytes:
    """A batch that takes several steps."""
    return batch([b""] * count, producer_id=producer_id, sequence=sequence)


def asks(number: int, records: bytes, acks: int = -1) -> bytes:
    body = RawClient.produce_body([(TOPIC, 0, records)], version=3, acks=acks, timeout_ms=30_000)
    return request(number, ApiKey.PRODUCE, 3, body)


class Quick:
    """A world in which each pass makes one step, and what is stored in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "STEPS_SECONDS", -1.0)
        self.world = World(1, WorldSettings(brokers=1))
        self.world.start()
        self.world.network.run(2)
        (self.proxy,) = self.world.proxies
        self.engine = self.proxy.engine
        self.lines: list[Line] = []

    def line(self) -> Line:
        line = Line()
        self.world.network.host("client").connect(self.proxy.address, line)
        assert self.world.network.run(5, lambda: line.wire is not None)
        self.lines.append(line)
        return line

    def sends(self, line: Line, *requests: bytes) -> None:
        assert line.wire is not None
        line.wire.send(b"".join(requests))

    @property
    def stored(self) -> list[int]:
        """Records of each message, in order."""
        return [len(one.message.records) for one in self.world.cluster.log(TOPIC, 0).messages]

    def ends(self) -> None:
        """Nothing is left of it."""
        self.world.network.run(10)
        assert self.engine.memory.bytes_held == 0
        assert self.engine.long_work.count == 0
        assert self.world.errors() == []


def test_what_comes_after_a_large_batch_on_its_connection_is_stored_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without producer ids, where nothing but the order tells which is first (rule R20)."""
    quick = Quick(monkeypatch)
    line = quick.line()
    quick.sends(line, asks(1, large()), asks(2, batch([b"small"])), asks(3, large(), acks=0), asks(4, batch([b"last"])))
    quick.world.network.run(10)
    assert line.answers == [1, 2, 4]
    values = [record.value for one in quick.world.cluster.log(TOPIC, 0).messages for record in one.message.records]
    assert [value for value, _ in groupby(values)] == [b"", b"small", b"", b"last"]
    quick.ends()


def test_others_are_served_while_a_large_batch_is_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "KERNEL", None)  # it takes but one step for as much as this
    quick = Quick(monkeypatch)
    slow, other = quick.line(), quick.line()
    quick.sends(slow, asks(1, large(count=20 * STEP_RECORDS)))
    assert quick.world.network.run(5, lambda: quick.engine.long_work.count > 0)
    quick.sends(other, request(1, ApiKey.API_VERSIONS, 0))
    assert quick.world.network.run(5, lambda: bool(other.answers))
    assert quick.engine.long_work.count == 1
    assert quick.world.network.run(20, lambda: bool(slow.answers))
    quick.ends()


@pytest.mark.parametrize("acks", [0, -1])
def test_of_a_client_that_has_gone_while_its_batch_was_converted(monkeypatch: pytest.MonkeyPatch, acks: int) -> None:
    """What wants no answer is stored, and so is what the client sent after it (R16); nothing else is (R17)."""
    monkeypatch.setattr(convert, "KERNEL", None)  # it would be ready before anybody hears that the client has gone
    quick = Quick(monkeypatch)
    line = quick.line()
    quick.sends(line, asks(1, large(count=20 * STEP_RECORDS), acks), asks(2, batch([b"behind"]), acks))
    assert quick.world.network.run(5, lambda: quick.engine.long_work.count > 0)
    assert line.wire is not None
    line.wire.reset()
    quick.world.network.run(10)
    assert sum(quick.stored) == (20 * STEP_RECORDS + 1 if acks == 0 else 0)
    quick.ends()


def test_a_large_batch_with_a_producer_id_is_stored_once_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = Quick(monkeypatch)
    line = quick.line()
    count = 3 * STEP_RECORDS
    quick.sends(line, asks(1, large(7, 0)), asks(2, batch([b"next"], producer_id=7, sequence=count)))
    assert quick.world.network.run(20, lambda: line.answers == [1, 2])
    quick.sends(line, asks(3, large(7, 0)))
    assert quick.world.network.run(20, lambda: line.answers == [1, 2, 3])
    assert quick.stored == [count, 1]
    quick.ends()


class Begun:
    """How many partitions were begun in each pass."""

    def __init__(self, quick: Quick, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: list[float] = []
        shipped = ProduceCall._start_part

        def start_part(call: ProduceCall, *arguments: Any) -> Any:
            self.at.append(quick.world.network.now)
            return shipped(call, *arguments)

        monkeypatch.setattr(ProduceCall, "_start_part", start_part)

    @property
    def most(self) -> int:
        return max(self.at.count(one) for one in set(self.at))


@pytest.mark.parametrize("producer_id", [-1, 7])
@pytest.mark.parametrize("acks", [0, -1])
def test_a_request_with_thousands_of_partitions_is_begun_in_steps(
    monkeypatch: pytest.MonkeyPatch, producer_id: int, acks: int
) -> None:
    """One of them exists."""
    quick = Quick(monkeypatch)
    begun = Begun(quick, monkeypatch)
    line = quick.line()
    parts = [(TOPIC, index, batch([b"a"], producer_id=producer_id)) for index in range(2_000)]
    body = RawClient.produce_body(parts, version=3, acks=acks, timeout_ms=30_000)
    behind = RawClient.produce_body([(TOPIC, 0, batch([b"b"]))], version=3, acks=acks, timeout_ms=30_000)
    quick.sends(line, request(1, ApiKey.PRODUCE, 3, body), request(2, ApiKey.PRODUCE, 3, behind))
    if acks == 0:
        assert quick.world.network.run(5, lambda: bool(begun.at))
        assert line.wire is not None
        line.wire.close()
    quick.world.network.run(10)
    assert begun.most <= 301
    assert len(begun.at) >= 2_000
    if acks:
        assert line.answers == [1, 2]
        assert quick.stored == [1, 1]
    quick.ends()
