"""Random worlds of a cluster that is upgraded under the proxies: brokers get producer ids, then their own format,
one after the other, and producers are handed over to them while everything breaks (rule R21).

Owns the plan of the upgrade and what has to hold of it besides all that holds in other worlds (``chaos``, ``oracle``).
As a program it replays seeds: ``python -m simulation.hand_over SEED [COUNT] [--jobs N]``.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from simulation.chaos import CALM_SECONDS_MAX, QUIET_SECONDS, Chaos, Outcome, Patience
from simulation.moments import CLEAN_THE_LOG, IN_PARTS
from simulation.shape import BATCHES, DOUBLE, LOG_TROUBLES, LOSE_WRITES, OLDER, STATE_TROUBLES, THEFT, Shape

from idemproxy.reactor import Address
from testkit.virtual.batches import is_batch
from testkit.virtual.broker import PROXY
from testkit.virtual.broker_faults import CODES_WITHOUT_APPEND, ProduceSeen
from testkit.virtual.client import VirtualClient
from testkit.virtual.log import MESSAGE_BYTES_MAX
from testkit.virtual.producer import TopicPartition
from testkit.virtual.releases import NEW_FORMAT, OLD, UPGRADES, Release
from testkit.virtual.upgrading_proxy import HANDING_OVER, NATIVE, UpgradingProxy

BEFORE_SECONDS_MAX = 4.0
FROM_THE_OLD_SHARE = 0.6
"""Of worlds whose brokers begin as 0.10.2; the others have producer ids already, and store the old format."""
DOWN_SECONDS = (0.2, 3.0)
PAUSES_SECONDS = ((-1.0, 0.5), (0.1, 1.0), (1.0, 4.0))
"""From a broker that is back to the next one that goes: not waited for, at once, after a look."""
CLEAN_SHARE = 0.6
"""Of restarts that give the partitions away first."""
BACK_SHARE = 0.5
"""Of brokers that lead again what they led before, soon after they are back."""
BACK_SECONDS = (0.0, 1.0)
MOVES_SHARE, MOVES_MAX, MOVES_SECONDS = 0.5, 3, 2.5
"""Of worlds whose clients change their connections just when producers are handed over, and how often each does."""
AFTER_SECONDS = (1.0, 8.0)
"""So long everything breaks on when all brokers were raised."""
SOON_SECONDS, JUST_SECONDS = (0.2, 1.0), 0.05
TOPIC_SHARE = 0.15
"""Of worlds whose topic has an old format of its own, until some time after that."""
ROLLBACK_SHARE = 0.4
"""Of worlds in which a broker is set back to the old format for a while, after that."""
MISSES_SHARE = 0.8
"""Of these, if there are two proxies: one stands still from before the last broker is raised until one is set back."""
GOES_THERE_SHARE = 0.7
"""Of clients that go to that proxy then."""
ROLLBACK_SECONDS = (1.0, 6.0)
PROXIES = (1, 2, 2, 3)
NATIVE_SHARE = 0.3
"""Of worlds that go on until bytes pass."""
EXPIRY_SECONDS = 300.0
"""Of the state of an idle producer there, and the longest that a client retries: then bytes pass."""
NATIVE_SECONDS = 6.0
IDLE_BATCHES, IDLE_SECONDS = 4, 200.0
"""Sent while all wait for bytes to pass."""
CLIENT_SECONDS_MAX = 10.0
"""That a client waits for an answer: where bytes pass nobody else gives a connection up that has died silently."""
NOT_HERE = (*LOG_TROUBLES, CLEAN_THE_LOG, *STATE_TROUBLES, OLDER, THEFT, IN_PARTS, DOUBLE, "half open")
"""Logs lose nothing here, nobody deletes what Redis has, and nobody sends other records under the same numbers: brokers
compare no contents. Two limits of the hand-over (docs/NEXT.md) are left out: a batch that is stored in parts, and one
connection to a broker that dies silently while another one does not."""
LOSS_SHARE = 0.2
"""Of worlds in which Redis may lose its last writes. What is lost of a hand-over is not found in the log: a retry of
what the brokers have is then told 87 (docs/NEXT.md). Nor is when it was: so these do not go on until bytes pass."""
STATE_LOST = "Redis has lost writes"
NATIVE_TROUBLES = ("broker crash", "leader move", "cut", "client disconnect", "proxy crash", "slow reader")


class HandOver(Chaos):
    """The plan of one seed, and its run."""

    program = "simulation.hand_over"

    def __init__(self, seed: int, *, package: str = "idemproxy", batches: int = BATCHES) -> None:
        super().__init__(seed, package=package, batches=batches)
        self.upgrade = Random(f"{seed}/upgrade")
        self.keeps, self.raised = self.upgrade.choice(UPGRADES)
        self.raised_at: float | None = None
        """When all brokers that were up stored their own format for the first time."""
        self.too_early: list[str] = []
        self.is_set_back = False
        """Is a broker set back to the old format?"""
        self.passed_on = 0
        """Requests of clients that came to brokers as bytes."""
        cluster = self.world.cluster
        if self.upgrade.random() >= FROM_THE_OLD_SHARE:
            for broker in cluster.brokers.values():
                broker.release = broker.next_release = self.keeps
        cluster.silent_deaths_share = 0.0
        cluster.on_brokers.append(self._look_at_releases)
        cluster.on_produce.append(self._look_at_produce)

    def _draw(self, shape: Shape) -> Shape:
        random = Random(f"{self.seed}/hand over")
        may_lose = random.random() < LOSS_SHARE
        self.ends_natively = random.random() < NATIVE_SHARE and not may_lose
        settings = shape.settings
        patience = min(settings.client.request_timeout, CLIENT_SECONDS_MAX)
        acks = -1 if self.ends_natively else settings.client.acks  # where bytes pass it gets what it asks for
        client = replace(settings.client, request_timeout=patience, timeout=None, acks=acks)
        settings = replace(
            settings,
            chooses_idempotence=True,
            client=client,
            clocks=(settings.clocks * max(PROXIES))[: random.choice(PROXIES)],
            partitions=1 if self.ends_natively else settings.partitions,  # its clients have one connection
            has_principals=False,
            has_pass_through=False,
            has_names=False,
            compression=None,
            message_format=1,
            message_bytes_max=MESSAGE_BYTES_MAX,
            broker_faults=replace(settings.broker_faults, refusals=CODES_WITHOUT_APPEND),
            wall_clock_rate=1.0,
            expiry_seconds=EXPIRY_SECONDS if self.ends_natively else None,
            horizon_seconds=EXPIRY_SECONDS,
        )
        off = dict.fromkeys(NOT_HERE if may_lose else (*NOT_HERE, *LOSE_WRITES), 0.0)
        return replace(shape, settings=settings, troubles=shape.troubles | off, idle_seconds=0.0)

    # ------------------------------------------------------------------ the upgrade
    def _play(self) -> list[str]:
        seconds = self._plan_upgrade()
        self._plan_batches(self.shape.batches, seconds)
        self._break_things(1.0, seconds)
        self._run_until(seconds, lambda: False)
        problems = self._calm_down()
        problems += self._judge_modes(HANDING_OVER)
        if self.ends_natively and not problems:
            problems += self._go_on_natively()
        return problems

    def _plan_upgrade(self) -> float:
        """Plan every restart; returns how long things break."""
        random, cluster = self.upgrade, self.world.cluster
        pauses = random.choice(PAUSES_SECONDS)
        at = random.uniform(0, BEFORE_SECONDS_MAX)
        stages = [self.keeps, self.raised] if any(b.release is OLD for b in cluster.brokers.values()) else [self.raised]
        numbers = list(cluster.brokers)
        for release in stages:
            for number in random.sample(numbers, len(numbers)):
                last_at = at
                at = max(at, self._restart(at, number, release) + random.uniform(*pauses))
        if random.random() < MOVES_SHARE:
            self._move_clients(at)
        if random.random() < TOPIC_SHARE:
            self._keep_old_format_until(at + random.uniform(*AFTER_SECONDS))
        if random.random() < ROLLBACK_SHARE:
            at = self._plan_rollback(last_at, at + random.uniform(*random.choice((SOON_SECONDS, AFTER_SECONDS))))
        return at + random.uniform(*AFTER_SECONDS)

    def _keep_old_format_until(self, seconds: float) -> None:
        """The topic has that setting of its own, which is removed last."""

        def set_all(keeps_old_format: bool) -> None:
            for partition in self.world.cluster.partitions.values():
                partition.log.keeps_old_format = keeps_old_format

        set_all(True)
        self.world.network.schedule(seconds, lambda: set_all(False))

    def _plan_rollback(self, last_at: float, at: float) -> float:
        """Plan that a broker is set back ``at`` seconds from now, when clients have just sent something, and raised
        again; returns when it is back. ``last_at``: when the last broker goes that is raised."""
        self.is_set_back = True
        random = self.upgrade
        number = random.choice(list(self.world.cluster.brokers))
        for client in self.world.clients:
            self._send_in(max(0.0, at - random.uniform(0, JUST_SECONDS)), client, 1)
        back_at = self._restart(at, number, self.keeps, leads_all=True)
        if len(self._proxies) > 1 and random.random() < MISSES_SHARE:
            sleeper = random.choice(self._proxies)
            self.world.network.schedule(last_at, lambda: sleeper.host.pause(back_at - last_at))
            for client in self.world.clients:
                if random.random() < GOES_THERE_SHARE:
                    self._go_to(back_at + random.uniform(*SOON_SECONDS), client, random.choice(sleeper.addresses))
        return self._restart(back_at + random.uniform(*ROLLBACK_SECONDS), number, self.raised)

    def _go_to(self, seconds: float, client: VirtualClient, address: Address) -> None:
        def move() -> None:
            client.next_address = address
            client.disconnect()

        self.world.network.schedule(seconds, move)

    def _restart(self, at: float, number: int, release: Release, *, leads_all: bool = False) -> float:
        """Plan a restart ``at`` seconds from now; returns when the broker is back. ``leads_all``: it leads all
        partitions then."""
        random, cluster, network = self.upgrade, self.world.cluster, self.world.network
        is_clean, down_seconds = random.random() < CLEAN_SHARE, random.uniform(*DOWN_SECONDS)
        leads_again_in = random.uniform(*BACK_SECONDS) if random.random() < BACK_SHARE or leads_all else None

        def restart() -> None:
            led = [key for key, one in cluster.partitions.items() if leads_all or one.leader == number]
            cluster.upgrade_broker(number, release, is_clean=is_clean, down_seconds=down_seconds)
            if leads_again_in is not None:
                network.schedule(down_seconds + leads_again_in, lambda: self._lead_again(number, led))

        network.schedule(at, restart)
        return at + down_seconds

    def _lead_again(self, number: int, led: Sequence[TopicPartition]) -> None:
        cluster = self.world.cluster
        for key in led if cluster.brokers[number].is_up else ():
            if cluster.partitions[key].leader not in (None, number):
                cluster.move_leader(*key, number, keep=True)

    def _move_clients(self, at: float) -> None:
        for client in self.world.clients:
            for _ in range(self.upgrade.randint(0, MOVES_MAX)):
                self.world.network.schedule(at + self.upgrade.uniform(0, MOVES_SECONDS), client.disconnect)

    def _break_things(self, share: float, seconds: float) -> None:
        for name, rate in self.shape.troubles.items():
            if rate:
                self.troubles.plan(name, rate * share, seconds * 0.95)

    def _calm_down(self) -> list[str]:
        """Nothing breaks any more: everybody gets through."""
        world, network = self.world, self.world.network
        self.troubles.end()
        world.calm()
        began = network.now
        patience = Patience(world.clients, began)
        self._run_until(math.inf, lambda: world.is_done or patience.is_over(network.now))
        self.calm_seconds = max(self.calm_seconds, network.now - began)
        self._run_until(QUIET_SECONDS, lambda: False)
        return self.oracle.unfinished(network.now - began, state_was_lost=self._was_state_lost)

    # ------------------------------------------------------------------ when bytes pass
    def _go_on_natively(self) -> list[str]:
        """Little happens until bytes pass; then clients go on, and not everything works."""
        for _ in range(IDLE_BATCHES):
            self._send_in(self.random.uniform(0, IDLE_SECONDS), self.random.choice(self.world.clients), 1)
        seconds = EXPIRY_SECONDS + CALM_SECONDS_MAX
        self._run_until(seconds, lambda: all(one.serves_in == NATIVE for one in self._proxies))
        problems = self._judge_modes(NATIVE) + self._calm_down()
        self._plan_batches(self.shape.batches, NATIVE_SECONDS)
        for name in NATIVE_TROUBLES:
            if rate := self.shape.troubles[name]:
                self.troubles.plan(name, rate / 2, NATIVE_SECONDS * 0.95)
        self._run_until(NATIVE_SECONDS, lambda: False)
        return problems + self._calm_down() + self._judge_modes(NATIVE)

    # ------------------------------------------------------------------ what has to hold
    @property
    def _proxies(self) -> list[UpgradingProxy]:
        return [proxy for proxy in self.world.proxies if isinstance(proxy, UpgradingProxy)]

    def _judge_modes(self, wanted: str) -> list[str]:
        self._run_until(CALM_SECONDS_MAX, lambda: all(one.serves_in == wanted for one in self._proxies))
        others = [one for one in self._proxies if one.serves_in != wanted]
        return [f"liveness: {one.name} is {one.mode or 'not sure'}, not {wanted}" for one in others]

    def _look_at_releases(self) -> None:
        """A proxy that starts while a broker is away sees only the others."""
        up = [one for one in self.world.cluster.brokers.values() if one.is_up]
        if self.raised_at is None and up and all(one.release is self.raised for one in up):
            self.raised_at = self.world.network.now

    def _look_at_produce(self, seen: ProduceSeen) -> None:
        """Until the last broker has the new format nothing goes as it came, and never anything in the old way to one
        that has it."""
        self.passed_on += seen.client_id != PROXY
        stores_new = self.world.cluster.brokers[seen.broker].release.message_format == NEW_FORMAT
        for _, _, data in seen.body.partitions:
            if data and seen.client_id == PROXY and stores_new and not is_batch(data):
                self.too_early.append(f"R21: request {seen.number} goes in the old way to broker {seen.broker}")
            elif data and is_batch(data) and self.raised_at is None:
                self.too_early.append(f"R21: request {seen.number} goes as it came before all brokers were raised")

    def _judge(self, problems: list[str]) -> Outcome:
        if self._was_state_lost:
            for partition in self.world.cluster.partitions.values():
                partition.met.add(STATE_LOST)
        outcome = super()._judge(problems)
        outcome.problems += self.too_early
        return outcome


def run_seed(seed: int, *, package: str = "idemproxy", batches: int = BATCHES) -> Outcome:
    """Run one seed to its end."""
    return HandOver(seed, package=package, batches=batches).run()


@dataclass(slots=True)
class Tally:
    """Of some seeds. ``failures``: what to read of each."""

    batches: int = 0
    allowed: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take another one into this."""
        self.batches += other.batches
        self.allowed += other.allowed
        self.failures += other.failures


