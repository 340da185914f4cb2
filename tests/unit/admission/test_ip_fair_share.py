"""A client that keeps many connections busy gets one address's share of the turns, not one for each connection.

Counted, not timed: how many requests of the flood are handled between a request of somebody else and its answer."""

from __future__ import annotations

from functools import partial

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.admission.connection_quotas import ConnectionQuotas
from idemproxy.proxy.admission.ip_fair_share import IpFairShare
from idemproxy.proxy.engine.engine import Engine
from idemproxy.proxy.settings.config import Caps
from idemproxy.reactor import Endpoint, Reactor
from testkit.stage.select_reactor import SelectReactor
from testkit.virtual.line import Line, request
from testkit.virtual.network import Network
from testkit.virtual.world import World, WorldSettings

API_VERSIONS = 18
FLOODERS, ROUNDS = 400, 12
IN_FLIGHT = limits.REQUESTS_IN_FLIGHT_MAX
FLOODED, OTHER = ("proxy-1", 9001), ("proxy-1", 9002)
CAPS = Caps(connections_per_ip_max=0, connection_creation_rate_max=0)


class Scene:
    """One proxy; what comes to the first address comes from one host, what comes to the second from another."""

    def __init__(self, pass_seconds: float) -> None:
        self.world = World(1, WorldSettings(brokers=1))
        self.world.start()
        (self.proxy,) = self.world.proxies
        self.network = self.world.network
        self.engine: Engine = self.proxy.engine
        self.network.update(pass_duration=(pass_seconds, pass_seconds), latency=(0.0, 0.0), split_chance=0.0)
        door = ConnectionQuotas(self.engine.reactor, lambda: CAPS, lambda _event: None)
        for address, host in ((FLOODED, "192.0.2.1"), (OTHER, "192.0.2.2")):
            self.network.listen(self.proxy.host, address, partial(self._accept, door, host))

    def _accept(self, door: ConnectionQuotas, host: str) -> Endpoint | None:
        visit = door.enter(host, requires_authentication=False)
        assert visit is not None
        return self.engine.accept(None, lambda _broker_id, _host: None, admitted=visit)

    def client(self, address: tuple[str, int]) -> Line:
        client = Line()
        self.network.host("client").connect(address, client)
        return client

    @property
    def handled(self) -> int:
        return self.engine.statistics().requests_by_key.get(API_VERSIONS, 0)


def worst_wait(scene: Scene, flooders: list[Line]) -> int:
    """The most requests of others that were handled between a request of the quiet client and its answer."""
    quiet = scene.client(OTHER)
    assert scene.network.run(5, lambda: quiet.wire is not None and all(one.wire is not None for one in flooders))
    sent = dict.fromkeys(flooders, 0)
    worst = 0
    for number in range(ROUNDS):
        for one in flooders:  # each of them always has as many requests out as it may
            while sent[one] - len(one.answers) < IN_FLIGHT:
                assert one.wire is not None
                one.wire.send(request(sent[one], API_VERSIONS))
                sent[one] += 1
        assert quiet.wire is not None
        quiet.wire.send(request(number, API_VERSIONS))
        before = scene.handled
        assert scene.network.run(60, lambda number=number: len(quiet.answers) > number)  # type: ignore[misc]
        worst = max(worst, scene.handled - before)
    assert scene.handled > ROUNDS + len(flooders), "the flood is served as well"
    return worst


def test_a_flood_from_one_address_delays_other_clients_by_few_turns() -> None:
    scene = Scene(0.0005)
    flooders = [scene.client(FLOODED) for _ in range(FLOODERS)]
    assert worst_wait(scene, flooders) <= 4 * limits.IP_COST_PER_TURN


