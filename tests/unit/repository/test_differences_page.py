"""docs/DIFFERENCES_SEEN.md is what the results of the run say, and every difference in it has a reason."""

from __future__ import annotations

from runs.compatibility_page import lines
from runs.differences_page import PAGE, REASONS, RESULT, page, without_a_reason


def test_the_page_is_made_of_the_results() -> None:
    made = page(lines(RESULT))
    assert PAGE.read_text() == made, "PYTHONPATH=tests python -m runs.differences_page writes it"


def test_every_difference_has_a_reason_and_no_reason_is_left_over() -> None:
    rows = [line for line in lines(RESULT) if "rows" in line][-1]["rows"]
    assert without_a_reason(rows) == []
    assert set(REASONS) == {row["step"] for row in rows if row["broker"] != row["proxy"]}


def test_a_difference_without_a_reason_is_shown_as_such() -> None:
    row = {"step": "a batch from nowhere", "broker": "success at 0", "proxy": "42", "count": 1}
    same = {"step": "the next batch", "broker": "", "proxy": "", "count": 1234}
    text = page([{"rows": [row, same], "programs": 3, "date": "d", "commit": "c"}])
    assert without_a_reason([row, same]) == [row]
    assert "| a batch from nowhere | success at 0 | 42 | not known |" in text
    assert "- the next batch: 1,234" in text
