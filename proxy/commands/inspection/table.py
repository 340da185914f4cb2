"""Rows as a table that is written while they arrive: the first rows decide how wide the columns are. Pure. Stored texts
are made printable, as they could contain control sequences of terminals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

ROWS_MEASURED = 500
_GAP = "  "


def printable(text: str) -> str:
    """Return the text with everything that is no visible character written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table_lines(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table, titles first; none where there is no row. Numbers stand to the right. A later row
    that is wider than the first ones is shown whole."""
    remaining = iter(rows)
    first = list(islice(remaining, ROWS_MEASURED))
    if not first:
        return
    columns = range(len(titles))
    widths = [max([len(titles[i]), *(len(_text(row[i])) for row in first)]) for i in columns]
    right = [all(isinstance(row[i], int) or _text(row[i]) in ("", "-") for row in first) for i in columns]
    for row in chain([titles], first, remaining):
        cells = [
            _text(cell).rjust(w) if r else _text(cell).ljust(w) for cell, w, r in zip(row, widths, right, strict=True)
        ]
        yield _GAP.join(cells).rstrip()


def _text(cell: object) -> str:
    return printable(str(cell))
