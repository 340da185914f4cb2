"""The oracle itself: each kind of wrong must be seen, and nothing else."""

from dataclasses import replace

import pytest

from idemproxy.demo.verdict import Verdict, judge, position_of, value_of

Log = dict[int, list[tuple[int, bytes | None]]]

ACKNOWLEDGED = {("a", 0, number): 10 + number for number in range(4)}
SOUND = Verdict(stored=4, duplicates=0, lost=0, reordered=0, misplaced=0, foreign=0)


def log(*numbers: int) -> Log:
    return {0: [(10 + place, value_of("a", 0, number)) for place, number in enumerate(numbers)]}


def test_a_sound_log_is_exactly_once() -> None:
    verdict = judge(log(0, 1, 2, 3), ACKNOWLEDGED)
    assert verdict == SOUND
    assert verdict.is_exactly_once


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (log(0, 1, 2, 3, 3), replace(SOUND, stored=5, duplicates=1)),
        (log(0, 1, 2, 3, 0, 1, 0), replace(SOUND, stored=7, duplicates=3)),
        (log(0, 1, 2), replace(SOUND, stored=3, lost=1)),
        (log(0, 1, 3, 2), replace(SOUND, reordered=1, misplaced=2)),
        (log(0, 2, 3), replace(SOUND, stored=3, lost=1, misplaced=2)),
        ({**log(0, 1, 2, 3), 1: [(0, b"something else")]}, replace(SOUND, stored=5, foreign=1)),
        ({**log(0, 1, 2, 3), 1: [(0, None)]}, replace(SOUND, stored=5, foreign=1)),
        ({**log(0, 1, 2, 3), 1: [(0, value_of("a", 0, 9))]}, replace(SOUND, stored=5, foreign=1)),
    ],
    ids=["copy", "copies", "gap at the end", "swapped", "gap", "foreign", "null", "in another partition"],
)
def test_what_is_wrong_is_counted_and_named(stored: Log, expected: Verdict) -> None:
    verdict = judge(stored, ACKNOWLEDGED)
    assert replace(verdict, examples=()) == expected
    assert verdict.examples
    assert not verdict.is_exactly_once


def test_a_copy_at_the_acknowledged_offset_is_not_misplaced() -> None:
    verdict = judge(log(0, 1, 2, 3, 1), {**ACKNOWLEDGED, ("a", 0, 1): 14})
    assert (verdict.duplicates, verdict.misplaced) == (1, 0)


@pytest.mark.parametrize("unknown", [None, -1])
def test_an_offset_that_was_never_acknowledged_is_not_judged(unknown: int | None) -> None:
    assert judge(log(0), {("a", 0, 0): unknown}).is_exactly_once


def test_a_record_that_was_not_acknowledged_may_be_stored_or_not() -> None:
    assert judge(log(0, 1, 2, 3), {}).is_exactly_once
    assert judge(log(0, 2), {}).is_exactly_once


def test_producers_are_distinguished() -> None:
    stored: Log = {0: [(0, value_of("a", 0, 1)), (1, value_of("b", 0, 0))]}
    assert judge(stored).is_exactly_once


def test_a_name_may_contain_the_separator() -> None:
    assert position_of(value_of("a:b", 3, 4)) == ("a:b", 3, 4)


@pytest.mark.parametrize("value", [None, b"", b"a:b", b"a:1:x", b"a:x:1", b"a:1:-1", b"\xff\xfe"])
def test_other_values_stand_for_nothing(value: bytes | None) -> None:
    assert position_of(value) is None


def test_examples_are_limited() -> None:
    assert len(judge(log(*[0] * 50), examples_max=3).examples) == 3
