"""What the page on security says of `make hostile` is what its runs gave."""

from __future__ import annotations

import json
import re
from pathlib import Path

from runs.hostile import Delays, Figures

ROOT = Path(__file__).resolve().parents[3]
NUMBERS = {"three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}


def figures(row: dict[str, object]) -> Figures:
    """A row of the results as it was measured."""
    spells = {name: Delays(**row[name]) for name in ("quiet", "beside", "after")}  # type: ignore[arg-type]
    rest = {name: row[name] for name in Figures.__slots__ if name not in spells}
    return Figures(**spells, **rest)  # type: ignore[arg-type]


def test_the_page_says_what_the_runs_gave() -> None:
    lines = (ROOT / "benchmarks/results/hostile.jsonl").read_text().splitlines()
    runs = [figures(json.loads(line)) for line in lines]
    text = " ".join((ROOT / "docs/SECURITY.md").read_text().split())
    found = re.search(
        r"p99 was ([\d.]+) to ([\d.]+) times .* took (\d+) to (\d+) MB instead of (\d+) to (\d+) \(\[(\w+) runs\]", text
    )
    assert found is not None
    ratios = [run.p99_ratio for run in runs]
    assert [float(found[1]), float(found[2])] == [round(min(ratios), 1), round(max(ratios), 1)]
    memory = [run.beside_bytes for run in runs], [run.quiet_bytes for run in runs]
    said = [round(end / 1e6) for bytes_of in memory for end in (min(bytes_of), max(bytes_of))]
    assert [int(found[group]) for group in (3, 4, 5, 6)] == said
    assert NUMBERS[found[7]] == len(runs)
    pairs = re.findall(r"([\d.]+) → ([\d.]+) ms \(([\d.]+)\)", text)
    assert len(pairs) == 2
    measured = {(run.quiet.p99_ms, run.beside.p99_ms): run.p99_ratio for run in runs}
    assert all(round(measured[(float(a), float(b))], 2) == float(ratio) for a, b, ratio in pairs)
