"""Each promise on the pages, and each row of the comparison, has a name and a test that is marked with it."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGES = (
    "explanation/guarantees.md",
    "explanation/security.md",
    "explanation/compared.md",
    "reference/protocol-differences.md",
)
_NAME = re.compile(r'<a id="([\w-]+)"></a>')
_BATCH_MARKER = re.compile(r"\bmark\.promise\(([^)]*)\)")


def test_every_name_has_a_test_and_every_batch_marker_a_name() -> None:
    named = [name for page in PAGES for name in _NAME.findall((ROOT / "docs" / page).read_text())]
    assert len(named) == len(set(named)) > 100
    markers = [found for path in (ROOT / "tests").rglob("*.py") for found in _BATCH_MARKER.findall(path.read_text())]
    assert {name for marker in markers for name in re.findall(r'"([^"]*)"', marker)} == set(named)
