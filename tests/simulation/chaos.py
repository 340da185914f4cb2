"""One random world by its seed: everything breaks for a while, then all is calm, and the producers have to be served.

Owns the run. What a seed makes of the world is in ``shape``, what breaks in ``troubles``, what is right in ``oracle``.
As a program it replays seeds and tells the whole story of a single one that fails:
``python -m simulation.chaos SEED [COUNT] [--batches N] [--as-drawn] [--form v2]``.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from simulation.allowed import Allowed, may_be_untold
from simulation.oracle import Oracle
from simulation.shape import BATCHES, CHAOS_SECONDS, FLUSH, FORMS, LOSE_WRITES, Shape, Upgrade, draw_shape
from simulation.thefts import DENIED, judge_double, judge_inventor, judge_thief, judge_zombie
from simulation.told import judge_where_they_stopped
from simulation.troubles import Troubles

from idemproxy.proxy.events import BatchAnswered
from idemproxy.state.entry import NO_DIGEST
from testkit.virtual.client import VirtualClient
from testkit.virtual.producer import Answer, Identity, TopicPartition
from testkit.virtual.proxy import CLUSTER_NAME
from testkit.virtual.world import TOPIC, World

CALM_SECONDS_MAX = 150.0
"""A patient client learns how a batch ended within this time after the last fault, or after the batch before it: lease,
grace, settling, its own time-outs."""
STEP_SECONDS = 0.5
"""So often somebody looks whether all is done."""
QUIET_SECONDS = 3.0
IDLE_BATCHES = 6
SECOND_ACT_SHARE = 0.4
SPELL_SHARE, SPELL_BATCHES, SPELL_PAUSES = 0.4, (4, 16), (0.003, 0.015, 0.04)
"""Where proxies take append reservations: of the batches with which a client begins to send many, how many, and the
seconds between them."""
LAST_SECONDS_MAX = 60.0
"""A batch that is sent when all is calm is answered by then."""


@dataclass(slots=True)
class Outcome:
    """Of one seed. ``problems`` empty: everything held."""

    seed: int
    batches_asked: int
    problems: list[str]
    world: World
    batches: int
    faults: dict[str, int]
    allowed: dict[str, int]
    """Name in ``allowed.Allowed`` -> how often it was needed."""
    calm_seconds: float
    """How long it took from the last fault until every user knew how each batch had ended."""
    answer_seconds_max: float
    program: str
    """Replays it."""
    is_as_drawn: bool
    """With ``--as-drawn``."""
    form: str
    """How its brokers store batches."""
    is_form_forced: bool
    """With ``--form``."""

    def explain(self) -> str:
        """For the one who reads a failure: how to see it again, what is wrong, what happened."""
        again = f"PYTHONPATH=tests python -m {self.program} {self.seed}"
        if self.batches_asked != BATCHES:
            again += f" --batches {self.batches_asked}"
        if self.is_as_drawn:
            again += " --as-drawn"
        if self.is_form_forced:
            again += f" --form {self.form}"
        return "\n".join([f"seed {self.seed}; see it again with: {again}", *self.problems, f"faults: {self.faults}"])


class Patience:
    """When somebody has learned nothing of his batches for too long, though nothing breaks any more."""

    def __init__(self, clients: Sequence[VirtualClient], now: float) -> None:
        self._heard = {client: (client.done_in_order, now) for client in clients}

    def is_over(self, now: float) -> bool:
        """Is there one who still waits?"""
        for client, (done, _) in self._heard.items():
            if client.is_done or client.done_in_order > done:
                self._heard[client] = client.done_in_order, now
        return any(since < now - CALM_SECONDS_MAX for _, since in self._heard.values())


_PRODUCERS_MAX = 1000


class Chaos:
    """The plan of one seed, and its run."""

    program = "simulation.chaos"

    def __init__(
        self,
        seed: int,
        *,
        package: str = "idemproxy",
        batches: int = BATCHES,
        as_drawn: bool = False,
        form: str | None = None,
    ) -> None:
        self.seed = seed
        self.batches_asked, self.as_drawn, self.form = batches, as_drawn, form
        self.random = Random(seed)
        self.shape = self._draw(package)
        self.settings = self.shape.settings
        self.world = World(seed, self.settings)
        for client, delivery in zip(self.world.clients, self.shape.delivery, strict=True):
            client.settings = replace(client.settings, delivery=delivery)
        expiry = self.settings.expiry_seconds
        ids_get_old = self._ids_get_old = self.settings.wall_clock_rate > 1 or expiry is not None
        self.oracle = Oracle(
            *(self.world.cluster, self.world.clients),
            ids_get_old=ids_get_old,
            expiry_seconds=expiry,
            has_names=self.settings.has_names,
        )
        self.troubles = Troubles(self.world, self.random)
        self._known_by_numbers: set[Identity] = set()
        self.world.double.on_answer = self._note_known_by_numbers
        self.calm_seconds = 0.0

    def _draw(self, package: str) -> Shape:
        """The plan."""
        asked = self.batches_asked
        return draw_shape(self.seed, batches=asked, package=package, as_drawn=self.as_drawn, form=self.form)

    def run(self) -> Outcome:
        """Run to the end and check."""
        self.world.start()
        problems = self._play()
        return self._judge(problems)

    def _note_known_by_numbers(self, place: TopicPartition, identity: Identity) -> None:
        """Note whether a proxy knows of no digest of the batch that has the numbers of this one."""
        known = [
            producer.entry.window
            for proxy in self.world.proxies
            if proxy.is_up
            for producer in proxy.engine.producers(identity.producer_id, None, _PRODUCERS_MAX)
            if producer.entry is not None and (producer.topic, producer.partition) == place
        ]
        numbers = identity.base_sequence, identity.record_count, NO_DIGEST
        if any((one.base_sequence, one.record_count, one.digest) == numbers for window in known for one in window):
            self._known_by_numbers.add(identity)

    def _play(self) -> list[str]:
        """Let everything happen; returns who does not get through."""
        for upgrade in self.shape.upgrades:
            self.world.network.schedule(upgrade.at, partial(self._upgrade, upgrade))
        problems = self._act(self.shape.batches, 1.0)
        if self.shape.idle_seconds:
            self._idle()
            problems += self._act(max(1, self.shape.batches // 3), SECOND_ACT_SHARE)
        return problems

    def _upgrade(self, upgrade: Upgrade) -> None:
        if not self.world.cluster.brokers[upgrade.broker].is_up:  # nobody upgrades what has just died
            self.world.network.schedule(STEP_SECONDS, partial(self._upgrade, upgrade))
            return
        self.oracle.stores_both = True
        how = upgrade.is_clean, False if upgrade.is_clean else None
        self.world.cluster.upgrade_broker(upgrade.broker, upgrade.release, is_clean=how[0], is_silent=how[1])
        kind = f"broker stores v{upgrade.release.message_format}"
        self.troubles.done[kind] = self.troubles.done.get(kind, 0) + 1

    def _judge(self, problems: list[str]) -> Outcome:
        """Look at all that is left, and at what clients got as answers."""
        world = self.world
        if world.is_done:
            self._one_more_batch_each()
            problems += self.oracle.unfinished(LAST_SECONDS_MAX, state_was_lost=self._was_state_lost)
        self.oracle.given_at = self._given_at
        refusals = self.settings.broker_faults.refusals
        problems += self.oracle.finish(refusals, state_was_lost=self._was_state_lost)
        may_be_denied = self.settings.has_pass_through and DENIED in refusals
        problems += judge_thief(world.thief, is_denied=self._is_thief_denied, may_be_denied=may_be_denied)
        logs = [partition.log for partition in world.cluster.partitions.values()]
        stored = [record.value for log in logs for one in log.messages for record in one.message.records]
        is_untold = any(map(may_be_untold, world.cluster.partitions.values()))
        problems += judge_zombie(world.zombie, stored, may_be_untold=is_untold)
        problems += [] if problems else self._where_they_stopped(may_be_open=False)
        wrong, by_numbers = judge_double(world.double, stored, self._known_by_numbers)
        problems += wrong
        if by_numbers:
            self.oracle.allowed[Allowed.BY_NUMBERS] += by_numbers
        problems += judge_inventor(world.inventor, stored)
        problems += self._kept_of_inventions()
        problems += world.errors()
        problems += [f"for ever in Redis: {key}" for key in world.redis.endless_keys(CLUSTER_NAME)]
        return Outcome(
            self.seed,
            self.batches_asked,
            problems,
            world,
            self.shape.batches,
            self._faults(),
            {one.name: count for one, count in self.oracle.allowed.items()},
            self.calm_seconds,
            self.oracle.answer_seconds_max,
            self.program,
            self.as_drawn,
            self.shape.form,
            self.form is not None,
        )

    def _where_they_stopped(self, *, may_be_open: bool) -> list[str]:
        if not self.settings.has_names or self.settings.has_principals:
            return []
        return judge_where_they_stopped(
            self.world,
            may_be_unknown=self._was_state_lost or self._ids_get_old,
            may_be_replaced=self.settings.has_names and self._ids_get_old,
            records_were_lost=bool(self.oracle.allowed[Allowed.LOST_BY_BROKERS]) or may_be_open,
            may_be_open=may_be_open,
        )

    @property
    def _was_state_lost(self) -> bool:
        return any(name in self.troubles.done for name in LOSE_WRITES)

    def _act(self, batches: int, share: float) -> list[str]:
        """Chaos, then calm until every user knows how each batch ended; returns who does not. ``share``: of the rates
        of the troubles."""
        world, network = self.world, self.world.network
        self._plan_batches(batches)
        for name, rate in self.shape.troubles.items():
            if rate:
                self.troubles.plan(name, rate * share, CHAOS_SECONDS * 0.95)
        self._run_until(CHAOS_SECONDS, lambda: False)
        self.troubles.end()
        world.calm()
        problems = self._where_they_stopped(may_be_open=True)
        began = network.now
        patience = Patience(world.clients, began)
        self._run_until(math.inf, lambda: world.is_done or patience.is_over(network.now))
        self.calm_seconds = max(self.calm_seconds, network.now - began)
        self._run_until(QUIET_SECONDS, lambda: False)
        return problems + self.oracle.unfinished(network.now - began, state_was_lost=self._was_state_lost)

    def _idle(self) -> None:
        """Hardly anything happens, for longer than anybody retries."""
        random, seconds = self.random, self.shape.idle_seconds
        for _ in range(IDLE_BATCHES):
            self._send_in(random.uniform(0, 0.9 * seconds), random.choice(self.world.clients), 1)
        self._run_until(seconds, lambda: False)
        if self.shape.flushes:
            self.troubles.happen(FLUSH)
        self.world.unsettle()

    def _run_until(self, seconds: float, is_done: Callable[[], bool]) -> bool:
        """Run so long at most; whether it was done before."""
        network = self.world.network
        until = network.now + seconds
        while not is_done():
            if network.now >= until:
                return False
            network.run(min(STEP_SECONDS, until - network.now))
            self.oracle.look(network)
        return True

    def _one_more_batch_each(self) -> None:
        """Everything is calm and answered: nobody may stand in the way of what comes now, at whichever proxy."""
        for client in self.world.clients:
            client.disconnect()
            for partition in range(self.settings.partitions):
                client.send(TOPIC, partition)
        self._run_until(LAST_SECONDS_MAX, lambda: self.world.is_done)

    def _given_at(self, partition: TopicPartition, told: Answer) -> float:
        """When a proxy gave the answer that a client has read: a slow reader does so much later."""
        given = [
            at
            for proxy in self.world.proxies
            for at, _instance, event in proxy.events
            if isinstance(event, BatchAnswered)
            and (event.topic, event.partition) == partition
            and (event.producer_id, event.producer_epoch, event.base_sequence) == told.identity[:3]
            and event.error_code == told.error_code
            and at <= told.at
        ]
        return max(given, default=told.at)

    def _kept_of_inventions(self) -> list[str]:
        """Return the keys in Redis of producer ids that nobody issued which never expire: there are none (rule R10)."""
        data, answers = self.world.redis.server.data, self.world.inventor.answers
        ids = {b"%016x" % identity.producer_id for _, identity, _, _ in answers}
        return [f"{key!r} never expires" for key in sorted(data) if key[-16:] in ids and data[key].expires_at is None]

    @property
    def _is_thief_denied(self) -> bool:
        return self.settings.has_pass_through and not self.settings.thief_may_write

    def _faults(self) -> dict[str, int]:
        """Kind -> how many there were."""
        world = self.world
        faults = dict(self.troubles.done)
        faults |= {kind: count for kind, count in world.cluster.faults_done.items() if kind != "none"}
        return faults | {kind.name: n for kind, n in world.redis.faults_done.items() if n and kind.name != "NONE"}

    def _plan_batches(self, batches: int, seconds: float = CHAOS_SECONDS) -> None:
        """Singly at any time, or in bursts that queue."""
        random = self.random
        at = 0.0
        for number in range(batches):
            if number == 0 or random.random() >= self.shape.burst_share:
                at = 0.0 if number < 5 and random.random() < 0.5 else random.uniform(0, seconds)
            client = random.choice(self.world.clients)
            self._send_in(at, client, random.randint(1, self.shape.records_max))
            if self.settings.owned_share and random.random() < SPELL_SHARE:
                self._send_on(at, client)

    def _send_on(self, at: float, client: VirtualClient) -> None:
        """It keeps sending to one partition, often enough for its proxy to take an append reservation."""
        partition, pause = self.random.randrange(self.settings.partitions), self.random.choice(SPELL_PAUSES)
        for number in range(self.random.randint(*SPELL_BATCHES)):
            self._send_in(at + pause * (number + self.random.random()), client, 1, partition)

    def _send_in(self, seconds: float, client: VirtualClient, record_count: int, partition: int | None = None) -> None:
        if partition is None:
            partition = self.random.randrange(self.settings.partitions)

        def send() -> None:
            client.send(TOPIC, partition, record_count)

        self.world.network.schedule(seconds, send)


def run_seed(
    seed: int, *, package: str = "idemproxy", batches: int = BATCHES, as_drawn: bool = False, form: str | None = None
) -> Outcome:
    """Run one seed to its end. ``batches``: about how many batches a world has, and ``as_drawn`` and ``form``, of
    ``draw_shape``, are a part of the seed."""
    return Chaos(seed, package=package, batches=batches, as_drawn=as_drawn, form=form).run()


def main(arguments: list[str]) -> int:
    """Run COUNT seeds from SEED on; tell the story of a single one that fails."""
    parser = argparse.ArgumentParser(description="Replay random worlds by their seeds.")
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--batches", type=int, default=BATCHES, help="of a world, about (default: %(default)s)")
    parser.add_argument("--as-drawn", action="store_true", help="no world has the shipped settings for being shipped")
    parser.add_argument("--form", choices=list(FORMS), help="of all worlds (default: by the seed)")
    options = parser.parse_args(arguments)
    started, totals = time.monotonic(), dict[str, int]()
    failed = batches = 0
    for seed in range(options.seed, options.seed + options.count):
        outcome = run_seed(seed, batches=options.batches, as_drawn=options.as_drawn, form=options.form)
        batches += outcome.batches
        for kind, number in outcome.faults.items():
            totals[kind] = totals.get(kind, 0) + number
        if outcome.problems:
            failed += 1
            print(outcome.explain())
            if options.count == 1:
                print(outcome.world.story())
    seconds = time.monotonic() - started
    print(f"{options.count} seeds, {batches} batches, {failed} seeds failed, {seconds:.1f} s; faults: {totals}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
