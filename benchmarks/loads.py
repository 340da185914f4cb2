"""A load, and what it costs those who take it: one run of ``loadgen.py`` in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compiled import compiled
from sides import Side, cpu_seconds

TOPIC = "bench"
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
    is_idempotent: bool = True
    """At a proxy; what a broker is sent has no producer ids."""
    is_fetch: bool = False
    is_text: bool = False

    @property
    def bytes_per_request(self) -> int:
        """Values only."""
        return self.record_bytes * self.records


def measure(
    case: Case,
    side: Side,
    seconds: float,
    *,
    warm_up_seconds: float = 1.0,
    partitions: int = PARTITIONS,
    first_partition: int = 0,
    others: Mapping[str, int] | None = None,
) -> dict[str, float]:
    """Run one load. CPU is taken over its measured part: that of the side's process, of the load, and of the
    ``others``, process ids by name."""
    host, port = side.address.rsplit(":", 1)
    load = {
        "host": host, "port": int(port), "topic": TOPIC, "partitions": partitions, "first_partition": first_partition,
        "is_idempotent": side.is_proxied and case.is_idempotent, "connections": case.connections,
        "in_flight": case.in_flight, "record_bytes": case.record_bytes, "records_per_batch": case.records,
        "codec": case.codec, "is_text": case.is_text, "warm_up_seconds": warm_up_seconds, "seconds": seconds,
        "fetch_version": (4 if side.is_proxied else 3) if case.is_fetch else None,
    }  # fmt: skip
    command = [sys.executable, str(Path(__file__).with_name("loadgen.py")), json.dumps(load)]
    if program := compiled("closed_loop"):
        command += ["--closed-loop", str(program)]
    processes = {"": side.process_id, **{f"{name}_": process for name, process in (others or {}).items()}}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "START\n"
        before = {name: cpu_seconds(process_id) for name, process_id in processes.items()}
        end, _, answer = process.stdout.readline().partition(" ")
        used = {name: cpu_seconds(process_id) - before[name] for name, process_id in processes.items()}
    assert end == "END"
    result = json.loads(answer)
    assert not result["errors"], result
    assert result["requests"], result
    requests = result["requests"]
    gigabytes = (result["bytes_in"] if case.is_fetch else requests * case.bytes_per_request) / 1e9
    used["load_"] = result["cpu_seconds"]
    return {
        "requests": requests,
        "requests_per_second": requests / result["seconds"],
        "megabytes_per_second": gigabytes * 1e3 / result["seconds"],
        **{f"{name}cpu_us_per_request": cpu / requests * 1e6 for name, cpu in used.items()},
        "cpu_seconds_per_gb": used[""] / gigabytes,
        "p50_ms": result["p50_ms"],
        "p99_ms": result["p99_ms"],
    }
