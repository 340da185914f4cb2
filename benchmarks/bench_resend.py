"""How long a producer that crashed waits for the answers to what it had appended already: every batch again, with the
same sequences, five in flight, by a new instance of the client.

All but the last five are older than what the proxy keeps of a producer, so each is looked for in the log. Also, in the
same rounds: how long the same batches took to be appended. Goal of the one-record case: a second for 1,000 batches.
Prints every figure and adds a line of JSON to ``benchmarks/results/resend.jsonl``. ``--against COMMIT`` does the same
to a proxy of that commit's code. Seconds are of the whole run of batches, lowest, median and highest of the rounds."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from common import ROOT, extract, save, spread
from sides import Side, proxy

from idemproxy.client import Client, ProducerId, Record, finish
from idemproxy.demo.legacy_cluster import LegacyCluster

TOPIC = "bench"
NEIGHBOURS_BYTES = 1_000_000
"""What others append to the partition before and after the producer's batches."""


@dataclass(frozen=True)
class Case:
    """So many batches of so many records of that many bytes."""

    name: str
    batches: int
    records: int
    record_bytes: int

    def finished(self) -> list[bytes]:
        """The batches, as a program that saved them would have them."""
        value = bytes(self.record_bytes)
        record = [Record(value, timestamp_ms=1_700_000_000_000)]
        return [finish(record * self.records) for _ in range(self.batches)]


CASES = (
    Case("1,000 of one record", 1_000, 1, 100),
    Case("400 of 100 KB", 400, 100, 1_000),
)


def sent(address: str, partition: int, numbers: ProducerId, batches: Sequence[bytes]) -> tuple[float, int]:
    """Send all of them from sequence 0 on by a new client; return seconds, and how many were old duplicates."""
    with Client(address) as client, client.producer(numbers, next_sequences={(TOPIC, partition): 0}) as producer:
        began = time.monotonic()
        receipts = [future.result() for future in [producer.send(TOPIC, partition, batch) for batch in batches]]
        seconds = time.monotonic() - began
    return seconds, sum(one.is_old_duplicate for one in receipts)


def others(address: str, partition: int) -> None:
    """Somebody else's batches in the same partition."""
    batch = finish([Record(bytes(1_000), timestamp_ms=1_700_000_000_000)] * 100)
    with Client(address) as client, client.producer(client.init_producer_id()) as producer:
        for _ in range(NEIGHBOURS_BYTES // 100_000):
            producer.publish(TOPIC, partition, batch)


def one_round(case: Case, side: Side, partition: int) -> tuple[float, float]:
    """Return the seconds in which a partition's batches were appended, and in which they were answered again."""
    with Client(side.address) as client:
        numbers = client.init_producer_id()
    batches = case.finished()
    others(side.address, partition)
    appended, old = sent(side.address, partition, numbers, batches)
    assert not old
    others(side.address, partition)
    again, old = sent(side.address, partition, numbers, batches)
    assert old >= case.batches - 5, old
    return appended, again


def measure(trees: Mapping[str, Path], rounds: int, directory: Path) -> dict[str, object]:
    """Do every case to a proxy of each tree, round by round."""
    found: dict[str, dict[str, object]] = {name: {} for name in trees}
    with LegacyCluster(directory / "kafka") as cluster, ExitStack() as stack:
        cluster.create_topic(TOPIC, rounds * len(CASES) * len(trees), 1)
        sides = {
            name: stack.enter_context(proxy(name, tree, cluster.bootstrap, directory)) for name, tree in trees.items()
        }
        partition = 0
        for case in CASES:
            seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in trees}
            for _ in range(rounds):
                for name, side in sides.items():
                    seconds[name].append(one_round(case, side, partition))
                    partition += 1
            for name, pairs in seconds.items():
                appended, again = zip(*pairs, strict=True)
                found[name][case.name] = {"appended_seconds": spread(appended), "again_seconds": spread(again)}
                print(f"{name:7}{case.name:22}", found[name][case.name], flush=True)
    return {**found}


def main() -> None:
    """Start a broker and a proxy of each tree, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", metavar="COMMIT", help="a proxy of this commit's code as well")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        trees = {"now": ROOT}
        if options.against:
            trees = {"before": extract(options.against, directory / "tree"), **trees}
        found = measure(trees, options.rounds, directory)
    if not options.dry:
        load = [round(one, 1) for one in os.getloadavg()]
        save("resend", {"against": options.against, "rounds": options.rounds, "load": load, "figures": found})


if __name__ == "__main__":
    main()
