"""What users read outside of the pages keeps to the words of this project: help, settings, metrics, values, alerts, the
client's docstrings and messages. See testkit.style."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import references
from idemproxy.proxy.settings.load import schema
from idemproxy.proxy.telemetry.metric_names import METRICS, SUPERVISOR_METRICS
from testkit import style

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("proxy", "pipeline", "client", "producing", "state", "codecs", "demo")
MESSAGE_WORDS_MIN = 3
"""A text of fewer words is a name or a key."""
IN_THE_FROZEN_CORE = ("this listener of the broker takes no SASL (error 34)",)
NOT_SHOWN = (":root {", "var(--", "-- KEYS")
"""Style sheets and scripts, which are texts for machines."""


def objections(place: str, text: str) -> list[str]:
    return [finding.at(place) for finding in style.wording(text)]


def texts_of_settings() -> Iterator[tuple[str, str]]:
    for name, section in schema()["$defs"].items():
        yield name, section.get("description", "")
        for setting, about in section["properties"].items():
            yield f"{name}.{setting}", about.get("description", "")


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts in a file that are no docstrings, with their lines."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(body := getattr(node, "body", None), list)
        for statement in body
        if isinstance(statement, ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        shown = node.value not in IN_THE_FROZEN_CORE and not any(mark in node.value for mark in NOT_SHOWN)
        if shown and len(node.value.split()) >= MESSAGE_WORDS_MIN:
            yield node.lineno, node.value


def texts(part: str) -> Iterator[tuple[str, str]]:
    """Yield what a part shows, each text with its place."""
    if part == "settings":
        yield from texts_of_settings()
    elif part == "metrics":
        yield from ((metric.name, metric.help) for metric in (*METRICS, *SUPERVISOR_METRICS))
    elif part == "alerts":
        for alert in yaml.safe_load((ROOT / "charts/idemproxy/files/alerts.yaml").read_text()):
            yield alert["alert"], f"{alert['summary']}. {alert['description']}"
    elif part in references.MAKERS:
        yield part, references.MAKERS[part]()
    else:
        for path in sorted((ROOT / part).rglob("*.py")):
            yield from ((f"{path.relative_to(ROOT)}:{line}", text) for line, text in messages(path))


PARTS = ("command-line", "helm-values", "client-api", "settings", "metrics", "alerts", *FOLDERS)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_has_no_other_words(part: str) -> None:
    found = [objection for place, text in texts(part) for objection in objections(place, text)]
    assert not found, "\n".join(["", *found])
