"""Merges partitions into one, and keeps the order in a log of its own, the merge log: entry by entry which records of
which partition come next.

The order of a merge is a matter of chance: who read first. So it is decided once, by the entry in the merge log, and
what is sent follows from that log and the inputs alone, in every life and in every copy of the output. A life takes its
name (which fences the one before), writes an entry that orders nothing, and reads the merge log up to that: nothing of
an older life can come behind it. The output is sent as by exclusive_producer.py: a record's place in the order is its
sequence and tells its offset.

Promises: each input record is in the output once, those of a partition in their order, wherever this program, proxies
or brokers are killed; whoever follows the merge log gets the same output. A second instance fences the first.
Does not promise: that the inputs are merged by time.
Needs: merge log and output of one partition each, to which nobody else writes; inputs that keep what is not in the
output yet. Each life reads the merge log from its start: to keep it short, see changelog.py.

    python merge_log.py begin proxy:9092 merge orders-merge-log all-orders orders payments   # once
    python merge_log.py run   proxy:9092 merge orders-merge-log all-orders orders payments   # again whenever it ends
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from idemproxy.client import Client, ClientError, Producer, ProducerId, Reader, Record, StoredRecord
from idemproxy.client.records import SEQUENCE_MODULUS

BATCH_RECORDS = 500
Place = tuple[str, int]
Entry = tuple[Place, int, int, int]
"""These records come next: of this partition, from one offset up to another one, and how many they are."""


def to_record(entry: Entry) -> Record:
    """Return an entry as a record of the merge log."""
    (topic, partition), start, end, records = entry
    return Record(
        json.dumps({"topic": topic, "partition": partition, "from": start, "to": end, "records": records}).encode()
    )


def chunks_of(records: Sequence[StoredRecord]) -> Iterator[Sequence[StoredRecord]]:
    """Yield what goes into one batch, and has one entry."""
    for at in range(0, len(records), BATCH_RECORDS):
        yield records[at : at + BATCH_RECORDS]


class Output:
    """The one partition that all goes to."""

    def __init__(self, client: Client, place: Place, numbers: ProducerId, begun_at: int) -> None:
        """``begun_at``: its end when the merge began. The numbers are those of all lives."""
        self._place = place
        self._begun_at = begun_at
        self._done = client.end_offset(*place) - begun_at
        """So many records are in it."""
        self._ordered = 0
        """So many has the merge log ordered, as far as it was followed."""
        self.producer = client.producer(numbers, next_sequences={place: self._done % SEQUENCE_MODULUS})

    def has(self, count: int) -> bool:
        """Whether the next so many records of the order are in it; if so, they are passed over."""
        is_there = self._ordered + count <= self._done
        self._ordered += count * is_there
        return is_there

    def write(self, records: Sequence[StoredRecord]) -> None:
        """Send the next records of the order, but for those that are in it."""
        first = max(self._done, self._ordered)
        rest = records[first - self._ordered :]
        sent = [Record(one.value, one.key, one.headers, one.timestamp_ms) for one in rest]
        offset = self.producer.publish(*self._place, sent).base_offset
        if offset not in (None, self._begun_at + first):
            sys.exit(
                f"record {first} is at offset {offset}, due is {self._begun_at + first}: somebody else writes here"
            )
        self._ordered += len(records)


class Merge:
    """One life: who has the name, and has read the merge log."""

    def __init__(self, client: Client, name: str, log: Place, output: Place, inputs: Sequence[Place]) -> None:
        self._client = client
        self._log = log
        self._numbers = client.init_producer_id(name)  # who had the name is fenced from here on
        self._producer = client.producer(self._numbers)
        own = self._producer.publish(*log, [Record(json.dumps({"life": self._numbers.epoch}).encode())])
        assert own.base_offset is not None, "a first batch always has an offset"
        first, *entries = [json.loads(one.value or b"") for one in read(client, log, 0, own.base_offset + 1)]
        self._output = Output(client, output, ProducerId(first["id"], first["epoch"]), first["offset"])
        self._positions = {place: client.start_offset(*place) for place in inputs}
        for entry in entries:
            if "life" not in entry:
                self._follow((entry["topic"], entry["partition"]), entry["from"], entry["to"], entry["records"])

    def run(self, *, until_end: bool) -> None:
        """Order and send, for ever or up to where the inputs end now."""
        until = {place: self._client.end_offset(*place) if until_end else None for place in self._positions}
        readers = {place: self._client.reader(*place, offset) for place, offset in self._positions.items()}
        while any(end is None or readers[place].offset < end for place, end in until.items()):
            for place, reader in readers.items():
                if self._client.end_offset(*place) > reader.offset:
                    self._order(place, reader)
        for one in (self._producer, self._output.producer, *readers.values()):
            one.close()

    def _follow(self, place: Place, start: int, end: int, count: int) -> None:
        """Take an entry of an earlier life."""
        self._positions[place] = end
        if not self._output.has(count):
            self._output.write(list(read(self._client, place, start, end)))

    def _order(self, place: Place, reader: Reader) -> None:
        """Decide that what this input has comes next, and then send it."""
        chunks = list(chunks_of(reader.read()))
        entries = [(place, chunk[0].offset, chunk[-1].offset + 1, len(chunk)) for chunk in chunks]
        if entries:
            self._producer.publish(*self._log, [to_record(entry) for entry in entries])
        for chunk in chunks:
            self._output.write(chunk)


def read(client: Client, place: Place, start: int, end: int) -> Iterator[StoredRecord]:
    """Yield the records from one offset up to another one."""
    with client.reader(*place, start) as reader:
        while reader.offset < end:
            yield from (one for one in reader.read() if one.offset < end)


def begin(client: Client, name: str, log: Place, output: Place) -> None:
    """Make the first entry of the merge log: the numbers of the output."""
    if client.end_offset(*log) > 0:
        sys.exit("the merge log has begun already; to go on: run")
    numbers = client.init_producer_id(f"{name}-output")
    first = {"id": numbers.number, "epoch": numbers.epoch, "offset": client.end_offset(*output)}
    with client.producer(client.init_producer_id(name)) as producer:
        producer.publish(*log, [Record(json.dumps(first).encode())])


def main() -> None:
    """Begin or run, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["begin", "run"])
    parser.add_argument("bootstrap", help="host:port,... of the proxies")
    parser.add_argument("name", help="of the producer")
    parser.add_argument("log", help="the topic of the merge log")
    parser.add_argument("output", help="the topic of the output")
    parser.add_argument("inputs", nargs="+", help="topics")
    parser.add_argument("--until-end", action="store_true", help="end where the inputs end now")
    options = parser.parse_args()
    try:
        with Client(options.bootstrap) as client:
            log, output = (options.log, 0), (options.output, 0)
            if options.what == "begin":
                begin(client, options.name, log, output)
            else:
                inputs = [(topic, partition) for topic in options.inputs for partition in client.partitions(topic)]
                Merge(client, options.name, log, output, inputs).run(until_end=options.until_end)
    except ClientError as error:
        sys.exit(f"{error}; start it again")


if __name__ == "__main__":
    main()
