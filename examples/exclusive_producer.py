"""Sends the lines of a file that only grows to one partition, each once. Nothing is saved while it runs.

Nobody else writes to the partition, so where it ends says how many lines are in it. The number of a line gives
the sequence of its record, in all runs, and its offset: a run reads where the partition ends and continues there. If a
batch of an earlier run still arrives meanwhile, the next one does not fit after it, and is refused as out of order.

Promises: each whole line is in the log once and in order, at the offset that its number tells, wherever this program,
proxies or brokers are killed. Two instances at once do no harm: each line has the same number in both.
Does not promise: anything once somebody else writes to the partition; that is noticed and ends with an error message.
Needs: lines that stay as they are; retention may delete records, as only the end of the log is looked at. What is
saved is where the partition ended at the beginning, with the producer id, as the offset of a group.

    python exclusive_producer.py begin proxy:9092 orders-file orders 0   # once
    python exclusive_producer.py run   proxy:9092 orders-file orders 0 orders.txt   # again whenever the file has grown
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import islice, takewhile
from pathlib import Path

from idemproxy.client import Client, ClientError, Progress, Receipt, Record
from idemproxy.producing.numbered_batch import SEQUENCE_MODULUS

BATCH_LINES = 500
WAITING_BATCHES_MAX = 20
"""Batches without a receipt; five of them are in flight."""
Place = tuple[str, int]


def batches_of(path: Path, first: int) -> Iterator[tuple[int, list[Record]]]:
    """Yield the lines from number ``first`` on, as (number of the first one, records). A line without an end is not
    there yet: nothing after it is read, as it may be its other half."""
    with path.open("rb") as lines:
        rest = takewhile(lambda line: line.endswith(b"\n"), islice(lines, first, None))
        while batch := list(islice(rest, BATCH_LINES)):
            yield first, [Record(line.removesuffix(b"\n")) for line in batch]
            first += len(batch)


def begin(client: Client, name: str, place: Place, first_line: int) -> None:
    """Store producer id and start, once. ``first_line``: the number of the line that comes where the partition ends
    now."""
    if client.committed_offsets(name, [place]):
        sys.exit(f"{name} has begun already; to go on: run")
    numbers = client.init_producer_id(name)  # of a name: the proxies keep its state however long no line comes
    begun = Progress(client.end_offset(*place), numbers, note=f"{first_line}")
    client.commit_offsets(name, {place: begun.to_commit()})


def run(client: Client, name: str, place: Place, path: Path) -> int:
    """Send what is not in the log yet; return how many lines were sent. Raises ClientError: start it again."""
    saved = client.committed_offsets(name, [place])
    if not saved:
        sys.exit(f"{name} has not begun")
    begun = Progress.committed(saved[place])
    offset_of_line_0 = begun.offset - int(begun.note)
    done = client.end_offset(*place) - begun.offset
    waiting: deque[tuple[int, Future[Receipt]]] = deque()
    with client.producer(begun.producer_id, next_sequences={place: done % SEQUENCE_MODULUS}) as producer:
        for number, records in batches_of(path, int(begun.note) + done):
            waiting.append((number, producer.send(*place, records)))
            if len(waiting) > WAITING_BATCHES_MAX:
                check(*waiting.popleft(), offset_of_line_0)
        while waiting:
            check(*waiting.popleft(), offset_of_line_0)
        return (producer.next_sequence(*place) - done) % SEQUENCE_MODULUS


def check(number: int, future: Future[Receipt], offset: int) -> None:
    """Wait for a receipt. Ends when the lines are not where they have to be."""
    receipt = future.result()
    if receipt.base_offset not in (None, offset + number):
        sys.exit(
            f"line {number} is at offset {receipt.base_offset}, due is {offset + number}: somebody else writes here"
        )


def main() -> None:
    """Begin or run, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["begin", "run"])
    parser.add_argument("bootstrap", help="host:port,... of the proxies")
    parser.add_argument("name", help="of the producer, and of the consumer group that keeps its beginning")
    parser.add_argument("topic")
    parser.add_argument("partition", type=int)
    parser.add_argument("file", type=Path, nargs="?", help="for run")
    parser.add_argument("--first-line", type=int, default=0, help="for begin: the line that comes next (default: 0)")
    options = parser.parse_args()
    if options.what == "run" and options.file is None:
        parser.error("run needs the file")
    place = options.topic, options.partition
    try:
        with Client(options.bootstrap) as client:
            if options.what == "begin":
                begin(client, options.name, place, options.first_line)
            else:
                print(f"{run(client, options.name, place, options.file)} lines were sent")
    except ClientError as error:
        sys.exit(f"{error}; start it again")
    except ValueError as error:
        sys.exit(f"{error}: what is committed is not of this program")


if __name__ == "__main__":
    main()
