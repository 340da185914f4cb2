"""The compiled libraries under AddressSanitizer and UBSan: nothing is read or written beyond what is there, whatever
comes in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.real.machine import kernel_build

ROUNDS = 400
TESTS = Path(__file__).resolve().parents[2]
FLAGS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")


def run(library: Path, program: str = "sanitized_kernel", rounds: int = ROUNDS) -> subprocess.CompletedProcess[str]:
    """The program, with the sanitizers' libraries in front of all others, as a Python that has none of them needs."""
    assert kernel_build.COMPILER
    found = [
        subprocess.run([kernel_build.COMPILER, f"-print-file-name={name}"], check=True, capture_output=True, text=True)
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(one.stdout.strip() for one in found),
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(TESTS),
    }
    command = [sys.executable, "-m", f"testkit.real.machine.{program}", str(library), str(rounds)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)


@pytest.mark.parametrize(
    ("source", "program"),
    [
        (kernel_build.SOURCE, "sanitized_kernel"),
        (kernel_build.LOWER_SOURCE, "sanitized_lower"),
        (kernel_build.RAISE_SET_SOURCE, "sanitized_raise_set"),
    ]
    if kernel_build.COMPILER
    else [],
    ids=["kernel", "lower", "raise_set"],
)
def test_nothing_beyond_the_data_is_touched(tmp_path: Path, source: Path, program: str) -> None:
    done = run(kernel_build.build(tmp_path, FLAGS, source), program)
    assert done.returncode == 0, done.stderr[-3_000:]
    assert done.stdout.startswith("clean ")
    assert done.stderr == ""
