"""Numbered records by kcat, from its standard input. It takes no partition for a record, only a key for each line: the
keys are chosen so that librdkafka's own hash of them is the partition.

It tells what is acknowledged as partition and offset, each partition in the order in which its records were sent; so a
record that failed would make the numbers after it wrong, but it is counted as an error.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import threading
import time
import zlib

from .program import Told, arguments

_DELIVERED = re.compile(r"% Message delivered to partition (\d+) \(offset (-?\d+)\)")
_KEY_ENDS = "\t"


def key_of(partition: int, partitions: int) -> str:
    """Return the first key that librdkafka's partitioner ``consistent`` sends there."""
    return next(key for key in map(str, itertools.count()) if zlib.crc32(key.encode()) % partitions == partition)


def main() -> None:
    """Send, wait for the end of kcat, say what became of the records."""
    given = arguments()
    told = Told(given["partitions"], given["told_file"], given["pace"])
    settings = {
        "bootstrap.servers": given["bootstrap"],
        "compression.codec": given["compression"],
        "topic.partitioner": "consistent",
        **given["settings"],
    }
    command = ["kcat", "-P", "-t", given["topic"], "-K", _KEY_ENDS, "-vvv", "-E"]
    command += [word for name, value in settings.items() for word in ("-X", f"{name}={_text(value)}")]
    command += [word for name in given["headers"] for word in ("-H", f"{name}=\1")]
    kcat = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert kcat.stdin is not None
    listening = threading.Thread(target=_listen, args=(kcat, told, notices := []))
    listening.start()
    keys = [key_of(partition, given["partitions"]) for partition in range(given["partitions"])]
    try:
        for partition, _, value in told.records(given["name"], given["records"]):
            kcat.stdin.write(f"{keys[partition]}{_KEY_ENDS}{value.decode()}\n")
            if told.ahead_seconds:
                kcat.stdin.flush()
                time.sleep(told.ahead_seconds)
        kcat.stdin.close()
    except BrokenPipeError:
        notices.append("it took no more records")
    listening.join()
    if code := kcat.wait():
        told.failed(f"kcat ended with {code}: {notices[-3:]}")
    told.finish(notices=len(notices), version=_version())


def _listen(kcat: subprocess.Popen[str], told: Told, notices: list[str]) -> None:
    numbers = [itertools.count() for _ in range(told.partitions)]
    assert kcat.stderr is not None
    for line in kcat.stderr:
        if delivered := _DELIVERED.match(line):
            partition = int(delivered[1])
            told.acknowledged(partition, next(numbers[partition]), int(delivered[2]))
        elif "Delivery failed" in line or "FATAL" in line or "Failed to produce" in line:
            told.failed(line.strip())
        else:
            notices.append(line.strip())


def _version() -> str:
    """Its own, and that of the librdkafka in it."""
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
    own, of_librdkafka = (re.search(rf"{name} ([\d.]+)", said) for name in ("Version", "librdkafka"))
    return f"{own[1]} (librdkafka {of_librdkafka[1]})" if own and of_librdkafka else "unknown"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main()
