"""A rule taken out of the shipped source lets a promise break, and that is noticed: every mutant dies of its test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
from mutants.judge import Verdict
from mutants.mutant import Mutant, mutant
from mutants.run import SURVIVES, UNUSABLE, conclude, document, verdicts
from mutants.table import MUTANTS
from simulation.cases import run_case
from simulation.chaos import run_seed

from testkit.virtual.mutant import Patch, PatchError, patched_package

ROOT = Path(__file__).resolve().parents[2]
RULES = set(range(1, 25)) - {21}  # R21 is gone; its number stays unused
FIRST = tuple({one.number: one for one in reversed(MUTANTS) if one.is_quick}.values())[::-1]
"""One for each rule. ``make scenes`` tries all of them, as CI does before a change lands."""
Verdicts = dict[str, dict[str, object]]


@pytest.fixture(scope="module")
def judgements(request: pytest.FixtureRequest) -> Verdicts:
    """What is said of the mutants of this run, by name."""
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    chosen = [spec.params["one"].name for spec in specs if spec is not None and "one" in spec.params]
    return {verdict["name"]: verdict for verdict in verdicts(chosen, seeds=0, jobs=2)}


@pytest.mark.timeout(600)  # the first one tries them all
@pytest.mark.parametrize("one", FIRST, ids=lambda one: one.name)
def test_a_proxy_without_a_rule_is_caught(one: Mutant, judgements: Verdicts) -> None:
    verdict = judgements[one.name]
    assert verdict["error"] is None, f"{verdict['error']} (see docs/MUTANTS.md)"
    assert verdict["killed_by"] == one.test, f"nothing notices that this is missing: {one.rule}"


def test_every_rule_has_a_mutant() -> None:
    assert {one.number for one in MUTANTS} == {one.number for one in FIRST} == RULES
    assert [name for name, count in Counter(one.name for one in MUTANTS).items() if count > 1] == []


def test_every_patch_fits_the_source() -> None:
    stale = []
    for one in MUTANTS:
        for patch in one.patches:
            source = ROOT / (patch.module.replace(".", "/") + ".py")
            found = source.read_text().count(patch.old) if source.exists() else 0
            if found != 1:
                stale.append(f"{one.name}: {source.relative_to(ROOT)} has {found} times {patch.old!r}")
    assert stale == [], "the mutants have to follow the source: see docs/MUTANTS.md"


def test_the_documentation_has_the_table_of_the_mutants() -> None:
    assert "\n".join(document()) in (ROOT / "docs/MUTANTS.md").read_text(), "python -m mutants.run --document prints it"


@pytest.mark.parametrize(
    ("killed_by", "error", "status"), [("seed 3", None, 0), (None, None, SURVIVES), (None, "stale", UNUSABLE)]
)
def test_a_survivor_and_an_error_show_in_the_exit_status(
    killed_by: str | None, error: str | None, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    by_name = {one.name: one for one in MUTANTS}
    first, second = MUTANTS[:2]
    found = [
        asdict(Verdict(first.name, first.test, "assert 2 == 1")),
        asdict(Verdict(second.name, killed_by, error=error)),
    ]
    assert conclude(by_name, found, [first.name, second.name], seeds=3, seconds=1.0) == status
    assert (second.name in capsys.readouterr().out) == (status != 0)
    assert conclude(by_name, found[:1], [first.name, second.name], seeds=3, seconds=1.0) == UNUSABLE, "one is missing"


def test_a_copy_with_no_line_changed_is_not_caught() -> None:
    patch = Patch("proxy.bridge.asks", "LOG_END_REPLICA_ID = -3\n", "LOG_END_REPLICA_ID = -3\n")
    with patched_package("mutant_of_nothing", (patch,)) as package:
        assert run_case(batches=2, package=package).problems == []
        assert run_seed(1, package=package).problems == []


def test_a_patch_whose_line_has_gone_is_an_error() -> None:
    stale = patched_package(
        "mutant_of_the_past", (Patch("proxy.partition_log.log_search", "a line that was never there", ""),)
    )
    with pytest.raises(PatchError, match="has to follow the source"), stale:
        pass


SCENE = "unit/rules/test_rule_log.py::test_a_batch_is_sent_three_times_at_most"


@pytest.mark.parametrize(
    "strange",
    [
        mutant("stale", "R6: x", SCENE, ("proxy.partition_log.log_search", "a line that was never there", "")),
        mutant(
            "untested",
            "R6: x",
            SCENE + "_and_no_more",
            ("proxy.bridge.asks", "LOG_END_REPLICA_ID = -3\n", "LOG_END_REPLICA_ID = -1\n"),
        ),
        mutant(
            "broken",
            "R6: x",
            SCENE,
            ("proxy.bridge.asks", "LOG_END_REPLICA_ID = -3\n", "LOG_END_REPLICA_ID = no_such_name\n"),
        ),
        mutant(
            "misspelt",
            "R6: x",
            SCENE,
            ("proxy.producer.forward", "        while self._pieces:\n", "        while self.pieces:\n"),
        ),
    ],
    ids=lambda strange: strange.name,
)
def test_what_goes_wrong_with_a_mutant_is_no_death(strange: Mutant) -> None:
    verdict = judged(strange)
    assert "killed_by" not in verdict
    assert verdict["error"]


def judged(one: Mutant) -> dict[str, object]:
    """What a judge says of a mutant that is not in the table."""
    program = (
        "import json, sys; sys.argv[1:] = []; import mutants.judge as j; from mutants.mutant import Mutant; "
        "from testkit.virtual.mutant import Patch; j.warm_up(); "
        f"print(json.dumps(j.apart(lambda: j.by_test({one!r}))))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT / "tests"), str(ROOT / "src")))}
    said = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(said.stdout))
