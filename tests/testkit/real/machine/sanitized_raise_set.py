"""Gives ``raise_set.c``, built with sanitizers, everything that it may be given, each time in memory of exactly its
size: ``python -m testkit.real.machine.sanitized_raise_set LIBRARY ROUNDS``."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

from testkit.stage.sent_sets import raised_both_ways, random_set

from .kernel_build import load
from .sanitized_kernel import exact

_NUMBERS = (-(2**63), -1, 0, 1, 2, 25, 26, 34, 60, 2**31 - 1, 2**31, 2**62, 2**63 - 1)


def main(library: Path, rounds: int) -> None:
    """Ends by the sanitizers' abort, or an AssertionError, if something is wrong."""
    raise_set: Any = load(library, "raise_set")
    random = Random(4)
    taken = 0
    for _ in range(rounds):
        message_set, _ = random_set(random)
        damaged = bytearray(message_set)
        for _ in range(random.choice((0, 1, 3))):
            damaged[random.randrange(len(damaged))] = random.randrange(256)
        for data in (message_set, bytes(damaged), message_set[: random.randrange(len(message_set))]):
            made = raise_set.raise_part(
                exact(data),
                0,
                random.choice((-1, -1, 0, 1)),
                *random.choices(_NUMBERS, k=1),
                random.choice((0, 1, 70, 9_000)),
                *random.choices(_NUMBERS, k=2),
                random.choice((0, 40, 5_000, 2**62)),
            )
            taken += made is not None
            raise_set.raise_part(exact(data), *random.choices(_NUMBERS, k=7))
            raised_both_ways(data, random.choice((1, 500, 1_000_012)), raise_set, 1 << 20)
    assert taken > rounds / 2
    print("clean", taken)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
