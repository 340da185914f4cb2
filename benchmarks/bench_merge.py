"""Many small producers on few partitions: their batches in wrappers of their own against merged ones, in one run.

``make bench``. Two proxies of this code before one broker, one with ``--merge-producers``, take turns. Prints every
figure and adds a line of JSON to ``benchmarks/results/merge.jsonl``. Load, proxies, broker and Redis share the same
cores, so only the ratios of one run mean something."""

from __future__ import annotations

import argparse
import json
import struct
import tempfile
from contextlib import ExitStack
from pathlib import Path

from common import ROOT, save, spread
from loads import PARTITIONS, TOPIC, Case, measure
from sides import Side, proxy

from idemproxy.demo.legacy_cluster import LegacyCluster

CASES = (
    Case("one record of 100 B, one producer", 1, 1, 100, 1),
    Case("one record of 100 B, 6 producers", 6, 1, 100, 1),
    Case("one record of 100 B, 50 producers", 50, 1, 100, 1),
    Case("one record of 100 B, 50 producers, 5 in flight", 50, 5, 100, 1),
    Case("one record of 100 B, 200 producers", 200, 1, 100, 1),
    Case("one record of 100 B, 400 producers", 400, 1, 100, 1),
    Case("4 KB batches of 1 KB, 200 producers", 200, 1, 1024, 4),
    Case("16 KB batches of 1 KB, 20 producers", 20, 1, 1024, 16),
    Case("64 KB batches of 1 KB, 6 producers, 5 in flight", 6, 5, 1024, 64),
)
_COMPILED = ("-XX:TieredStopAtLevel=4",)
_OFFSET_AND_SIZE = struct.Struct(">qi")
Figures = dict[str, float]


class StoredMessages:
    """Messages in the broker's log, wrappers unopened."""

    def __init__(self, cluster: LegacyCluster) -> None:
        self._directory = cluster.log_directories[0]
        self._seen_bytes: dict[Path, int] = {}

    def added(self) -> int:
        """Return how many are there that were not the last time."""
        count = 0
        for path in self._directory.glob(f"{TOPIC}-*/*.log"):
            at, end = self._seen_bytes.get(path, 0), path.stat().st_size
            with path.open("rb") as segment:
                while at + _OFFSET_AND_SIZE.size <= end:
                    segment.seek(at)
                    _, size = _OFFSET_AND_SIZE.unpack(segment.read(_OFFSET_AND_SIZE.size))
                    if at + _OFFSET_AND_SIZE.size + size > end:
                        break
                    at += _OFFSET_AND_SIZE.size + size
                    count += 1
            self._seen_bytes[path] = at
        return count


def measure_both(case: Case, side: Side, cluster: LegacyCluster, stored: StoredMessages, seconds: float) -> Figures:
    """Run one load; with the broker's wrappers over the whole of it, warm-up and all."""
    stored.added()
    others = {"broker": cluster.process_id(0), "redis": side.redis_process_id}
    figures = measure(case, side, seconds, others=others)
    requests = figures["requests_per_second"] * (seconds + 1.0)
    parts = ("", "broker_", "redis_")
    figures["chain_cpu_us_per_request"] = sum(figures[f"{part}cpu_us_per_request"] for part in parts)
    figures["requests_per_wrapper"] = requests / max(stored.added(), 1)
    return figures


def main() -> None:
    """Start a broker and two proxies, run every case in turn on both, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--case", type=int, action="append", choices=range(len(CASES)), help="only these")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    cases = [CASES[index] for index in options.case or range(len(CASES))]
    found: dict[str, dict[str, list[Figures]]] = {case.name: {"apart": [], "merged": []} for case in cases}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(LegacyCluster(directory / "kafka", heap_mb=1024, java_options=_COMPILED))
        cluster.create_topic(TOPIC, PARTITIONS, 1)
        stored = StoredMessages(cluster)
        sides = [
            stack.enter_context(proxy(name, ROOT, cluster.bootstrap, directory, more))
            for name, more in (("apart", ()), ("merged", ("--merge-producers",)))
        ]
        for number in range(options.rounds):
            for case in cases:
                for side in sides if number % 2 else reversed(sides):
                    figures = measure_both(case, side, cluster, stored, options.seconds)
                    found[case.name][side.name].append(figures)
                    print(case.name, side.name, {key: round(v, 2) for key, v in figures.items()}, flush=True)
    rows = [_row(name, sides["apart"], sides["merged"]) for name, sides in found.items()]
    print(json.dumps(rows, indent=2))
    if not options.dry:
        save("merge", {"redis": "appendfsync everysec", "partitions": PARTITIONS, "rows": rows})


def _row(name: str, apart: list[Figures], merged: list[Figures]) -> dict[str, object]:
    """Lowest, median and highest of each figure, and the ratios merged / apart of the rounds."""
    row: dict[str, object] = {"case": name}
    costs = ("cpu_us_per_request", "broker_cpu_us_per_request", "redis_cpu_us_per_request", "chain_cpu_us_per_request")
    keys = ("requests_per_second", *costs, "p50_ms", "p99_ms")
    for key in (*keys, "requests_per_wrapper"):
        row[f"apart_{key}"] = spread([one[key] for one in apart])
        row[f"merged_{key}"] = spread([one[key] for one in merged])
    for key in keys:
        row[f"{key}_ratio"] = spread([m[key] / a[key] for a, m in zip(apart, merged, strict=True)])
    return row


if __name__ == "__main__":
    main()
