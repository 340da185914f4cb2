"""How fast records become messages of format v0 and v1: megabytes of batches for each second of CPU, compiled and in
Python, alternately in one process; highest and median of many rounds.

``make bench``. Adds a line of JSON to ``benchmarks/results/lowering.jsonl``."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass

from common import save

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.old_formats import LOWER, Lower
from idemproxy.codecs.old_formats.lowering import lowering
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.process.free_memory import tune
from testkit.stage.stored_batches import StoredRecord, stored_batch, with_lower

BYTES_MAX = 1 << 30
FETCHED_BYTES = 1 << 20


@dataclass(frozen=True)
class Case:
    """A megabyte of batches with so many records of so many bytes, half of which do not compress."""

    name: str
    records: int
    record_bytes: int
    codec: Codec = Codec.NONE


CASES = (
    Case("one record of 100 B", 1, 100),
    Case("16 KB, records of 100 B", 160, 100),
    Case("1 MB, records of 100 B", 10_000, 100),
    Case("1 MB, records of 1 KB", 1_000, 1_000),
    Case("1 MB, records of 100 B, gzip", 10_000, 100, Codec.GZIP),
    Case("1 MB, records of 100 B, snappy", 10_000, 100, Codec.SNAPPY),
    Case("1 MB, records of 100 B, lz4", 10_000, 100, Codec.LZ4),
    Case("1 MB, records of 100 B, zstd to gzip", 10_000, 100, Codec.ZSTD),
)


def fetched(case: Case) -> tuple[bytes, int]:
    """Return the batches, and the bytes of their keys and values."""
    half = case.record_bytes // 2
    records = [
        StoredRecord(i, 1_700_000_000_000 + i, None, os.urandom(half) + bytes(half)) for i in range(case.records)
    ]
    batch = stored_batch(records, codec=case.codec)
    count = max(1, FETCHED_BYTES // (case.records * case.record_bytes))
    data = b"".join((case.records * i).to_bytes(8, "big") + batch[8:] for i in range(count))
    return data, count * case.records * 2 * half


def rate(data: bytes, content_bytes: int, magic: int) -> float:
    """Megabytes of keys and values for each second."""
    began = time.thread_time()
    at_once(lowering(data, 0, bytearray(), magic=magic, bytes_max=BYTES_MAX))
    return content_bytes / (time.thread_time() - began) / 1e6


def measure(case: Case, lower: Lower, rounds: int) -> dict[str, object]:
    """Measure both ways and both formats alternately."""
    data, content_bytes = fetched(case)
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for way, one in (("python", None), ("compiled", lower)):
            with with_lower(one):
                for magic in (0, 1):
                    found.setdefault(f"{way}, v{magic}", []).append(rate(data, content_bytes, magic))
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
    if LOWER is None:
        print("there is no compiled library here: a C compiler makes it at installation", file=sys.stderr)
        return 2
    tune()
    save("lowering", {case.name: measure(case, LOWER, options.rounds) for case in CASES})
    return 0


if __name__ == "__main__":
    sys.exit(main())