def run_one(seed: int, batches: int, *, tells_all: bool = False) -> Tally:
    """Run one seed. ``tells_all``: the whole story, if it fails."""
    played = HandOver(seed, batches=batches)
    outcome = played.run()
    failures = [outcome.explain()] if outcome.problems else []
    if failures and tells_all:
        failures.append(outcome.world.story())
    return Tally(outcome.batches, Counter(outcome.allowed), failures)


def main(arguments: list[str]) -> int:
    """Run COUNT seeds from SEED on; tell the story of a single one that fails."""
    parser = argparse.ArgumentParser(description="Replay random worlds of an upgrade by their seeds.")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--batches", type=int, default=BATCHES, help="of a world, about (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    options = parser.parse_args(arguments)
    started, total = time.monotonic(), Tally()
    seeds = range(options.seed, options.seed + options.count)
    run = partial(run_one, batches=options.batches, tells_all=options.count == 1)
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for tally in pool.imap(run, seeds):
            total.add(tally)
            for text in tally.failures:
                print(text, flush=True)
    seconds, failed = time.monotonic() - started, min(len(total.failures), options.count)
    print(f"{options.count} seeds, {total.batches} batches, {failed} seeds failed, {seconds:.1f} s")
    print(f"exceptions: {dict(+total.allowed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
