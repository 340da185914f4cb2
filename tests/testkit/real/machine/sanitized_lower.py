"""Gives ``lower.c``, built with sanitizers, everything that it may be given, each time in memory of exactly its size:
``python -m testkit.real.machine.sanitized_lower LIBRARY ROUNDS``."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

from idemproxy.codecs.errors import WireError
from idemproxy.codecs.old_formats.lowering import lowering
from idemproxy.codecs.record_batch import BATCH_OVERHEAD_BYTES
from idemproxy.codecs.steps import at_once
from testkit.stage.kernel_cases import damaged, random_batch
from testkit.stage.stored_batches import signed, with_lower

from .kernel_build import load
from .sanitized_kernel import exact

_NUMBERS = (-(2**63), -1, 0, 1, 2, 7, 60, 61, 62, 2**31, 2**62, 2**63 - 1)


def main(library: Path, rounds: int) -> None:
    """Ends by the sanitizers' abort, or an AssertionError, if something is wrong."""
    lower: Any = load(library, "lower")
    random = Random(4)
    taken = 0
    for _ in range(rounds):
        batch = random_batch(random)
        for data in (batch, damaged(batch, random), batch[: random.randrange(BATCH_OVERHEAD_BYTES, len(batch))]):
            for magic in (0, 1):
                made = lower.lower_part(
                    exact(data),
                    magic,
                    random.choice((0, 8)),
                    *random.choices(_NUMBERS, k=3),
                    BATCH_OVERHEAD_BYTES,
                    min(random.randint(0, 300), (len(data) - BATCH_OVERHEAD_BYTES) // 7),
                    -1,
                    random.choice((0, 0, 3)),
                    random.choice((5, 300, 2**62)),
                    random.choice((0, 40, 5_000, 2**62)),
                    random.choice((False, True)),
                )
                taken += made is not None and made[2] > 0
                lower.lower_part(exact(data), magic, 8, *random.choices(_NUMBERS, k=9), True)
                lower.lower_batches(exact(data), magic, *random.choices(_NUMBERS, k=2), True, random.choice(_NUMBERS))
                lower.lower_batches(exact(signed(data)), magic, 0, random.choice((0, 3)), False, 1 << 20)
        if len(batch) > BATCH_OVERHEAD_BYTES:
            alike(lower, signed(damaged(batch, random)), random.choice((0, 1)))
    assert taken > rounds
    print("clean", taken)


def alike(lower: Any, batch: bytes, magic: int) -> None:
    """Both ways come to the same end."""
    ends: list[object] = []
    for library in (None, lower):
        out = bytearray()
        with with_lower(library):
            try:
                ends.append((at_once(lowering(batch, 0, out, magic=magic, bytes_max=1 << 30)), bytes(out)))
            except WireError as error:
                ends.append(type(error))
    assert ends[0] == ends[1]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
