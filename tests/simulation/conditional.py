"""Random worlds of conditional publish (rule R23): writers of one conditional partition at several proxies while
everything breaks, and what has to hold. ``PYTHONPATH=tests python -m simulation.conditional SEED [COUNT] [--jobs 2]``
replays seeds; ``--form v2`` forces how brokers store batches.

What a seed makes of the world is in ``shape``, what breaks in ``troubles``."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from simulation.chaos import CALM_SECONDS_MAX, STEP_SECONDS
from simulation.shape import CHAOS_SECONDS, FORMS, LOG_TROUBLES, OLDER, THEFT, Upgrade, draw_shape
from simulation.troubles import Troubles

from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy.events import ConditionalPartitionFenced
from testkit.virtual.conditional_writer import ConditionalWriter, Published
from testkit.virtual.log import MESSAGE_BYTES_MAX
from testkit.virtual.world import TOPIC, World

WRITERS_MAX, BATCHES_MAX, IN_FLIGHT_MAX = 3, 25, 5
BEGIN_SECONDS_MAX = 30.0
"""The first batch of a conditional partition waits until all leases have run out that may have been before the proxies
(rule R10)."""
FOREIGN_SHARE = 0.25
"""Of worlds in which somebody writes past the rules."""
_STORED, _CONFLICT, _UNDECIDED, _FENCED = 0, 45, 87, 17


@dataclass(slots=True)
class Outcome:
    """Of one seed. ``told``: how often writers got which code at last."""

    seed: int
    problems: list[str]
    told: Counter[int]
    is_foreign: bool

    def explain(self) -> str:
        again = f"PYTHONPATH=tests python -m simulation.conditional {self.seed}"
        return "\n".join([f"seed {self.seed}; see it again with: {again}", *self.problems])


class ConditionalPartition:
    """The plan of one seed, and its run."""

    def __init__(self, seed: int, form: str | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.shape = draw_shape(seed, as_drawn=True, form=form)
        self.settings = replace(
            self.shape.settings,
            clients=1,
            partitions=1,
            is_conditional=True,
            has_principals=False,
            has_pass_through=False,
            has_names=False,
            compression=None,
            message_format=1,
            message_bytes_max=MESSAGE_BYTES_MAX,
            traced_share=0.0,
        )
        self.world = World(seed, self.settings)
        self.log = self.world.cluster.log(TOPIC, 0)
        self.troubles = Troubles(self.world, self.random)
        addresses = [address for proxy in self.world.proxies for address in proxy.addresses]
        batches = self.random.randint(1, BATCHES_MAX)
        self.writers = [
            ConditionalWriter(
                self.world.network,
                f"writer-{number}",
                self.random.choice((addresses, addresses[:1])),
                (TOPIC, 0),
                self.log,
                batches,
                self.random.choice((1, IN_FLIGHT_MAX)),
            )
            for number in range(self.random.randint(1, WRITERS_MAX))
        ]
        self.is_foreign = self.random.random() < FOREIGN_SHARE

    def run(self) -> Outcome:
        """Run to the end and check."""
        world, network = self.world, self.world.network
        world.start()
        for writer in self.writers:
            writer.go_on()
        self._run_until(network.now + BEGIN_SECONDS_MAX, lambda: self.log.end_offset > 0)
        for upgrade in self.shape.upgrades:
            network.schedule(upgrade.at, partial(self._upgrade, upgrade))
        for name, rate in self.shape.troubles.items():
            if rate and name not in (*LOG_TROUBLES, OLDER, THEFT):
                self.troubles.plan(name, rate, CHAOS_SECONDS * 0.95)
        if self.is_foreign:
            network.schedule(self.random.uniform(0, CHAOS_SECONDS), self._write_past)
        self._run_until(network.now + CHAOS_SECONDS, self._is_done)
        self.troubles.end()
        world.calm()
        self._run_until(network.now + CALM_SECONDS_MAX, self._is_done)
        published = [batch for writer in self.writers for batch in writer.published]
        problems = [*self._judge(published), *world.errors()]
        told = Counter(batch.told[0] for batch in published if batch.told is not None)
        return Outcome(self.seed, problems, told, self.is_foreign)

    def _is_done(self) -> bool:
        return all(writer.is_over for writer in self.writers)

    def _run_until(self, until: float, is_done: Callable[[], bool]) -> None:
        network = self.world.network
        while network.now < until and not is_done():
            network.run(min(STEP_SECONDS, until - network.now))

    def _upgrade(self, upgrade: Upgrade) -> None:
        if not self.world.cluster.brokers[upgrade.broker].is_up:
            self.world.network.schedule(STEP_SECONDS, partial(self._upgrade, upgrade))
            return
        how = upgrade.is_clean, False if upgrade.is_clean else None
        self.world.cluster.upgrade_broker(upgrade.broker, upgrade.release, is_clean=how[0], is_silent=how[1])

    def _write_past(self) -> None:
        """Somebody writes to the broker itself."""
        stores = self.settings.release.message_format
        self.log.append(encode_set([(None, b"foreign", 0)], magic=1), self.world.network.now, stores=stores)
        self.log.advance(self.log.end_offset)

    # ------------------------------------------------------------------ what has to hold
    def _judge(self, published: list[Published]) -> list[str]:
        problems = [f"{writer.host.name} waits" for writer in self.writers if not writer.is_over]
        places: dict[bytes, list[int]] = {}
        for stored in self.log.history:
            offset = stored.first_offset
            for record in stored.message.records:
                places.setdefault(record.value or b"", []).append(offset)
                offset += 1
        for batch in published:
            found = [places.get(value, []) for value in batch.values]
            if any(len(one) > 1 for one in found):
                problems.append(f"twice in the log: {batch} {found}")
            expected = [[batch.expected + index] for index in range(len(batch.values))]
            code, base_offset = batch.told or (None, -1)
            if code == _STORED and (found != expected or base_offset != batch.expected):
                problems.append(f"success, and not at the expected offset: {batch} {found}")
            if code in (_CONFLICT, _FENCED) and any(found):
                problems.append(f"refused, and in the log: {batch} {found}")
        for writer in self.writers:
            problems += self._judge_pipelines(writer, places)
        fences = [
            one
            for proxy in self.world.proxies
            for one in proxy.events
            if isinstance(one[2], ConditionalPartitionFenced)
        ]
        if not self.is_foreign and fences:  # a broker may refuse with the same code
            problems.append(f"fenced, and nobody has written past the rules: {fences[:2]}")
        return problems

    @staticmethod
    def _judge_pipelines(writer: ConditionalWriter, places: dict[bytes, list[int]]) -> list[str]:
        """No hole: what lies in the log of a pipeline is its beginning, and a success follows successes only."""
        problems: list[str] = []
        failed: dict[int, Published] = {}
        absent: dict[int, Published] = {}
        for batch in writer.published:
            is_stored = batch.values[0] in places
            if is_stored and batch.pipeline in absent:
                problems.append(f"a hole in the log: {batch} without {absent[batch.pipeline]}")
            if batch.told is not None and batch.told[0] == _STORED and batch.pipeline in failed:
                problems.append(f"a hole: success for {batch}, after {failed[batch.pipeline]}")
            if not is_stored:
                absent.setdefault(batch.pipeline, batch)
            if batch.told is None and is_stored:
                continue  # the pipeline ended with another's failure before its writer heard that it is in the log
            if batch.told is None or batch.told[0] != _STORED:
                failed.setdefault(batch.pipeline, batch)
        return problems


def play(seed: int, form: str | None = None) -> tuple[Outcome, str]:
    """Run one seed; also its whole story."""
    conditional_partition = ConditionalPartition(seed, form)
    return conditional_partition.run(), conditional_partition.world.story()


def _play_many(seed: int, form: str | None = None) -> Outcome:
    return ConditionalPartition(seed, form).run()


def main() -> None:
    """Replay seeds; exit code 1 if one fails. A single seed that fails tells its whole story."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--form", choices=list(FORMS), help="of all worlds (default: by the seed)")
    given = parser.parse_args()
    told: Counter[int] = Counter()
    failed = 0
    if given.count == 1:
        outcome, story = play(given.seed, given.form)
        print("\n".join([outcome.explain(), story]) if outcome.problems else f"seed {given.seed}: no problem")
        sys.exit(1 if outcome.problems else 0)
    play_one = partial(_play_many, form=given.form)
    with multiprocessing.Pool(given.jobs) as pool:
        seeds = range(given.seed, given.seed + given.count)
        for number, outcome in enumerate(pool.imap_unordered(play_one, seeds, chunksize=10), 1):
            told += outcome.told
            if outcome.problems:
                failed += 1
                print(outcome.explain(), flush=True)
            if not number % 1000:
                print(f"{number} of {given.count} worlds, {failed} failed", flush=True)
    print(f"{given.count} worlds, {failed} failed, told: {dict(sorted(told.items()))}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
