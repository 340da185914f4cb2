"""The simulation's own test: a rule taken out of the shipped source lets a promise break, and that is noticed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from simulation.cases import all_faults, run_case
from simulation.chaos import run_seed
from simulation.mutants import MUTANTS, Mutant, Plot

from testkit.virtual_mutant import Patch, PatchError, patched_package

SEEDS_MAX = 60


def complaints(package: str, plot: Plot | None) -> Iterator[str]:
    """Everything that goes wrong with this package, the small cases first."""
    if plot is not None:
        yield from plot.run(package)
    for batches in (1, 2):
        for fault in all_faults(run_case(batches=batches, package=package).counts):
            yield from run_case(fault, batches=batches, package=package).problems
    for seed in range(1, SEEDS_MAX + 1):
        yield from run_seed(seed, package=package).problems


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_proxy_without_a_rule_is_caught(mutant: Mutant) -> None:
    with patched_package(f"mutant_{mutant.name}", mutant.patches) as package:
        for complaint in complaints(package, mutant.plot):
            if any(death in complaint for death in mutant.deaths):
                return
    pytest.fail(f"the simulation does not miss the rule: {mutant.rule}")


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.plot], ids=lambda mutant: mutant.name)
def test_the_shipped_proxy_survives_the_plot_against_a_mutant(mutant: Mutant) -> None:
    assert mutant.plot is not None
    assert list(mutant.plot.run("idemproxy")) == []


def test_a_copy_with_no_line_changed_is_not_caught() -> None:
    patch = Patch("proxy.resolver", "_LOG_END = -3\n", "_LOG_END = -3\n")
    with patched_package("mutant_of_nothing", (patch,)) as package:
        assert run_case(batches=2, package=package).problems == []
        assert run_seed(1, package=package).problems == []


def test_a_patch_whose_line_has_gone_is_an_error() -> None:
    stale = patched_package("mutant_of_the_past", (Patch("proxy.resolver", "a line that was never there", ""),))
    with pytest.raises(PatchError, match="has to follow the source"), stale:
        pass
