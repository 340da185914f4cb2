"""The same produce requests at a real 3.9.1 and through the proxy to a real 0.10.2.2: as the results say.

The whole run, with more seeds and with real clients, is ``make differences``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runs.differences import RESULT, Side, all_programs, both_sides, compare, counted
from runs.results import rows_of

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    with both_sides(tmp_path_factory.mktemp("sides")) as both:
        yield both


def test_each_step_is_answered_as_the_results_say(sides: tuple[Side, Side]) -> None:
    rows = [row for name, program, plan in all_programs(2, 2) for row in compare(sides, name, program, plan)]
    newest = [line for line in rows_of(RESULT) if "rows" in line][-1]["rows"]
    known = {(row["step"], row["broker"], row["proxy"]) for row in newest}
    seen = {(row["step"], row["broker"], row["proxy"]) for row in counted(rows)}
    assert seen <= known, "make differences runs all of it"
    assert {step for step, *_ in seen} == {step for step, *_ in known}
