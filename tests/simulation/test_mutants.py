"""A rule taken out of the shipped source lets a promise break, and that is noticed. ``make scenes`` tries all mutants;
here is what it stands on."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutants.old_clients import OLD_CLIENTS
from mutants.run import SURVIVES, TESTS
from mutants.table import BY_HAND, MUTANTS
from simulation.cases import run_case
from simulation.chaos import run_seed

from testkit.virtual.mutant import Patch, PatchError, patch_tree, patched_package

ROOT = Path(__file__).resolve().parents[2]
RULES = set(range(1, 25)) - {21}  # R21 is gone; its number stays unused
MUTANTS_MAX = 80
NOTHING = Patch("proxy.flow.outcome", "classify", "base_offset >= 0", "base_offset >= 0")


def test_every_rule_has_a_mutant_and_there_are_not_too_many() -> None:
    assert {one.number for one in MUTANTS} == RULES
    assert len({one.name for one in (*MUTANTS, *OLD_CLIENTS)}) == len(MUTANTS) + len(OLD_CLIENTS)
    assert len(BY_HAND) <= MUTANTS_MAX


def test_every_patch_fits_the_source() -> None:
    stale = []
    for one in (*MUTANTS, *OLD_CLIENTS):
        for patch in one.patches:
            path = ROOT / (patch.module.replace(".", "/") + ".py")
            try:
                patch_tree(ast.parse(path.read_text()), patch)
            except (PatchError, OSError) as error:
                stale.append(f"{one.name}: {error}")
    assert stale == [], "the mutants have to follow the source: see dev/simulation.md"


def test_a_copy_with_nothing_changed_is_not_caught() -> None:
    with patched_package("mutant_of_nothing", (NOTHING,)) as package:
        assert run_case(batches=2, package=package).problems == []
        assert run_seed(1, package=package).problems == []


def test_a_patch_of_what_has_gone_is_an_error() -> None:
    stale = patched_package("mutant_of_the_past", (Patch("proxy.flow.outcome", "classify", "was_never_there", ""),))
    with pytest.raises(PatchError, match="has to follow the source"), stale:
        pass


def test_a_proxy_without_a_rule_is_caught_and_a_whole_one_is_not() -> None:
    program = (
        "import sys; from dataclasses import replace; import mutants.run as run; "
        "dead, alive = run.MUTANTS[0], run.MUTANTS[1]; "
        f"from testkit.virtual.mutant import Patch; alive = replace(alive, patches=({NOTHING!r},)); "
        "run.MUTANTS = dead, alive; sys.argv[1:] = ['--seeds', '0']; sys.exit(run.main())"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(TESTS), str(ROOT / "src")))}
    tried = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert tried.returncode == SURVIVES, tried.stdout + tried.stderr
    assert f"survive: {MUTANTS[1].name}" in tried.stdout
