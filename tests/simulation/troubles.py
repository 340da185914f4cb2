"""What can happen to a world besides faults of single requests: one method for each kind of ``shape.TROUBLES``.

Owns how a trouble is done, to whom, and the count of what was done. When it happens is planned by the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from simulation.shape import TROUBLES

from testkit.virtual_world import World


class Troubles:
    """Breaks things in one world. ``done``: kind -> how often."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.done: dict[str, int] = {}
        self.acts: dict[str, Callable[[], None]] = {
            name: getattr(self, "_" + name.replace(" ", "_")) for name in TROUBLES
        }

    def plan(self, name: str, rate: float, seconds: float) -> None:
        """Let it happen about ``rate`` times within so many seconds from now."""
        act = self.acts[name]
        for _ in range(int(rate) + (self.random.random() < rate % 1)):

            def happen() -> None:
                self.done[name] = self.done.get(name, 0) + 1
                self.world.network.note("chaos", name)
                act()

            self.world.network.schedule(self.random.uniform(0, seconds), happen)

    # ------------------------------------------------------------------ proxies
    def _proxy_crash(self) -> None:
        proxy = self.random.choice(self.world.proxies)
        proxy.crash(down_seconds=self.random.choice((0.05, 0.5, 3.0, 8.0)), half_open=self.random.random() < 0.3)

    def _drain(self) -> None:
        self.random.choice(self.world.proxies).drain()

    def _proxy_pause(self) -> None:
        self.random.choice(self.world.proxies).host.pause(self.random.choice((0.3, 2.0, 5.5, 9.0)))

    # ------------------------------------------------------------------ Redis
    def _redis_restart(self) -> None:
        lost = self.random.choice((0, 0, 1, 2, 5))
        self.world.redis.restart(lose_last_writes=lost, down_seconds=self.random.choice((0.05, 1.0, 4.0)))

    def _redis_pause(self) -> None:
        self.world.redis.host.pause(self.random.choice((0.3, 1.5, 4.0)))

    # ------------------------------------------------------------------ brokers
    def _broker_crash(self) -> None:
        self.world.cluster.crash_broker(self.random.choice(list(self.world.cluster.brokers)))

    def _broker_pause(self) -> None:
        number = self.random.choice(list(self.world.cluster.brokers))
        self.world.cluster.brokers[number].host.pause(self.random.choice((0.2, 1.0, 4.0)))

    def _leader_move(self) -> None:
        cluster = self.world.cluster
        topic, number = self.random.choice(list(cluster.partitions))
        leader = cluster.partitions[topic, number].leader
        up = [broker for broker, one in cluster.brokers.items() if one.is_up and broker != leader]
        if leader is not None and up:
            cluster.move_leader(topic, number, self.random.choice(up))

    # ------------------------------------------------------------------ connections
    def _cut(self) -> None:
        connections = self.world.network.open_connections()
        if connections:
            connection = self.random.choice(connections)
            if self.random.random() < 0.5:
                connection.cut()
            else:
                connection.cut_after(self.random.randrange(2), self.random.randrange(200))

    def _half_open(self) -> None:
        connections = self.world.network.open_connections()
        if connections:
            self.random.choice(connections).half_open()

    def _client_disconnect(self) -> None:
        self.random.choice(self.world.clients).disconnect()
