"""Makes a topic without duplicates of one that repartition.py has written: each source record once, and in order.

In each input partition the records of one source partition come in the order of their offsets, but for what a crash has
brought in once more. So the highest source offset that has come so far tells what comes again: it is left out. These
offsets, one for each source partition, are this job's state, and are saved together with how far it is.

Promises: one copy of each source record, without its coordinates, in the source's order for each source partition;
killed at any moment, as often as you like. Of two jobs under one name one ends.
Does not promise: an order between source partitions other than the input's; more than some hundred source partitions
(4,096 bytes go with a committed offset: it ends with a sentence then); anything of inputs that somebody else writes to.
Stands on partition_copy.py and mirror.py; docs/how-to/exactly-once-patterns.md.

    python pristine.py begin proxy:9092 pristine-orders orders-by-key orders-pristine   # once
    python pristine.py run   proxy:9092 pristine-orders orders-by-key orders-pristine   # again whenever it ends
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from mirror import begin, ended, pairs_of, run

from idemproxy.client import Record, StoredRecord, coordinates
from idemproxy.client.trio_client import TrioClient


def without_copies(note: str, records: Sequence[StoredRecord]) -> tuple[str, list[Record]]:
    """Return what is sent for some input. ``note``: the highest offset so far of each source partition, as JSON."""
    highest: dict[str, int] = json.loads(note) if note else {}
    kept = []
    for one in records:
        source, value, headers = coordinates.taken_off(one)
        partition = f"{source.topic}/{source.partition}"
        if source.offset > highest.get(partition, -1):
            highest[partition] = source.offset
            kept.append(Record(value, one.key, headers, one.timestamp_ms))
    return json.dumps(highest, separators=(",", ":")), kept


def main() -> None:
    """Begin or run, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["begin", "run"])
    parser.add_argument("bootstrap", help="host:port,... of the proxies")
    parser.add_argument("name", help="of the consumer group in which the progress is kept, and of the producer")
    parser.add_argument("input", help="a topic that repartition.py writes")
    parser.add_argument("output", help="a topic with at least as many partitions")
    parser.add_argument("--until-end", action="store_true", help="end where the input ends now")
    options = parser.parse_args()

    async def program() -> None:
        async with TrioClient(options.bootstrap) as client:
            pairs = await pairs_of(client, client, [(options.input, options.output)])
            if options.what == "begin":
                await begin(client, client, options.name, pairs)
            else:
                await run(client, client, options.name, pairs, without_copies, until_end=options.until_end)

    ended(program)


if __name__ == "__main__":
    main()
