"""The demo's tables show the figures, and its last sentence does not say more than they do."""

import io
from dataclasses import replace

from rich.console import Console

from idemproxy.demo.progress import Progress
from idemproxy.demo.report import print_result
from idemproxy.demo.result import ProxyFacts, Result, Run
from idemproxy.demo.scene import Step
from idemproxy.demo.verdict import Verdict

CLEAN = Verdict(stored=1234, duplicates=0, lost=0, reordered=0, misplaced=0, foreign=0)
PROXIED = Run(
    name="through the proxy",
    sent=1234,
    acknowledged=1234,
    failed=0,
    verdict=CLEAN,
    readers_agree=True,
    faults={"client": {"cut": 31}, "broker": {"cut": 32}},
    produce_requests={"client": 50, "broker": 20},
    seconds=3.0,
    proxy=ProxyFacts(2, 41, 0, 42, 0, 43, 3),
)
DIRECT = replace(
    PROXIED,
    name="without the proxy",
    verdict=replace(CLEAN, duplicates=777, reordered=66),
    faults={"client": {"cut": 63}},
    proxy=None,
)
RESULT = Result("1.0", DIRECT, PROXIED, (Step("the first batch", 0, "NONE", 0, "NONE", 0),), 50, 5.0)


def printed(result: Result) -> str:
    console = Console(file=io.StringIO(), width=120)
    print_result(result, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def row_of(text: str, *beginnings: str) -> list[str]:
    """Return the cells of the only row that begins with these."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if "│" in line]
    (row,) = (row for row in rows if row[: len(beginnings)] == list(beginnings))
    return row[len(beginnings) :]


def test_the_tables_have_all_figures() -> None:
    text = printed(RESULT)
    assert row_of(text, "without the proxy", "1,234") == ["1,234", "777", "0", "66", "3"]
    assert row_of(text, "through the proxy", "1,234") == ["1,234", "0", "0", "0", "3"]
    assert row_of(text, "without the proxy", "client and broker") == ["63", "63"]
    assert row_of(text, "through the proxy", "client and proxy") == ["31", "31"]
    assert row_of(text, "through the proxy", "proxy and broker") == ["32", "32"]
    assert row_of(text, "2") == ["41", "42", "0", "43", "3"]
    assert row_of(text, "the first batch") == ["0", "NONE", "0"]
    assert text.splitlines()[-1] == (
        "Through the proxy: 0 duplicates, 0 losses, 0 reorders. Without it: 777 duplicates."
    )


def test_a_row_that_is_not_clean_is_not_praised_and_its_records_are_named() -> None:
    verdict = replace(CLEAN, duplicates=1, misplaced=2, examples=("partition 0: [b'x'] twice",))
    text = printed(replace(RESULT, proxied=replace(PROXIED, verdict=verdict, readers_agree=False)))
    assert text.splitlines()[-1].startswith("Not as promised. Through the proxy: 1 duplicates")
    assert "partition 0: [b'x'] twice" in text, "brackets are no markup"
    assert "2 records are not at their acknowledged offset" in text
    assert "do not show the same records" in text


def test_a_run_that_proved_nothing_says_so() -> None:
    facts = ProxyFacts(2, 41, 0, 42, 0, 0, 3)
    text = printed(replace(RESULT, proxied=replace(PROXIED, proxy=facts)))
    assert "this run proved nothing: no duplicate was answered" in text
    assert text.splitlines()[-1].startswith("Not as promised.")


def test_a_wrong_answer_in_scene_two_is_shown_with_the_right_one() -> None:
    wrong = Step("111 where 1 is due", 111, "OUT_OF_ORDER_SEQUENCE_NUMBER", -1, "NONE", 1)
    text = printed(replace(RESULT, scene=(wrong,)))
    assert row_of(text, "111 where 1 is due", "111") == ["NONE, not OUT_OF_ORDER_SEQUENCE_NUMBER", "1"]
    assert "the second scene was not answered as Kafka does" in text


def test_progress_is_plain_lines_where_there_is_no_terminal() -> None:
    output = io.StringIO()
    with Progress(Console(file=output, width=20)) as progress:
        progress.say("a step with [brackets] and more words than a narrow line holds")
    (line,) = output.getvalue().splitlines()
    assert line.endswith("s] a step with [brackets] and more words than a narrow line holds")


def test_progress_draws_on_a_terminal_and_ends_with_the_last_figures() -> None:
    output = io.StringIO()
    with Progress(Console(file=output, width=80, force_terminal=True, no_color=True)) as progress:
        progress.show("through the proxy", 50, 100, {"faults": 60, "found": 61, "not found": 12, "duplicates": 74})
    last = output.getvalue().splitlines()[-2]
    assert " 50 % " in last
    assert "faults 60, found 61, not found 12, duplicates 74" in last
