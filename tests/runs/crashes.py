"""A producer whose proxy dies again and again, and whether each retry gets the offset of the one copy in the log.

``python -m runs.crashes`` is ``make crashes``: ten deaths at each point, and a line of JSON of what became of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import stored_values
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.crashing_proxy import CrashPoint, crash_in
from testkit.real.proxies.mortal_proxy import MortalProxy
from testkit.real.proxies.proxy_process import ProxyProcess

from .results import append_result

DEATHS_PER_POINT = 10
NTH_MAX = 4
IN_FLIGHT_MAX = 5
RECORDS_MAX = 3
BATCHES_AFTERWARDS = 6
SETTLED_SECONDS_MAX = 60.0
RETRIABLE = {6, 7, 19}
_APPEND_SECONDS = 0.5
"""What has left the proxy is in the segment files by then, or never."""
_SIGKILLED = -9

Place = tuple[str, int]


@dataclass(slots=True)
class Death:
    """One SIGKILL and what came after it. ``sequence``: of the first record that the proxy was working on."""

    point: CrashPoint
    nth: int
    sequence: int
    record_count: int
    unanswered: int
    """Batches that the producer had to send again."""
    in_log: bool
    """Was it stored when the proxy was dead?"""
    answered_after_seconds: float | None = None
    """From the next life's first breath; None as long as it is not answered."""


@dataclass(slots=True)
class Story:
    """What was sent, answered and found."""

    deaths: list[Death] = field(default_factory=list)
    told: dict[int, int] = field(default_factory=dict)
    """Base sequence -> the offset that its answer said."""
    values: dict[int, list[bytes]] = field(default_factory=dict)
    """Base sequence -> the values of its batch."""
    stored: list[tuple[int, bytes]] = field(default_factory=list)
    """(offset, value), out of the segment files, at the end."""
    found: int = 0
    not_found: int = 0
    """Unknown outcomes of the proxy instances after a death, by result."""

    def complaints(self) -> list[str]:
        """Return every batch that is not stored exactly once, in order, at the offset that its producer got."""
        offsets: dict[bytes, list[int]] = {}
        for offset, value in self.stored:
            offsets.setdefault(value, []).append(offset)
        complaints = []
        for sequence, values in self.values.items():
            wanted = [[self.told[sequence] + index] for index in range(len(values))]
            if (found := [offsets.pop(value, []) for value in values]) != wanted:
                complaints.append(f"sequence {sequence}: told {self.told[sequence]}, stored at {found}")
        complaints += [f"nobody sent {value!r}, stored at {found}" for value, found in offsets.items()]
        in_order = [value for _, values in sorted(self.values.items()) for value in values]
        if [value for _, value in self.stored] != in_order:
            complaints.append("the log is not in the producer's order")
        return complaints


class _Producer:
    """Keeps up to five batches in flight, and sends the same bytes again until they are answered."""

    def __init__(self, proxy: ProxyProcess, place: Place, random: Random) -> None:
        self._proxy = proxy
        self._place = place
        self._random = random
        self._client: RawClient | None = None
        self._next_sequence = 0
        self._producer_id = self._connection().new_producer_id()
        self.unanswered: dict[int, bytes] = {}
        self.told: dict[int, int] = {}
        self.values: dict[int, list[bytes]] = {}

    def add_batches(self, count: int) -> None:
        """Have so many more to send; at most five are unanswered."""
        for _ in range(min(count, IN_FLIGHT_MAX - len(self.unanswered))):
            sequence, size = self._next_sequence, self._random.randint(1, RECORDS_MAX)
            self.values[sequence] = [b"%d:%d" % (sequence, index) for index in range(size)]
            self.unanswered[sequence] = batch(self.values[sequence], producer_id=self._producer_id, sequence=sequence)
            self._next_sequence += size

    def send(self) -> None:
        """Send all that is unanswered once, and take the answers. Raises ConnectionError when the proxy dies."""
        client = self._connection()
        try:
            asked = list(self.unanswered)
            for sequence in asked:
                client.send_produce([(*self._place, self.unanswered[sequence])])
            for sequence in asked:
                (answer,) = client.produce_answer()
                assert answer.error_code in {0, *RETRIABLE}, (sequence, answer)
                if answer.error_code == 0:
                    self.told[sequence] = answer.base_offset
                    del self.unanswered[sequence]
        except ConnectionError:
            client.close()
            self._client = None
            raise
        if self.unanswered:
            time.sleep(0.05)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _connection(self) -> RawClient:
        if self._client is None:
            self._client = RawClient(self._proxy.address)
        return self._client


