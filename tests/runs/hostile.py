"""A producer that behaves, next to thousands of connections that do not: its delays, and the proxy's memory.

``python -m runs.hostile --record`` is ``make hostile``: 10,000 idle connections and 1,000 slow ones, and a line in
benchmarks/results. Three spells in one run: quiet, under the hostile ones, quiet again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.process_memory import peak_bytes, resident_bytes
from testkit.real.proxies.proxy_process import ProxyProcess

from .hostile_peers import KINDS
from .results import append_result

TOPIC = "well-behaved"
PAUSE_SECONDS = 0.01
P99_RATIO_MAX = 3.0
SPARE_CONNECTIONS = 200
"""Above the hostile ones, for who behaves: a full proxy lets nobody in, whatever they do."""
_ENDING_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Delays:
    """From the first byte of a one-record produce to its answer."""

    requests: int
    p50_ms: float
    p99_ms: float
    worst_ms: float


@dataclass(frozen=True, slots=True)
class Figures:
    """One run. Memory in bytes."""

    idle: int
    slow: int
    opened: dict[str, Any]
    at_the_end: dict[str, Any]
    quiet: Delays
    beside: Delays
    after: Delays
    quiet_bytes: int
    beside_bytes: int
    peak_bytes: int
    is_complete: bool
    """Every record of the producer is in the log, once and in order."""

    @property
    def p99_ratio(self) -> float:
        """With the hostile ones to the quiet spell before them. What others do to the machine shows in ``after``."""
        return self.beside.p99_ms / self.quiet.p99_ms


class Producer:
    """Sends one record after the other, at an even pace, and takes the time."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._producer_id = client.new_producer_id()
        self.sequence = 0

    def spell(self, seconds: float) -> Delays:
        """Produce for so long."""
        taken: list[float] = []
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            records = batch([b"%d" % self.sequence], producer_id=self._producer_id, sequence=self.sequence)
            answer = self._client.produce_one(TOPIC, 0, records)
            assert (answer.error_code, answer.base_offset) == (0, self.sequence), answer
            self.sequence += 1
            taken.append(time.monotonic() - began)
            time.sleep(PAUSE_SECONDS)
        return _delays(taken)


def _delays(taken: Sequence[float]) -> Delays:
    inorder = sorted(taken)

    def at(share: float) -> float:
        return round(inorder[min(int(len(inorder) * share), len(inorder) - 1)] * 1000, 2)

    return Delays(len(inorder), at(0.5), at(0.99), at(1.0))


@contextmanager
def hostile_peers(address: tuple[str, int], *options: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield, once all are open, what was opened, and a place that is filled with what became of them."""
    command = [sys.executable, "-m", "runs.hostile_peers", address[0], str(address[1]), *options]
    environment = {**os.environ, "PYTHONPATH": os.fspath(Path(__file__).resolve().parents[1])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        became: dict[str, Any] = {}
        try:
            opened = json.loads(process.stdout.readline())
            yield opened, became
            process.stdin.close()
            became.update(json.loads(process.stdout.readline()))
            process.wait(_ENDING_SECONDS_MAX)
        finally:
            process.kill()


def run_hostile(
    directory: Path, *, idle: int, slow: int, seconds: float, quiet_seconds: float, kinds: Sequence[str] = KINDS
) -> Figures:
    """Start a broker and a proxy, and let the producer work through the three spells; the second one lasts
    ``seconds``."""
    config = directory / "idemproxy.yaml"
    counted = f"connections_max: {idle + slow + SPARE_CONNECTIONS}, connections_per_ip_max: 0"
    config.write_text(f"limits: {{{counted}}}\n")
    with LegacyCluster(directory / "kafka", auto_create_topics=False) as cluster:
        cluster.create_topic(TOPIC, 1)
        cluster.create_topic("hostile", 64)
        options = ("--config", os.fspath(config))
        proxy = ProxyProcess(directory / "proxy", cluster.address(0), options=options)
        with proxy, RawClient(proxy.address) as client:
            producer = Producer(client)
            producer.spell(min(quiet_seconds, 2))  # warms up
            quiet = producer.spell(quiet_seconds)
            quiet_bytes = resident_bytes(proxy.pid)
            counts = ("--idle", str(idle), "--slow", str(slow), "--kinds", ",".join(kinds))
            with hostile_peers(proxy.address, *counts) as (opened, became):
                beside = producer.spell(seconds)
                beside_bytes = resident_bytes(proxy.pid)
            after = producer.spell(quiet_seconds)
            values = client.values(TOPIC, 0)
            return Figures(
                idle,
                slow,
                opened,
                became,
                quiet,
                beside,
                after,
                quiet_bytes,
                beside_bytes,
                peak_bytes(proxy.pid),
                values == [b"%d" % number for number in range(producer.sequence)],
            )


def main() -> int:
    """Run it, say it, and record it if that is asked for; 1 when the producer was held up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle", type=int, default=10_000)
    parser.add_argument("--slow", type=int, default=1_000)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of the slow ones (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each of the three spells")
    parser.add_argument("--record", action="store_true", help="add a line to benchmarks/results/hostile.jsonl")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
        figures = run_hostile(
            Path(directory),
            idle=options.idle,
            slow=options.slow,
            seconds=options.seconds,
            quiet_seconds=options.seconds,
            kinds=options.kinds.split(","),
        )
    line = {**asdict(figures), "p99_ratio": round(figures.p99_ratio, 2), "load": os.getloadavg()[0]}
    print(json.dumps(line, indent=2))
    if options.record:
        print(append_result("hostile", line))
    return 0 if figures.is_complete and figures.p99_ratio < P99_RATIO_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
