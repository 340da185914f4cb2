"""A probe as a table for people, or one JSON object. Pure, but for colours, which depend on where it is printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import IO, Final

from ...probe.verdict import ALL, Row, Verdict
from ..colours import coloured
from ..inspection.table import printable, table_lines

_TITLES: Final = ("TRIAL", "SEEN", *(form.label.removeprefix("v2, ").upper() for form in ALL))
_CELLS: Final = {True: "ok", False: "no", None: ""}


def lines_of(rows: Sequence[Row], verdict: Verdict, out: IO[str]) -> Iterator[str]:
    """Yield the table and the verdict."""
    cells = [(row.trial, row.seen, *(_CELLS[row.meets.get(form)] for form in ALL)) for row in rows]
    titles, *others = table_lines(_TITLES, cells)
    yield titles
    for row, line in zip(rows, others, strict=True):
        is_missing = verdict.form is None and str(row) in verdict.because
        yield coloured(line, "red", out) if is_missing else line
    yield ""
    yield coloured(f"verdict: {verdict}", "green" if verdict.form else "red", out)
    for reason in verdict.because:
        yield f"  because {printable(reason)}"
    for hint in verdict.hints:
        yield f"  {printable(hint)}"


def object_of(rows: Sequence[Row], verdict: Verdict, topic: str | None, left: str) -> str:
    """Return it as JSON. ``topic``: that was used, None if there was no need. ``left``: why it is still there, empty if
    it was deleted, or given."""
    found = {
        "form": None if verdict.form is None else verdict.form.label,
        "because": list(verdict.because),
        "hints": list(verdict.hints),
        "trials": [
            {"trial": row.trial, "seen": row.seen, "meets": {form.label: is_met for form, is_met in row.meets.items()}}
            for row in rows
        ],
        "topic": topic,
        "topic_left": left or None,
    }
    return json.dumps(found)
