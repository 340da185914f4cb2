"""What the proxy costs: this one, that of another commit, a relay that only passes bytes, and no proxy, alternately.

``make bench-proxy [AGAINST=commit]``. On a broker that costs nothing (``sink.c``), which shows the proxy alone, and on
a real 0.10.2.2 with the proxy's own Redis, which shows the whole chain. ``--on 3.9.1``: a broker that gives idempotence
itself, where the proxy passes bytes and all sides speak the same; its line goes into ``results/native_relay.jsonl``.
All share the machine's cores, so a figure
means something only compared with another one of the same round: ratios are taken round by round, and reported as
lowest and median.
Adds a line to ``results/proxy.jsonl``, and puts tables and picture into the pages that have them."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import performance_page
from common import ROOT, extract, save, spread
from compiled import compiled
from loads import TOPIC, Case, measure
from sides import Side, neighbours, proxy, sink, tick

from idemproxy.codecs.kernel import TOLD
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.settings.model import ProducersSection
from idemproxy.state.redis_server import find_binary

PARTITIONS = 8
FETCHED_FROM, FETCHED_PARTITIONS = PARTITIONS, 4
LONE, FETCH = "lone", "fetch"
CASES = {
    "c50": Case("one record of 100 B, 50 connections", 50, 1, 100, 1),
    "c50x5": Case("one record of 100 B, 50 connections, 5 in flight", 50, 5, 100, 1),
    "c200": Case("one record of 100 B, 200 connections", 200, 1, 100, 1),
    LONE: Case("one record of 100 B, one connection", 1, 1, 100, 1),
    "16k": Case("16 records of 1 KB, 20 connections", 20, 1, 1024, 16),
    "64kx5": Case("64 records of 1 KB, 6 connections, 5 in flight", 6, 5, 1024, 64),
    "1m": Case("990 records of 1 KB, 4 connections, 2 in flight", 4, 2, 1000, 990),
    "lz4": Case("64 records of 1 KB, lz4, 6 connections, 5 in flight", 6, 5, 1024, 64, "lz4", is_text=True),
    "lz4-kept": Case("the lz4 load in message format v1", 6, 5, 1024, 64, "lz4", is_idempotent=False, is_text=True),
    "plain": Case("one record in message format v1, 50 connections", 50, 1, 100, 1, is_idempotent=False),
    FETCH: Case("fetches of 1 MB, 4 connections", 4, 1, 1024, 64, is_fetch=True),
}
_JAVA_WARM_UP_SECONDS = 4.0
_FILL = Case("what is fetched", FETCHED_PARTITIONS, 1, 1024, 64)
Figures = dict[str, float]
Row = dict[str, object]


@dataclass(frozen=True)
class Broker:
    """What is behind the proxies. ``process_id``: whose CPU is the broker's."""

    name: str
    address: str
    process_id: int


@contextmanager
def real_broker(directory: Path, version: str = "0.10.2.2") -> Iterator[Broker]:
    """A broker with a topic, as fast as Java makes it after a while, and with a short log."""
    settings = {
        "log.segment.bytes": 64 << 20,
        "log.retention.bytes": 192 << 20,
        "log.retention.check.interval.ms": 2_000,
        "log.segment.delete.delay.ms": 500,
    }
    java = ("-XX:TieredStopAtLevel=4",)
    with LegacyCluster(
        directory / "kafka", version=version, broker_settings=settings, heap_mb=1024, java_options=java
    ) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS + FETCHED_PARTITIONS, 1)
        side = Side("direct", cluster.bootstrap, cluster.process_id(0), False)
        for name in ("c50", "64kx5"):
            measure(CASES[name], side, _JAVA_WARM_UP_SECONDS, warm_up_seconds=0, partitions=PARTITIONS)
        yield Broker(version, side.address, side.process_id)


@contextmanager
def free_broker(_directory: Path) -> Iterator[Broker]:
    """The sink."""
    with sink(PARTITIONS + FETCHED_PARTITIONS) as side:
        yield Broker("sink", side.address, side.process_id)


def reserving(upstream: str, directory: Path) -> AbstractContextManager[Side]:
    """This proxy, which reserves each batch (docs/explanation/how-it-works.md)."""
    config = directory / "reserving.yaml"
    config.write_text("producers: {append_reservations: false}\n")
    return proxy("reserving", ROOT, upstream, directory, ("--config", str(config)))


NATIVE = "3.9.1"
Started = Callable[[Path], AbstractContextManager[Broker]]
BROKERS: dict[str, Started] = {"sink": free_broker, "0.10.2.2": real_broker}
_ALL: dict[str, Started] = {**BROKERS, NATIVE: partial(real_broker, version=NATIVE)}
NATIVE_CASES = ("c50", "c50x5", "16k", "64kx5", "1m", FETCH)


