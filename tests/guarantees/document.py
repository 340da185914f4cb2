"""Write docs/GUARANTEES_TESTS.md, the appendix of the guarantees: the tests that show each of them.

The sections are those of docs/GUARANTEES.md, their tests those of ``shown_by.toml``. Judges nothing:
``tests/unit/repository/test_guarantees.py`` holds the page, the table and the tests together.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/GUARANTEES.md"
APPENDIX = ROOT / "docs/GUARANTEES_TESTS.md"
TABLE = Path(__file__).with_name("shown_by.toml")
_HEADING = re.compile(r"^(#{2,4}) (.*)$", re.MULTILINE)
_INTRODUCTION = """\
# The tests that show the guarantees

An appendix to [what is promised](GUARANTEES.md), made by `PYTHONPATH=tests python -m guarantees.document` from
[shown_by.toml](../tests/guarantees/shown_by.toml); a test holds that each of these tests exists, and that each promise
has one. The rules behind the promises are taken out of the shipped source one by one, and a test has to fail:
`tests/simulation/test_mutants.py::test_a_proxy_without_a_rule_is_caught`.
"""


@dataclass(frozen=True, slots=True)
class Section:
    """One promise, or one thing that is not promised: its heading in docs/GUARANTEES.md, and those above it."""

    part: str
    group: str
    title: str

    @property
    def anchor(self) -> str:
        """The link to it, as GitHub and MkDocs make it of the heading."""
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Shown:
    """The tests of one promise, under the faults that ``under`` names; "" where the section has no several."""

    promise: str
    tests: tuple[str, ...]
    under: str = ""


def sections(page: str) -> Iterator[Section]:
    """Yield what the page promises and what it does not, in its order."""
    part = group = ""
    for level, title in _HEADING.findall(page):
        if level == "##":
            part = title
        elif level == "###":
            group = title
        else:
            yield Section(part, group, title)


def shown(table: str) -> list[Shown]:
    """Return the rows of the table. A row with another key than those of ``Shown`` raises TypeError."""
    return [Shown(**{**row, "tests": tuple(row["tests"])}) for row in tomllib.loads(table)["shown"]]


def appendix(page: str, table: str) -> Iterator[str]:
    """Yield the lines of the appendix: sections without a test are left out."""
    yield from _INTRODUCTION.splitlines()
    rows = shown(table)
    part = group = ""
    for section in sections(page):
        here = [row for row in rows if row.promise == section.title]
        if here and section.part != part:
            part = section.part
            yield from ("", f"## {part}")
        if here and section.group != group:
            group = section.group
            yield from ("", f"### {group}")
        for row in here:
            under = f", under: {row.under}" if row.under else ""
            said = f"[{section.title}](GUARANTEES.md#{section.anchor}){under}"
            yield from ("", *textwrap.wrap(said, 120, break_long_words=False, break_on_hyphens=False), "")
            yield from (f"- `{test}`" for test in row.tests)


if __name__ == "__main__":
    APPENDIX.write_text("".join(f"{line}\n" for line in appendix(PAGE.read_text(), TABLE.read_text())))
