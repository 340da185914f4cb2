"""How long producers had to wait after each fault: from the fault to the first acknowledgement on each partition that
fell silent because of it. Pure."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .faults import Fault

SILENCE_MS = 500
"""Acknowledgements come several times a second: a partition that was silent for longer was affected."""
BEFORE_MS, AFTER_MS = 300, 1_500
"""A silence is a fault's when it begins from so long before to so long after it."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Milliseconds. ``affected``: how many times a producer's partition fell silent. ``alone_...``: of those waits
    during which nothing else was broken; None where there was none."""

    affected: int
    p50: int
    p99: int
    longest: int
    alone: int = 0
    alone_p50: int | None = None
    alone_longest: int | None = None


def times_of(lines: Iterable[str]) -> dict[int, list[int]]:
    """Return the times of the acknowledgements in a producer's file by partition, in order, each once."""
    times: dict[int, list[int]] = {}
    for line in lines:
        if line.startswith("a "):
            _, partition, _, _, time_ms = line.split(" ", 4)
            known = times.setdefault(int(partition), [])
            moment = int(time_ms)
            if not known or known[-1] != moment:
                known.append(moment)
    return {partition: sorted(known) for partition, known in times.items()}


def wait_after(began_ms: int, times: Sequence[int]) -> int | None:
    """Return how long after ``began_ms`` the first acknowledgement came, None when there was no silence."""
    first = max(0, bisect_left(times, began_ms - BEFORE_MS) - 1)
    last = bisect_right(times, began_ms + AFTER_MS)
    waits = [
        after - began_ms
        for before, after in zip(times[first:last], times[first + 1 : last + 1], strict=False)
        if after - before >= SILENCE_MS and before >= began_ms - BEFORE_MS
    ]
    return max(waits, default=None)


def waits_by_kind(faults: Sequence[Fault], places: Iterable[Sequence[int]], kinds: Collection[str]) -> dict[str, Waits]:
    """Return the waits after faults of these kinds, by kind and what was hit."""
    places = list(places)
    found: dict[str, list[tuple[int, bool]]] = {}
    for fault in (one for one in faults if one.kind in kinds):
        name = f"{fault.kind} {_what(fault.target)}"
        for times in places:
            wait = wait_after(fault.began_ms, times)
            if wait is not None and wait > 0:
                over = fault.began_ms + wait
                alone = all(
                    one is fault or one.began_ms > over or one.ended_ms < fault.began_ms - BEFORE_MS for one in faults
                )
                found.setdefault(name, []).append((wait, alone))
    return {name: summary(waits) for name, waits in sorted(found.items())}


def summary(waits: Sequence[tuple[int, bool]]) -> Waits:
    """Return the figures of some waits, at least one: (milliseconds, was nothing else broken?)."""
    ordered = sorted(wait for wait, _ in waits)
    alone = sorted(wait for wait, undisturbed in waits if undisturbed)
    return Waits(
        affected=len(ordered),
        p50=ordered[len(ordered) // 2],
        p99=ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)],
        longest=ordered[-1],
        alone=len(alone),
        alone_p50=alone[len(alone) // 2] if alone else None,
        alone_longest=alone[-1] if alone else None,
    )


def longest_silence(places: Mapping[str, Sequence[int]]) -> tuple[str, int]:
    """Return where and for how many milliseconds nothing was acknowledged, at the worst."""
    worst = ("nowhere", 0)
    for name, times in places.items():
        for before, after in itertools.pairwise(times):
            if after - before > worst[1]:
                worst = name, after - before
    return worst


def _what(target: str) -> str:
    return "proxy" if target.startswith("proxy") else "broker" if target.startswith("broker") else target
