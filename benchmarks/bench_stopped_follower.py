"""A stopped follower is its own partitions' trouble: how long does a producer on another partition of the same leader
wait?

``make bench``. Two real 0.10.2.2 brokers. Broker 0 leads all partitions: the witness's, which it has alone, and six
that broker 1 follows, to which the other producers send. Then broker 1 is stopped (SIGSTOP) and stays in sync, so
that nothing of the six is acknowledged. Prints the witness's latencies, before / after, and adds a line of JSON to
``benchmarks/results/stopped_follower.jsonl``. ``--against COMMIT`` adds a proxy of that commit's code."""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import tempfile
import time
from collections import deque
from contextlib import ExitStack
from pathlib import Path

from common import ROOT, extract, save
from loadgen import Connection, Load
from role import Role
from sides import Side, proxy

from idemproxy.demo.legacy_cluster import LegacyCluster

PRODUCERS = (6, 40, 300)
PARTITIONS = 6
TOPIC = "bench"
RECORDS_PER_SECOND = 300
"""Of all other producers together while all is well: the machine has enough left."""
PAUSE_SECONDS = 0.005
"""Between two records of the witness."""
LONGEST_COUNT = 5


def load_to(address: str, partitions: int, first_partition: int, connections: int) -> Load:
    """One record of 100 bytes in flight for each connection."""
    host, port = address.rsplit(":", 1)
    return Load(host, int(port), TOPIC, partitions, True, connections, first_partition=first_partition)


# ---------------------------------------------------------------------- in processes of their own
def witness(address: str) -> None:
    """Produce one record after the other; write when each was done, how long it took, and how many errors came."""
    rows: list[tuple[float, float, int]] = []

    def end(*_: object) -> None:
        print(json.dumps(rows), flush=True)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    connection = Connection(load_to(address, 1, 0, 1), 0)
    selector = selectors.DefaultSelector()
    selector.register(connection.socket, selectors.EVENT_READ)
    print("READY", flush=True)
    while True:
        begun, errors = time.perf_counter(), -1
        code: int | None = None
        while code != 0:
            connection.send() if code is None else connection.send_again()
            errors += 1
            while not (codes := connection.answers() if selector.select() else []):
                pass
            code = codes[0]
        rows.append((time.time(), time.perf_counter() - begun, errors))
        time.sleep(PAUSE_SECONDS)


def others(address: str, producers: int) -> None:
    """Producers on the other partitions: each sends again what was answered with an error."""
    load = load_to(address, PARTITIONS, 1, producers)
    selector = selectors.DefaultSelector()
    pause = producers / RECORDS_PER_SECOND
    due = deque[tuple[float, Connection]]()
    for index in range(producers):
        connection = Connection(load, index)
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        due.append((time.perf_counter() + index / RECORDS_PER_SECOND, connection))
    print("READY", flush=True)
    while True:
        now = time.perf_counter()
        while due and due[0][0] <= now:
            due.popleft()[1].send()
        for key, _ in selector.select(max(0.0, due[0][0] - now) if due else None):
            for code in key.data.answers():
                if code:
                    key.data.send_again()
                else:
                    due.append((time.perf_counter() + pause, key.data))


# ---------------------------------------------------------------------- the bench
def measure(cluster: LegacyCluster, side: Side, producers: int, quiet: float, stopped: float) -> dict[str, object]:
    """Quiet, then with the follower stopped."""
    with ExitStack() as stack:
        Role(stack, __file__, "others", side.address, str(producers))
        one = Role(stack, __file__, "witness", side.address)
        time.sleep(2.0)
        begun = time.time()
        time.sleep(quiet)
        stopped_at = time.time()
        cluster.pause_broker(1)
        try:
            time.sleep(stopped)
            ended = time.time()
        finally:
            cluster.resume_broker(1)
        rows = one.rows()
    calm = [1000 * seconds for at, seconds, _ in rows if begun <= at - seconds and at < stopped_at]
    troubled = [1000 * seconds for at, seconds, _ in rows if stopped_at <= at and at - seconds < ended]
    return {
        "quiet_count": len(calm),
        "quiet_p50_ms": share(calm, 0.5),
        "quiet_p99_ms": share(calm, 0.99),
        "stopped_count": len(troubled),
        "stopped_p50_ms": share(troubled, 0.5),
        "stopped_p99_ms": share(troubled, 0.99),
        "stopped_longest_ms": [round(one) for one in sorted(troubled, reverse=True)[:LONGEST_COUNT]],
        "stopped_errors": sum(errors for at, _, errors in rows if stopped_at <= at),
        "p99_ratio": round(share(troubled, 0.99) / share(calm, 0.99), 2),
    }


def share(values: list[float], of: float) -> float:
    """A latency that so many are below."""
    return round(sorted(values)[min(len(values) - 1, int(len(values) * of))], 2)


def main() -> None:
    """Run everything in turn on all sides, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--producers", type=int, action="append", help="only so many on the slow partitions")
    parser.add_argument("--quiet", type=float, default=8)
    parser.add_argument("--stopped", type=float, default=25)
    parser.add_argument("--against", metavar="COMMIT", help="a proxy of this commit's code as well")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        if options.role[0] == "witness":
            witness(options.role[1])
        else:
            others(options.role[1], int(options.role[2]))
        return
    rows = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees = {"after": ROOT}
        if options.against:
            trees["before"] = extract(options.against, directory / "code")
        for producers in options.producers or PRODUCERS:
            for name, tree in trees.items():
                where = directory / f"{name}-{producers}"
                where.mkdir()
                with LegacyCluster(
                    where / "kafka",
                    brokers=2,
                    session_timeout_ms=120_000,
                    auto_create_topics=False,
                    broker_settings={"min.insync.replicas": 1, "replica.lag.time.max.ms": 120_000},
                ) as cluster:
                    cluster.create_topic(TOPIC, assignment=[[0], *([[0, 1]] * PARTITIONS)])
                    cluster.wait_in_sync(TOPIC, 1 + PARTITIONS)
                    upstream = "{}:{}".format(*cluster.address(0))
                    with proxy(name, tree, upstream, where) as side:
                        found = measure(cluster, side, producers, options.quiet, options.stopped)
                rows.append({"side": name, "producers": producers, **found})
                print(json.dumps(rows[-1]), flush=True)
    if not options.dry:
        save("stopped_follower", {"before": options.against, "rows": rows})


if __name__ == "__main__":
    main()
