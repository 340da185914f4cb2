"""Reads a topic by kcat as a member of a group. It commits by itself, the last time when it leaves; what is committed
then is asked by confluent-kafka, as kcat has no command for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from .program import arguments, finish

_ASK_SECONDS_MAX = 10


def main() -> None:
    """Read so many records, or until the time is up."""
    given = arguments()
    assert given["group"], "kcat reads partitions by hand one at a time only"
    command = ["kcat", "-b", given["bootstrap"], "-E", "-c", str(given["records"]), "-f", "%p %o %s\\n"]
    command += ["-X", "topic.auto.offset.reset=earliest", "-G", given["group"], given["topic"]]
    path = Path(given["records_file"])
    with path.open("wb") as read:
        try:
            code = subprocess.run(command, stdout=read, timeout=given["seconds_max"]).returncode
        except subprocess.TimeoutExpired:
            sys.exit(f"kcat had not read {given['records']} records after {given['seconds_max']} s")
    asking = Consumer({"bootstrap.servers": given["bootstrap"], "group.id": given["group"]})
    places = [TopicPartition(given["topic"], number) for number in range(given["partitions"])]
    committed = {one.partition: one.offset for one in asking.committed(places, _ASK_SECONDS_MAX)}
    asking.close()
    records = len(path.read_bytes().splitlines())
    finish({"records": records, "committed": committed}, ok=code == 0 and records == given["records"])


if __name__ == "__main__":
    main()
