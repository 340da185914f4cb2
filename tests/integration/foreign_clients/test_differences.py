"""The same produce requests at a real 3.9.1 and through the proxy to a real 0.10.2.2: as the results say.

The whole run, with more seeds and with real clients, is ``make differences``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from runs.differences import RESULT, Side, all_programs, both_sides, compare, counted
from runs.results import rows_of
from testkit.real.clients.compared_programs import Recorder, Seen
from testkit.real.clients.raw_client import batch


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


def test_a_difference_in_answers_and_in_the_log_is_seen(sides: tuple[Side, Side]) -> None:
    broker = sides[0].front

    def program(to: Recorder) -> None:
        is_broker = to.address == broker
        to.send("a batch", batch([b"a" if is_broker else b"b"]))
        to.seen.append(Seen("another", "this" if is_broker else "that"))

    rows = compare(sides, "two faces", program)
    assert [(row.step, row.broker, row.proxy) for row in rows] == [
        ("a batch", "success at 0", "success at 0"),
        ("another", "this", "that"),
        ("the log of: two faces", "1 record", "1 record, not the same ones or in another order"),
    ]
