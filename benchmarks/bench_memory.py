"""Memory of a proxy that is sent much: batches of 1 MB with 8 in flight, and whatever comes while its broker hangs.

Prints every figure and adds a line of JSON to ``benchmarks/results/memory.jsonl``. RSS is that of the proxy's own
process, in MB (10^6). In the second part both byte limits are set to ``LIMIT_MIB``, and clients send as fast as they
are let while the broker is stopped, every batch by another producer, and come again when they are hung up on.
``--against COMMIT`` does the same to a proxy of that commit's code, which is left alone once it has taken
``STOP_AT_MB``."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from common import ROOT, extract, save
from loads import Case
from loads import measure as run_load
from sides import Side, proxy

from idemproxy.codecs.compression import Codec
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.clients.flood import Flood, Kind, Watch
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.process_memory import resident_bytes

PARTITIONS = 12
LIMIT_MIB = 64
STOP_AT_MB = 2_000
LARGE = Case("1 MB batches, 8 in flight", 4, 2, 1000, 990)
KINDS = (
    Kind(Codec.NONE, 1),
    Kind(Codec.GZIP, 10),
    Kind(Codec.SNAPPY, 10),
    Kind(Codec.LZ4, 10),
    Kind(Codec.ZSTD, 10),
    Kind(Codec.GZIP, 1_000),
    Kind(Codec.ZSTD, 1_000),
    Kind(Codec.GZIP, 10, connections=1_000),
    Kind(Codec.NONE, 1, is_named=False),
    Kind(Codec.GZIP, 10, is_named=False),
    Kind(Codec.LZ4, 10, is_named=False),
    Kind(Codec.GZIP, 1_000, is_named=False),
    Kind(Codec.GZIP, 10, is_named=False, connections=1_000),
)
_LIMITS = {
    "IDEMPROXY_LIMITS__REQUEST_BYTES_TOTAL_MAX": str(LIMIT_MIB << 20),
    "IDEMPROXY_LIMITS__RESPONSE_BYTES_TOTAL_MAX": str(LIMIT_MIB << 20),
    "IDEMPROXY_LIMITS__CONNECTIONS_PER_IP_MAX": "0",
}
_MB = 1e6
Figures = dict[str, object]


def large_batches(_cluster: LegacyCluster, side: Side, seconds: float) -> Figures:
    """1 MB batches, 8 in flight."""
    time.sleep(2)
    base = resident_bytes(side.process_id) / _MB
    with Watch(side.process_id).running() as watch:
        figures = run_load(LARGE, side, seconds, partitions=PARTITIONS)
    return {
        "base_mb": round(base, 1),
        "median_mb": round(statistics.median(watch.seen) / _MB, 1),
        "highest_mb": round(max(watch.seen) / _MB, 1),
        "requests_per_second": round(figures["requests_per_second"], 1),
    }


def paused(kind: Kind, cluster: LegacyCluster, side: Side, seconds: float) -> Figures:
    """Everything that comes while the broker hangs."""
    host, port = side.address.split(":")
    with RawClient((host, int(port))) as client:
        producer_id = client.new_producer_id()
        for partition in range(PARTITIONS):  # each has been produced to
            answer = client.produce_one("bench", partition, batch([b"first"], producer_id=producer_id))
            assert answer.error_code == 0
    flood = Flood((host, int(port)), "bench", PARTITIONS, kind)
    time.sleep(2)
    base = resident_bytes(side.process_id)
    cluster.pause_broker(0)
    try:
        with Watch(side.process_id).running() as watch:
            flood.run(seconds, side.process_id, int(STOP_AT_MB * _MB))
    finally:
        cluster.resume_broker(0)
    above = max(watch.seen) - base
    return {
        "batch_bytes": flood.batch_bytes,
        "base_mb": round(base / _MB, 1),
        "highest_mb": round(max(watch.seen) / _MB, 1),
        "above_base_mb": round(above / _MB, 1),
        "to_limit_of_requests": round(above / (LIMIT_MIB << 20), 2),
        "to_both_limits": round(above / (2 * LIMIT_MIB << 20), 2),
        "requests": flood.requests,
        "answers": flood.answers,
        "hung_up_on": flood.hung_up_on,
        "was_stopped": max(watch.seen) >= STOP_AT_MB * _MB,
    }


Part = Callable[[LegacyCluster, Side, float], Figures]


def measure(trees: Mapping[str, Path], parts: Mapping[str, Part], directory: Path, seconds: float) -> dict[str, object]:
    """Do everything to a proxy of each tree, part by part."""
    found: dict[str, dict[str, Figures]] = {name: {} for name in trees}
    for number, (part, run) in enumerate(parts.items()):
        for name, tree in trees.items():
            place = directory / f"{name}-{number}"
            place.mkdir()
            with LegacyCluster(place / "kafka") as cluster:
                cluster.create_topic("bench", PARTITIONS, 1)
                with proxy(name, tree, cluster.bootstrap, place) as side:
                    found[name][part] = run(cluster, side, seconds)
            print(f"{name:7}{part:45}", found[name][part], flush=True)
    return {**found}


def main() -> None:
    """Start a broker and a proxy for each part and tree, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--against", metavar="COMMIT", help="a proxy of this commit's code as well")
    parser.add_argument("--only", metavar="WORDS", help="only parts with these words in their names")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    parts: dict[str, Part] = {LARGE.name: large_batches}
    parts |= {kind.name: partial(paused, kind) for kind in KINDS}
    parts = {name: part for name, part in parts.items() if options.only is None or options.only in name}
    os.environ.update(_LIMITS)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees = {"now": ROOT}
        if options.against:
            trees = {"before": extract(options.against, directory / "tree"), **trees}
        found = measure(trees, parts, directory, options.seconds)
    if not options.dry:
        save("memory", {"against": options.against, "limit_mib": LIMIT_MIB, "figures": found})


if __name__ == "__main__":
    main()
