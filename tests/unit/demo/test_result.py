"""The demo's judgement: 0 only for a clean row that proves something, and what it says otherwise."""

import json
from dataclasses import replace
from typing import Any

import pytest

from idemproxy.demo.drive import FAULTS_MIN, FULL_FAULTS, FULL_RECORDS, shape_of
from idemproxy.demo.result import ProxyFacts, Result, Run
from idemproxy.demo.scene import Step
from idemproxy.demo.verdict import Verdict

CLEAN = Verdict(stored=100, duplicates=0, lost=0, reordered=0, misplaced=0, foreign=0)
FACTS = ProxyFacts(
    kills=2,
    unknown_outcomes_found=3,
    unknown_outcomes_in_part=0,
    unknown_outcomes_not_found=4,
    unknown_outcomes_unrecoverable=0,
    duplicates_answered=5,
    producer_ids=3,
)
PROXIED = Run(
    name="through the proxy",
    sent=100,
    acknowledged=100,
    failed=0,
    verdict=CLEAN,
    readers_agree=True,
    faults={"client": {"cut": 5, "lost_answer": 1}, "broker": {"cut": 0, "lost_answer": 6}},
    produce_requests={"client": 50, "broker": 20},
    seconds=3.0,
    proxy=FACTS,
)
DIRECT = replace(
    PROXIED,
    name="without the proxy",
    verdict=replace(CLEAN, duplicates=9),
    faults={"client": {"cut": 10, "lost_answer": 2}},
    proxy=None,
)
STEP = Step("the first batch", 0, "NONE", 0, "NONE", 0)
RESULT = Result("1.0", DIRECT, PROXIED, (STEP,), 10, 5.0)


def with_facts(**changes: Any) -> Result:
    return replace(RESULT, proxied=replace(PROXIED, proxy=replace(FACTS, **changes)))


def test_a_clean_row_that_proves_something_ends_with_0_whatever_happened_without_the_proxy() -> None:
    assert (RESULT.exit_status, RESULT.unproven) == (0, ())
    assert replace(RESULT, direct=replace(DIRECT, verdict=replace(CLEAN, lost=3))).exit_status == 0


@pytest.mark.parametrize("what", ["duplicates", "lost", "reordered", "misplaced", "foreign"])
def test_one_wrong_record_ends_with_1(what: str) -> None:
    one_wrong: dict[str, Any] = {what: 1}
    proxied = replace(PROXIED, verdict=replace(CLEAN, **one_wrong))
    assert replace(RESULT, proxied=proxied).exit_status == 1


@pytest.mark.parametrize(
    "proxied",
    [
        replace(PROXIED, readers_agree=False),
        replace(PROXIED, failed=1),
        replace(PROXIED, acknowledged=99),
        replace(PROXIED, problems=("a fatal error",)),
    ],
)
def test_readers_that_differ_and_records_without_a_good_answer_end_with_1(proxied: Run) -> None:
    assert replace(RESULT, proxied=proxied).exit_status == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"unknown_outcomes_found": 0}, "no unknown outcome was resolved as found"),
        ({"unknown_outcomes_not_found": 0}, "no unknown outcome was resolved as not found"),
        ({"duplicates_answered": 0}, "no duplicate was answered"),
        ({"producer_ids": 0}, "no producer id crossed the wire"),
        ({"kills": 0}, "the proxy was never killed"),
    ],
)
def test_what_did_not_happen_is_said_and_ends_with_1(changes: dict[str, int], said: str) -> None:
    result = with_facts(**changes)
    assert (result.unproven, result.exit_status) == ((said,), 1)


def test_too_few_faults_and_none_on_a_side_are_said() -> None:
    one_side = replace(PROXIED, faults={"client": {"cut": 9}, "broker": {"cut": 0}})
    result = replace(RESULT, proxied=one_side)
    assert result.unproven == ("only 9 of 10 faults through the proxy", "no fault on the broker side of the proxy")
    assert result.exit_status == 1


@pytest.mark.parametrize(
    "scene", [(), (replace(STEP, answer="OUT_OF_ORDER_SEQUENCE_NUMBER"),), (STEP, replace(STEP, offset=1))]
)
def test_a_second_scene_that_goes_wrong_ends_with_1(scene: tuple[Step, ...]) -> None:
    assert replace(RESULT, scene=scene).exit_status == 1


def test_the_json_form_has_the_figures_and_the_judgement() -> None:
    told = json.loads(json.dumps(RESULT.as_json()))
    direct, proxied = told["runs"]
    assert (told["exit_status"], told["proved"], told["unproven"]) == (0, True, [])
    assert (direct["duplicates"], direct["faults_in_all"], direct["proxy"]) == (9, 12, None)
    assert (proxied["duplicates"], proxied["losses"], proxied["reorders"]) == (0, 0, 0)
    assert proxied["faults"]["broker"] == {"cut": 0, "lost_answer": 6}
    assert proxied["proxy"]["duplicates_answered"] == 5
    assert told["scene"][0]["right"] is True


@pytest.mark.parametrize(
    ("records", "faults"),
    [(1_000, FAULTS_MIN), (FULL_RECORDS // 2, FULL_FAULTS // 2), (FULL_RECORDS, FULL_FAULTS), (10**7, FULL_FAULTS)],
)
def test_faults_are_in_proportion_to_the_records_within_limits(records: int, faults: int) -> None:
    assert shape_of(records, 1).faults == faults


def test_the_default_size_has_at_least_50_faults() -> None:
    assert shape_of(100_000, 1).faults >= 50
