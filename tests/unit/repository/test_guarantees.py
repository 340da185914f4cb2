"""docs/GUARANTEES.md, its appendix and the tests say the same: each promise has tests, and they exist."""

from __future__ import annotations

import ast

import pytest
from guarantees.document import APPENDIX, PAGE, ROOT, TABLE, Section, Shown, appendix, sections, shown


def names_in(path: str) -> set[str]:
    """The names of the tests in one file; none if it is not there."""
    file = ROOT / path
    if not file.is_file():
        return set()
    found = ast.walk(ast.parse(file.read_text()))
    functions = (node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {name for name in functions if name.startswith("test_")}


def complaints(page: list[Section], rows: list[Shown]) -> list[str]:
    """What the page and the table do not have in common, and tests that are not there."""
    titles = [section.title for section in page]
    promised = {section.title for section in page if section.part == "Promised"}
    found = [f"two sections are called {title}" for title in sorted({one for one in titles if titles.count(one) > 1})]
    found += [f"nothing shows: {title}" for title in sorted(promised - {row.promise for row in rows})]
    found += [f"no section: {row.promise}" for row in rows if row.promise not in titles]
    for row in rows:
        found += [f"no test in a row of: {row.promise}"] if not row.tests else []
        for test in row.tests:
            path, _, name = test.partition("::")
            names = names_in(path)
            if not names or (name and name not in names):
                found.append(f"no such test: {test}")
    return found


def test_each_promise_has_tests_which_exist() -> None:
    page = list(sections(PAGE.read_text()))
    assert len([section for section in page if section.part == "Promised"]) > 80
    assert complaints(page, shown(TABLE.read_text())) == []


def test_the_appendix_is_made_of_the_page_and_the_table() -> None:
    assert APPENDIX.read_text().splitlines() == list(appendix(PAGE.read_text(), TABLE.read_text()))


def test_the_page_itself_names_no_tests() -> None:
    assert "::test_" not in PAGE.read_text(), "tests are named in the table"


HERE = "tests/unit/repository/test_guarantees.py::test_each_promise_has_tests_which_exist"
KEPT = Section("Promised", "Redis", "Kept")


@pytest.mark.parametrize(
    ("page", "rows"),
    [
        ([KEPT], []),
        ([KEPT, KEPT], [Shown("Kept", (HERE,))]),
        ([KEPT], [Shown("Kept", (HERE,)), Shown("Gone", (HERE,))]),
        ([KEPT], [Shown("Kept", ())]),
        ([KEPT], [Shown("Kept", (HERE + "_not",))]),
        ([KEPT], [Shown("Kept", ("tests/unit/test_gone.py",))]),
    ],
)
def test_a_planted_fault_is_seen(page: list[Section], rows: list[Shown]) -> None:
    assert len(complaints(page, rows)) == 1


def test_what_is_right_is_not_complained_about() -> None:
    assert complaints([KEPT, Section("Not promised", "Redis", "Lost")], [Shown("Kept", (HERE,))]) == []
