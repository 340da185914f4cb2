"""A producer that hears of another leader while its batches are in flight, and sends more over another connection, as
Java's does: each in the shortest scene (rules R1, R10, R11)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulation.oracle import Oracle

from idemproxy.proxy.flow.effects import Swap
from idemproxy.state.entry import unpack
from testkit.virtual.client import ClientSettings
from testkit.virtual.proxy import VirtualProxy
from testkit.virtual.redis import ENTRY
from testkit.virtual.world import TOPIC, World, WorldSettings

BUSY_BATCHES = 20
IN_FLIGHT = 5
STALL_SECONDS = 1.0


class Scene:
    """One producer, three proxies that take append reservations, and an oracle that sees all of it."""

    def __init__(self) -> None:
        self.world = World(1, WorldSettings(proxies=3, client=ClientSettings(request_timeout=30.0), owned_share=1.0))
        self.client = self.world.clients[0]
        self.oracle = Oracle(self.world.cluster, self.world.clients)
        self.world.start()

    def at(self, proxy: VirtualProxy, batches: int) -> None:
        """From now on the producer sends to this proxy."""
        self.client.next_address = proxy.address
        self.client.turn()
        for _ in range(batches):
            self.client.send(TOPIC, 0)

    def run(self, seconds: float = 60.0) -> None:
        assert self.world.network.run(seconds, lambda: self.world.is_done)

    def judge(self) -> None:
        """Every batch is acknowledged, and in the log once, and nothing else."""
        assert self.oracle.finish() == []
        assert [one.failed for one in self.client.batches] == [None] * len(self.client.batches)
        stored = [record.value for one in self.world.cluster.log(TOPIC, 0).messages for record in one.message.records]
        assert stored == [value for batch in self.client.batches for value in batch.values]
        assert self.world.errors() == []


def on_rebuild(proxy: VirtualProxy, act: Callable[[], None]) -> None:
    """Call this once when the proxy stores what it has read of the producer in the log."""

    def look(_proxy: VirtualProxy, effect: object) -> None:
        if isinstance(effect, Swap) and ENTRY in effect.key and unpack(effect.value).is_rebuilt:
            proxy.on_effect.remove(look)
            act()

    proxy.watch_effects(look)


@pytest.mark.promise("stored-once")
def test_a_batch_that_overtakes_what_waits_for_a_takeover_elsewhere_is_retried_until_it_is_due() -> None:
    """The first proxy dies with an append reservation. The second one, to which the next batches go, takes it over and
    stands still before it appends any of them. The batch after these goes to the third one."""
    scene = Scene()
    first, second, third = scene.world.proxies
    scene.at(first, 0)
    for _ in range(BUSY_BATCHES):
        scene.client.send(TOPIC, 0)
        scene.world.network.run(0.01)
    scene.run()
    first.crash(down_seconds=None)
    scene.world.network.run(0.1)

    def turn() -> None:
        second.host.pause(STALL_SECONDS)
        scene.at(third, 1)

    on_rebuild(second, turn)
    scene.at(second, IN_FLIGHT)
    scene.run()
    assert len(scene.client.batches) == BUSY_BATCHES + IN_FLIGHT + 1
    scene.judge()
