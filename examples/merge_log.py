"""Merges partitions into one. A log of its own, the merge log, keeps in which order: entry by entry which records come.

That order is a matter of chance: what was read first. So it is decided once, by an entry in the merge log, and what is
sent follows from that log and the inputs alone, in every run and in every copy of the output. A run takes its producer
name (which fences the one before), writes an entry that orders nothing, and reads the merge log up to that: no older
run can write after it. The output is sent as by exclusive_producer.py: a record's place is its sequence. If Redis has
lost everything, the output's producer id is fenced for ever: an entry of the merge log names a new one.

Promises: each input record is in the output once, those of a partition in their order, wherever this program, proxies
or brokers are killed; a program that follows the merge log makes the same output. A second instance fences the first.
Does not promise: that the inputs are merged by time.
Needs: merge log and output of one partition each, for this program alone; inputs that keep what is not in the output
yet. Each run reads the merge log from its start; changelog.py shows how that is made short.

    python merge_log.py begin proxy:9092 merge orders-merge-log all-orders orders payments   # once
    python merge_log.py run   proxy:9092 merge orders-merge-log all-orders orders payments   # again whenever it ends
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

from idemproxy.client import Client, ClientError, Fenced, ProducerId, Reader, Record, StoredRecord
from idemproxy.producing.numbered_batch import SEQUENCE_MODULUS

BATCH_RECORDS, IDLE_SECONDS = 500, 0.1
QUIESCENCE_SECONDS = 5.0
"""After this what was on its way under a lost producer id is in the log. Later than that, it ends with a sentence."""
Place = tuple[str, int]


def entry_of(**fields: object) -> Record:
    """Return an entry of the merge log."""
    return Record(json.dumps(fields).encode())


class Output:
    """The partition that all goes to."""

    def __init__(self, client: Client, place: Place, begun: Mapping[str, int]) -> None:
        """``begun``: producer id and epoch, for all runs, where the partition ended when the merge began, and which
        record is the first one under this id."""
        self._place = place
        self._begun_at = begun["offset"]
        self._done = client.end_offset(*place) - self._begun_at  # so many records are in it
        self._ordered = 0  # so many were ordered by the entries so far
        sequences = {place: (self._done - begun.get("first", 0)) % SEQUENCE_MODULUS}
        self.producer = client.producer(ProducerId(begun["id"], begun["epoch"]), next_sequences=sequences)

    def is_followed(self) -> None:
        """All entries so far were applied. Exits if the output has more records than they have ordered."""
        if self._done > self._ordered:
            sys.exit(f"{self._place} has {self._done} records, ordered are {self._ordered}: somebody else writes there")

    def has(self, count: int) -> bool:
        """Whether the next ``count`` records of the order are in the output; if so, they count as done."""
        is_there = self._ordered + count <= self._done
        self._ordered += count * is_there
        return is_there

    def write(self, records: Sequence[StoredRecord]) -> None:
        """Send the next records of the order, without those that are in the output already."""
        first = max(self._done, self._ordered)
        rest = [Record(one.value, one.key, one.headers, one.timestamp_ms) for one in records[first - self._ordered :]]
        offset, due = self.producer.publish(*self._place, rest).base_offset, self._begun_at + first
        if offset not in (None, due):
            sys.exit(f"record {first} is at offset {offset}, due is {due}: somebody else writes there")
        self._ordered += len(records)


class Merge:
    """One run of the program, after it has taken the producer name and read the merge log."""

    def __init__(self, client: Client, name: str, log: Place, output: Place, inputs: Sequence[Place]) -> None:
        self._client = client
        self._name, self._log, self._place = name, log, output
        numbers = client.init_producer_id(name)  # who had the name is fenced from here on
        self._producer = client.producer(numbers)
        own = self._producer.publish(*log, [entry_of(life=numbers.epoch)])
        assert own.base_offset is not None, "a first batch always has an offset"
        begun, *entries = [json.loads(one.value or b"") for one in read(client, log, 0, own.base_offset + 1)]
        for one in (entry for entry in entries if "id" in entry):  # Redis has lost everything before
            begun |= one
        self._begun_at = begun["offset"]
        self._output = Output(client, output, begun)
        self._positions = {place: client.start_offset(*place) for place in inputs}
        for one in (entry for entry in entries if "to" in entry):  # those of earlier runs
            place = one["topic"], one["partition"]
            self._positions[place] = one["to"]
            if not self._output.has(one["records"]):
                self._write(list(read(client, place, one["from"], one["to"])))
        self._output.is_followed()

    def run(self, *, until_end: bool) -> None:
        """Order and send, for ever or up to where the inputs end now."""
        until = {place: self._client.end_offset(*place) if until_end else None for place in self._positions}
        readers = {place: self._client.reader(*place, offset) for place, offset in self._positions.items()}
        while any(end is None or readers[place].offset < end for place, end in until.items()):
            more = [place for place, reader in readers.items() if self._client.end_offset(*place) > reader.offset]
            for place in more:
                self._order(place, readers[place])
            time.sleep(0 if more else IDLE_SECONDS)

    def _order(self, place: Place, reader: Reader) -> None:
        """Decide that what this input has comes next, and then send it."""
        records = reader.read()
        for one in (records[at : at + BATCH_RECORDS] for at in range(0, len(records), BATCH_RECORDS)):
            borders = {"from": one[0].offset, "to": one[-1].offset + 1}
            entry = entry_of(topic=place[0], partition=place[1], records=len(one), **borders)
            self._producer.publish(*self._log, [entry])
            self._write(one)

    def _write(self, records: Sequence[StoredRecord]) -> None:
        """Send them. Where the output's producer id is fenced, and this run is not, name a new id for the next run:
        from the record on that the output lacks."""
        try:
            self._output.write(records)
        except Fenced:
            self._producer.publish(*self._log, [entry_of(life="asks for a new id of the output")])
            numbers = self._client.init_producer_id(f"{self._name}-output")
            time.sleep(QUIESCENCE_SECONDS)
            first = self._client.end_offset(*self._place) - self._begun_at
            self._producer.publish(*self._log, [entry_of(id=numbers.number, epoch=numbers.epoch, first=first)])
            sys.exit("the output has a new producer id, as Redis has lost the one before; start it again")


def read(client: Client, place: Place, start: int, end: int) -> Iterator[StoredRecord]:
    """Yield the records from one offset up to another one."""
    with client.reader(*place, start) as reader:
        while reader.offset < end:
            yield from (one for one in reader.read() if one.offset < end)


def begin(client: Client, name: str, log: Place, output: Place) -> None:
    """Make the first entry of the merge log: the numbers of the output."""
    numbers = client.init_producer_id(f"{name}-output")
    first = entry_of(id=numbers.number, epoch=numbers.epoch, offset=client.end_offset(*output), first=0)
    with client.producer(client.init_producer_id(name)) as producer:
        producer.publish(*log, [first])


def main() -> None:
    """Begin or run, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["begin", "run"])
    for name in ("bootstrap", "name", "log", "output"):
        parser.add_argument(name)
    parser.add_argument("inputs", nargs="+", help="topics")
    parser.add_argument("--until-end", action="store_true", help="end where the inputs end now")
    options = parser.parse_args()
    log, output = (options.log, 0), (options.output, 0)
    try:
        with Client(options.bootstrap) as client:
            if (client.end_offset(*log) > 0) != (options.what == "run"):
                sys.exit("it has not begun: begin" if options.what == "run" else "it has begun already; to go on: run")
            if options.what == "begin":
                begin(client, options.name, log, output)
            else:
                inputs = [(topic, partition) for topic in options.inputs for partition in client.partitions(topic)]
                Merge(client, options.name, log, output, inputs).run(until_end=options.until_end)
    except ClientError as error:
        sys.exit(f"{error}; start it again")


if __name__ == "__main__":
    main()
