"""Figures of long runs, kept with the repository: one line of JSON per run, with date and commit. Judges nothing."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from idemproxy import __version__

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def append_result(name: str, figures: Mapping[str, object]) -> Path:
    """Add a line to ``benchmarks/results/<name>.jsonl`` and return the file."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=RESULTS.parents[1], capture_output=True)
    stamp = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit.stdout.decode().strip() or "unknown",
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
