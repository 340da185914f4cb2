"""Brokers that take their time to answer: direct against proxied, for several answer times and numbers of producers.

``make bench``. The broker is ``slow_broker.py``, which works on one request per connection at a time, as brokers do.
Prints the table, direct / before / after, and adds a line of JSON to ``benchmarks/results/produce_connections.jsonl``.
``limit`` is what so many producers with one batch at a time could reach; where direct stays far below it, the machine
is what is measured, not produce connections: ``produce_connections_alone.py`` tells what these let through, without
sockets and on a virtual clock. ``--against COMMIT`` adds a proxy of that commit's code."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import ROOT, extract, save, spread
from loads import Case
from loads import measure as run_load
from sides import Side, proxy

from idemproxy.demo.ports import free_ports

ANSWERS_MS = (5, 20, 50, 100)
PRODUCERS = (1, 10, 40, 200)
PARTITIONS = 32


@dataclass(frozen=True)
class Batch:
    """What a producer sends, and how many requests it has in flight."""

    name: str
    records: int
    record_bytes: int
    in_flight: int = 5


BATCHES = (Batch("1 record of 100 B", 1, 100), Batch("100 KB", 100, 1000))


@contextmanager
def slow_broker(answer_ms: int) -> Iterator[Side]:
    """A broker whose answers take so long."""
    port = free_ports(1)[0]
    command = [
        sys.executable,
        str(Path(__file__).with_name("slow_broker.py")),
        str(port),
        str(PARTITIONS),
        str(answer_ms),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "READY\n"
            yield Side("direct", f"127.0.0.1:{port}", process.pid, False)
        finally:
            process.kill()


def alone(tree: Path) -> list[dict[str, float]]:
    """What the produce connections of this code let through."""
    command = [sys.executable, str(Path(__file__).with_name("produce_connections_alone.py"))]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    told = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout
    return [json.loads(line) for line in told.splitlines()]


def measure(batch: Batch, producers: int, side: Side, seconds: float) -> dict[str, float]:
    """Requests per second, and how much of a core the side's process took."""
    case = Case(batch.name, producers, batch.in_flight, batch.record_bytes, batch.records)
    figures = run_load(case, side, seconds, partitions=PARTITIONS)
    rate = figures["requests_per_second"]
    return {"rate": rate, "cores": figures["cpu_us_per_request"] * rate / 1e6}


def main() -> None:
    """Run everything in turn on all sides, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--answer-ms", type=int, action="append", help="only these answer times")
    parser.add_argument("--producers", type=int, action="append", help="only so many producers")
    parser.add_argument("--against", metavar="COMMIT", help="a proxy of this commit's code as well")
    parser.add_argument("--batch", type=int, action="append", choices=range(len(BATCHES)), help="only these")
    parser.add_argument("--alone", action="store_true", help="nothing but what the produce connections let through")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        before = extract(options.against, directory / "code") if options.against else None
        produce_connections = {"after": alone(ROOT)}
        if before is not None:
            produce_connections["before"] = alone(before)
        print(json.dumps(produce_connections), flush=True)
        for answer_ms in [] if options.alone else options.answer_ms or ANSWERS_MS:
            with ExitStack() as stack:
                direct = stack.enter_context(slow_broker(answer_ms))
                sides = [direct, stack.enter_context(proxy(f"after-{answer_ms}", ROOT, direct.address, directory))]
                if before is not None:
                    sides.append(stack.enter_context(proxy(f"before-{answer_ms}", before, direct.address, directory)))
                for batch in [BATCHES[index] for index in options.batch or range(len(BATCHES))]:
                    for producers in options.producers or PRODUCERS:
                        found: dict[str, list[dict[str, float]]] = {}
                        for number in range(options.rounds):
                            for side in sides if number % 2 else reversed(sides):
                                figures = measure(batch, producers, side, options.seconds)
                                found.setdefault(side.name.partition("-")[0], []).append(figures)
                        rows.append(_row(batch, producers, answer_ms, found))
                        print(json.dumps(rows[-1]), flush=True)
    if not options.dry:
        what = {"before": options.against, "partitions": PARTITIONS, "load_average_before": load}
        save("lanes", {**what, "alone": produce_connections, "rows": rows})


def _row(batch: Batch, producers: int, answer_ms: int, found: dict[str, list[dict[str, float]]]) -> dict[str, object]:
    row: dict[str, object] = {
        "batch": batch.name,
        "answer_ms": answer_ms,
        "producers": producers,
        "limit": round(producers * 1000 / answer_ms),
    }
    for side, figures in found.items():
        row[f"{side}_rate"] = spread([one["rate"] for one in figures])
        row[f"{side}_cores"] = spread([one["cores"] for one in figures])
        if side != "direct":
            row[f"{side}_over_direct"] = spread(
                [one["rate"] / other["rate"] for one, other in zip(figures, found["direct"], strict=True)]
            )
    return row


if __name__ == "__main__":
    main()
