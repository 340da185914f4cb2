"""docs/RULES.md, the code and the model say the same of each rule."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RULES = [f"R{number}" for number in range(1, 25) if number != 21]
FOLDERS = ("proxy", "codecs", "state", "src/idemproxy")
_HOME = re.compile(r"# (R\d+) lives here\b")
_OUTSIDE = re.compile(r"\bDESIGN\b|\bhouse\.md\b|\breference/|\bsection \d")


def sections() -> dict[str, str]:
    """What the page says of each rule."""
    text = (ROOT / "docs/RULES.md").read_text()
    return {one[1]: one[2] for one in re.finditer(r"^## (R\d+) (.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)}


def sources() -> dict[str, str]:
    """All code of the product, by path. The links below src/ lead to the same files."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if not path.is_symlink()]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in found if path.resolve() == path}


def verdicts() -> dict[str, str]:
    """Verdict of each row of the model's table."""
    text = (ROOT / "tests/model/results.md").read_text()
    return dict(re.findall(r"^\| (\w+) \| .*? \| \S+ \| (.*?) \|", text, re.MULTILINE))


def test_each_rule_has_one_section_in_order() -> None:
    assert list(sections()) == RULES


def test_each_rule_has_one_home_which_is_where_the_page_says() -> None:
    homes = [(rule, path) for path, text in sources().items() for rule in _HOME.findall(text)]
    said = [
        (rule, found[1]) for rule, text in sections().items() if (found := re.search(r"^Home: `([^`]+)`", text, re.M))
    ]
    assert sorted(homes) == sorted(said)


def test_each_row_of_the_model_that_the_page_names_shows_a_violation() -> None:
    rows = verdicts()
    for rule, text in sections().items():
        named = re.search(r"model\s+rows?\s+([\w,\s]+)\.", text)
        assert named is not None or "no model row" in (said := " ".join(text.split())) or "not in the model" in said, (
            rule
        )
        for row in re.split(r",\s+", named[1]) if named is not None else ():
            assert rows.get(row, "missing") not in ("HOLDS", "missing"), f"{rule}: row {row}"


def test_no_comment_points_outside_the_repository() -> None:
    pointing = [f"{path}: {found[0]}" for path, text in sources().items() for found in _OUTSIDE.finditer(text)]
    assert pointing == []


def test_a_reference_to_the_outside_would_be_seen() -> None:
    assert all(map(_OUTSIDE.search, ("DESIGN section 7", "see reference/x.md", "(section 4, Marker)")))
