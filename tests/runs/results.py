"""Figures of long runs, kept with the repository: one line of JSON per run, with date and commit. Judges nothing.

``changed_since``: files of the product that were not as in that commit; 0 where the figures are truly the commit's.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from idemproxy import __version__

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
PRODUCT = tuple(f":/{folder}" for folder in ("proxy", "state", "codecs", "client", "pipeline", "examples", "src"))
"""What is shipped, for git, from any folder."""


def append_result(name: str, figures: Mapping[str, object]) -> Path:
    """Add a line to ``benchmarks/results/<name>.jsonl`` and return the file."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", *PRODUCT)
    stamp = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": _git("rev-parse", "--short", "HEAD") or "unknown",
        "changed_since": len(changed.splitlines()),
        "version": __version__,
        "python": platform.python_version(),
        "broker": "0.10.2.2",
        "cores": os.cpu_count(),
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.jsonl"
    with path.open("a") as results:
        results.write(json.dumps({**stamp, **figures}) + "\n")
    return path


def rows_of(name: str) -> list[dict[str, Any]]:
    """The lines of all runs of this kind so far."""
    path = RESULTS / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def next_first(rows: Sequence[dict[str, object]], core: str) -> int:
    """The seed after the last one that was run on this core (``simulated_core``)."""
    return max((int(str(row["last_seed"])) for row in rows if row.get("core") == core), default=0) + 1


def _git(*arguments: str) -> str:
    """Return what git says, nothing where there is no git or no repository."""
    try:
        said = subprocess.run(["git", *arguments], cwd=RESULTS.parents[1], capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return said.stdout.strip()
