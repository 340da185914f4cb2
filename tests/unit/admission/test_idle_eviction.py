"""A full proxy: who leaves for a newcomer, who stays, and what it costs to find out."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.admission.idle_eviction import IdleEviction
from idemproxy.proxy.events import ConnectionRefused
from idemproxy.proxy.settings.config import Caps
from testkit.virtual.line import Line, request
from testkit.virtual.world import World, WorldSettings

API_VERSIONS = 18


class Sitter:
    """One that says of itself what a test wants."""

    def __init__(self, scene: Scene, name: str, quiet_since: float | None, has_produced: bool) -> None:
        self._scene = scene
        self._quiet_since = quiet_since
        self.address = name
        self.has_produced = has_produced

    @property
    def quiet_since(self) -> float | None:
        self._scene.looks += 1
        return self._quiet_since

    @quiet_since.setter
    def quiet_since(self, at: float | None) -> None:
        self._quiet_since = at

    def abort(self, reason: str) -> None:
        del self._scene.connections[self.address]
        self._scene.left.append(self.address)

    def look_whether_idle(self) -> None:
        """Nobody here is idle for so long."""


class Scene:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.looks = 0
        self.connections: dict[str, Sitter] = {}
        self.left: list[str] = []
        self.events: list[Any] = []
        self.places = IdleEviction(lambda: self.connections.values(), lambda: self.now, self.events.append)

    def sit(self, name: str, quiet_for: float | None, has_produced: bool = False) -> Sitter:
        since = None if quiet_for is None else self.now - quiet_for
        found = self.connections[name] = Sitter(self, name, since, has_produced)
        return found

    def comes(self, most: int) -> bool:
        """Is there a place for a newcomer?"""
        return self.places.refusal(most) is None


def test_as_long_as_there_is_room_nobody_leaves() -> None:
    scene = Scene()
    scene.sit("a", 500)
    assert scene.comes(2)
    assert (scene.left, scene.events, scene.looks) == ([], [], 0)


def test_the_longest_idle_connection_is_closed_and_reported() -> None:
    scene = Scene()
    for name, quiet_for in (("a", 10.0), ("b", 300.0), ("c", 20.0)):
        scene.sit(name, quiet_for)
    assert scene.comes(3)
    assert scene.left == ["b"]
    what = "idle for 300 s, closed to admit a new client: 3 connections are open"
    assert scene.events == [ConnectionRefused("b", "too_many", what)]
    scene.sit("new", 0)
    assert scene.comes(3)
    assert scene.left == ["b", "c"]


def test_room_is_made_for_another_reason_as_well() -> None:
    scene = Scene()
    scene.sit("quiet", 7.0)
    assert scene.places.make_room("descriptors", "60 are in use")
    what = "idle for 7 s, closed to admit a new client: 60 are in use"
    assert scene.events == [ConnectionRefused("quiet", "descriptors", what)]
    assert not scene.places.make_room("descriptors", "60 are in use")


def test_who_is_at_work_or_has_just_come_stays() -> None:
    scene = Scene()
    scene.sit("at work", None)
    scene.sit("just come", limits.QUIET_SECONDS - 0.1)
    scene.sit("produced a moment ago", limits.PRODUCER_QUIET_SECONDS - 0.1, has_produced=True)
    assert scene.places.refusal(3) == ("too_many", "3 connections are open")
    assert scene.left == []


def test_who_has_produced_leaves_after_all_others_and_later() -> None:
    scene = Scene()
    scene.sit("producer", 500, has_produced=True)
    scene.sit("other", limits.QUIET_SECONDS)
    assert scene.comes(2)
    scene.sit("new", 0)
    assert scene.comes(2)
    assert scene.left == ["other", "producer"]


def test_who_has_asked_again_since_it_was_looked_stays() -> None:
    scene = Scene()
    for name, quiet_for in (("a", 300.0), ("b", 200.0), ("c", 100.0)):
        scene.sit(name, quiet_for)
    assert scene.comes(3)
    scene.sit("new", 0)
    scene.now += 10
    scene.connections["b"].quiet_since = scene.now
    assert scene.comes(3)
    assert scene.left == ["a", "c"]


def test_eviction_prefers_connections_that_stayed_idle_to_one_active_since() -> None:
    scene = Scene()
    for name, quiet_for in (("a", 300.0), ("b", 200.0), ("c", 100.0)):
        scene.sit(name, quiet_for)
    assert scene.comes(3)
    scene.sit("new", None)
    scene.now += 10
    scene.connections["b"].quiet_since = scene.now - limits.QUIET_SECONDS
    assert scene.comes(3)
    assert scene.left == ["a", "c"]


def test_who_has_gone_by_himself_is_no_place() -> None:
    scene = Scene()
    gone = scene.sit("gone", 300)
    scene.sit("a", 200)
    scene.sit("b", 100)
    assert scene.comes(3)  # "gone" itself
    assert scene.left == ["gone"]
    gone = scene.connections.pop("a")
    gone.quiet_since = None  # as a session says that has ended
    scene.sit("x", 0)
    scene.sit("y", 0)
    assert scene.comes(3)
    assert scene.left == ["gone", "b"]


def test_a_limit_that_was_lowered_makes_nobody_leave_but_for_a_newcomer() -> None:
    scene = Scene()
    for number in range(10):
        scene.sit(str(number), 100 + number)
    assert scene.comes(2)
    assert len(scene.left) == 1


@pytest.mark.parametrize("are_quiet", [True, False])
def test_a_flood_of_newcomers_does_not_look_at_everybody_each_time(are_quiet: bool) -> None:
    scene = Scene()
    many, newcomers = 2_000, 1_000
    for number in range(many):
        scene.sit(str(number), 60 if are_quiet else None)
    taken = 0
    for number in range(newcomers):
        if scene.comes(many):
            taken += 1
            scene.sit(f"new {number}", 0)
        scene.now += 0.005
    seconds = 1 + newcomers * 0.005 / limits.QUIET_LOOK_SECONDS
    assert taken == (newcomers if are_quiet else 0)
    assert scene.looks <= many * 2 * seconds + newcomers * 4


def test_where_there_are_more_it_is_looked_more_seldom() -> None:
    scene = Scene()
    for number in range(3 * limits.CONNECTIONS_MAX):
        scene.sit(str(number), None)
    for _ in range(60):
        assert not scene.comes(1)
        scene.now += 0.1
    assert scene.looks == 2 * 3 * limits.CONNECTIONS_MAX


# ---------------------------------------------------------------------- sessions
class Full:
    """A proxy with three places, in the simulation."""

    def __init__(self) -> None:
        self.world = World(1, WorldSettings(brokers=1))
        self.world.start()
        self.world.network.run(1)
        (self.proxy,) = self.world.proxies
        self.proxy.engine.set_caps(Caps(connections_max=3))

    def client(self) -> Line:
        client = Line()
        self.world.network.host("client").connect(self.proxy.address, client)
        self.run(1)
        return client

    def run(self, seconds: float) -> None:
        self.world.network.run(seconds)

    def ask(self, client: Line, correlation_id: int) -> None:
        assert client.wire is not None
        client.wire.send(request(correlation_id, API_VERSIONS))


def test_a_newcomer_takes_the_place_of_the_quietest_client() -> None:
    scene = Full()
    first, second, third = (scene.client() for _ in range(3))
    scene.run(limits.QUIET_SECONDS)
    scene.ask(first, 1)
    scene.run(1)
    assert first.answers == [1]
    newcomer = scene.client()
    scene.ask(newcomer, 7)
    scene.run(1)
    assert newcomer.answers == [7]
    assert [first.is_lost, second.is_lost, third.is_lost] == [False, True, False]
    assert scene.proxy.engine.statistics().connections == 3


def test_while_everybody_is_at_work_a_newcomer_is_closed_as_ever() -> None:
    scene = Full()
    clients = [scene.client() for _ in range(3)]
    for number in range(10):
        for client in clients:
            scene.ask(client, number)
        scene.run(2)
    newcomer = scene.client()
    assert newcomer.is_lost
    assert not any(client.is_lost for client in clients)
    said = [event for _, _, event in scene.proxy.events if isinstance(event, ConnectionRefused)]
    assert said == [ConnectionRefused("a client", "too_many", "3 connections are open")]


def test_who_has_begun_a_request_is_not_quiet() -> None:
    scene = Full()
    clients = [scene.client() for _ in range(3)]
    (session, *_) = scene.proxy.engine.sessions
    assert clients[0].wire is not None
    assert session.quiet_since is not None
    clients[0].wire.send(b"\0\0")
    scene.run(1)
    assert session.quiet_since is None


def test_who_is_not_read_from_may_have_asked() -> None:
    scene = Full()
    scene.client()
    (session,) = scene.proxy.engine.sessions
    assert session.quiet_since is not None
    scene.proxy.engine.set_caps(Caps(request_bytes_total_max=1024))
    scene.proxy.engine.memory.hold_bytes(2048)  # others have so much in flight
    session.control()
    assert session.is_paused
    assert session.quiet_since is None


def test_a_produce_request_marks_its_session_as_one_that_has_produced() -> None:
    scene = Full()
    before = [session.has_produced for session in scene.proxy.engine.sessions]
    client = scene.client()
    assert client.wire is not None
    acks_timeout_and_no_topics = (-1).to_bytes(2, "big", signed=True) + (1000).to_bytes(4, "big") + bytes(4)
    client.wire.send(request(1, 0, 2, acks_timeout_and_no_topics))
    scene.run(1)
    assert client.answers == [1]
    assert [session.has_produced for session in scene.proxy.engine.sessions] == [*before, True]
