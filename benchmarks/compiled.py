"""Programs in C next to the benchmarks, compiled where there is a compiler. Where there is none, the benchmark takes
what it has in Python instead."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from common import ROOT

_HERE = Path(__file__).parent
_PLACE = ROOT / ".cache" / "benchmarks"


def compiled(name: str) -> Path | None:
    """Return the program made of ``<name>.c``, None where nothing can compile it."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source = _HERE / f"{name}.c"
    program = _PLACE / f"{name}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    if not program.exists():
        _PLACE.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(f".{os.getpid()}")  # two that start at once do not disturb each other
        subprocess.run([compiler, "-O2", "-o", str(unfinished), str(source)], check=True)
        unfinished.replace(program)
    return program
