"""dev/rules.md, the code and the model say the same of each rule."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RULES = [f"R{number}" for number in range(1, 25) if number != 21]
FOLDERS = ("proxy", "codecs", "state", "src/idemproxy")
_HOME = re.compile(r"# (R\d+) lives here\b")


def sections() -> dict[str, str]:
    """What the page says of each rule."""
    text = (ROOT / "dev/rules.md").read_text()
    return {one[1]: one[2] for one in re.finditer(r"^## (R\d+) (.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)}


def sources() -> dict[str, str]:
    """All code of the product, by path. The links below src/ lead to the same files."""
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if not path.is_symlink()]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in found if path.resolve() == path}


def model_rows() -> dict[str, str]:
    """What the model is expected to find in each of its rows: ``holds``, or the property that breaks."""
    program = "import json, run; print(json.dumps([(row[0], row[2]) for row in run.ROWS + run.MORE]))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT / "tests/model", capture_output=True, check=True)
    return dict(json.loads(done.stdout))


def test_each_rule_has_one_section_in_order() -> None:
    assert list(sections()) == RULES


def test_each_rule_has_one_home_which_is_where_the_page_says() -> None:
    homes = [(rule, path) for path, text in sources().items() for rule in _HOME.findall(text)]
    said = [
        (rule, found[1]) for rule, text in sections().items() if (found := re.search(r"^Home: `([^`]+)`", text, re.M))
    ]
    assert sorted(homes) == sorted(said)


def test_each_row_of_the_model_that_the_page_names_shows_a_violation() -> None:
    rows = model_rows()
    for rule, text in sections().items():
        named = re.search(r"Model rows: ([^.]+)\.", text)
        assert named is not None, rule
        for row in named[1].split(", ") if not named[1].startswith("none") else ():
            assert rows.get(row, "missing") not in ("holds", "missing"), f"{rule}: row {row}"
