"""A connection that rests: nothing more is taken of it for a while, and nothing of it is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.session.session import Session
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.virtual.line import Line, request
from testkit.virtual.world import TOPIC, World, WorldSettings

REQUESTS = 40
"""More than are taken in one turn, and than are read of one connection at a time."""


class Scene:
    def __init__(self) -> None:
        self.world = World(1, WorldSettings(brokers=1))
        self.world.start()
        self.engine = self.world.proxies[0].engine
        self.line = Line()
        self.world.network.host("client").connect(self.world.proxies[0].address, self.line)
        self.run(0.1)
        (self.connection,) = self.engine.sessions
        assert isinstance(self.connection.handler, Session)
        self.session = self.connection.handler

    def run(self, seconds: float) -> None:
        self.world.network.run(seconds)

    def ask(self, first: int, count: int) -> None:
        self.send(*(request(number, ApiKey.API_VERSIONS) for number in range(first, first + count)))

    def send(self, *requests: bytes) -> None:
        assert self.line.wire is not None
        self.line.wire.send(b"".join(requests))

    def rest_after_the_first(self, seconds: float) -> None:
        """Let the connection rest once the next request of it was taken."""
        take = self.session._take

        def take_and_rest(frame: bytes, **options: bool) -> None:
            self.session._take = take  # type: ignore[method-assign]
            take(frame, **options)
            self.session.rest(seconds)

        self.session._take = take_and_rest  # type: ignore[method-assign,assignment]


def test_nothing_is_taken_of_a_resting_connection_and_all_of_it_later_in_order() -> None:
    scene = Scene()
    scene.session.rest(2.0)
    scene.ask(0, REQUESTS)
    scene.run(1.8)
    assert scene.line.answers == []
    scene.run(0.8)
    assert scene.line.answers == list(range(REQUESTS))
    assert scene.engine.memory.bytes_held == 0


def test_what_had_come_before_the_rest_waits_as_well() -> None:
    scene = Scene()
    scene.rest_after_the_first(2.0)
    scene.ask(0, REQUESTS)
    scene.run(1.8)
    assert 0 < len(scene.line.answers) <= limits.REQUESTS_PER_TURN_MAX
    scene.run(0.8)
    assert scene.line.answers == list(range(REQUESTS))


def test_a_rest_counts_from_the_last_batch_that_was_refused_however_many_were() -> None:
    scene = Scene()
    for _ in range(1000):
        scene.session.rest(2.0)
    scene.run(1.0)
    scene.session.rest(2.0)
    scene.ask(0, 1)
    scene.run(1.8)
    assert scene.line.answers == []
    scene.run(0.8)
    assert scene.line.answers == [0]


def test_a_draining_proxy_answers_what_it_read_without_waiting_for_a_rest() -> None:
    scene = Scene()
    scene.rest_after_the_first(4.0)
    body = RawClient.produce_body([(TOPIC, 0, batch([b"x"]))], timeout_ms=60_000)
    scene.send(*(request(number, ApiKey.PRODUCE, 3, body) for number in range(12)))
    scene.run(1.0)
    assert len(scene.line.answers) <= limits.REQUESTS_PER_TURN_MAX
    ended: list[bool] = []
    scene.engine.drain(lambda: ended.append(True))
    scene.run(1.0)
    assert (ended, scene.line.answers) == ([True], list(range(12)))


def test_a_client_that_leaves_ends_its_rest() -> None:
    scene = Scene()
    scene.rest_after_the_first(4.0)
    scene.ask(0, REQUESTS)
    scene.run(1.0)
    assert scene.line.wire is not None
    scene.line.wire.reset()
    scene.run(0.5)
    assert scene.connection not in scene.engine.sessions
    assert scene.engine.memory.bytes_held == 0


@pytest.mark.parametrize("is_apart", [False, True])
def test_after_a_rest_requests_are_taken_singly_for_some_good_seconds(is_apart: bool) -> None:
    """``is_apart``: each request comes alone."""
    scene = Scene()
    if is_apart:  # nothing catches up with what was sent before it
        scene.world.network.settings = replace(scene.world.network.settings, latency=(0.001, 0.001))
    body = RawClient.produce_body([(TOPIC, 0, batch([b"x"]))], timeout_ms=60_000)
    together: list[int] = []

    def most_at_a_time() -> int:
        together.clear()
        answered = len(scene.line.answers)
        for number in range(answered, answered + 12):
            scene.send(request(number, ApiKey.PRODUCE, 3, body))
            if is_apart:
                scene.run(0.0001)

        def is_answered() -> bool:
            together.append(len(scene.session._slots))
            return len(scene.line.answers) == answered + 12

        assert scene.world.network.run(10, is_answered)
        return max(together)

    assert most_at_a_time() > 1
    scene.session.rest(1.0)
    scene.run(1.6)
    assert most_at_a_time() == 1
    scene.run(limits.UNISSUED_REST_SECONDS)
    assert most_at_a_time() > 1
