"""The tables and the picture of docs/PERFORMANCE.md, and the table of docs/explanation/performance.md, made of the last
line of ``results/proxy.jsonl``.

``python benchmarks/performance_page.py`` writes them; ``bench_proxy.py`` does so after each whole run."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from common import ROOT
from loads import Case

RESULTS = ROOT / "benchmarks" / "results" / "proxy.jsonl"
PAGE = ROOT / "docs" / "PERFORMANCE.md"
USERS_PAGE = ROOT / "docs" / "explanation" / "performance.md"
PICTURE = ROOT / "docs" / "pictures" / "performance.svg"
BEGIN, END = "<!-- begin: benchmarks/performance_page.py -->", "<!-- end -->"
Line = Mapping[str, Any]
Row = Mapping[str, Any]
_LOWEST, _MEDIAN = 0, 1
_COLOURS = {"tick": "#9aa5b1", "before": "#c9b37e", "proxy": "#2f6fb3", "broker": "#d9822b", "redis": "#b33a3a"}
_NAMES = {"tick": "bare relay", "redis": "Redis"}
_WIDTH, _LEFT, _RIGHT, _BAR, _GAP = 900, 310, 50, 11, 10


def last_line() -> Line:
    """Return what the last whole run found."""
    line: Line = json.loads(RESULTS.read_text().splitlines()[-1])
    return line


def tables(line: Line, cases: Mapping[str, Case]) -> str:
    """Return both tables, with what was measured on which machine."""
    load = line["load_average_before"]
    before = f", beside the proxy of commit {line['before']}" if line["before"] else ""
    provisional = " (others were at work on it: the figures are **provisional**)" if load > 0.5 else ""
    said = [
        *_wrapped(
            f"Measured on {line['date']} at commit {line['commit']}{before}: {line['rounds']} rounds, "
            f"{line['cores']} cores ({line['machine']}), Linux {line['kernel']}, Python {line['python']}, "
            f"{line['redis']}, broker {line['broker']}; load and sink in {line['load_and_sink']}; "
            f"batches converted {line['batches_converted']}; "
            f"load average of the machine before the run {load}{provisional}."
        ),
        "",
        "![CPU of the proxy beside a bare relay, and of the whole chain beside no proxy](pictures/performance.svg)",
        "",
        "**The proxy alone**, on a broker that costs nothing. CPU of the proxy's process; each cell: lowest / median.",
        "",
        *_table(_alone(line["on"]["sink"], cases, bool(line["before"]))),
        "",
        "**The whole chain**, on a real 0.10.2.2. CPU per request of each process; each cell: lowest / median.",
        "",
        *_table(_chain(line["on"]["0.10.2.2"], cases)),
    ]
    return "\n".join(said)


def cost(line: Line, cases: Mapping[str, Case]) -> str:
    """Return what users read: one table, the medians of the whole chain, without dates and commits."""
    reservations = "on" if line.get("append_reservations") else "off"
    busy = (
        " Other work ran on the machine, so the figures are provisional." if line["load_average_before"] > 0.5 else ""
    )
    said = _wrapped(
        f"Medians of {line['rounds']} rounds at a real {line['broker']} broker, append reservations {reservations}. "
        f"Proxy, broker, Redis and load share {line['cores']} cores ({line['machine']}).{busy}"
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


def picture(line: Line, cases: Mapping[str, Case]) -> str:
    """Return the picture, SVG: both tables' medians as ratios."""
    alone, chain = _sides(line["on"]["sink"]), _sides(line["on"]["0.10.2.2"])
    bars: list[tuple[str, list[list[tuple[str, float]]]]] = []
    for name, sides in alone.items():
        tick = sides["tick"]["cpu_us_per_request"][_MEDIAN]
        shown = [side for side in ("tick", "before", "proxy") if side in sides]
        bars.append((name, [[(side, sides[side]["cpu_us_per_request"][_MEDIAN] / tick)] for side in shown]))
    drawn, height = _panel("CPU of the proxy, a bare relay in Python = 1 (sink)", bars, cases, 0)
    bars = []
    for name, sides in chain.items():
        direct = sides["direct"]["broker_cpu_us_per_request"][_MEDIAN]
        parts = {"proxy": "", "broker": "broker_", "redis": "redis_"}
        of_chain = [
            (part, sides["proxy"][f"{prefix}cpu_us_per_request"][_MEDIAN] / direct) for part, prefix in parts.items()
        ]
        bars.append((name, [of_chain]))
    more, height = _panel("CPU of proxy, broker and Redis; without a proxy = 1 (0.10.2.2)", bars, cases, height)
    legend = "".join(
        f'<rect x="{_LEFT + 110 * index}" y="{height}" width="11" height="11" fill="{colour}"/>'
        f'<text x="{_LEFT + 110 * index + 16}" y="{height + 10}">{_NAMES.get(name, name)}</text>'
        for index, (name, colour) in enumerate(_COLOURS.items())
        if name != "before" or line["before"]
    )
    size = f'width="{_WIDTH}" height="{height + 24}" viewBox="0 0 {_WIDTH} {height + 24}"'
    style = "text{font:12px sans-serif;fill:#222}.head{font-weight:bold}.number{fill:#555}"
    ground = f'<rect width="{_WIDTH}" height="{height + 24}" fill="#fff"/>'
    parts_of_it = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{style}</style>", ground]
    return "\n".join([*parts_of_it, *drawn, *more, legend, "</svg>", ""])


