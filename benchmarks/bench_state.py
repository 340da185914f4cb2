"""What the state costs: Redis commands per batch under load, bytes of an entry in Redis, bytes in the proxy's memory.

Adds a line of JSON to ``benchmarks/results/state.jsonl``. The commands are counted by Redis itself, under a real
proxy and a real broker; the memory is that of the shipped engine on a reactor that is run by hand."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
import tracemalloc
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench_proxy import CASES
from common import ROOT, save
from hot_world import World
from loads import PARTITIONS, Case, measure
from redis import Redis
from sides import Side, proxy

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.state.commit import reserved
from idemproxy.state.entry import Intent, IntentBatch, pack, unpack

SWAP = "cmdstat_evalsha"
LIMIT_BYTES = 300
LIMIT_COMMANDS = 1.05
LOADS = ("lone", "c50", "16k", "64kx5", "lz4")


def commands_per_batch(redis: Redis, case: Case, side: Side, seconds: float) -> dict[str, object]:
    """Run one load; count what Redis did for it, from the first batch to the commit of the last."""
    before: Any = redis.info("commandstats")
    answered_before = _batches(redis)
    figures = measure(case, side, seconds)
    time.sleep(0.5)
    after: Any = redis.info("commandstats")
    calls = after[SWAP]["calls"] - before.get(SWAP, {"calls": 0})["calls"]
    batches = _batches(redis) - answered_before
    return {
        "case": case.name,
        "swaps": calls,
        "batches": batches,
        "swaps_per_batch": round(calls / batches, 3),
        "requests_per_second": round(figures["requests_per_second"]),
    }


def _batches(redis: Redis) -> int:
    """Batches that the entries have seen: a sequence counts records, and all batches of a producer have as many."""
    return sum(entry.next_sequence // entry.window[-1].record_count for entry in map(unpack, _values(redis).values()))


def _values(redis: Redis) -> dict[bytes, bytes]:
    keys = list(redis.scan_iter(b"idem:*:{*}:*"))
    values: Any = redis.mget(keys) if keys else []
    return {key: value for key, value in zip(keys, values, strict=True) if value is not None}


def bytes_in_redis(redis: Redis) -> dict[str, object]:
    """What the entries of the loads take, as Redis tells: key, value and its own overhead. ``busy``: as it is while an
    intent for one batch is open."""
    entries = _values(redis)
    used: list[Any] = [redis.memory_usage(key, samples=0) for key in entries]
    busy: list[Any] = []
    for key, value in list(entries.items())[:10]:
        entry = unpack(value)
        batches = (IntentBatch(entry.next_sequence, 1, b"digest-0"),)
        intent = Intent(bytes(8), entry.producer_epoch, batches, entry.end_offset, entry.anchor, bytes(8), 0)
        redis.set(key, pack(reserved(entry, intent)), keepttl=True)
        busy.append(redis.memory_usage(key, samples=0))
    return {
        "entries": len(entries),
        "value_bytes_median": statistics.median(len(value) for value in entries.values()),
        "value_bytes_max": max(len(value) for value in entries.values()),
        "redis_bytes_median": statistics.median(used),
        "redis_bytes_max": max(used),
        "redis_bytes_busy_max": max(busy),
    }


def bytes_in_proxy(producers: int) -> dict[str, object]:
    """What one producer on one partition adds to the memory of the process, idle, with its last five batches."""
    world = World(0)
    tracemalloc.start()
    world.visit(10, batches=5)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    world.visit(producers, batches=5)
    world.store.values.clear()
    gc.collect()
    added = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return {"producers": producers, "proxy_bytes_per_producer": round(added / producers)}


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--producers", type=int, default=5_000)
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    found: dict[str, Any] = {"memory": bytes_in_proxy(options.producers)}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(LegacyCluster(directory / "kafka"))
        cluster.create_topic("bench", PARTITIONS, 1)
        side = stack.enter_context(proxy("proxied", ROOT, cluster.bootstrap, directory))
        path = (directory / "proxied" / "redis" / "redis.socket").read_text()
        redis = Redis(unix_socket_path=path)
        stack.callback(redis.close)
        found["commands"] = [
            commands_per_batch(redis, case, side, options.seconds) for case in map(CASES.__getitem__, LOADS)
        ]
        found["redis"] = bytes_in_redis(redis)
    print(json.dumps(found, indent=2))
    print(f"goals: {LIMIT_COMMANDS} swaps per batch when busy, {LIMIT_BYTES} bytes per producer and partition in Redis")
    if not options.dry:
        save("state", found)


if __name__ == "__main__":
    main()
