"""The table of docs/explanation/performance.md, made of the last line of ``results/proxy.jsonl``.

``python benchmarks/performance_page.py`` writes it; ``bench_proxy.py`` does so after each whole run."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from common import ROOT
from loads import Case

RESULTS = ROOT / "benchmarks" / "results" / "proxy.jsonl"
PAGE = ROOT / "docs" / "explanation" / "performance.md"
BEGIN, END = "<!-- begin: benchmarks/performance_page.py -->", "<!-- end -->"
Line = Mapping[str, Any]
Row = Mapping[str, Any]
_MEDIAN = 1


def last_line() -> Line:
    """Return what the last whole run found."""
    line: Line = json.loads(RESULTS.read_text().splitlines()[-1])
    return line


def cost(line: Line, cases: Mapping[str, Case]) -> str:
    """Return what users read: one table, the medians of the whole chain, without dates and commits."""
    reservations = "on" if line.get("append_reservations") else "off"
    busy = (
        " Other work ran on the machine, so the figures are provisional." if line["load_average_before"] > 0.5 else ""
    )
    said = _wrapped(
        f"Medians of {line['rounds']} rounds at a real {line['broker']} broker, append reservations {reservations}. "
        f"Proxy, broker, Redis and load share {line['cores']} cores ({line['machine']}).{busy} "
        "Run and commit: the last line of `benchmarks/results/proxy.jsonl` in the repository."
    )
    parts = ["proxy", "broker", "broker, direct", "Redis"]
    table = [["load", "batches/s", "÷ direct", "added p50, ms", *parts]]
    for name, sides in _sides(line["on"]["0.10.2.2"]).items():
        direct, proxy = sides["direct"], sides["proxy"]
        cpu = [
            proxy["cpu_us_per_request"],
            proxy["broker_cpu_us_per_request"],
            direct["broker_cpu_us_per_request"],
            proxy["redis_cpu_us_per_request"],
        ]
        cells = [
            f"{proxy['requests_per_second'][_MEDIAN]:,.0f}",
            _short(proxy["requests_per_second_over_direct"][_MEDIAN]),
            f"{proxy['added_p50_ms'][_MEDIAN]:.1f}",
            *(_short(one[_MEDIAN]) for one in cpu),
        ]
        table.append([cases[name].name, *cells])
    return "\n".join([*said, "", *_table(table)])


def write(cases: Mapping[str, Case]) -> None:
    """Put the table into the page."""
    PAGE.write_text(with_table(PAGE.read_text(), cost(last_line(), cases)))


def with_table(page: str, made: str) -> str:
    """Return the page with this table in place of its own."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{made}\n\n{END}{rest.partition(END)[2]}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def _sides(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """By case and side."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row["case"], {})[row["side"]] = row
    return found


def _short(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]


if __name__ == "__main__":
    from bench_proxy import CASES

    write(CASES)
