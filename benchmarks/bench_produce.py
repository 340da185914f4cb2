"""Direct against proxied, in one run, interleaved: throughput, latency, and the proxy's CPU per request and per GB.

``make bench``. Prints a table and adds a line of JSON to ``benchmarks/results/produce.jsonl``. Both sides run on the
same machine and share its cores, so only ratios of one run mean something, and the CPU figures only together with the
spread."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from idemproxy import __version__
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports

RESULTS = Path(__file__).parent / "results" / "produce.jsonl"
PARTITIONS = 6


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
    fields = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    case: Case, address: str, topic: str, *, idempotent: bool, process_id: int, seconds: float
) -> dict[str, float]:
    """Run one load; the CPU of ``process_id`` is taken over its measured part."""
    command = [
        sys.executable, str(Path(__file__).with_name("loadgen.py")), address, topic, "--partitions", str(PARTITIONS),
        "--connections", str(case.connections), "--in-flight", str(case.in_flight), "--record-bytes",
        str(case.record_bytes), "--records", str(case.records), "--codec", case.codec, "--seconds", str(seconds),
    ]  # fmt: skip
    if idempotent:
        command.append("--idempotent")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout is not None
        assert load.stdout.readline() == "READY\n"
        time.sleep(1.0)
        before = cpu_seconds(process_id)
        answer = json.loads(load.stdout.readline())
        used = cpu_seconds(process_id) - before
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
    """Start a broker and a proxy, run every case in turn on both, print and save."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    found: dict[str, dict[str, list[dict[str, float]]]] = {case.name: {"direct": [], "proxied": []} for case in CASES}
    with tempfile.TemporaryDirectory() as directory, LegacyCluster(Path(directory) / "kafka") as cluster:
        cluster.create_topic("bench", PARTITIONS, 1)
        port = free_ports(1)[0]
        command = [
            sys.executable, "-m", "idemproxy", "run", "--upstream", cluster.bootstrap, "--listen", f"127.0.0.1:{port}",
            "--data-dir", str(Path(directory) / "data"),
        ]  # fmt: skip
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as proxy:
            assert proxy.stderr is not None
            while "point clients at" not in proxy.stderr.readline():
                pass
            try:
                for _ in range(options.rounds):
                    for case in CASES:
                        for side in ("direct", "proxied"):
                            is_proxied = side == "proxied"
                            address = f"127.0.0.1:{port}" if is_proxied else cluster.bootstrap
                            process_id = proxy.pid if is_proxied else cluster.process_id(0)
                            found[case.name][side].append(
                                measure(
                                    case,
                                    address,
                                    "bench",
                                    idempotent=is_proxied,
                                    process_id=process_id,
                                    seconds=options.seconds,
                                )
                            )
                            print(
                                case.name,
                                side,
                                {k: round(v, 2) for k, v in found[case.name][side][-1].items()},
                                flush=True,
                            )
            finally:
                proxy.terminate()
    _report(found)


def _report(found: dict[str, dict[str, list[dict[str, float]]]]) -> None:
    rows = []
    for name, sides in found.items():
        ratios = [
            p["requests_per_second"] / d["requests_per_second"]
            for d, p in zip(sides["direct"], sides["proxied"], strict=True)
        ]
        row: dict[str, object] = {"case": name, "throughput_ratio": _spread(ratios)}
        for key in ("requests_per_second", "p50_ms", "p99_ms"):
            row[f"direct_{key}"] = _spread([one[key] for one in sides["direct"]])
            row[f"proxied_{key}"] = _spread([one[key] for one in sides["proxied"]])
        for key in ("cpu_us_per_request", "cpu_seconds_per_gb"):
            row[f"proxy_{key}"] = _spread([one[key] for one in sides["proxied"]])
        rows.append(row)
        print(json.dumps(row, indent=2))
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("a") as results:
        stamp = {
            "date": time.strftime("%Y-%m-%d"), "version": __version__, "python": platform.python_version(),
            "commit": subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip(),
            "broker": "0.10.2.2", "cores": os.cpu_count(), "rows": rows,
        }  # fmt: skip
        results.write(json.dumps(stamp) + "\n")


def _spread(values: list[float]) -> list[float]:
    """Lowest, median, highest."""
    return [round(min(values), 3), round(statistics.median(values), 3), round(max(values), 3)]


if __name__ == "__main__":
    main()
