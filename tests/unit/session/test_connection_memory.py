"""What is remembered of one connection has an end, and so have the names that come over it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.pass_through.backend import ClientBackend
from idemproxy.proxy.session.session import Session
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.virtual.line import Line, request
from testkit.virtual.pass_through_client import Introduced
from testkit.virtual.world import TOPIC, World, WorldSettings

NOTED_MAX = 20
LONG_NAME = "x" * 40_000
"""More than a length of 16 bits can say: only the newest versions of Produce have room for it."""


class Scene:
    def __init__(self, has_pass_through: bool = False) -> None:
        self.world = World(
            1, WorldSettings(brokers=1, has_principals=has_pass_through, has_pass_through=has_pass_through)
        )
        self.world.start()
        self.run(2)
        (self.proxy,) = self.world.proxies

    def run(self, seconds: float) -> None:
        self.world.network.run(seconds)

    def line(self, name: str | None = None) -> Line:
        line = Line()
        host = self.world.network.host("client")
        host.connect(self.proxy.addresses[0], line if name is None else Introduced(name, line))
        assert self.world.network.run(5, lambda: line.wire is not None)
        return line

    def send(self, line: Line, number: int, body: bytes, version: int) -> None:
        assert line.wire is not None
        line.wire.send(request(number, ApiKey.PRODUCE, version, body))
        self.run(2)


def failing(first_producer: int, count: int) -> bytes:
    """A request with so many producers, each for a partition that there is not."""
    parts = [
        (TOPIC, 1_000 + number, batch([b""], producer_id=first_producer + number, sequence=0))
        for number in range(count)
    ]
    return RawClient.produce_body(parts, version=3, acks=-1, timeout_ms=30_000)


def test_a_client_that_names_producers_without_end_is_answered_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FAILURES_NOTED_OF_ONE_MAX", NOTED_MAX)
    scene = Scene()
    line = scene.line()
    for number in range(3):
        scene.send(line, number, failing(1, NOTED_MAX), version=3)
    assert (line.answers, line.is_lost) == ([0, 1, 2], False)
    scene.send(line, 3, failing(100, 1), version=3)
    assert (line.answers, line.is_lost) == ([0, 1, 2, 3], True)
    assert not scene.proxy.engine.sessions
    assert (scene.proxy.engine.memory.bytes_held, scene.proxy.engine.noted_failures.count) == (0, 0)
    assert scene.world.errors() == []


def test_all_connections_of_one_address_share_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, each had one of its own, and all of them together had none."""
    monkeypatch.setattr(limits, "FAILURES_NOTED_OF_ONE_MAX", NOTED_MAX)
    scene = Scene()
    lines = [scene.line() for _ in range(30)]
    for number, line in enumerate(lines):
        scene.send(line, number, failing(100 * number, 5), version=3)
    assert all(line.answers == [number] for number, line in enumerate(lines)), "closed after the answer"
    assert sum(line.is_lost for line in lines) == 30 - NOTED_MAX // 5
    assert scene.proxy.engine.noted_failures.count == NOTED_MAX
    for connection in list(scene.proxy.engine.sessions):
        connection.abort("the scene is over")
    assert scene.proxy.engine.noted_failures.count == 0


def test_a_producer_during_a_flood_of_failed_batches_notices_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a load balancer, where all have one address. What failed of it stays noted."""
    monkeypatch.setattr(limits, "FAILURES_NOTED_MAX", 10 * NOTED_MAX)
    scene = Scene()
    engine = scene.proxy.engine
    engine.set_caps(replace(engine.caps, connections_per_ip_max=0))
    witness, failed = scene.world.clients[0], scene.line()
    scene.send(failed, 0, failing(1, 3), version=3)
    witness.send(TOPIC, 0)
    scene.run(5)
    before = set(engine.sessions)
    flood = [scene.line() for _ in range(40)]
    for number in range(20):
        for one, line in enumerate(flood):
            if line.is_lost:
                flood[one] = line = scene.line()
            assert line.wire is not None
            line.wire.send(request(number, ApiKey.PRODUCE, 3, failing(10_000 * number + 100 * one + 10, 7)))
        witness.send(TOPIC, 0)
        scene.run(2)
        assert engine.noted_failures.count <= 10 * NOTED_MAX
    assert before <= set(engine.sessions)
    assert not failed.is_lost
    assert witness.is_done
    assert scene.world.errors() == []


def test_a_client_that_does_not_take_that_answer_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FAILURES_NOTED_OF_ONE_MAX", NOTED_MAX)
    scene = Scene()
    line = scene.line()
    assert line.wire is not None
    line.wire.pause()
    for number in range(100):
        scene.send(line, number, failing(1, NOTED_MAX), version=3)
    scene.send(line, 100, failing(100, NOTED_MAX), version=3)
    scene.run(limits.UNTAKEN_SECONDS_SCARCE)
    assert not scene.proxy.engine.sessions
    assert line.is_lost


@pytest.mark.parametrize("producer_id", [-1, 7])
def test_a_name_that_does_not_fit_into_older_requests_is_that_of_no_topic(producer_id: int) -> None:
    scene = Scene()
    line = scene.line()
    parts = [(LONG_NAME, 0, batch([b"a"], producer_id=producer_id, sequence=0))]
    scene.send(line, 1, RawClient.produce_body(parts, version=9, acks=-1, timeout_ms=30_000), version=9)
    assert (line.answers, line.is_lost) == ([1], False)
    assert b"no topic can have this name" in line.data
    assert scene.world.errors() == []


@pytest.mark.parametrize("has_pass_through", [False, True])
def test_of_names_that_no_topic_can_have_nothing_is_remembered(
    has_pass_through: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many, and however long: they are answered, and the client continues."""
    monkeypatch.setattr(limits, "FAILURES_NOTED_OF_ONE_MAX", NOTED_MAX)
    scene = Scene(has_pass_through)
    line = scene.line(scene.world.clients[0].name if has_pass_through else None)
    for number in range(3):
        names = [LONG_NAME + str(number), *(f"no topic {number} {one}" for one in range(NOTED_MAX))]
        parts = [(name, 0, batch([b"a"], producer_id=7, sequence=0)) for name in names]
        scene.send(line, number, RawClient.produce_body(parts, version=9, acks=-1, timeout_ms=30_000), version=9)
    assert (line.answers, line.is_lost) == ([0, 1, 2], False)
    assert line.data.count(b"no topic can have this name") == 3 * (NOTED_MAX + 1)
    (connection,) = scene.proxy.engine.sessions
    session = connection.handler
    assert isinstance(session, Session)
    assert session.retry_notes.is_empty
    if isinstance(session._backend, ClientBackend):
        assert session._backend.write_acl._known == {}
    assert scene.world.errors() == []
