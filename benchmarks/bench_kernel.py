"""What the compiled kernel saves: microseconds of CPU per batch for its checksum, its conversion and its wrapper with
batch marker, in Python and by the kernel, alternately in one process; lowest and median of many rounds.

``make bench``. Adds a line of JSON to ``benchmarks/results/kernel.jsonl``."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from common import save

from idemproxy.codecs.batch_marker import Identity, anchor_of_batch_marker, encode_batch_marker
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import HeaderPolicy, wrap
from idemproxy.codecs.kernel import KERNEL, Kernel
from idemproxy.codecs.record_batch import Record, encode_batch, parse_single_batch, verify_crc
from idemproxy.proxy.process.free_memory import tune
from testkit.stage.kernel_cases import with_kernel
from testkit.stage.wrappers import to_inner

OUTPUT_BYTES_MAX = 1 << 27
_ROUND_SECONDS = 0.02
_POLICY = HeaderPolicy()


@dataclass(frozen=True)
class Case:
    """A batch: so many records of so many random bytes."""

    name: str
    records: int
    record_bytes: int
    codec: Codec = Codec.NONE


CASES = (
    Case("one record of 100 B", 1, 100),
    Case("16 KB, records of 1 KB", 16, 1_000),
    Case("16 KB, records of 100 B", 160, 90),
    Case("64 KB, records of 1 KB", 64, 1_000),
    Case("64 KB, records of 1 KB, lz4", 64, 1_000, Codec.LZ4),
    Case("1 MB, records of 1 KB", 1_000, 1_000),
    Case("1 MB, records of 100 B", 10_000, 90),
    Case("8 MB, records of 1 KB", 8_000, 1_000),
)


def parts(case: Case) -> dict[str, Callable[[], object]]:
    """What is measured of one batch: each part, and all of them as a produce has them."""
    records = [Record(i, 1_700_000_000_000 + i, None, os.urandom(case.record_bytes)) for i in range(case.records)]
    batch = memoryview(encode_batch(records, producer_id=1_000, producer_epoch=0, base_sequence=0, codec=case.codec))
    header = parse_single_batch(batch)
    identity = Identity(1_000, 0, 0, case.records)

    def checked() -> None:
        verify_crc(batch, header)

    def converted() -> object:
        return to_inner([batch], policy=_POLICY, output_bytes_max=OUTPUT_BYTES_MAX, headers=[header])

    inner = to_inner([batch], policy=_POLICY, output_bytes_max=OUTPUT_BYTES_MAX, headers=[header])

    def wrapped() -> object:
        batch_marker = encode_batch_marker((identity,))
        anchor_of_batch_marker(batch_marker)
        return wrap(inner, key=batch_marker, codec=case.codec)

    def everything() -> None:
        checked()
        converted()
        wrapped()

    return {"checksum": checked, "conversion": converted, "wrapper": wrapped, "all": everything}


def microseconds(what: Callable[[], object], calls: int) -> float:
    """CPU of one call, in a round of so many."""
    began = time.thread_time()
    for _ in range(calls):
        what()
    return (time.thread_time() - began) / calls * 1e6


def measure(case: Case, kernel: Kernel, rounds: int) -> dict[str, object]:
    """Measure both ways alternately."""
    figures: dict[str, object] = {}
    for name, what in parts(case).items():
        calls = max(1, round(_ROUND_SECONDS * 1e6 / max(microseconds(what, 1), 1.0)))
        found: dict[str, list[float]] = {"python": [], "kernel": []}
        for _ in range(rounds):
            for way, one in (("python", None), ("kernel", kernel)):
                with with_kernel(one):
                    found[way].append(microseconds(what, calls))
        figures[name] = {
            way: {"lowest": round(min(us), 2), "median": round(statistics.median(us), 2)} for way, us in found.items()
        }
        low = {way: min(us) for way, us in found.items()}
        print(
            f"{case.name:<30} {name:<10} {low['python']:>9.2f} -> {low['kernel']:>8.2f} us, "
            f"{low['python'] / low['kernel']:.1f} times",
            flush=True,
        )
    return figures


def main() -> int:
    """Measure all cases. 2 without a kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="of each way (default: %(default)s)")
    options = parser.parse_args()
    if KERNEL is None:
        print("there is no compiled kernel here: a C compiler makes it when the package is installed", file=sys.stderr)
        return 2
    tune()
    save("kernel", {case.name: measure(case, KERNEL, options.rounds) for case in CASES})
    return 0


if __name__ == "__main__":
    sys.exit(main())
