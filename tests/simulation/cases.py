"""Small worlds in which exactly the named faults happen, each at a counted moment: for exhaustive tests.

A moment is the n-th effect of the proxies' flows, the n-th produce request that reaches a broker, or the n-th command
that reaches Redis, counted from when the client begins. A fault-free run tells how many of each there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulation.oracle import Oracle

from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.network import NetworkSettings
from testkit.virtual.proxy import VirtualProxy
from testkit.virtual.redis_connection import RedisFault
from testkit.virtual.world import TOPIC, World, WorldSettings

CRASH_BEFORE, CRASH_AFTER, CRASH_HALF_OPEN, DISCONNECT = "crash before", "crash after", "power cut after", "disconnect"
RESTART_PREFIX = "redis restart losing "
PAUSE = "pause after"
DISCONNECT_LATER = "hang up a moment after"
UNSEEN = "hang up unseen"
"""The client continues over another connection, and the proxy does not learn that the old one is dead."""
EFFECT_FAULTS = (CRASH_BEFORE, CRASH_AFTER, CRASH_HALF_OPEN, PAUSE, DISCONNECT, DISCONNECT_LATER, UNSEEN)
MOMENT_SECONDS = 0.2
"""Long enough for a request to have reached the broker, shorter than what a slow broker takes."""
PAUSE_SECONDS = 9.0
"""Longer than a lease: others take over what the paused proxy had open."""
BROKER_FAULTS = tuple(fault.value for fault in BrokerFault if fault is not BrokerFault.NONE)
REDIS_FAULTS = tuple(fault.name for fault in RedisFault if fault is not RedisFault.NONE) + tuple(
    f"{RESTART_PREFIX}{lost}" for lost in (0, 1, 2)
)
DONE_SECONDS_MAX = 180.0
"""Two faults, each followed by a lease, a grace time, a quiescence check and a client's own time-outs, take less."""
QUIET_SECONDS = 3.0
"""After the last answer: stragglers arrive and commits are written."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``index``: at which effect, produce request or command, from 1."""

    kind: str
    index: int

    def __str__(self) -> str:
        return f"{self.kind} at {self.index}"


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one run."""

    effects: int
    produces: int
    commands: int


@dataclass(slots=True)
class Result:
    """What came of one case. ``problems`` empty: everything held."""

    problems: list[str]
    counts: Counts
    world: World

    def explain(self, title: str) -> str:
        """For the one who reads the failure."""
        return "\n".join([title, *self.problems, self.world.story()])


class Case:
    """One client, some batches, some faults."""

    def __init__(
        self, faults: Sequence[Fault], *, batches: int, gap: float, proxies: int, seed: int, package: str
    ) -> None:
        self._faults = {(fault.kind, fault.index) for fault in faults}
        self._batches = batches
        self._gap = gap
        self._effects = self._produces = self._commands = 0
        settings = WorldSettings(
            proxies=proxies,
            package=package,
            network=NetworkSettings(split_chance=0.05, partial_write_chance=0.02),
        )
        self.world = World(seed, settings)
        self.oracle = Oracle(self.world.cluster, self.world.clients)

    def run(self) -> Result:
        """Run to the end and check."""
        world = self.world
        world.start()
        for proxy in world.proxies:
            proxy.watch_effects(self._on_effect)
        world.cluster.choose_fault = self._on_produce
        world.redis.choose_fault = self._on_command
        (client,) = world.clients
        for number in range(self._batches):
            world.network.schedule(number * self._gap, self._send)
        is_done = world.network.run(DONE_SECONDS_MAX, lambda: len(client.batches) == self._batches and client.is_done)
        world.network.run(QUIET_SECONDS)
        problems = self.oracle.finish() + world.errors()
        if not is_done:
            problems.append(f"not done after {DONE_SECONDS_MAX:.0f} s")
        problems += [f"the user sees: {batch.failed[1]}" for batch in client.leaves if batch.failed is not None]
        return Result(problems, Counts(self._effects, self._produces, self._commands), world)

    def _send(self) -> None:
        self.world.clients[0].send(TOPIC, 0, 2)

    def _on_effect(self, proxy: VirtualProxy, effect: Any) -> None:
        self._effects += 1
        index = self._effects
        for kind, seconds in ((DISCONNECT, 0.0), (DISCONNECT_LATER, MOMENT_SECONDS)):
            if (kind, index) in self._faults:
                self.world.network.schedule(seconds, self.world.clients[0].disconnect)
        if (UNSEEN, index) in self._faults:
            self.world.network.schedule(0.0, self._vanish)
        if (CRASH_BEFORE, index) in self._faults:
            proxy.come_back(0.5)
            proxy.host.crash_now()
        if (PAUSE, index) in self._faults:
            proxy.host.pause(PAUSE_SECONDS)
        for kind, half_open in ((CRASH_AFTER, False), (CRASH_HALF_OPEN, True)):
            if (kind, index) in self._faults:
                proxy.come_back(0.5)
                proxy.host.crash_after_pass(half_open=half_open)

    def _vanish(self) -> None:
        (client,) = self.world.clients
        for connection in self.world.network.open_connections(client.host):
            connection.half_open()
        client.disconnect()

    def _on_produce(self, seen: ProduceSeen) -> BrokerFault:
        self._produces += 1
        for fault in BrokerFault:
            if (fault.value, self._produces) in self._faults:
                return fault
        return BrokerFault.NONE

    def _on_command(self, number: int, name: bytes, arguments: Sequence[bytes]) -> RedisFault:
        self._commands += 1
        for lost in (0, 1, 2):
            if (f"{RESTART_PREFIX}{lost}", self._commands) in self._faults:
                self.world.network.schedule(0.0, lambda lost=lost: self.world.redis.restart(lose_last_writes=lost))  # type: ignore[misc]
        for fault in RedisFault:
            if (fault.name, self._commands) in self._faults:
                return fault
        return RedisFault.NONE


def run_case(
    *faults: Fault, batches: int = 1, gap: float = 0.004, proxies: int = 1, seed: int = 1, package: str = "idemproxy"
) -> Result:
    """Run one case. ``gap``: seconds between the batches; the least of an answer's time lets the second one queue."""
    return Case(faults, batches=batches, gap=gap, proxies=proxies, seed=seed, package=package).run()


def all_faults(counts: Counts) -> list[Fault]:
    """Every fault at every moment of a run that had so many of each."""
    return [
        Fault(kind, index)
        for kinds, count in (
            (EFFECT_FAULTS, counts.effects),
            (BROKER_FAULTS, counts.produces),
            (REDIS_FAULTS, counts.commands),
        )
        for kind in kinds
        for index in range(1, count + 1)
    ]