def run(
    broker: Broker, sides: Sequence[Side], cases: Sequence[str], rounds: int, seconds: float, warm_up_seconds: float
) -> dict[str, dict[str, list[Figures]]]:
    """Return the figures of each round, by case and side. Every round begins with another side."""
    found: dict[str, dict[str, list[Figures]]] = {case: {side.name: [] for side in sides} for case in cases}
    direct = sides[0]
    measure(_FILL, direct, 0.5, warm_up_seconds=0, partitions=FETCHED_PARTITIONS, first_partition=FETCHED_FROM)
    for number in range(rounds):
        turn = number % len(sides)
        for name in cases:
            case = CASES[name]
            for side in (*sides[turn:], *sides[:turn]):
                others = {"broker": broker.process_id}
                if side.redis_process_id:
                    others["redis"] = side.redis_process_id
                first = FETCHED_FROM if case.is_fetch else 0
                count = FETCHED_PARTITIONS if case.is_fetch else PARTITIONS
                with neighbours() if name == LONE else nullcontext():
                    figures = measure(
                        case, side, seconds, warm_up_seconds=warm_up_seconds, partitions=count, first_partition=first,
                        others=others,
                    )  # fmt: skip
                if side is direct:
                    figures["cpu_us_per_request"] = figures["cpu_seconds_per_gb"] = 0.0  # there is no proxy
                figures["chain_cpu_us_per_request"] = sum(
                    figures.get(f"{part}cpu_us_per_request", 0.0) for part in ("", "broker_", "redis_")
                )
                found[name][side.name].append(figures)
                print(f"{broker.name:9}{name:9}{side.name:8}", _told(figures), flush=True)
    return found


def rows_of(found: dict[str, dict[str, list[Figures]]]) -> list[Row]:
    """Return the lowest, median and highest of every figure, and of its ratios to the other sides of the same round."""
    rows = []
    for case, sides in found.items():
        for side, figures in sides.items():
            row: Row = {"case": case, "side": side}
            row |= {key: spread([one[key] for one in figures]) for key in figures[0]}
            row["added_p50_ms"] = spread([a["p50_ms"] - b["p50_ms"] for a, b in _pairs(figures, sides["direct"])])
            for other, of_other in sides.items():
                if other == side:
                    continue
                for key in ("cpu_us_per_request", "chain_cpu_us_per_request", "requests_per_second"):
                    ratios = [a[key] / b[key] for a, b in _pairs(figures, of_other) if b[key]]
                    if ratios and a_proxy_is_meant(side, key):
                        row[f"{key}_over_{other}"] = spread(ratios)
            rows.append(row)
    return rows


def a_proxy_is_meant(side: str, key: str) -> bool:
    """A ratio of the CPU of nothing says nothing."""
    return side != "direct" or key != "cpu_us_per_request"


def versions() -> dict[str, object]:
    """What was measured with."""
    model = [line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    return {
        "machine": model[0] if model else platform.machine(),
        "kernel": platform.release(),
        "load_average_before": round(os.getloadavg()[0], 1),
        "redis": _valkey_version(),
        "append_reservations": ProducersSection().append_reservations,
        "batches_converted": TOLD,
        "load_and_sink": "C" if compiled("sink") else "Python",
    }


def _valkey_version() -> str:
    told = subprocess.run([find_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    return told.split(" sha=")[0]


def _pairs(one: list[Figures], other: list[Figures]) -> Iterator[tuple[Figures, Figures]]:
    return zip(one, other, strict=True)


def _told(figures: Figures) -> str:
    return " ".join(f"{key.replace('_per_request', '')}={value:.4g}" for key, value in figures.items())


def _tell_reserving(rows: Sequence[Row]) -> None:
    """Print how it stands compared with append reservations, round by round."""
    for row in rows:
        if row["side"] == "reserving":
            ratios = {key: value for key, value in row.items() if key.endswith("_over_proxy") or key == "added_p50_ms"}
            print(row["case"], ratios, flush=True)


def main() -> None:
    """Start brokers, relay and proxies, run every case alternately on all, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="a proxy of this commit's code as well")
    parser.add_argument("--reserving", action="store_true", help="also without append reservations; not saved")
    parser.add_argument("--on", action="append", choices=_ALL, help="only on these")
    parser.add_argument("--case", action="append", choices=CASES, help="only these")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--warm-up-seconds", type=float, default=1.0)
    parser.add_argument("--dry", action="store_true", help="save nothing, as where not all is measured")
    parser.add_argument("--short", action="store_true", help="a moment of each case on the sink, to see that it works")
    options = parser.parse_args()
    options.dry = options.dry or options.reserving
    if options.short:
        options.on, options.rounds, options.dry = ["sink"], 1, True
        options.seconds, options.warm_up_seconds = 0.15, 0.05
    stamp, told = versions(), {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        trees = {"proxy": ROOT}
        if options.against:
            trees["before"] = extract(options.against, directory / "code")
        for kind in options.on or BROKERS:
            place = directory / kind
            place.mkdir()
            with ExitStack() as stack:
                broker = stack.enter_context(_ALL[kind](place))
                sides = [Side("direct", broker.address, broker.process_id, False)]
                sides.append(stack.enter_context(tick(broker.address)))
                sides += [stack.enter_context(proxy(side, tree, broker.address, place)) for side, tree in trees.items()]
                if options.reserving:
                    sides.append(stack.enter_context(reserving(broker.address, place)))
                cases = options.case or list(CASES)
                if kind == NATIVE:
                    sides = [replace(side, is_proxied=True) for side in sides]
                    cases = options.case or NATIVE_CASES
                found = run(broker, sides, cases, options.rounds, options.seconds, options.warm_up_seconds)
                told[kind] = rows_of(found)
                if options.reserving:
                    _tell_reserving(told[kind])
    if not options.dry and not options.on and not options.case:
        save("proxy", {**stamp, "before": options.against, "rounds": options.rounds, "on": told})
        performance_page.write(CASES)
    elif not options.dry and options.on == [NATIVE] and not options.case:
        save("native_relay", {**stamp, "rounds": options.rounds, "on": told})


if __name__ == "__main__":
    main()
