"""Who may come in, and who is sent away: counted per address, on a clock of its own."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.admission.connection_quotas import AdmittedConnection, ConnectionQuotas, address_of
from idemproxy.proxy.events import ConnectionRefused
from idemproxy.proxy.settings.config import Caps
from idemproxy.proxy.telemetry.metric_names import CONNECTIONS_REFUSED, REFUSALS
from idemproxy.proxy.telemetry.reports import Telemetry
from testkit.virtual.network import Network
from testkit.virtual.world import World, WorldSettings

HERE, THERE = "192.0.2.1", "192.0.2.2"
NO_PACE = {"connection_creation_rate_max": 0}


class Scene:
    def __init__(self, **caps: int) -> None:
        self.network = Network(1)
        self.caps = Caps(**caps)
        self.events: list[Any] = []
        self.quotas = ConnectionQuotas(self.network.host("proxy"), lambda: self.caps, self.events.append)

    def enter(self, host: str = HERE, count: int = 1, asks: bool = False) -> list[AdmittedConnection]:
        """Let so many try; return those that came in."""
        tried = [self.quotas.enter(host, asks) for _ in range(count)]
        return [visit for visit in tried if visit is not None]

    @property
    def reasons(self) -> list[str]:
        assert all(type(event) is ConnectionRefused for event in self.events)
        return [event.reason for event in self.events]


# ---------------------------------------------------------------------- connections
def test_one_address_has_so_many_connections_and_others_are_not_concerned() -> None:
    scene = Scene(**NO_PACE)
    inside = scene.enter(HERE, limits.CONNECTIONS_PER_IP_MAX + 2)
    assert len(inside) == limits.CONNECTIONS_PER_IP_MAX
    assert scene.events == [ConnectionRefused(HERE, "address", "500 connections are open from there")] * 2
    assert len(scene.enter(THERE, 3)) == 3
    inside[0].end()
    inside[0].end()
    assert len(scene.enter(HERE, 2)) == 1, "one that has ended makes room for one, however often it says so"


def test_without_a_limit_nobody_is_counted_out() -> None:
    scene = Scene(**NO_PACE, connections_per_ip_max=0, unauthenticated_max=0, unauthenticated_per_ip_max=0)
    assert len(scene.enter(HERE, 3000, asks=True)) == 3000
    assert scene.events == []


def test_another_limit_counts_from_the_next_connection_on() -> None:
    scene = Scene(**NO_PACE, connections_per_ip_max=5)
    scene.enter(count=5)
    scene.caps = Caps(**NO_PACE, connections_per_ip_max=7)
    assert len(scene.enter(count=5)) == 2


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_of_ipv6_the_network_of_one_customer_is_one_address(host: str, address: str) -> None:
    assert address_of(host) == address


def test_nothing_is_kept_of_addresses_that_have_gone() -> None:
    scene = Scene(**NO_PACE)
    for number in range(1000):
        for visit in scene.enter(f"192.0.{number // 250}.{number % 250}", 2, asks=number % 2 == 0):
            visit.end()
    assert not scene.quotas._fair_shares
    assert not scene.quotas._unauthenticated
    assert not scene.quotas._unauthenticated_of


# ---------------------------------------------------------------------- strangers
def test_strangers_of_one_address_keep_nobody_of_it_out_their_oldest_has_to_go() -> None:
    scene = Scene(**NO_PACE)
    gone: list[int] = []
    inside = scene.enter(HERE, limits.UNAUTHENTICATED_PER_IP_MAX, asks=True)
    for number, visit in enumerate(inside):
        visit.hang_up = lambda _reason, number=number: gone.append(number)  # type: ignore[misc]
    inside[0].is_known()
    inside[0].is_known()
    inside[2].end()
    assert len(scene.enter(THERE, asks=True)) == 1
    assert len(scene.enter(HERE, 2, asks=True)) == 2
    assert gone == []
    assert len(scene.enter(HERE, 3, asks=True)) == 3, "who comes is let in"
    assert gone == [1, 3, 4]
    what = f"{limits.UNAUTHENTICATED_PER_IP_MAX} connections from there have not shown yet who is there"
    assert scene.events == [ConnectionRefused(HERE, "unauthenticated", f"{what}, and this is the oldest")] * 3
    assert len(scene.enter(HERE, 3, asks=False)) == 3, "other listeners ask nobody"
    assert gone == [1, 3, 4]


def test_a_crowd_of_strangers_from_everywhere_keeps_nobody_out_the_oldest_has_to_go() -> None:
    scene = Scene(**NO_PACE)
    gone: list[int] = []
    for number in range(limits.UNAUTHENTICATED_MAX + 3):
        (visit,) = scene.enter(f"192.0.{number // 50}.1", asks=True)
        visit.hang_up = lambda _reason, number=number: gone.append(number)  # type: ignore[misc]
        if number == 1:
            visit.is_known()
    assert gone == [0, 2], "the second one has shown who is there"
    assert scene.reasons == ["unauthenticated"] * 2


# ---------------------------------------------------------------------- their pace
def test_new_connections_are_taken_at_a_pace_after_a_first_crowd() -> None:
    scene = Scene(connection_creation_rate_max=100, connections_per_ip_max=0)
    taken = 0
    for _ in range(1000):
        while not scene.quotas.wait_seconds():
            taken += len(scene.enter())
        scene.network.run(0.01)
    burst = 100 * limits.ACCEPTS_BURST_SECONDS
    assert burst + 990 <= taken <= burst + 1001
    assert scene.events == [], "who waits is not refused"


def test_who_is_turned_away_keeps_the_others_waiting_a_tenth_as_long() -> None:
    scene = Scene(connection_creation_rate_max=100, connections_per_ip_max=1)
    scene.enter()
    tried = 0
    while not scene.quotas.wait_seconds():
        assert scene.enter() == []
        tried += 1
    burst = 100 * limits.ACCEPTS_BURST_SECONDS
    assert tried == pytest.approx((burst - 1) / limits.TURNED_AWAY_SHARE, rel=0.02)


def test_another_pace_counts_from_the_next_connection_on() -> None:
    scene = Scene(connection_creation_rate_max=1, connections_per_ip_max=0)
    scene.enter(count=10)
    assert scene.quotas.wait_seconds() > 0
    scene.caps = Caps(connection_creation_rate_max=100, connections_per_ip_max=0)
    assert scene.quotas.wait_seconds() == 0


def test_without_a_pace_nobody_waits() -> None:
    scene = Scene(**NO_PACE, connections_per_ip_max=0)
    scene.enter(count=5000)
    assert scene.quotas.wait_seconds() == 0


# ---------------------------------------------------------------------- descriptors
def test_without_a_descriptor_for_it_nobody_comes_in() -> None:
    scene = Scene(**NO_PACE)
    why: str | None = "40 are in use"
    door = ConnectionQuotas(scene.network.host("proxy"), lambda: scene.caps, scene.events.append, lambda: why)
    assert door.enter(HERE, False) is None
    assert scene.events == [ConnectionRefused(HERE, "descriptors", "40 are in use")]
    why = None
    assert door.enter(HERE, False) is not None


def test_who_is_refused_for_another_reason_sends_nobody_away() -> None:
    scene, asked = Scene(**NO_PACE, connections_per_ip_max=1), []
    door = ConnectionQuotas(
        scene.network.host("proxy"), lambda: scene.caps, scene.events.append, lambda: asked.append(1)
    )
    door.enter(HERE, False)
    assert door.enter(HERE, False) is None
    assert len(asked) == 1


# ---------------------------------------------------------------------- past the door
def test_a_full_proxy_and_one_that_is_ending_say_why_they_take_nobody() -> None:
    world = World(1, WorldSettings(brokers=1))
    world.start()
    (proxy,) = world.proxies
    engine, scene = proxy.engine, Scene(**NO_PACE)
    engine.set_caps(Caps(connections_max=1))
    (first, second) = scene.enter(count=2)
    assert engine.accept(None, nowhere, admitted=first) is not None
    assert engine.accept(None, nowhere, admitted=second) is None
    engine.drain(lambda: None)
    engine.set_caps(Caps())
    assert engine.accept(None, nowhere) is None
    said = [event for _, _, event in proxy.events if isinstance(event, ConnectionRefused)]
    assert said == [
        ConnectionRefused(HERE, "too_many", "1 connections are open"),
        ConnectionRefused("a client", "draining", "the proxy is ending"),
    ]


def test_for_each_broker_as_many_connections_are_counted_as_its_produce_connections_may_be() -> None:
    world = World(1, WorldSettings(brokers=3))
    world.start()
    world.network.run(1.0)
    engine = world.proxies[0].engine
    assert engine.own_connections_max == 3 * (limits.PRODUCE_CONNECTIONS_PER_BROKER + 4)
    engine.set_caps(Caps(produce_connections_per_broker_max=30))
    assert engine.own_connections_max == 3 * 34


def nowhere(_broker_id: int, _host: str) -> None:
    """Clients of this listener reach no broker."""


def test_every_reason_is_a_series_of_its_own_from_the_start() -> None:
    telemetry = Telemetry()
    before = {labels: value for metric, labels, value in telemetry.metrics.samples() if metric is CONNECTIONS_REFUSED}
    assert before == {(reason,): 0 for reason in REFUSALS}
    for number, reason in enumerate(REFUSALS):
        for _ in range(number + 1):
            telemetry(ConnectionRefused(HERE, reason, "no"))
    counts = [telemetry.counts[f"connections_refused_total{{reason={reason}}}"] for reason in REFUSALS]
    assert counts == list(range(1, len(REFUSALS) + 1))
