"""Sends the records of a topic to the partitions of another one, by their keys; each carries where it comes from.

The partitions of the output have many writers (one task for each input partition), so no end of a log tells how far one
of them is. Nothing is planned either: offsets are committed when everything below them is in the output, and a run
that begins after a crash sends what came after them once more. As each record carries its source coordinates (topic,
partition, offset), any reader can recognise copies: pristine.py makes a topic without them.

Promises: each input record is in the output at least once; those of one input partition that go to the same output
partition lie there in order, but for copies: what comes again has an offset that is not above the highest so far.
Does not promise: that there are no copies. What follows each crash of this program comes again; lost answers, proxies
and brokers that die bring none.
Needs: the same number of output partitions for ever. One instance for a name: a second one fences the first.
Coordinates are a first line of the value, or headers (--headers) where the brokers keep these (from 0.11 on).

    python repartition.py proxy:9092 by-key orders orders-by-key
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from zlib import crc32

import trio
from mirror import ended
from partition_copy import Place

from idemproxy.client import CommittedOffset, Record, StoredRecord
from idemproxy.client.coordinates import Coordinates
from idemproxy.client.trio_client import TrioClient, TrioProducer

BATCH_RECORDS = 500


def carrying(record: StoredRecord, source: Coordinates, *, in_headers: bool) -> Record:
    """Return what is sent for a record."""
    if in_headers:
        return Record(record.value, record.key, (*record.headers, *source.headers()), record.timestamp_ms)
    return Record(source.before(record.value), record.key, record.headers, record.timestamp_ms)


async def spread(
    client: TrioClient,
    producer: TrioProducer,
    group: str,
    source: Place,
    start: int,
    outputs: Sequence[Place],
    *,
    in_headers: bool,
    until: int | None,
) -> None:
    """Send one input partition on, from an offset on, for ever or up to another one."""
    async with client.reader(*source, start) as reader:
        while until is None or reader.offset < until:
            waiting: dict[Place, list[Record]] = {}
            for record in await reader.read():
                # Any function of the record will do that never changes; records without a key stay together.
                number = source[1] if record.key is None else crc32(record.key)
                sent = carrying(record, Coordinates(*source, record.offset), in_headers=in_headers)
                waiting.setdefault(outputs[number % len(outputs)], []).append(sent)
            deliveries = [
                await producer.send(*output, records[at : at + BATCH_RECORDS])
                for output, records in waiting.items()
                for at in range(0, len(records), BATCH_RECORDS)
            ]
            for delivery in deliveries:
                await delivery.receipt()
            if deliveries:
                await client.commit_offsets(group, {source: CommittedOffset(reader.offset)})


def main() -> None:
    """Continue from the committed offsets, at first from the beginning."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap", help="host:port,... of the proxies")
    parser.add_argument("name", help="of the consumer group in which offsets are kept, and of the producer")
    parser.add_argument("input", help="a topic")
    parser.add_argument("output", help="another one")
    parser.add_argument("--headers", action="store_true", help="coordinates as record headers")
    parser.add_argument("--until-end", action="store_true", help="end where the input ends now")
    options = parser.parse_args()

    async def program() -> None:
        async with TrioClient(options.bootstrap) as client:
            # First of all: the one before has to be fenced before its offsets are taken over.
            producer_id = await client.init_producer_id(options.name)
            sources = [(options.input, partition) for partition in await client.partitions(options.input)]
            outputs = [(options.output, partition) for partition in await client.partitions(options.output)]
            saved = await client.committed_offsets(options.name, sources)
            async with client.producer(producer_id) as producer, trio.open_nursery() as nursery:
                for source in sources:
                    start = saved[source].offset if source in saved else await client.start_offset(*source)
                    until = await client.end_offset(*source) if options.until_end else None

                    async def task(source: Place = source, start: int = start, until: int | None = until) -> None:
                        await spread(
                            client, producer, options.name, source, start, outputs,
                            in_headers=options.headers, until=until,
                        )  # fmt: skip

                    nursery.start_soon(task)

    ended(program)


if __name__ == "__main__":
    main()
