"""A large topic with counted faults, audited: does it find exactly these, and how fast? And nothing in a clean topic?

``python -m runs.audit_large`` is ``make audit-large``: a line of JSON in benchmarks/results/audit.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.main import main as idemproxy
from testkit.real.clients.raw_client import RawClient
from testkit.stage.logs import BEGUN_MS, Entry, plain, wrapper

from .results import append_result

PARTITIONS = 4
BATCH_RECORDS = 500
FOREIGN_SHARE = 10
"""One batch of so many has no batch marker, and is made of plain messages."""
VALUE_BYTES = 100
FAULT_SHARE = 0.01
_IN_FLIGHT = 5


def entries(number: int, partition: int) -> list[Entry]:
    """The records of one batch; no two of a topic are equal."""
    first = number * BATCH_RECORDS
    begin = b"%d %d " % (partition, number)
    return [(None, (begin + b"%d" % index).ljust(VALUE_BYTES, b"."), BEGUN_MS + first + index) for index in range(500)]


def clean_batches_of(partition: int, count: int) -> Iterator[bytes]:
    """Yield the appends of a partition in which nothing is wrong."""
    for number in range(count):
        identity = Identity(2000 + partition, 0, number * BATCH_RECORDS, BATCH_RECORDS)
        yield wrapper(entries(number, partition), 0, identity, codec=Codec.LZ4)


def batches_of(partition: int, count: int, draw: random.Random, expected: Counter[str]) -> Iterator[bytes]:
    """Yield the appends of a partition; counts in ``expected`` what the audit has to find."""
    sequence = 0
    late: bytes | None = None
    for number in range(count):
        records = entries(number, partition)
        if number % FOREIGN_SHARE == 9:
            data, faulty = plain(records), "suspected_duplicate"
            expected["foreign_writer"] += BATCH_RECORDS
        else:
            identity = Identity(1000 + partition, 0, sequence, BATCH_RECORDS)
            data, faulty = wrapper(records, 0, identity, codec=Codec.LZ4), "duplicate"
            sequence += BATCH_RECORDS
        fault = draw.random() / FAULT_SHARE
        if fault < 1 and late is None and faulty == "duplicate" and 0 < number < count - 2:
            if fault < 0.3:  # never sent
                expected["gap"] += BATCH_RECORDS
                continue
            if fault < 0.6:  # sent after the next one of its producer
                late = data
                expected["inversion"] += BATCH_RECORDS
                continue
        yield data
        if fault < 1:
            yield data
            expected[faulty] += BATCH_RECORDS
            expected["foreign_writer"] += BATCH_RECORDS * (faulty == "suspected_duplicate")
        if late is not None and faulty == "duplicate":
            yield late
            late = None
    assert late is None, "the last batches have no such fault"


def fill(cluster: LegacyCluster, topic: str, appends: Sequence[Iterator[bytes]]) -> None:
    """Append to each partition what there is for it."""
    cluster.create_topic(topic, len(appends))
    with RawClient(cluster.address(0), timeout_seconds=120) as client:
        unanswered: deque[int] = deque()
        for partition, batches in enumerate(appends):
            for data in batches:
                unanswered.append(client.send_produce([(topic, partition, data)], version=2, acks=1))
                if len(unanswered) == _IN_FLIGHT:
                    _taken(client, unanswered)
        while unanswered:
            _taken(client, unanswered)


def _taken(client: RawClient, unanswered: deque[int]) -> None:
    (answer,) = client.produce_answer(2)
    unanswered.popleft()
    assert answer.error_code == 0, answer


def spark_cpu_seconds() -> float:
    """Return what the JVM and the Python workers, which it has waited for, have used; without this process itself."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, fields = (
                (process / "cmdline").read_bytes(),
                (process / "stat").read_text().rpartition(")")[2].split(),
            )
        except OSError:
            continue  # it has ended
        if b"org.apache.spark.deploy.SparkSubmit" in command and int(fields[1]) == os.getpid():
            ticks += sum(map(int, fields[11:15]))
    return round(ticks / os.sysconf("SC_CLK_TCK"), 1)


def audited(cluster: LegacyCluster, topic: str, out: Path, master: str) -> tuple[int, dict[str, int], dict[str, Any]]:
    """Audit one topic; return the exit status, what was found, and the figures."""
    upstream = "{}:{}".format(*cluster.address(0))
    before = spark_cpu_seconds()
    status = idemproxy(["audit", "--upstream", upstream, "--topic", topic, "--out", str(out), "--master", master])
    summary = json.loads((out / "summary.json").read_text())
    found = {kind: count for kind, count in summary["findings"].items() if count}
    figures = {name: summary[name] for name in ("records", "bytes", "seconds", "records_per_second", "stage_seconds")}
    cpu = round(spark_cpu_seconds() - before, 1)
    return status, found, {**figures, "spark_cpu_seconds": cpu, "report_bytes": (out / "report.html").stat().st_size}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print and save; exit status 1 unless exactly the injected faults were found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="about so many (default: %(default)s)")
    parser.add_argument("--clean-records", type=int, help="of the clean topic (default: a tenth of them)")
    parser.add_argument("--seed", type=int, default=1, help="of the injected faults")
    parser.add_argument("--master", default="local[2]", help="of Spark (default: %(default)s)")
    parser.add_argument("--keep", type=Path, help="a directory for the reports, to look at them")
    options = parser.parse_args(arguments)
    expected: Counter[str] = Counter()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name, LegacyCluster(Path(name) / "cluster", heap_mb=512) as cluster:
        out = options.keep or Path(name)
        count, clean = (
            max(10, records // PARTITIONS // BATCH_RECORDS)
            for records in (options.records, options.clean_records or options.records // 10)
        )
        fill(cluster, "large", [batches_of(partition, count, draw, expected) for partition in range(PARTITIONS)])
        fill(cluster, "clean", [clean_batches_of(partition, clean) for partition in range(PARTITIONS)])
        wanted = {kind: count for kind, count in expected.items() if count}
        print(f"written; injected: {wanted}", flush=True)
        status, found, figures = audited(cluster, "large", out / "large", options.master)
        clean_status, clean_found, clean_figures = audited(cluster, "clean", out / "clean", options.master)
    right = (status, found) == (1, wanted) and (clean_status, clean_found) == (0, {})
    result = {"right": right, "master": options.master, "findings": found, **figures}
    path = append_result("audit", {**result, "clean": {"findings": clean_found, **clean_figures}, "load": load()})
    print(f"{'right' if right else f'WRONG: expected {wanted}'}; {result}; a line in {path.name}")
    return 0 if right else 1


def load() -> list[float]:
    """Return how busy the machine was in the last minute, five and fifteen minutes."""
    return [round(one, 1) for one in os.getloadavg()]


if __name__ == "__main__":
    sys.exit(main())
