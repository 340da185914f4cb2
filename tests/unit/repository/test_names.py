"""Names of the proxy's types."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PROXY = Path(__file__).resolve().parents[3] / "proxy"


def test_no_two_types_of_the_proxy_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PROXY.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(PROXY)}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
