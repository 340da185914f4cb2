"""Some hundred of the cases of which ``make both-ways`` plays a hundred thousand; and it notices a difference."""

from __future__ import annotations

import pytest

from runs.both_ways import play_some

CASES_AT_A_TIME = 75


@pytest.mark.parametrize("first", range(1, 4 * CASES_AT_A_TIME, CASES_AT_A_TIME))
def test_in_random_cases_both_ways_leave_the_same(first: int) -> None:
    tally = play_some(first, CASES_AT_A_TIME)
    assert (tally.cases, tally.last_seed) == (CASES_AT_A_TIME, first + CASES_AT_A_TIME - 1)
    assert not tally.failures, "\n".join(tally.failures.values())
    assert tally.groups > CASES_AT_A_TIME
