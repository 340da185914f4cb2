"""What the benchmarks share: the code of another commit, the spread of some figures, a line in ``results/``. Measures
nothing."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Commits from before there was a second library have one name.
_COMPILE = """from pathlib import Path; import hatch_build as hook
for folder, source, library in getattr(hook, "LIBRARIES", None) or [("codecs/kernel", "kernel.c", hook.LIBRARY)]:
    hook.build(Path(folder, source), Path(folder, library))"""
sys.path.append(os.fspath(ROOT / "tests"))  # for the helpers in testkit


def extract(commit: str, directory: Path) -> Path:
    """Put the files of a commit into a directory, made if there is none, and return it."""
    directory.mkdir(exist_ok=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive, check=True)
    compile_kernel(directory)
    return directory


def compile_kernel(directory: Path) -> None:
    """Compile what these files have compiled, where that can be done: trees are compared as they are shipped."""
    if (directory / "codecs/kernel").exists():
        subprocess.run([sys.executable, "-c", _COMPILE], cwd=directory, check=True)


def spread(values: Iterable[float]) -> list[float]:
    """Return the lowest, the median and the highest."""
    found = list(values)
    return [round(min(found), 3), round(statistics.median(found), 3), round(max(found), 3)]


def save(name: str, figures: Mapping[str, object]) -> None:
    """Add a line to ``results/<name>.jsonl``, with date, commit, and whether the code was that commit's."""
    from runs.results import append_result

    append_result(name, figures)
