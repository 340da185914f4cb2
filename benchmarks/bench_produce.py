"""Direct against proxied, in one run, interleaved: throughput, latency, and the proxy's CPU per request and per GB.

``make bench``. Prints every figure and adds a line of JSON to ``benchmarks/results/produce.jsonl``. All sides run on
the same machine and share its cores, so only ratios of one run mean something, and the CPU figures only together with
the spread. The proxy runs as it is started by default: with its own Redis, appendfsync everysec. ``--against COMMIT``
adds a proxy of that commit's code, for before and after in one run."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import ROOT, extract, save, spread

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports

PARTITIONS = 6
Found = dict[str, dict[str, list[dict[str, float]]]]
"""By case and side: the figures of each round."""


@dataclass(frozen=True)
class Case:
    """One load. ``name`` says what is asked."""

    name: str
    connections: int
    in_flight: int
    record_bytes: int
    records: int
    codec: str = "none"

    @property
    def bytes_per_request(self) -> int:
        """Values only."""
        return self.record_bytes * self.records


CASES = (
    Case("one record, one synchronous producer", 1, 1, 100, 1),
    Case("one record, 50 connections", 50, 1, 100, 1),
    Case("16 KB batches of 1 KB, 20 connections", 20, 1, 1024, 16),
    Case("64 KB batches of 1 KB, 6 producers, 5 in flight", 6, 5, 1024, 64),
    Case("64 KB batches of 1 KB, lz4, 6 producers, 5 in flight", 6, 5, 1024, 64, "lz4"),
)


def cpu_seconds(process_id: int) -> float:
    """User and system time of a process and its threads."""
    threads = Path(f"/proc/{process_id}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@dataclass(frozen=True)
class Side:
    """Somebody who takes produce requests. ``is_proxied``: speaks Produce 3 with producer ids."""

    name: str
    address: str
    process_id: int
    is_proxied: bool


@contextmanager
def proxy(name: str, tree: Path, upstream: str, directory: Path, options: tuple[str, ...] = ()) -> Iterator[Side]:
    """A proxy that runs the code below ``tree``, with a data directory of its own."""
    port = free_ports(1)[0]
    command = [
        sys.executable, "-m", "idemproxy", "run", "--upstream", upstream, "--listen", f"127.0.0.1:{port}",
        "--data-directory", str(directory / name), *options,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    with (
        (directory / f"{name}.log").open("w+") as log,
        subprocess.Popen(command, stderr=log, env=environment) as process,
    ):
        try:
            while "point clients at" not in Path(log.name).read_text():
                assert process.poll() is None, Path(log.name).read_text()
                time.sleep(0.05)
            yield Side(name, f"127.0.0.1:{port}", process.pid, True)
        finally:
            process.terminate()


def measure(case: Case, side: Side, seconds: float) -> dict[str, float]:
    """Run one load; the CPU of the side's process is taken over its measured part."""
    command = [
        sys.executable, str(Path(__file__).with_name("loadgen.py")), side.address, "bench", "--partitions",
        str(PARTITIONS), "--connections", str(case.connections), "--in-flight", str(case.in_flight), "--record-bytes",
        str(case.record_bytes), "--records", str(case.records), "--codec", case.codec, "--seconds", str(seconds),
    ]  # fmt: skip
    if side.is_proxied:
        command.append("--idempotent")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout is not None
        assert load.stdout.readline() == "READY\n"
        time.sleep(1.0)
        before = cpu_seconds(side.process_id)
        answer = json.loads(load.stdout.readline())
        used = cpu_seconds(side.process_id) - before
    assert not answer["errors"], answer
    requests = answer["requests"]
    return {
        "requests_per_second": requests / answer["seconds"],
        "cpu_us_per_request": used / requests * 1e6,
        "cpu_seconds_per_gb": used / (requests * case.bytes_per_request / 1e9),
        "p50_ms": answer["p50_ms"],
        "p99_ms": answer["p99_ms"],
    }


def main() -> None:
    """Start a broker and the proxies, run every case in turn on all, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--case", type=int, action="append", choices=range(len(CASES)), help="only these")
    parser.add_argument("--against", metavar="COMMIT", help="a proxy of this commit's code as well")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    cases = [CASES[index] for index in options.case or range(len(CASES))]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(LegacyCluster(directory / "kafka"))
        cluster.create_topic("bench", PARTITIONS, 1)
        sides = [
            Side("direct", cluster.bootstrap, cluster.process_id(0), False),
            stack.enter_context(proxy("proxied", ROOT, cluster.bootstrap, directory)),
        ]
        if options.against:
            tree = extract(options.against, directory / "before")
            sides.append(stack.enter_context(proxy("before", tree, cluster.bootstrap, directory)))
        found: Found = {case.name: {side.name: [] for side in sides} for case in cases}
        for number in range(options.rounds):
            for case in cases:
                for side in sides if number % 2 else reversed(sides):
                    figures = measure(case, side, options.seconds)
                    found[case.name][side.name].append(figures)
                    print(case.name, side.name, {k: round(v, 2) for k, v in figures.items()}, flush=True)
    _report(found, options.against, is_saved=not options.dry)


def _report(found: Found, against: str | None, *, is_saved: bool) -> None:
    rows = []
    for name, sides in found.items():
        row: dict[str, object] = {"case": name}
        for side, figures in sides.items():
            for key in ("requests_per_second", "p50_ms", "p99_ms"):
                row[f"{side}_{key}"] = spread([one[key] for one in figures])
            if side != "direct":
                pairs = list(zip(sides["direct"], figures, strict=True))
                row[f"{side}_throughput_ratio"] = spread(
                    [p["requests_per_second"] / d["requests_per_second"] for d, p in pairs]
                )
                for key in ("p50_ms", "p99_ms"):
                    row[f"{side}_added_{key}"] = spread([p[key] - d[key] for d, p in pairs])
                for key in ("cpu_us_per_request", "cpu_seconds_per_gb"):
                    row[f"{side}_{key}"] = spread([one[key] for one in figures])
        if "before" in sides:
            pairs = list(zip(sides["before"], sides["proxied"], strict=True))
            row["cpu_now_over_before"] = spread([n["cpu_us_per_request"] / b["cpu_us_per_request"] for b, n in pairs])
        rows.append(row)
        print(json.dumps(row, indent=2))
    if is_saved:
        save("produce", {"before": against, "redis": "appendfsync everysec", "rows": rows})


if __name__ == "__main__":
    main()
