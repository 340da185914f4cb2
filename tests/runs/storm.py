"""Two proxies, their Redis and their broker in every kind of trouble at once, under clients that go anywhere.

``python -m runs.storm --minutes 5 --seed 1``: raw producers with five requests in flight, that hang up
and reconnect by chance, faults by chance with overlaps, and the log read back in the end. A line of JSON.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.clients.two_proxies_client import RETRIABLE, Load
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.proxies.two_proxies_relays import Keeping

from .results import append_result
from .takeovers import spread

PRODUCERS, PARTITIONS = 6, 3
ALLOWED = {0, -1, -2, *RETRIABLE}
BACK_SECONDS_MAX = 90.0
CALM_EVERY = 12
"""After so many faults all of them end, and every producer has to continue."""
_TOPIC = "storm"
Undo = Callable[[], None]


class Storm:
    """Faults by chance; each has an end. What is broken already is left alone."""

    def __init__(self, pair: TwoProxies, cluster: LegacyCluster, random: Random) -> None:
        self.counts: Counter[str] = Counter()
        self._pair = pair
        self._cluster = cluster
        self._random = random
        self._ends: list[tuple[float, int, str, Undo]] = []
        self._order = itertools.count()
        self._broken: set[str] = set()
        self._faults: list[Callable[[], None]] = [
            *(lambda index=index: self._kill(index) for index in range(2)),
            *(lambda index=index: self._stop(index) for index in range(2)),
            *(lambda index=index: self._roll(index) for index in range(2)),
            *(lambda index=index: self._keep(index) for index in range(2)),
            *(lambda index=index: self._cut(index) for index in range(2)),
            self._flush,
            self._pause_redis,
            self._restart_redis,
            self._lose_tail,
            self._read_only,
            self._pause_broker,
        ]

    def fault(self) -> None:
        """Begin one."""
        self._random.choice(self._faults)()

    def end_due(self) -> None:
        """End those whose time is over."""
        while self._ends and self._ends[0][0] <= time.monotonic():
            self._end()

    def end_all(self) -> None:
        """End all."""
        while self._ends:
            self._end()

    # ------------------------------------------------------------------ the proxies
    def _kill(self, index: int) -> None:
        proxy = self._pair.proxies[index]
        if self._begin("kill", f"proxy {index}", self._random.uniform(0.2, 9.0), proxy.launch):
            proxy.kill()

    def _stop(self, index: int) -> None:
        proxy = self._pair.proxies[index]
        if self._begin("stop", f"proxy {index}", self._length(12.0), lambda: proxy.signal(signal.SIGCONT)):
            proxy.signal(signal.SIGSTOP)

    def _roll(self, index: int) -> None:
        proxy = self._pair.proxies[index]
        if self._begin("roll", f"proxy {index}", 0.0, proxy.launch):
            proxy.stop(60.0)

    # ------------------------------------------------------------------ between proxy and broker
    def _keep(self, index: int) -> None:
        relay = self._pair.relays[index]
        what = self._random.choice((Keeping.ANSWERS, Keeping.REQUESTS))
        if self._begin(f"keep {what.name.lower()}", f"relay {index}", self._length(5.0), relay.let_go):
            relay.keep(what)

    def _cut(self, index: int) -> None:
        self.counts["cut"] += 1
        self._pair.relays[index].cut_all()

    def _pause_broker(self) -> None:
        if self._begin("pause broker", "broker", self._length(3.5), lambda: self._cluster.resume_broker(0)):
            self._cluster.pause_broker(0)

    # ------------------------------------------------------------------ Redis
    def _flush(self) -> None:
        if "redis" not in self._broken:
            self.counts["flush"] += 1
            self._pair.redis.call("FLUSHALL")

    def _pause_redis(self) -> None:
        if self._begin("pause redis", "redis", self._length(9.0), self._pair.redis.go_on):
            self._pair.redis.pause()

    def _restart_redis(self) -> None:
        if self._begin("restart redis", "redis", self._random.uniform(0.0, 3.0), self._pair.redis.start):
            self._pair.redis.stop()

    def _lose_tail(self) -> None:
        redis = self._pair.redis
        if self._begin("redis loses its tail", "redis", self._random.uniform(0.0, 3.0), redis.start):
            redis.kill()
            redis.forget_tail(self._random.randint(1, 20_000))

    def _read_only(self) -> None:
        redis = self._pair.redis
        if self._begin("read-only", "redis", self._length(9.0), lambda: redis.call("REPLICAOF", "NO", "ONE")):
            redis.call("REPLICAOF", "127.0.0.1", 1)

    # ------------------------------------------------------------------ inside
    def _length(self, seconds_max: float) -> float:
        return seconds_max * self._random.random() ** 2

    def _begin(self, kind: str, what: str, seconds: float, undo: Undo) -> bool:
        if what in self._broken:
            return False
        self._broken.add(what)
        self.counts[kind] += 1
        heapq.heappush(self._ends, (time.monotonic() + seconds, next(self._order), what, undo))
        return True

    def _end(self) -> None:
        _, _, what, undo = heapq.heappop(self._ends)
        undo()
        self._broken.discard(what)


def run_storm(
    pair: TwoProxies, cluster: LegacyCluster, seconds: float, seed: int
) -> tuple[Load, Storm, list[float], list[str]]:
    """Return the producers, the faults, the seconds of each recovery, and what was wrong."""
    random, dice, lock = Random(seed), Random(seed + 1), threading.Lock()
    storm = Storm(pair, cluster, random)
    places = [(_TOPIC, number % PARTITIONS) for number in range(PRODUCERS)]
    recoveries: list[float] = []

    def anywhere(_index: int) -> tuple[str, int]:
        with lock:
            return dice.choice(pair.addresses)

    end = time.monotonic() + seconds
    with Load(places, anywhere, seed=seed, hang_up_share=0.05) as load:
        load.all_go_on(3)
        while time.monotonic() < end:
            for _ in range(CALM_EVERY):
                storm.fault()
                pause = time.monotonic() + random.uniform(0.05, 3.0)
                while time.monotonic() < pause:
                    storm.end_due()
                    time.sleep(0.02)
            storm.end_all()
            recoveries.append(load.all_go_on(3, BACK_SECONDS_MAX))
            print(f"{storm.counts.total()} faults, {sum(load.progress())} batches, {recoveries[-1]:.1f} s", flush=True)
    time.sleep(1.0)
    complaints = load.complaints(pair.stored(places)) + pair.errors_of_ours()
    if strange := load.codes().keys() - ALLOWED:
        complaints.append(f"codes {strange}")
    if left := pair.redis.intents_of_the_dead():
        complaints.append(f"left open: {left}")
    return load, storm, recoveries, complaints


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print and save; exit status 1 if anything was wrong. ``--keep`` leaves logs and segments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a directory that does not exist yet")
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        directory = options.keep
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idemproxy-storm-")))
        directory.mkdir(exist_ok=True)
        cluster = stack.enter_context(
            LegacyCluster(directory / "kafka", auto_create_topics=False, session_timeout_ms=20_000)
        )
        cluster.create_topic(_TOPIC, PARTITIONS)
        pair = stack.enter_context(TwoProxies(directory / "pair", cluster))
        load, storm, recoveries, complaints = run_storm(pair, cluster, options.minutes * 60, options.seed)
    figures = {
        "seed": options.seed,
        "minutes": options.minutes,
        "right": not complaints,
        "faults": dict(storm.counts),
        "batches": sum(load.progress()),
        "codes": dict(load.codes()),
        **spread("recovery_seconds", recoveries),
    }
    append_result("storms", {**figures, "complaints": complaints[:10]})
    print(figures, *complaints, sep="\n", flush=True)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
