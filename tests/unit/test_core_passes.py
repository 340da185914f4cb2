"""Batches that take long to convert: no client keeps the others, or the lease, waiting for more than a few of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from idemproxy.codecs import convert
from idemproxy.codecs.produce import parse_response
from idemproxy.proxy import limits
from idemproxy.proxy.versions import ApiKey
from idemproxy.reactor import Reactor
from testkit.raw_client import RawClient, batch
from testkit.virtual_line import Line, request
from testkit.virtual_world import TOPIC, World, WorldSettings

CONVERSION_SECONDS = 0.3
HELD_BACK = 19
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
        self.engine.current_pass._now = self.slow.now
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


def codes(line: Line) -> list[int]:
    """Of the one answer that has come."""
    found, _throttle_ms = parse_response(bytes(line.data[8:]), 0, 2)
    return [one.error_code for one in sorted(found, key=lambda one: one.partition)]


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
    assert scene.engine.bytes_held == 0
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
    assert scene.longest_pass <= limits.TURN_SECONDS // 0.0004 + 1
    assert scene.world.errors() == []


def test_what_is_left_of_a_large_request_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    line = scene.line()
    assert line.wire is not None
    line.wire.send(produce(1, [-1] * MANY))
    scene.run(5)
    at_once = int(limits.PASS_SECONDS_MAX / CONVERSION_SECONDS) + 1
    assert codes(line)[at_once:] == [HELD_BACK] * (MANY - at_once)
    assert HELD_BACK not in codes(line)[:at_once]
    assert len(scene.conversions) == at_once
    assert scene.world.errors() == []
