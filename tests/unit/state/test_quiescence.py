"""When a broker counts as seen to be quiescent for a second (rule R6)."""

from collections.abc import Callable

import pytest

from idemproxy.state.quiescence import PROBE_LATE_SECONDS, PROBE_SECONDS, QUIESCENCE_SECONDS, QuiescenceAnswers

MANY = 100


def seconds_until_quiescent(
    took: Callable[[int], float], pause: Callable[[int], float] = lambda _: PROBE_SECONDS
) -> float:
    """Ask again and again; ``took``, ``pause``: seconds until question n is answered, and between it and the next one.
    Infinite: it is never seen to be quiescent."""
    awake, now = QuiescenceAnswers(), 1000.0
    for number in range(MANY):
        asked = now
        now += took(number)
        if awake.saw(asked, now, is_answered=True):
            return now - 1000.0
        now += pause(number)
    return float("inf")


def test_a_prompt_broker_passes_the_quiescence_check_after_a_second() -> None:
    assert QUIESCENCE_SECONDS <= seconds_until_quiescent(lambda _: 0.001) < QUIESCENCE_SECONDS + 2 * PROBE_SECONDS


@pytest.mark.parametrize("number", [1, 5, 9])
def test_the_second_begins_again_with_an_answer_that_is_late(number: int) -> None:
    took = seconds_until_quiescent(lambda n: 1.5 if n == number else 0.001)
    assert took >= number * PROBE_SECONDS + 1.5 + QUIESCENCE_SECONDS


@pytest.mark.parametrize("number", [1, 5, 9])
def test_the_second_begins_again_when_the_broker_was_not_asked_for_a_while(number: int) -> None:
    took = seconds_until_quiescent(lambda _: 0.001, lambda n: 2.0 if n == number else PROBE_SECONDS)
    assert took >= number * PROBE_SECONDS + 2.0 + QUIESCENCE_SECONDS


def test_a_question_without_an_answer_begins_it_again() -> None:
    awake = QuiescenceAnswers()
    assert not awake.saw(0.0, 0.001, is_answered=True)
    assert awake.is_seen
    assert not awake.saw(0.1, 0.101, is_answered=False)
    assert not awake.is_seen
    assert not awake.saw(0.2, 0.201, is_answered=True)
    assert not awake.saw(1.1, 1.101, is_answered=True)


@pytest.mark.parametrize("seconds", [0.35, 0.6, 1.0])
def test_a_broker_whose_answers_all_take_long_passes_the_quiescence_check_later(seconds: float) -> None:
    took = seconds_until_quiescent(lambda _: seconds)
    assert (
        QUIESCENCE_SECONDS * seconds / PROBE_LATE_SECONDS
        <= took
        < 3 * QUIESCENCE_SECONDS * seconds / PROBE_LATE_SECONDS
    )


def test_a_broker_that_becomes_slow_passes_once_slow_answers_are_usual() -> None:
    assert 5.0 < seconds_until_quiescent(lambda n: 0.001 if n < 5 else 0.5) < 15.0


@pytest.mark.parametrize("seconds", [1.4, 5.0])
def test_a_broker_that_may_as_well_sleep_never_passes_the_quiescence_check(seconds: float) -> None:
    assert seconds_until_quiescent(lambda _: seconds) == float("inf")
