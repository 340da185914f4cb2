"""Proxies that are killed, stopped for half a minute or asked to end while they hold unanswered batches of producers.

``python -m runs.takeovers`` is ``make takeovers``: pairs of proxies side by side, and a line of JSON of what their
producers got from the other proxy, how long it took, and what is in the log.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from random import Random

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.state.entry import Intent
from idemproxy.state.store import entry_key
from testkit.real.clients.two_proxies_client import IN_FLIGHT_MAX, Load, Place, RovingProducer
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies, stop_before
from testkit.real.proxies.two_proxies_program import STOP_BEFORE_APPEND, STOP_BEFORE_WRITE, uncovered_in
from testkit.real.proxies.two_proxies_relays import Keeping

from .results import append_result

PAIRS, PRODUCERS = 4, 5
KILLS, STOPS, HANDOVERS = 20, 20, 12
BUSY_SHARE, BUSY_ROUNDS = 0.5, 3
"""Of the rounds in which answers are held or requests lost: before it every producer sends so many batches, one soon
after the other, so that most have an append reservation."""
STOP_SECONDS = 30.0
SETTLED_SECONDS_MAX = 60.0
_APPEND_SECONDS = 0.5
"""What the relay has passed on is in the segment files by then."""
_WINDOW_SECONDS = 20.0
_TOPIC = "takeovers"


class Moment(StrEnum):
    """What has become of the batches when their proxy stops working."""

    ANSWER_HELD = "answer_held"
    """They are in the log; the broker's answer is on its way."""
    REQUEST_LOST = "request_lost"
    """They have left the proxy, and the broker will never get them."""
    BEFORE_APPEND = "before_append"
    """They are reserved."""
    BEFORE_WRITE = "before_write"
    """They are reserved, and the lease was looked at; they have not been written."""


KILLED_AT = (Moment.ANSWER_HELD, Moment.ANSWER_HELD, Moment.ANSWER_HELD, Moment.REQUEST_LOST)
STOPPED_AT = tuple(Moment)


