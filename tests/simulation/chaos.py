"""One random world by its seed: everything breaks for a while, then all is calm, and the producers have to be served.

Swarm testing: each seed turns on only some kinds of trouble, so that rare combinations get runs of their own. Run as a
program it replays seeds and tells the whole story of the first that fails: ``python -m simulation.chaos SEED [COUNT]``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random

from simulation.oracle import Oracle

from testkit.virtual_broker_faults import CODES_WITHOUT_APPEND, CONTENT_CODES, BrokerFault, BrokerFaultRates
from testkit.virtual_client import ClientSettings
from testkit.virtual_cluster import ClusterSettings
from testkit.virtual_network import NetworkSettings
from testkit.virtual_redis import RedisFaultRates
from testkit.virtual_world import TOPIC, World, WorldSettings

CHAOS_SECONDS = 12.0
CALM_SECONDS_MAX = 240.0
"""A patient client is answered within this time after the last fault: lease, grace, settling, its own time-outs."""
QUIET_SECONDS = 3.0
CONTENT_FAILURES = ("code 10", "code 87")
"""What a batch fails with that a broker refuses for its content, alone as well (rule R19)."""
BROKER_KINDS = tuple(kind for kind in BrokerFault if kind is not BrokerFault.NONE)


@dataclass(slots=True)
class Outcome:
    """Of one seed. ``problems`` empty: everything held."""

    seed: int
    problems: list[str]
    world: World
    batches: int
    faults: dict[str, int]
    client_made_copies: int

    def explain(self) -> str:
        """For the one who reads a failure: how to see it again, what is wrong, what happened."""
        again = f"PYTHONPATH=tests python -m simulation.chaos {self.seed}"
        return "\n".join([f"seed {self.seed}; see it again with: {again}", *self.problems, f"faults: {self.faults}"])


class Chaos:
    """The plan of one seed, and its run."""

    def __init__(self, seed: int, *, package: str = "idemproxy") -> None:
        self.seed = seed
        self.random = Random(seed)
        self.faults: dict[str, int] = {}
        self.settings = self._choose_settings(package)
        self.world = World(seed, self.settings)
        for client in self.world.clients[1:]:
            if self.random.random() < 0.3:
                client.settings = replace(client.settings, delivery=self.random.uniform(3, 30))
        self.oracle = Oracle(self.world.cluster, self.world.clients)
        self._batches_due = 0

    def _some(self, rate: float) -> float:
        """A rate that is zero for half of the seeds."""
        return rate * self.random.random() if self.random.random() < 0.5 else 0.0

    def _choose_settings(self, package: str) -> WorldSettings:
        random = self.random
        refusals = CODES_WITHOUT_APPEND + (CONTENT_CODES if random.random() < 0.15 else ())
        kinds = tuple(kind for kind in BROKER_KINDS if random.random() < 0.5) or BROKER_KINDS
        return WorldSettings(
            proxies=random.choice((1, 1, 2, 3)),
            brokers=random.choice((1, 2, 3)),
            partitions=random.choice((1, 1, 2, 3)),
            clients=random.choice((1, 1, 2, 3)),
            network=NetworkSettings(split_chance=self._some(0.4), partial_write_chance=self._some(0.2)),
            cluster=ClusterSettings(
                replication_lag=(0.0005, random.choice((0.002, 0.05))), stall_chance=self._some(0.2)
            ),
            broker_faults=BrokerFaultRates(
                share=self._some(0.8), kinds=kinds, refusals=refusals, cut_answer_share=self._some(0.05)
            ),
            redis_faults=RedisFaultRates(
                lost_reply=self._some(0.05),
                lost_command=self._some(0.05),
                late=self._some(0.05),
                slow=self._some(0.1),
                refused=self._some(0.05),
            ),
            client=ClientSettings(request_timeout=random.choice((2.0, 5.0, 10.0))),
            package=package,
        )

    # ------------------------------------------------------------------ the run
    def run(self) -> Outcome:
        """Run to the end and check."""
        world, network = self.world, self.world.network
        world.start()
        self._plan_batches()
        for name, rate in self._troubles().items():
            if rate:
                self._plan(name, rate)
        network.run(CHAOS_SECONDS)
        world.calm()
        is_done = network.run(CALM_SECONDS_MAX, lambda: world.is_done)
        network.run(QUIET_SECONDS)
        problems = self.oracle.finish() + world.errors()
        if not is_done:
            problems.append(f"not done {CALM_SECONDS_MAX:.0f} s after the last fault")
        problems += [f"the user of {name} sees: {how}" for name, how in self._seen_by_users()]
        faults = {**self.faults, **{k: v for k, v in world.cluster.faults_done.items() if k != "none"}}
        faults |= {kind.name: count for kind, count in world.redis.faults_done.items() if count and kind.name != "NONE"}
        return Outcome(self.seed, problems, world, self._batches_due, faults, self.oracle.client_made_copies)

    def _seen_by_users(self) -> Iterator[tuple[str, str]]:
        """Failures that no user should see: a client may give up, and a broker may refuse a batch for its content."""
        may_refuse = set(CONTENT_CODES) & set(self.settings.broker_faults.refusals)
        for client in self.world.clients:
            for batch in client.leaves:
                if batch.failed is None or (batch.failed[1] == "gave up" and client.settings.delivery is not None):
                    continue
                if not (may_refuse and batch.failed[1] in CONTENT_FAILURES):
                    yield client.name, f"{batch.failed[1]} for {batch.values[0]!r}"

    def _plan_batches(self) -> None:
        random, network = self.random, self.world.network
        for client in self.world.clients:
            for _ in range(random.choice((1, 4, 15, 40))):
                self._batches_due += 1
                partition, count = random.randrange(self.settings.partitions), random.randrange(1, 4)

                def send(client: object = client, partition: int = partition, count: int = count) -> None:
                    client.send(TOPIC, partition, count)  # type: ignore[attr-defined]

                network.schedule(random.choice((0.0, random.uniform(0, CHAOS_SECONDS))), send)

    def _troubles(self) -> dict[str, float]:
        """Kind -> how many in the time of chaos, about."""
        names = ("proxy crash", "drain", "proxy pause", "redis restart", "redis pause", "broker crash", "broker pause")
        more = ("leader move", "cut", "half open", "client disconnect")
        return {name: self._some(4.0) for name in names} | {name: self._some(8.0) for name in more}

    def _plan(self, name: str, rate: float) -> None:
        act: Callable[[], None] = getattr(self, "_" + name.replace(" ", "_"))
        count = int(rate) + (self.random.random() < rate % 1)
        for _ in range(count):

            def happen() -> None:
                self.faults[name] = self.faults.get(name, 0) + 1
                self.world.network.note("chaos", name)
                act()

            self.world.network.schedule(self.random.uniform(0, CHAOS_SECONDS * 0.95), happen)

    # ------------------------------------------------------------------ troubles
    def _proxy_crash(self) -> None:
        proxy = self.random.choice(self.world.proxies)
        proxy.crash(down_seconds=self.random.choice((0.05, 0.5, 3.0, 8.0)), half_open=self.random.random() < 0.3)

    def _drain(self) -> None:
        self.random.choice(self.world.proxies).drain()

    def _proxy_pause(self) -> None:
        self.random.choice(self.world.proxies).host.pause(self.random.choice((0.3, 2.0, 5.5, 9.0)))

    def _redis_restart(self) -> None:
        lost = self.random.choice((0, 0, 1, 2, 5))
        self.world.redis.restart(lose_last_writes=lost, down_seconds=self.random.choice((0.05, 1.0, 4.0)))

    def _redis_pause(self) -> None:
        self.world.redis.host.pause(self.random.choice((0.3, 1.5, 4.0)))

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


def run_seed(seed: int, *, package: str = "idemproxy") -> Outcome:
    """Run one seed to its end."""
    return Chaos(seed, package=package).run()


def main(arguments: list[str]) -> int:
    """Run COUNT seeds from SEED on; tell the story of the first that fails."""
    first, count = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    started, totals = time.monotonic(), dict[str, int]()
    failed = batches = 0
    for seed in range(first, first + count):
        outcome = run_seed(seed)
        batches += outcome.batches
        for kind, number in outcome.faults.items():
            totals[kind] = totals.get(kind, 0) + number
        if outcome.problems:
            failed += 1
            print(outcome.explain())
            if count == 1:
                print(outcome.world.story())
    seconds = time.monotonic() - started
    print(f"{count} seeds, {batches} batches, {failed} seeds failed, {seconds:.1f} s; faults: {totals}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
