"""The shape of the pages: no line over 160 characters, no table cell over 40 words; and the program that mends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.docs_shape import GENERATED, ROOT, complaints, pages, shaped

LONG = "a sentence of several words, and so on. " * 8
MEND = "python tests/runs/docs_shape.py mends it"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_line_and_no_cell_of_a_page_is_too_long(page: Path) -> None:
    assert list(complaints(page.read_text())) == [], MEND


def test_the_generated_pages_are_there() -> None:
    assert {(ROOT / name) for name in GENERATED} <= set(pages())


def test_what_is_too_long_is_seen_in_text_code_and_cells() -> None:
    row = f"| a | {'word ' * 41}|"
    assert len(list(complaints(f"{LONG}\n\n```\n{LONG}\n```\n| h | h |\n| --- | --- |\n{row}\n"))) == 3
    assert list(complaints(f"| a | {'word ' * 40}|\n{'x' * 160}\n")) == []


@pytest.mark.parametrize(
    "text",
    [
        f"# Heading\n\n{LONG}\n\nAnother one.\n",
        f"- {LONG}\n- short\n  1. {LONG}\n     more of it\n",
        f"See `a command --with {'many words ' * 3}` {LONG} [a link](to%20{'x' * 30}.md) {LONG}\n",
        f"{LONG}- 7 {LONG}+ 3. {LONG}# x {LONG}> y\n",
    ],
)
def test_a_paragraph_is_wrapped_and_loses_nothing(text: str) -> None:
    new = shaped(text)
    assert list(complaints(new)) == []
    assert new.split() == text.split()
    assert shaped(new) == new
    assert "`a command --with" not in text or any("`a command" in one and "words `" in one for one in new.split("\n"))
    starts = {line.strip()[:2] for line in new.splitlines()} & {"- ", "+ ", "# ", "> ", "3."}
    assert starts <= {"- ", "# "} if text[0] in "-#" else starts == set()


def test_a_cell_that_is_too_long_is_told_and_left_to_a_person() -> None:
    text = f"| name | what |\n| --- | --- |\n| one | {'what it does ' * 14}|\n"
    assert shaped(text) == text
    assert list(complaints(text)) == ["3: a cell of 42 words"]


def test_code_headings_and_pages_that_are_right_stay() -> None:
    for page in pages():
        text = page.read_text()
        if not list(complaints(text)):
            assert shaped(text) == text, page.name
    code = f"```\n{LONG}\n```\n"
    assert shaped(code) == code