def test_a_flood_gets_all_answers_in_order_and_each_connection_some_early() -> None:
    scene = Scene(0.0005)
    flooders = [scene.client(FLOODED) for _ in range(100)]
    assert scene.network.run(5, lambda: all(one.wire is not None for one in flooders))
    for one in flooders:
        assert one.wire is not None
        one.wire.send(b"".join(request(number, API_VERSIONS) for number in range(40)))
    early = 100 * 40 // 4
    assert scene.network.run(60, lambda: sum(len(one.answers) for one in flooders) >= early)
    assert all(one.answers for one in flooders)
    assert scene.network.run(60, lambda: sum(len(one.answers) for one in flooders) == 100 * 40)
    assert [one.answers for one in flooders] == [list(range(40))] * 100
    assert scene.engine.memory.bytes_held == 0


# ---------------------------------------------------------------------- one address's share
class Turns:
    """A crowd and its connections, whose requests are taken as sessions do it."""

    def __init__(self, connections: int, reactor: Reactor | None = None) -> None:
        self.network = Network(1)
        self.host = self.network.host("proxy")
        self.fair_share = IpFairShare(reactor or self.host)
        for _ in range(connections):
            self.fair_share.joined()
        self.taken: list[int] = []

    def waits(self, connection: int, sizes: list[int]) -> None:
        def turn() -> None:
            while sizes and self.fair_share.takes(sizes[0]):
                sizes.pop(0)
                self.taken.append(connection)
            if sizes:
                self.fair_share.wait(turn)

        self.fair_share.wait(turn)

    def turn(self) -> list[int]:
        """Run one turn; return whose requests were taken."""
        del self.taken[:]
        passes = self.host.passes_run
        self.network.run(1, lambda: self.host.passes_run > passes and bool(self.taken))
        return self.taken.copy()


def test_a_small_crowd_is_not_counted() -> None:
    most = limits.IP_COST_PER_TURN // limits.REQUESTS_PER_TURN_MAX
    assert not Turns(most).fair_share.is_counted
    crowd = Turns(most + 1).fair_share
    assert crowd.is_counted
    crowd.left()
    assert not crowd.is_counted


def test_a_turn_has_so_many_small_requests() -> None:
    turns = Turns(100)
    turns.waits(1, [100] * 1000)
    assert [len(turns.turn()) for _ in range(3)] == [limits.IP_COST_PER_TURN] * 3


def test_a_turn_ends_at_its_time_limit_whatever_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns(100)
    now, clock = [0.0], turns.host.now
    monkeypatch.setattr(turns.host, "now", lambda: clock() + now[0], raising=False)
    takes = turns.fair_share.takes

    def takes_long(request_bytes: int) -> bool:
        now[0] += limits.IP_TURN_SECONDS / 4.5
        return takes(request_bytes)

    monkeypatch.setattr(IpFairShare, "takes", lambda _share, request_bytes: takes_long(request_bytes))
    turns.waits(1, [100] * 20)
    assert [len(turns.turn()) for _ in range(4)] == [5] * 4


@pytest.mark.parametrize("request_bytes", [100 * limits.KIB, limits.MIB, 16 * limits.MIB])
def test_large_requests_cost_more_so_that_bytes_are_shared_as_well(request_bytes: int) -> None:
    turns = Turns(100)
    turns.waits(1, [request_bytes] * 40)
    passes = turns.host.passes_run
    turns.network.run(60, lambda: len(turns.taken) == 40)
    turns_bytes = limits.IP_COST_PER_TURN * limits.IP_COST_BYTES
    assert turns.host.passes_run - passes >= 39 * request_bytes / turns_bytes / 1.2


def test_turns_end_on_a_reactor_that_runs_due_work_at_once() -> None:
    with SelectReactor() as reactor:
        turns = Turns(100, reactor)
        turns.waits(1, [limits.MIB] * 10)
        turns.waits(2, [1] * 200)
        reactor.run_until(lambda: len(turns.taken) == 210)


def test_connections_that_wait_have_their_turn_one_after_the_other() -> None:
    turns = Turns(100)
    for connection in range(4):
        turns.waits(connection, [1] * limits.IP_COST_PER_TURN)
    assert [set(turns.turn()) for _ in range(4)] == [{0}, {1}, {2}, {3}]