def run_deaths(
    cluster: LegacyCluster, directory: Path, place: Place, plan: Sequence[tuple[CrashPoint, int]], seed: int
) -> Story:
    """Let one proxy die at each of these points of its n-th produce, one instance after the other; then live on.

    Every instance begins with what the one before left open. The last one is the shipped command, and runs until all is
    answered.
    """
    story, random = Story(), Random(seed)
    with MortalProxy(directory, cluster.address(0)) as proxy:
        proxy.dies_at(*plan[0])
        proxy.start()
        producer = _Producer(proxy, place, random)
        try:
            for index in range(1, len(plan) + 1):
                _live(producer, story, random)
                death = _bury(proxy, cluster, place, len(producer.unanswered))
                story.deaths.append(death)
                if index < len(plan):
                    proxy.dies_at(*plan[index])
                else:
                    proxy.lives_on()
                _note_unknown_outcomes(story, proxy.log)
                proxy.start()
            _live_on(producer, story)
        finally:
            producer.close()
        _note_unknown_outcomes(story, proxy.log)
        assert proxy.stop() == 0
    story.told, story.values = producer.told, producer.values
    story.stored = stored_values(cluster, place)
    return story


def _live(producer: _Producer, story: Story, random: Random) -> None:
    """Produce until the proxy dies; all that is unanswered comes before anything new."""
    begun = time.monotonic()
    while time.monotonic() - begun < SETTLED_SECONDS_MAX:
        if not producer.unanswered:
            producer.add_batches(random.choice((1, 1, 2, IN_FLIGHT_MAX)))
        try:
            producer.send()
        except ConnectionError:
            _note_answers(producer, story, begun)
            return
        _note_answers(producer, story, begun)
        if random.random() < 0.5:
            time.sleep(0.07)  # now and then the last commit does not wait for the next reserve
    raise AssertionError(f"no death within {SETTLED_SECONDS_MAX:.0f} s")


def _live_on(producer: _Producer, story: Story) -> None:
    begun = time.monotonic()
    left = BATCHES_AFTERWARDS
    while producer.unanswered or left:
        assert time.monotonic() - begun < SETTLED_SECONDS_MAX, f"not answered: {list(producer.unanswered)}"
        if not producer.unanswered:
            producer.add_batches(1)
            left -= 1
        producer.send()
        _note_answers(producer, story, begun)


def _bury(proxy: MortalProxy, cluster: LegacyCluster, place: Place, unanswered: int) -> Death:
    exit_code = proxy.wait()
    assert exit_code == _SIGKILLED, f"exit code {exit_code}: {proxy.log[-2000:]}"
    crash = crash_in(proxy.log)
    time.sleep(_APPEND_SECONDS)
    in_log = any(value.startswith(b"%d:" % crash.base_sequence) for _, value in stored_values(cluster, place))
    return Death(crash.point, crash.nth, crash.base_sequence, crash.record_count, unanswered, in_log)


def _note_answers(producer: _Producer, story: Story, begun: float) -> None:
    """Note of each death whether the batch it was about is answered now."""
    for death in story.deaths:
        if death.answered_after_seconds is None and death.sequence in producer.told:
            death.answered_after_seconds = time.monotonic() - begun


def _note_unknown_outcomes(story: Story, log: str) -> None:
    story.found += log.count("resolved as found")
    story.not_found += log.count("resolved as not_found")


# ---------------------------------------------------------------------- make crashes
def plan_of(points: Iterable[CrashPoint], deaths: int, seed: int) -> list[tuple[CrashPoint, int]]:
    """Return so many deaths at each point, each at a produce that the seed chooses."""
    random = Random(seed)
    return [(point, random.randint(1, NTH_MAX)) for point in points for _ in range(deaths)]


def row_of(story: Story) -> Mapping[str, object]:
    """Return the figures of one story for the results file."""
    answered = [death.answered_after_seconds for death in story.deaths if death.answered_after_seconds is not None]
    return {
        "deaths": len(story.deaths),
        "answered": len(answered),
        "batches_sent_again": sum(death.unanswered for death in story.deaths),
        "in_log_at_death": sum(death.in_log for death in story.deaths),
        "resolved_found": story.found,
        "resolved_not_found": story.not_found,
        "batches": len(story.values),
        "wrong": len(story.complaints()),
        "answer_seconds_median": round(statistics.median(answered), 2),
        "answer_seconds_max": round(max(answered), 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all points, print a line for each and save; exit status 1 unless every retry got the right offset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deaths", type=int, default=DEATHS_PER_POINT, help="at each point (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    rows: dict[str, Mapping[str, object]] = {}
    right = True
    with tempfile.TemporaryDirectory() as name, LegacyCluster(Path(name) / "kafka") as cluster:
        for point in CrashPoint:
            topic = point.value.replace("_", "-")
            cluster.create_topic(topic)
            plan = plan_of([point], options.deaths, options.seed)
            story = run_deaths(cluster, Path(name) / topic, (topic, 0), plan, options.seed)
            rows[point] = row_of(story)
            print(f"{point:15} {rows[point]}", flush=True)
            for complaint in story.complaints():
                print(f"  {complaint}", flush=True)
            right = right and not story.complaints() and rows[point]["answered"] == options.deaths
    append_result("crashes", {"seed": options.seed, "right": right, "points": rows})
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
