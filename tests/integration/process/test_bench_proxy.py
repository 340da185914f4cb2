"""``make bench-proxy`` works: every case, a moment each, on the broker that costs nothing. What it measures then says
nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench_proxy import CASES

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def told_by(*arguments: str, **environment: str) -> dict[tuple[str, str], dict[str, float]]:
    """Run the benchmark; returns the figures by case and side."""
    command = [sys.executable, str(BENCHMARKS / "bench_proxy.py"), "--short", *arguments]
    ran = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    found = {}
    for line in ran.stdout.splitlines():
        _broker, case, side, *figures = line.split()
        found[case, side] = {key: float(value) for key, value in (figure.split("=") for figure in figures)}
    return found


def test_every_case_is_measured_on_every_side() -> None:
    told = told_by()
    assert set(told) == {(case, side) for case in CASES for side in ("direct", "tick", "proxy")}
    for (case, side), figures in told.items():
        assert figures["requests"] > 0, (case, side)
        assert figures["load_cpu_us"] > 0, (case, side)
        if side != "tick":  # it may take less than the clock of processes shows
            assert (figures["cpu_us"] == 0) == (side == "direct"), (case, side)
    assert told["c50", "proxy"]["cpu_us"] > told["c50", "tick"]["cpu_us"]
    assert told["c50", "proxy"]["redis_cpu_us"] > told["plain", "proxy"]["redis_cpu_us"]


@pytest.mark.parametrize("case", ["c50x5", "fetch"])
def test_without_a_compiler_python_does_what_the_c_programs_do(case: str, tmp_path: Path) -> None:
    told = told_by("--case", case, PATH=str(tmp_path))
    assert set(told) == {(case, side) for side in ("direct", "tick", "proxy")}
    assert all(figures["requests"] > 0 for figures in told.values())
