"""Random worlds of hidden ranges (rule R24): consumers read a log through two proxies while people hide and show ranges
of it, and everything breaks. ``PYTHONPATH=tests python -m simulation.hidden_ranges SEED [COUNT]`` replays seeds.

What has to hold is in ``named_truth``."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from simulation.chaos import STEP_SECONDS
from simulation.name_truth import PROMISED_SECONDS, SAMPLE_SECONDS, Truth

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.state.hidden_ranges import (
    HiddenRange,
    HiddenRanges,
    OffsetRange,
    State,
    overlapping,
    pack_hidden_ranges,
    unpack_hidden_ranges,
)
from idemproxy.state.store import hidden_ranges_key
from testkit.virtual.client import EPOCH_MS
from testkit.virtual.consumer import WAIT_MS, VirtualConsumer
from testkit.virtual.proxy import CLUSTER_NAME
from testkit.virtual.world import TOPIC, World, WorldSettings

CHAOS_SECONDS = 25.0
CALM_SECONDS = 40.0
QUIET_SECONDS = 3.0
CONSUMERS_MAX, PARTITIONS_MAX = 4, 2
VERSIONS = (2, 3, 4, 5)
"""Of Fetch, which the proxies serve in front of 0.10.2, and which hidden ranges are made for."""
BYTES_MAX = (40, 90, 250, 1_000, 20_000)
RECORDS_MAX = 12
BATCHES_PER_PARTITION = 40
ACTS: dict[str, float] = {
    "name": 20.0,
    "show": 6.0,
    "consumer begins again": 8.0,
    "consumer goes elsewhere": 8.0,
    "consumer hangs up": 5.0,
    "proxy crash": 4.0,
    "proxy drain": 3.0,
    "proxy pause": 3.0,
    "redis flush": 2.0,
    "redis restart": 3.0,
    "redis failover": 2.0,
    "broker crash": 2.0,
    "log cut off": 3.0,
    "topic recreated": 2.0,
}
"""How often each happens at most; each seed leaves some out. Naming and reading are in all."""
ALWAYS = ("name", "consumer begins again")
_LOST_WRITES = (0, 1, 2, 5)
NARROW = {
    "HIDDEN_RANGES_PARTS_MAX": 1,
    "HIDDEN_RANGES_MORE_UNPACKED_BYTES_MAX": 60,
    "HIDDEN_RANGES_FETCH_BYTES_MAX": 300,
    "HIDDEN_RANGES_FETCH_SHARE_BYTES_MIN": 50,
}
"""Limits of what is looked into for one answer."""


@dataclass(slots=True)
class Outcome:
    """Of one seed. ``hidden``: records that consumers were spared."""

    seed: int
    problems: list[str]
    delivered: int
    hidden: int

    def explain(self) -> str:
        again = f"PYTHONPATH=tests python -m simulation.hidden_ranges {self.seed}"
        return "\n".join([f"seed {self.seed}; see it again with: {again}", *self.problems[:10]])


class NamedCopies:
    """The plan of one seed, and its run."""

    def __init__(self, seed: int, package: str = "idemproxy") -> None:
        self.seed = seed
        self.random = random = Random(f"hidden_ranges/{seed}")
        self.partitions = random.randint(1, PARTITIONS_MAX)
        self.format = random.choice((0, 1, 1))
        settings = WorldSettings(
            proxies=2, brokers=1, partitions=self.partitions, clients=0, message_format=self.format, package=package
        )
        self.world = world = World(seed, settings)
        self.network = world.network
        self.logs = {number: world.cluster.log(TOPIC, number) for number in range(self.partitions)}
        self.truth = Truth(self.logs, self._look)
        for proxy in world.proxies:
            proxy.keep_hidden_ranges()
        addresses = [proxy.address for proxy in world.proxies]
        self.consumers = [
            VirtualConsumer(self.network, f"consumer-{number}", addresses, TOPIC, self.partitions, self.truth)
            for number in range(random.randint(1, CONSUMERS_MAX))
        ]
        self._unpack = importlib.import_module(f"{package}.state.hidden_ranges").unpack_hidden_ranges
        self._written = 0
        self._key = hidden_ranges_key(CLUSTER_NAME)

    def run(self) -> Outcome:
        """Run to the end and check."""
        self.world.start()
        self._sample()
        for number in self.logs:
            self._write(number)
        for consumer in self.consumers:
            self._begin(consumer)
        batches = self.random.randint(5, BATCHES_PER_PARTITION)
        for number in self.logs:
            for _ in range(batches):
                self._plan(lambda number=number: self._write(number))  # type: ignore[misc]
        for name, most in ACTS.items():
            if name in ALWAYS or self.random.random() < 0.6:
                act = getattr(self, "_" + name.replace(" ", "_"))
                for _ in range(round(self.random.uniform(1, most))):
                    self._plan(act)
        self._run_until(self.network.now + CHAOS_SECONDS, lambda: False)
        self.world.calm()
        self._run_until(self.network.now + PROMISED_SECONDS + 1, lambda: False)
        self._run_until(self.network.now + CALM_SECONDS, self._is_done)
        problems = [*self.truth.problems, *self._who_stands_still(), *self.world.errors()]
        return Outcome(self.seed, problems, self.truth.delivered_count, self.truth.hidden)

    def _plan(self, act: Callable[[], None]) -> None:
        self.network.schedule(self.random.uniform(0, CHAOS_SECONDS), act)

    def _run_until(self, until: float, is_done: Callable[[], bool]) -> None:
        while self.network.now < until and not is_done():
            self.network.run(min(STEP_SECONDS, until - self.network.now))

    def _is_done(self) -> bool:
        return not any(
            self.truth.left_for(number, stand.offset)
            for consumer in self.consumers
            for number, stand in consumer.stands.items()
        )

    def _who_stands_still(self) -> list[str]:
        problems = [
            f"{consumer.host.name} stands still at {stand.offset} of {number}, version {consumer.version}: {left[:5]}"
            for consumer in self.consumers
            for number, stand in consumer.stands.items()
            if (left := self.truth.left_for(number, stand.offset))
        ]
        if problems:
            return problems
        before = [consumer.fetches for consumer in self.consumers]
        self._run_until(self.network.now + 1.0, lambda: False)
        before = [consumer.fetches for consumer in self.consumers]
        self._run_until(self.network.now + QUIET_SECONDS, lambda: False)
        most = QUIET_SECONDS * 1000 / WAIT_MS + 3
        return [
            f"{consumer.host.name} stands still: it has fetched {consumer.fetches - fetched} times in {QUIET_SECONDS} s"
            for consumer, fetched in zip(self.consumers, before, strict=True)
            if consumer.fetches - fetched > most
        ]

    # ------------------------------------------------------------------ what is known
    def _sample(self) -> None:
        self._look()
        self.network.schedule(SAMPLE_SECONDS, self._sample)

    def _look(self) -> None:
        known: list[Any] = [proxy.engine.hidden_ranges.listed for proxy in self.world.proxies if proxy.is_up]
        stored = self.world.redis.get(self._key)
        if stored is not None:
            known.append(self._unpack(stored)[1])
        if not self.world.redis.host.alive:
            self.truth.redis_was_ill_at = self.network.now
        self.truth.sampled(known, self.network.now)

    # ------------------------------------------------------------------ who writes
    def _write(self, number: int) -> None:
        log, codec = self.logs[number], self.random.choice((Codec.NONE, Codec.GZIP, Codec.SNAPPY))
        if self.world.cluster.find(TOPIC, number) is None:
            return
        values = []
        for _ in range(self.random.randint(1, RECORDS_MAX)):
            self._written += 1
            values.append(b"%d" % self._written + b"." * self.random.choice((0, 0, 5, 60)))
        at = EPOCH_MS + round(self.network.now * 1000)
        data = encode_set([(b"k", value, at) for value in values], magic=1)
        if codec is not Codec.NONE:
            packed = compress(codec, data, magic=1)
            data = encode_message(b"m", packed, magic=1, offset=len(values) - 1, timestamp=at, codec=codec)
        base_offset = log.append(data, self.network.now)
        log.advance(log.end_offset)
        self.truth.appended(number, base_offset, self.network.now)

    def _log_cut_off(self) -> None:
        """An unclean restart: the only replica has lost its end; what is written next has these offsets."""
        number = self.random.choice(list(self.logs))
        log = self.logs[number]
        ends = [stored.last_offset + 1 for stored in log.history[-6:]] or [0]
        self._broker_crash()
        log.truncate(self.random.choice(ends), unclean=True)
        self.truth.cut_off(number, log.end_offset, self.network.now)
        for _ in range(self.random.choice((0, 1, 3))):
            self._write(number)

    def _topic_recreated(self) -> None:
        seconds = self.random.choice((0.01, 0.5, 2.0))
        self.world.cluster.delete_topic(TOPIC, seconds)
        for number in self.logs:
            self.truth.cut_off(number, 0, self.network.now)
            for _ in range(self.random.choice((0, 2, 8))):
                self.network.schedule(seconds + 0.001, lambda number=number: self._write(number))  # type: ignore[misc]

    # ------------------------------------------------------------------ who names
    def _stored(self) -> tuple[int, HiddenRanges]:
        stored = self.world.redis.get(self._key)
        return (0, {}) if stored is None else unpack_hidden_ranges(stored)

    def _store(self, version: int, place: OffsetRange, hidden_range: HiddenRange, hidden_ranges: HiddenRanges) -> None:
        at_ms = EPOCH_MS + round(self.network.now * 1000)
        if place in hidden_ranges:
            at_ms = max(at_ms, hidden_ranges[place].at_ms + 1)
        changed = {**hidden_ranges, place: replace(hidden_range, at_ms=at_ms)}
        self.world.redis.put(self._key, pack_hidden_ranges(version + 1, changed))

    def _name(self) -> None:
        number = self.random.choice(list(self.logs))
        end = self.logs[number].end_offset
        if not end or not self.world.redis.host.alive:
            return
        first = self.random.randrange(max(0, end - self.random.choice((10, 60, 1000))), end)
        last = min(end + self.random.choice((0, 0, 0, 2)), first + self.random.choice((1, 2, 5, 20, 60)))
        place = OffsetRange(TOPIC, number, first, max(first + 1, last))
        version, hidden_ranges = self._stored()
        if overlapping(hidden_ranges, place) is None:
            self._store(version, place, HiddenRange(State.ASKED, 0), hidden_ranges)

    def _show(self) -> None:
        version, hidden_ranges = self._stored()
        places = [place for place, one in hidden_ranges.items() if one.state in (State.ASKED, State.ACTIVE)]
        if places and self.world.redis.host.alive:
            self._store(version, self.random.choice(places), HiddenRange(State.REMOVED, 0), hidden_ranges)

    # ------------------------------------------------------------------ who reads
    def _begin(self, consumer: VirtualConsumer, offsets: dict[int, int] | None = None) -> None:
        consumer.begin(self.random.choice(VERSIONS), self.random.choice(BYTES_MAX), offsets)

    def _consumer_begins_again(self) -> None:
        """Another life, from the start or from where it was committed."""
        consumer = self.random.choice(self.consumers)
        share = self.random.choice((0.0, 0.0, 0.5, 1.0))
        self._begin(consumer, {number: int(stand.offset * share) for number, stand in consumer.stands.items()})

    def _consumer_goes_elsewhere(self) -> None:
        consumer = self.random.choice(self.consumers)
        number = self.random.choice(list(self.logs))
        consumer.seek(number, self.random.randint(0, consumer.stands[number].offset))

    def _consumer_hangs_up(self) -> None:
        self._begin(self.random.choice(self.consumers))

    # ------------------------------------------------------------------ what breaks
    def _proxy_crash(self) -> None:
        proxy, down = self.random.choice(self.world.proxies), self.random.choice((0.05, 0.5, 3.0))
        proxy.crash(down_seconds=down, half_open=self.random.random() < 0.2)

    def _proxy_drain(self) -> None:
        self.random.choice(self.world.proxies).drain()

    def _proxy_pause(self) -> None:
        self.random.choice(self.world.proxies).host.pause(self.random.choice((0.3, 2.0)))

    def _redis_flush(self) -> None:
        self._redis_is_ill()
        self.world.redis.flush()

    def _redis_restart(self) -> None:
        self._redis_is_ill()
        lost, down = self.random.choice(_LOST_WRITES), self.random.choice((0.05, 1.0))
        self.world.redis.restart(lose_last_writes=lost, down_seconds=down)

    def _redis_failover(self) -> None:
        self._redis_is_ill()
        self.world.redis.fail_over(lose_last_writes=self.random.choice(_LOST_WRITES))

    def _redis_is_ill(self) -> None:
        self.truth.redis_was_ill_at = self.network.now

    def _broker_crash(self) -> None:
        self.world.cluster.crash_broker(1, down_seconds=self.random.choice((0.05, 1.0)))


def run_seed(seed: int, *, package: str = "idemproxy") -> Outcome:
    """One world. ``package``: the shipped one, or a patched copy. In half of all, an answer has time for next to
    nothing, so that most of it is cut off."""
    limits = importlib.import_module(f"{package}.proxy.limits")
    usual = {name: getattr(limits, name) for name in NARROW}
    try:
        if seed % 2:
            vars(limits).update(NARROW)
        return NamedCopies(seed, package).run()
    finally:
        vars(limits).update(usual)


def main() -> None:
    """Replay seeds; exit code 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    given = parser.parse_args()
    began, failed, delivered, hidden = time.monotonic(), 0, 0, 0
    for seed in range(given.seed, given.seed + given.count):
        outcome = run_seed(seed)
        delivered, hidden = delivered + outcome.delivered, hidden + outcome.hidden
        if outcome.problems:
            failed += 1
            print(outcome.explain(), flush=True)
    seconds = time.monotonic() - began
    print(f"{given.count} worlds, {failed} failed, {delivered} records delivered, {hidden} left out, {seconds:.0f} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