def write(cases: Mapping[str, Case]) -> None:
    """Put all into the page and beside it."""
    line = last_line()
    PICTURE.write_text(picture(line, cases))
    PAGE.write_text(with_tables(PAGE.read_text(), tables(line, cases)))
    USERS_PAGE.write_text(with_tables(USERS_PAGE.read_text(), cost(line, cases)))


def with_tables(page: str, made: str) -> str:
    """Return the page with these tables in place of its own."""
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


def _alone(rows: Sequence[Row], cases: Mapping[str, Case], has_before: bool) -> list[list[str]]:
    head = ["load", "bare relay, µs", "proxy, µs", "proxy, s/GB", "÷ bare relay", "rate ÷ direct", "added p50, ms"]
    table = [head + ["÷ before"] * has_before]
    for name, sides in _sides(rows).items():
        tick, proxy = sides["tick"], sides["proxy"]
        large = cases[name].bytes_per_request > 10_000
        cells = [
            _two(tick["cpu_us_per_request"]),
            _two(proxy["cpu_us_per_request"]),
            _two(proxy["cpu_seconds_per_gb"]) if large else "",
            _two(proxy["cpu_us_per_request_over_tick"]),
            _two(proxy["requests_per_second_over_direct"]),
            _two(proxy["added_p50_ms"]),
        ]
        table.append([cases[name].name, *cells] + [_two(proxy["cpu_us_per_request_over_before"])] * has_before)
    return table


def _chain(rows: Sequence[Row], cases: Mapping[str, Case]) -> list[list[str]]:
    parts = ["direct: broker", "proxy", "broker behind it", "Redis"]
    table = [["load", *parts, "chain ÷ direct", "rate ÷ direct", "added p50, ms"]]
    for name, sides in _sides(rows).items():
        direct, proxy = sides["direct"], sides["proxy"]
        cells = [
            direct["broker_cpu_us_per_request"],
            proxy["cpu_us_per_request"],
            proxy["broker_cpu_us_per_request"],
            proxy["redis_cpu_us_per_request"],
            proxy["chain_cpu_us_per_request_over_direct"],
            proxy["requests_per_second_over_direct"],
            proxy["added_p50_ms"],
        ]
        table.append([cases[name].name, *map(_two, cells)])
    return table


def _two(spread: Sequence[float]) -> str:
    return f"{_short(spread[_LOWEST])} / {_short(spread[_MEDIAN])}"


def _short(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]


def _panel(
    title: str, bars: list[tuple[str, list[list[tuple[str, float]]]]], cases: Mapping[str, Case], top: int
) -> tuple[list[str], int]:
    """Return the lines of one panel, and where the next one may begin. Each bar is a row of (colour, length)."""
    longest = max(sum(length for _, length in bar) for _, of_case in bars for bar in of_case)
    scale = (_WIDTH - _LEFT - _RIGHT) / longest
    one = _LEFT + scale
    lines, y = [f'<text class="head" x="8" y="{top + 20}">{escape(title)}</text>'], top + 34
    for name, of_case in bars:
        middle = y + len(of_case) * _BAR / 2 + 4
        lines.append(f'<text x="8" y="{middle:.0f}">{escape(cases[name].name)}</text>')
        for bar in of_case:
            x = float(_LEFT)
            for colour, length in bar:
                width = length * scale
                lines.append(
                    f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{_COLOURS[colour]}"/>'
                )
                x += width
            total = sum(length for _, length in bar)
            lines.append(f'<text class="number" x="{x + 5:.1f}" y="{y + 10}">{total:.1f}</text>')
            y += _BAR + 1
        y += _GAP
    lines.append(
        f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{top + 28}" y2="{y - _GAP}" stroke="#222" stroke-dasharray="2 3"/>'
    )
    return lines, y + 10


if __name__ == "__main__":
    from bench_proxy import CASES

    write(CASES)
