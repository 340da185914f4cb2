"""Counts the records of a partition by key. The counts are in a changelog, a compacted topic, and in a local file.

Each batch of the changelog has the counts that have changed, and in its last record how far the input is: a batch is in
the log as a whole or not at all, so state and position never differ. A run takes its producer name (which fences
the one before), writes one record of its own, and reads the changelog up to that: no older run can write after it.

Promises: the changelog, read to its end, has at any time the counts of the input up to its position, each record once,
wherever this program, proxies or brokers are killed. A second instance fences the first.
Does not promise: batches that are larger than the topic's max.message.bytes, which are stored in parts.
The checkpoint only makes a start quick: it is what the changelog had up to an offset. It may be old, or missing.
Needs: cleanup.policy=compact for the changelog, else it grows without end; its partition is this program's alone.

    python changelog.py proxy:9092 order-counts orders 0 order-counts counts.json
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path

from idemproxy.client import Client, ClientError, Producer, Record, StoredRecord

BATCH_RECORDS, BATCH_BYTES = 500, 128 * 1024
CHECKPOINT_BATCHES = 20
LIFE, POSITION, COUNT = b"life", b"position", b"count "
"""Keys in the changelog; the last one is followed by the key that is counted."""
Place = tuple[str, int]


@dataclass
class State:
    """What the changelog says up to an offset of its own."""

    changelog_offset: int = 0
    position: int = 0
    """Of the input: all records below are counted."""
    counts: dict[str, int] = field(default_factory=dict)
    """By key, in Latin-1, so that JSON takes any bytes."""

    def apply(self, record: StoredRecord) -> None:
        """Take a record of the changelog. The value of a key that comes later stands."""
        if record.key == POSITION:
            self.position = int(record.value or b"0")
        elif record.key is not None and record.key.startswith(COUNT):
            self.counts[record.key.removeprefix(COUNT).decode("latin-1")] = int(record.value or b"0")
        self.changelog_offset = record.offset + 1

    def count(self, records: Sequence[StoredRecord]) -> list[Record]:
        """Count some input; return what goes into the changelog for it, as one batch."""
        changed = {}
        for record in records:
            key = (record.key or b"").decode("latin-1")
            changed[key] = self.counts[key] = self.counts.get(key, 0) + 1
        self.position = records[-1].offset + 1
        rows = [Record(b"%d" % total, COUNT + key.encode("latin-1")) for key, total in changed.items()]
        return [*rows, Record(b"%d" % self.position, POSITION)]


def save(path: Path, state: State) -> None:
    """Replace the checkpoint in one step."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(asdict(state)))
    os.replace(unfinished, path)


def restore(client: Client, changelog: Place, state: State, end: int) -> None:
    """Bring the state up to this offset of the changelog."""
    state.changelog_offset = max(state.changelog_offset, client.start_offset(*changelog))
    with client.reader(*changelog, state.changelog_offset) as reader:
        while reader.offset < end:
            for record in reader.read():
                state.apply(record)


def run(client: Client, name: str, source: Place, changelog: Place, path: Path, *, until_end: bool) -> None:
    """Count, for ever or up to where the input ends now."""
    until = client.end_offset(*source) if until_end else None
    numbers = client.init_producer_id(name)  # who had the name is fenced from here on, on every partition
    with client.producer(numbers) as producer:
        own = producer.publish(*changelog, [Record(b"%d" % numbers.epoch, LIFE)])
        assert own.base_offset is not None, "a first batch always has an offset"
        state = State(**json.loads(path.read_text())) if path.exists() else State()
        restore(client, changelog, state, own.base_offset + 1)
        save(path, state)
        state.position = state.position or client.start_offset(*source)  # later ones must not be gone
        count_on(client, producer, source, changelog, path, state, until)


def count_on(
    client: Client, producer: Producer, source: Place, changelog: Place, path: Path, state: State, until: int | None
) -> None:
    """Count from the state's position on."""
    batches = count(1)
    with client.reader(*source, state.position) as reader:
        while until is None or reader.offset < until:
            for records in in_batches(reader.read()):
                receipt = producer.publish(*changelog, rows := state.count(records))
                assert receipt.base_offset is not None, "the newest batch of the only producer is among its last five"
                state.changelog_offset = receipt.base_offset + len(rows)
                if next(batches) % CHECKPOINT_BATCHES == 0:
                    save(path, state)
    save(path, state)


def in_batches(records: Sequence[StoredRecord]) -> Iterator[list[StoredRecord]]:
    """Yield some input, in pieces whose changes fit into one batch."""
    batch: list[StoredRecord] = []
    size = 0
    for record in records:
        row = len(record.key or b"") + 40
        if batch and (size + row > BATCH_BYTES or len(batch) >= BATCH_RECORDS):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += row
    if batch:
        yield batch


def main() -> None:
    """Count, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="host:port,... of the proxies")
    parser.add_argument("name", help="of the producer")
    parser.add_argument("topic", help="whose records are counted; the changelog has the same partitions")
    parser.add_argument("partition", type=int)
    parser.add_argument("changelog", help="the compacted topic")
    parser.add_argument("checkpoint", type=Path, help="a file")
    parser.add_argument("--until-end", action="store_true", help="end where the input ends now")
    options = parser.parse_args()
    source, changelog = (options.topic, options.partition), (options.changelog, options.partition)
    try:
        with Client(options.bootstrap) as client:
            run(client, options.name, source, changelog, options.checkpoint, until_end=options.until_end)
    except ClientError as error:
        sys.exit(f"{error}; start it again")


if __name__ == "__main__":
    main()