@dataclass(slots=True)
class Report:
    """What became of the batches that were held when a proxy was stopped or killed."""

    rounds: Counter[str] = field(default_factory=Counter)
    held: int = 0
    """Producers with an unanswered batch at that moment."""
    reserved: int = 0
    """Of those, how many had it under an append reservation."""
    in_log: int = 0
    """Of those, how many had that batch in the log already."""
    original: int = 0
    """Of those, how many retries got the offset of that copy."""
    seconds: list[float] = field(default_factory=list)
    """From the end of the proxy until each retry was answered."""
    codes: Counter[int] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Take the figures of another pair."""
        self.rounds += other.rounds
        self.held += other.held
        self.reserved += other.reserved
        self.in_log += other.in_log
        self.original += other.original
        self.seconds += other.seconds
        self.codes += other.codes
        self.complaints += other.complaints

    def row(self) -> Mapping[str, object]:
        """The figures for the results file."""
        return {
            "rounds": {str(moment): count for moment, count in self.rounds.items()},
            "held": self.held,
            "append_reservations": self.reserved,
            "in_log": self.in_log,
            "original_offset": self.original,
            "wrong": len(self.complaints),
            "codes": dict(self.codes),
            **spread("seconds", self.seconds),
        }


def spread(name: str, values: Sequence[float], digits: int = 2) -> Mapping[str, float]:
    """Return median, 99th percentile and maximum, by name."""
    ordered = sorted(values)
    last = len(ordered) - 1
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {f"{name}_{label}": round(ordered[round(last * share)], digits) for label, share in shares.items()}


class Bench:
    """One pair of proxies with its producers, each alone on a partition."""

    def __init__(self, pair: TwoProxies, places: Sequence[Place], seed: int) -> None:
        self.pair = pair
        self.report = Report()
        self._random = Random(seed)
        self._producers = [RovingProducer(place) for place in places]
        self._round = 0
        self._victim = 0

    # ------------------------------------------------------------------ SIGKILL
    def kill(self, moment: Moment) -> None:
        """Kill the proxy that holds unanswered batches; bring them through the other one; start it again."""
        before = self._hold(moment)
        begun = time.monotonic()
        self.pair.proxies[self._victim].kill()
        self._bring_to_the_other(begun, before)
        self.pair.relays[self._victim].let_go()
        self.pair.proxies[self._victim].start()

    # ------------------------------------------------------------------ SIGSTOP
    def stop(self, moment: Moment, stop_seconds: float) -> None:
        """Stop it instead, and let it resume when the other one has long answered; then come back to it."""
        victim = self.pair.proxies[1 - self._victim]  # the one of the next round
        losses = victim.log.count("the lease was lost")
        before = self._hold(moment)
        begun = time.monotonic()
        if moment in (Moment.ANSWER_HELD, Moment.REQUEST_LOST):
            victim.signal(signal.SIGSTOP)
        self._bring_to_the_other(begun, before)
        time.sleep(max(0.0, begun + stop_seconds - time.monotonic()))
        victim.signal(signal.SIGCONT)
        self.pair.relays[self._victim].let_go()
        wait_until(lambda: victim.log.count("the lease was lost") > losses, "the stopped proxy sees its end")
        for producer in self._producers:
            producer.hang_up()
            producer.add(1)
        for producer in self._producers:
            producer.insist(lambda: victim.address, SETTLED_SECONDS_MAX)

    def finish(self) -> Report:
        """Judge all that was sent."""
        time.sleep(_APPEND_SECONDS)
        stored = self.pair.stored([one.place for one in self._producers])
        for producer in self._producers:
            producer.hang_up()
            self.report.complaints += producer.complaints(stored[producer.place])
            self.report.codes += producer.codes
        self.report.complaints += self.pair.errors_of_ours()
        return self.report

    # ------------------------------------------------------------------ inside
    def _hold(self, moment: Moment) -> Mapping[int, int | None]:
        """Let every producer have batches open at the next victim. By producer: the offset of its first one, if that
        is in the log."""
        self._round += 1
        self._victim = self._round % 2
        self.report.rounds[moment] += 1
        proxy, relay = self.pair.proxies[self._victim], self.pair.relays[self._victim]
        for producer in self._producers:
            producer.hang_up()
            producer.insist(lambda: proxy.address)
            producer.try_once(lambda: proxy.address)
            producer.add(1, self._random)
            producer.insist(lambda: proxy.address, SETTLED_SECONDS_MAX)
        self.pair.redis.wait_until_quiet()
        if moment in (Moment.BEFORE_APPEND, Moment.BEFORE_WRITE):
            stop_before(proxy, STOP_BEFORE_APPEND if moment is Moment.BEFORE_APPEND else STOP_BEFORE_WRITE)
        else:
            for producer in self._producers * (BUSY_ROUNDS if self._random.random() < BUSY_SHARE else 0):
                producer.add(1, self._random)
                producer.insist(lambda: proxy.address, SETTLED_SECONDS_MAX)
            relay.keep(Keeping.ANSWERS if moment is Moment.ANSWER_HELD else Keeping.REQUESTS)
        for producer in self._producers:
            producer.add(self._random.randint(1, IN_FLIGHT_MAX), self._random)
            producer.send()
        awaited = 1 if moment in (Moment.BEFORE_APPEND, Moment.BEFORE_WRITE) else len(self._producers)
        wait_until(lambda: len(self._open_intents()) >= awaited, f"{awaited} batches are reserved")
        if moment in (Moment.ANSWER_HELD, Moment.REQUEST_LOST):
            wait_until(lambda: relay.kept > 0, "something is kept")
        time.sleep(_APPEND_SECONDS)
        self.report.reserved += sum(intent.is_append_reservation for intent in self._open_intents())
        return self._first_offsets()

    def _open_intents(self) -> list[Intent]:
        entries = self.pair.redis.entries()
        stored = [entries.get(entry_key("default", one.producer_id, *one.place)) for one in self._producers]
        return [one.intent for one in stored if one is not None and one.has_open_intent and one.intent is not None]

    def _first_offsets(self) -> Mapping[int, int | None]:
        stored = self.pair.stored([one.place for one in self._producers])
        found: dict[int, int | None] = {}
        for index, producer in enumerate(self._producers):
            value = producer.values[min(producer.unanswered)][0]
            found[index] = next((offset for offset, one in stored[producer.place] if one == value), None)
        return found

    def _bring_to_the_other(self, begun: float, before: Mapping[int, int | None]) -> None:
        """Every producer goes to the other proxy at once, and stays until it has its answers."""
        other = self.pair.proxies[1 - self._victim].address
        first = {index: min(producer.unanswered) for index, producer in enumerate(self._producers)}
        for producer in self._producers:
            producer.hang_up()
        with ThreadPoolExecutor(len(self._producers)) as pool:
            list(pool.map(lambda one: one.insist(lambda: other, SETTLED_SECONDS_MAX), self._producers))
        for index, producer in enumerate(self._producers):
            self.report.held += 1
            self.report.seconds.append(producer.answered_at[first[index]] - begun)
            if before[index] is not None:
                self.report.in_log += 1
                self.report.original += producer.told[first[index]] == before[index]


# ---------------------------------------------------------------------- SIGTERM
@dataclass(slots=True)
class Handovers:
    """Producers under load whose proxy is asked to end."""

    pauses: list[float] = field(default_factory=list)
    """The longest time between two answers around each SIGTERM, of each producer, in seconds."""
    drains: list[float] = field(default_factory=list)
    """From each SIGTERM to the exit, in seconds."""
    unknown_outcomes_left: int = 0
    complaints: list[str] = field(default_factory=list)


def hand_over(pair: TwoProxies, places: Sequence[Place], count: int, seed: int) -> Handovers:
    """Ask one proxy and the other to end, in turn, under load; new connections go to the one that stays."""
    found = Handovers()
    chosen = [0]
    with Load(places, lambda _: pair.addresses[chosen[0]], seed=seed) as load:
        for _ in range(count):
            load.all_go_on(10)
            victim = pair.proxies[chosen[0]]
            chosen[0] = 1 - chosen[0]
            begun = time.monotonic()
            assert victim.stop() == 0
            found.drains.append(time.monotonic() - begun)
            load.all_go_on(5)
            found.unknown_outcomes_left += len(pair.redis.intents_of_the_dead())
            found.pauses += [_longest_pause(one, begun) for one in load.producers]
            victim.start()
    time.sleep(_APPEND_SECONDS)
    found.complaints = load.complaints(pair.stored(places)) + pair.errors_of_ours()
    return found


def _longest_pause(producer: RovingProducer, begun: float) -> float:
    times = sorted(at for at in list(producer.answered_at.values()) if at > begun - 1)
    return max(later - earlier for earlier, later in pairwise(times))


def uncovered(pair: TwoProxies, places: Sequence[Place], seconds: float) -> list[int]:
    """Return the times in nanoseconds between each last look at the lease and the end of its write, under load."""
    with Load(places, lambda index: pair.addresses[index % 2], pause_seconds=0.0):
        time.sleep(seconds)
    for proxy in pair.proxies:
        assert proxy.stop() == 0
    return [one for proxy in pair.proxies for one in uncovered_in(proxy.log)]


# ---------------------------------------------------------------------- make takeovers
Work = Callable[[int], Report]


def _side_by_side(pairs: Sequence[TwoProxies], work: Work) -> Report:
    whole = Report()
    with ThreadPoolExecutor(len(pairs)) as pool:
        for report in pool.map(work, range(len(pairs))):
            whole.add(report)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything, print a line for each part and save; exit status 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--stops", type=int, default=STOPS)
    parser.add_argument("--handovers", type=int, default=HANDOVERS)
    parser.add_argument("--stop-seconds", type=float, default=STOP_SECONDS)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="side by side")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="idemproxy-takeovers-") as name, ExitStack() as stack:
        cluster = stack.enter_context(LegacyCluster(Path(name) / "kafka", auto_create_topics=False))
        cluster.create_topic(_TOPIC, (3 * options.pairs + 1) * PRODUCERS)
        pairs = [
            stack.enter_context(TwoProxies(Path(name) / f"pair-{index}", cluster, stoppable=True))
            for index in range(options.pairs)
        ]
        figures, complaints = _measure(pairs, options)
    append_result("takeovers", {"seed": options.seed, "right": not complaints, **figures})
    print(*complaints, sep="\n", file=sys.stderr)
    return 1 if complaints else 0


def _measure(pairs: Sequence[TwoProxies], options: argparse.Namespace) -> tuple[dict[str, object], list[str]]:
    groups = iter(range(3 * len(pairs) + 1))

    def places() -> list[Place]:
        first = next(groups) * PRODUCERS
        return [(_TOPIC, number) for number in range(first, first + PRODUCERS)]

    def rounds(count: int, index: int) -> range:
        return range(index, count, len(pairs))

    benches = [Bench(pair, places(), options.seed * 100 + index) for index, pair in enumerate(pairs)]

    def kills(index: int) -> Report:
        for number in rounds(options.kills, index):
            benches[index].kill(KILLED_AT[number // len(pairs) % len(KILLED_AT)])
        return benches[index].finish()

    figures: dict[str, object] = {}
    killed = _side_by_side(pairs, kills)
    figures["kills"] = killed.row()
    print(f"kills    {killed.row()}", flush=True)

    benches = [Bench(pair, places(), options.seed * 100 + 50 + index) for index, pair in enumerate(pairs)]

    def stops(index: int) -> Report:
        for number in rounds(options.stops, index):
            benches[index].stop(STOPPED_AT[number // len(pairs) % len(STOPPED_AT)], options.stop_seconds)
        return benches[index].finish()

    stopped = _side_by_side(pairs, stops)
    figures["stops"] = {"stop_seconds": options.stop_seconds, **stopped.row()}
    print(f"stops    {figures['stops']}", flush=True)

    handed = hand_over(pairs[0], places(), options.handovers, options.seed)
    figures["handovers"] = {
        "count": options.handovers,
        "unknown_outcomes_left": handed.unknown_outcomes_left,
        "wrong": len(handed.complaints),
        **spread("pause_seconds", handed.pauses),
        **spread("drain_seconds", handed.drains),
    }
    print(f"handover {figures['handovers']}", flush=True)

    times = [one / 1000 for one in uncovered(pairs[0], places(), _WINDOW_SECONDS)]
    figures["uncovered"] = {"writes": len(times), **spread("microseconds", times, 1)}
    print(f"window   {figures['uncovered']}", flush=True)
    unknown_outcomes = ["a rolling end left an unknown outcome"] if handed.unknown_outcomes_left else []
    wrong = [
        f"{report.original} of {report.in_log} were told the original offset"
        for report in (killed, stopped)
        if report.original != report.in_log
    ]
    return figures, killed.complaints + stopped.complaints + handed.complaints + unknown_outcomes + wrong


if __name__ == "__main__":
    sys.exit(main())
