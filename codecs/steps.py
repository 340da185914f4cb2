"""Work in steps: a generator that yields wherever other work may run, and returns its result. One step takes a few
milliseconds, whatever the input. Owns how much a step may do; what runs the steps, and what happens in between, is not
known here.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""Yields None at each point where other work may run, perhaps never; its return value is the result. May raise in any
step."""

STEP_BYTES: Final = 1 << 20
"""Bytes that are compressed, decompressed, hashed or copied in one step: 1 to 10 ms with the slowest codec."""
STEP_RECORDS: Final = 5_000
"""Records or messages that are converted, or read, in one step: 2 to 5 ms. Headers of records count, too."""


def at_once(steps: Steps[Result]) -> Result:
    """Return the result of all steps, without turns in between. Raises what they raise."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Result = end.value
        return result
