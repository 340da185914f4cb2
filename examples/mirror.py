"""Copies topics from one cluster to another: same partitions, same order, same timestamps, each record once.

Promises: killed at any moment, as often as you like, together with proxies and brokers, it leaves the output as if
nothing had happened: no record twice, none missing, none in another order. Of two mirrors under one name one ends.
Does not promise: the same offsets (they are, where the input has no holes and nobody else writes to the output);
anything of compacted inputs, where it may stop with a sentence; record headers in front of brokers before 0.11.
Stands on partition_copy.py; see docs/how-to/exactly-once-patterns.md. Input: brokers from 0.10 on, or a proxy. Output:
the proxies.

    python mirror.py begin old:9092 proxy-1:9092,proxy-2:9092 orders-mirror orders payments   # once
    python mirror.py run   old:9092 proxy-1:9092,proxy-2:9092 orders-mirror orders payments   # again whenever it ends
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Sequence

import trio
from partition_copy import Change, CopyStopped, PartitionCopy, Place

from idemproxy import DOCUMENTATION
from idemproxy.client import ClientError, Progress, Record, StoredRecord
from idemproxy.client.trio_client import TrioClient

Pairs = Sequence[tuple[Place, Place]]
"""Input and output partitions."""


def copied(note: str, records: Sequence[StoredRecord]) -> tuple[str, list[Record]]:
    """Return what is sent for some input."""
    return note, [Record(one.value, one.key, one.headers, one.timestamp_ms) for one in records]


async def pairs_of(source: TrioClient, destination: TrioClient, topics: Sequence[tuple[str, str]]) -> Pairs:
    """Return all partitions of pairs of topics. Ends when the output lacks some."""
    pairs = [
        ((one, partition), (other, partition)) for one, other in topics for partition in await source.partitions(one)
    ]
    for _, output in topics:
        missing = {partition for _, (topic, partition) in pairs if topic == output}
        missing -= set(await destination.partitions(output))
        if missing:
            sys.exit(f"{output} lacks the partitions {sorted(missing)}")
    return pairs


async def begin(source: TrioClient, destination: TrioClient, name: str, pairs: Pairs) -> None:
    """Store producer id and start of all partitions, once, in one commit: either the mirror has begun, or it has not.
    An input begins at the group's offset, if somebody has set one (kafka-consumer-groups --reset-offsets), else at its
    start."""
    inputs = [place for place, _ in pairs]
    saved = await source.committed_offsets(name, inputs)
    if any(one.metadata for one in saved.values()):
        sys.exit(f"{name} has begun already; to go on: run")
    starts = {place: saved[place].offset if place in saved else await source.start_offset(*place) for place in inputs}
    # The producer id of a name: the proxies keep its state however long nothing comes. It is asked for only here, so
    # all lives have the same id and epoch.
    numbers = await destination.init_producer_id(name)
    first = {place: Progress(start, numbers).to_commit() for place, start in starts.items()}
    await source.commit_offsets(name, first)


async def run(
    source: TrioClient, destination: TrioClient, name: str, pairs: Pairs, change: Change, *, until_end: bool
) -> None:
    """Continue from what is committed, for ever or until where the input ends now."""
    inputs = [place for place, _ in pairs]
    saved = await source.committed_offsets(name, inputs)
    progress = {place: Progress.committed(one) for place, one in saved.items()}
    numbers = {one.producer_id for one in progress.values()}
    if len(numbers) != 1:
        sys.exit(
            f"{name} has not begun, or what it has committed is lost: {DOCUMENTATION}/how-to/exactly-once-patterns.html"
        )
    (producer_id,) = numbers
    for place in inputs:  # partitions that were added since
        progress.setdefault(place, Progress(0, producer_id))
    sequences = {output: progress[place].next_sequence for place, output in pairs}
    ends = {place: await source.end_offset(*place) if until_end else None for place in inputs}
    async with (
        destination.producer(producer_id, next_sequences=sequences) as producer,
        trio.open_nursery() as nursery,
    ):
        for pair in pairs:
            copy = PartitionCopy(source, producer, name, pair, progress[pair[0]], change)
            nursery.start_soon(copy.run, ends[pair[0]])


def ended(program: Callable[[], Awaitable[None]]) -> None:
    """Run it. Exit status 1 with a sentence when something has failed: it is to be started again."""
    try:
        trio.run(program)
    except* (ClientError, CopyStopped, ValueError) as group:  # ValueError: what is committed is not ours, or too long
        sys.exit("\n".join(sorted({str(one) for one in _leaves(group)})))


def _leaves(group: BaseException) -> list[BaseException]:
    if isinstance(group, BaseExceptionGroup):
        return [leaf for one in group.exceptions for leaf in _leaves(one)]
    return [group]


def main() -> None:
    """Begin or run, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["begin", "run"])
    parser.add_argument("source", help="host:port,... of the input's brokers or proxies")
    parser.add_argument("destination", help="host:port,... of the output's proxies")
    parser.add_argument("name", help="of the consumer group in which the progress is kept, and of the producer")
    parser.add_argument("topics", nargs="+")
    parser.add_argument("--until-end", action="store_true", help="end where the input ends now")
    options = parser.parse_args()

    async def program() -> None:
        async with TrioClient(options.source) as source, TrioClient(options.destination) as destination:
            pairs = await pairs_of(source, destination, [(topic, topic) for topic in options.topics])
            if options.what == "begin":
                await begin(source, destination, options.name, pairs)
            else:
                await run(source, destination, options.name, pairs, copied, until_end=options.until_end)

    ended(program)


if __name__ == "__main__":
    main()
