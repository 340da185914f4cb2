"""An unknown outcome ends when its broker passed the quiescence check, and not before: worlds that random ones do not
draw."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.proxy import limits
from testkit.virtual.broker import BrokerConnection
from testkit.virtual.broker_faults import BrokerFault
from testkit.virtual.world import TOPIC, World, WorldSettings


def running_world() -> World:
    """One client has stored one batch."""
    world = World(1, WorldSettings(brokers=1))
    world.start()
    (client,) = world.clients
    client.send(TOPIC, 0)
    assert world.network.run(30, lambda: client.is_done)
    world.network.run(1)
    return world


def stored(world: World) -> list[bytes | None]:
    """The values in the log."""
    return [record.value for one in world.cluster.log(TOPIC, 0).messages for record in one.message.records]


@pytest.mark.parametrize("seconds", [0.05, 0.25, 0.35, 0.9])
def test_an_unknown_outcome_ends_at_a_broker_whose_answers_all_take_long(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    world = running_world()
    (client,) = world.clients
    shipped = BrokerConnection._answer

    def slow(self: BrokerConnection, *answer: Any, **more: Any) -> None:
        self._broker.host.later(seconds, lambda: shipped(self, *answer, **more))

    monkeypatch.setattr(BrokerConnection, "_answer", slow)
    faults = iter([BrokerFault.LOST_ANSWER])
    world.cluster.choose_fault = lambda _seen: next(faults, BrokerFault.NONE)
    client.send(TOPIC, 0)
    assert world.network.run(limits.SCAN_SECONDS_MAX, lambda: client.is_done)
    assert stored(world) == [b"client-1/t-0/0", b"client-1/t-0/1"]


@pytest.mark.parametrize("stops_too", [False, True], ids=["the_broker", "both"])
def test_while_the_machine_stands_still_no_broker_passes_the_quiescence_check(
    monkeypatch: pytest.MonkeyPatch, stops_too: bool
) -> None:
    """The thread that has read a batch works for three quarters of a second, and the machine stops for two."""
    world = running_world()
    (client,), (proxy,), broker = world.clients, world.proxies, world.cluster.brokers[1]
    shipped = BrokerConnection._produce_with
    due = ["one batch"]

    def stop() -> None:
        broker.host.pause(2.0)
        if stops_too:
            proxy.host.pause(2.0)

    def produce(self: BrokerConnection, fault: Any, request: Any, body: Any) -> None:
        if not due:
            shipped(self, fault, request, body)
            return
        due.clear()
        self._break()
        world.network.schedule(0.25, stop)
        world.network.schedule(0.25 + 2.0 + 0.5, lambda: self._append_late(body))

    monkeypatch.setattr(BrokerConnection, "_produce_with", produce)
    client.send(TOPIC, 0)
    assert world.network.run(60, lambda: client.is_done)
    world.network.run(5)
    assert stored(world) == [b"client-1/t-0/0", b"client-1/t-0/1"]
