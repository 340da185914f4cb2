"""Each promise of docs/GUARANTEES.md, and each row of docs/COMPARED.md, has a test that is marked with its name."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
GUARANTEES = (ROOT / "docs/GUARANTEES.md").read_text()
_NAME = re.compile(r'^(?:#### |\| )<a id="([\w-]+)"></a>', re.MULTILINE)
_MARKER = re.compile(r"\bmark\.promise\(([^)]*)\)")


def test_every_promise_has_a_name() -> None:
    promised = GUARANTEES.split("\n## Promised\n")[1].split("\n## ")[0]
    assert re.findall(r"^#### (?!<a id=).*", promised, re.MULTILINE) == []


def test_every_name_has_a_test_and_every_marker_a_name() -> None:
    named = _NAME.findall(GUARANTEES) + _NAME.findall((ROOT / "docs/COMPARED.md").read_text())
    assert len(named) == len(set(named)) > 100
    markers = [found for path in (ROOT / "tests").rglob("*.py") for found in _MARKER.findall(path.read_text())]
    assert {name for marker in markers for name in re.findall(r'"([^"]*)"', marker)} == set(named)
