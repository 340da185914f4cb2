"""How fast message sets of format v0 and v1 become batches: megabytes of values for each second of CPU, compiled and
in Python, alternately in one process; highest and median of many rounds.

``make bench``. Adds a line of JSON to ``benchmarks/results/raising.jsonl``."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass

from common import save

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.old_formats import RAISE_SET, RaiseSet
from idemproxy.proxy.process.free_memory import tune
from testkit.stage.sent_sets import raised, with_raise_set

BATCH_BYTES_MAX = 1_000_012
UNPACKED_BYTES_MAX = 64 << 20


@dataclass(frozen=True)
class Case:
    """A set of so many messages of so many bytes, half of which do not compress."""

    name: str
    messages: int
    message_bytes: int
    codec: Codec = Codec.NONE


CASES = (
    Case("one message of 100 B", 1, 100),
    Case("16 KB, messages of 100 B", 160, 100),
    Case("700 KB, messages of 100 B", 7_000, 100),
    Case("700 KB, messages of 1 KB", 700, 1_000),
    Case("3 MB, messages of 1 KB", 3_000, 1_000),
    Case("700 KB, messages of 100 B, gzip", 7_000, 100, Codec.GZIP),
    Case("700 KB, messages of 100 B, snappy", 7_000, 100, Codec.SNAPPY),
    Case("700 KB, messages of 100 B, lz4", 7_000, 100, Codec.LZ4),
)


def sent(case: Case, magic: int) -> bytes:
    """Return the set."""
    half = case.message_bytes // 2
    records = [(None, os.urandom(half) + bytes(half), 1_700_000_000_000 + i) for i in range(case.messages)]
    plain = encode_set(records, magic=magic)
    if case.codec is Codec.NONE:
        return plain
    return encode_message(None, compress(case.codec, plain, magic=magic), magic=magic, codec=case.codec)


def rate(message_set: bytes, content_bytes: int) -> float:
    """Megabytes of values for each second."""
    rounds = max(1, 200_000 // content_bytes)
    began = time.thread_time()
    for _ in range(rounds):
        raised(message_set, BATCH_BYTES_MAX, UNPACKED_BYTES_MAX)
    return rounds * content_bytes / (time.thread_time() - began) / 1e6


def measure(case: Case, raise_set: RaiseSet, rounds: int) -> dict[str, object]:
    """Measure both ways and both formats alternately."""
    sets = {magic: sent(case, magic) for magic in (0, 1)}
    content_bytes = case.messages * case.message_bytes
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for way, one in (("python", None), ("compiled", raise_set)):
            with with_raise_set(one):
                for magic, message_set in sets.items():
                    found.setdefault(f"{way}, v{magic}", []).append(rate(message_set, content_bytes))
    figures: dict[str, object] = {}
    for name, rates in found.items():
        figures[name] = {"highest": round(max(rates), 1), "median": round(statistics.median(rates), 1)}
        print(f"{case.name:<38} {name:<14} {max(rates):>8.1f} MB/s", flush=True)
    return figures


def main() -> int:
    """Measure all cases. 2 without the compiled library."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="of each way (default: %(default)s)")
    options = parser.parse_args()
    if RAISE_SET is None:
        print("there is no compiled library here: a C compiler makes it at installation", file=sys.stderr)
        return 2
    tune()
    save("raising", {case.name: measure(case, RAISE_SET, options.rounds) for case in CASES})
    return 0


if __name__ == "__main__":
    sys.exit(main())
