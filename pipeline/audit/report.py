"""The report for people: one HTML file without scripts, which loads nothing. What it shows is in the summary, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from . import pictures
from .job import TIME_SLOTS, Audited
from .kinds import MEANINGS, Finding
from .outputs import Summary, named, not_read
from .pictures import Span

_LISTED: Final = 200
_MARKED: Final = 500
"""Findings that are listed, and that are marked in one plot."""
_TILES: Final = (
    Finding.DUPLICATE,
    Finding.SUSPECTED_DUPLICATE,
    Finding.GAP,
    Finding.INVERSION,
    Finding.EPOCH_REGRESSION,
    Finding.ACKNOWLEDGED_ABSENT,
)
_NOTES: Final = (Finding.REPEATED_RECORD, Finding.COMPACTED_GAP, Finding.FOREIGN_WRITER, Finding.OFFSET_HOLE)
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --paper: #fff; --card: #f4f6f8; --line: #d5dae0;
  --good: #1a7f37; --bad: #b3261e; --doubt: #b26a00; --blue: #3b74c4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --soft: #a3adba; --paper: #12161b; --card: #1c222a;
  --line: #343c47; --good: #56c271; --bad: #ff8a80; --doubt: #f0b255; --blue: #7db0f7; } }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 1040px; padding: 24px; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 18px; margin: 36px 0 8px; } p { margin: 6px 0; }
.soft { color: var(--soft); } .verdict { font-size: 18px; font-weight: 600; padding: 12px 16px; border-radius: 8px;
  background: var(--card); border-left: 6px solid var(--good); margin: 16px 0; }
.verdict.bad { border-color: var(--bad); }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px; }
.tile { background: var(--card); border-radius: 8px; padding: 10px 14px; } .tile b { display: block; font-size: 26px; }
.tile.bad b { color: var(--bad); } .tile.doubt b { color: var(--doubt); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 4px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child { text-align: left; }
td.bad { color: var(--bad); font-weight: 600; } td.zero { color: var(--soft); } td.text { text-align: left; }
svg { width: 100%; height: auto; background: var(--card); border-radius: 8px; padding: 10px; display: block;
  margin: 8px 0; }
.label { font-size: 11px; fill: var(--soft); } .grid { stroke: var(--line); stroke-width: 0.5; }
.axis { stroke: var(--soft); } .records { fill: var(--blue); } .wrong { fill: var(--bad); }
.doubtful { fill: var(--doubt); }
.band { fill: var(--bad); opacity: 0.22; } .run { stroke-width: 2; } .p0 { stroke: #3b74c4; } .p1 { stroke: #2f9e74; }
.p2 { stroke: #8a5cc2; } .p3 { stroke: #c77d1e; } .p4 { stroke: #2a96a8; } .p5 { stroke: #7a8590; }
dt { font-weight: 600; margin-top: 8px; } dd { margin: 0; color: var(--soft); } details { margin: 8px 0; }
.key { display: inline-block; width: 12px; height: 12px; border-radius: 2px; margin: 0 4px 0 12px;
  vertical-align: -1px; }
"""


def write_report(audited: Audited, summary: Summary, path: Path) -> None:
    """Write the file."""
    path.write_text("\n".join(_page(audited, summary)) + "\n", encoding="utf-8")


def _page(audited: Audited, summary: Summary) -> Iterator[str]:
    title = f"Audit of {', '.join(list(summary['topics'])[:3])}{' …' if len(summary['topics']) > 3 else ''}"
    yield f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>
<h1>{escape(title)}</h1>
<p class="soft">{_begin(summary)}</p>"""
    yield _verdict(summary)
    yield from (f"<p>{escape(sentence)}.</p>" for sentence in not_read(summary))
    yield f'<div class="tiles">{"".join(_tile(summary, kind) for kind in _TILES)}</div>'
    yield from _tables(summary)
    table = named(audited)
    yield from _when(audited)
    yield from _distances(table)
    yield from _sequences(audited)
    yield from _gaps(audited)
    yield from _list(table, summary)
    yield "<h2>What the words mean</h2><dl>"
    yield from (f"<dt>{_words(kind)}</dt><dd>{escape(text)}</dd>" for kind, text in MEANINGS.items())
    yield f'</dl><p class="soft">idemproxy {escape(summary["version"])}</p></main></body></html>'


def _begin(summary: Summary) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    read = f"{summary['records']:,} records, {summary['bytes'] / 1e6:,.1f} MB of log in {summary['seconds']:,.0f} s"
    journal = summary["acknowledged_batches"]
    told = f"; {journal:,} acknowledged batches of a journal" if journal else ""
    return f"{escape(summary['source'])}, {now}: {read}{told}."


def _verdict(summary: Summary) -> str:
    failing = summary["failing"]
    if not failing:
        return '<p class="verdict">Clean: nothing was found with which this audit fails.</p>'
    parts = ", ".join(f"{count:,} × {_words(kind)}" for kind, count in failing.items())
    return f'<p class="verdict bad">Found: {parts}.</p>'


def _tile(summary: Summary, kind: Finding) -> str:
    count = summary["findings"][kind]
    look = "" if not count else " doubt" if kind is Finding.SUSPECTED_DUPLICATE else " bad"
    return f'<div class="tile{look}"><b>{count:,}</b>{_words(kind)}</div>'


def _tables(summary: Summary) -> Iterator[str]:
    kinds = [kind for kind in Finding if kind in _TILES or summary["findings"][kind]]
    yield "<h2>Topics</h2>"
    yield _table(summary, "topic", kinds, [(name, f"{of['partitions']}", of) for name, of in summary["topics"].items()])
    yield "<details><summary>Partitions</summary>"
    rows = [(one["topic"], f"{one['partition']}", one) for one in summary["partitions"]]
    yield _table(summary, "topic of the partition", kinds, rows) + "</details>"
    marked = sum(one["identified_records"] for one in summary["partitions"])
    share = marked / summary["records"] if summary["records"] else 0.0
    yield (
        f"<p>{share:.1%} of the records have a producer id and a sequence number, in a batch marker or in their batch: "
    )
    yield "for these a duplicate is certain. For the others nobody can tell a batch that was stored twice from records "
    yield "that are equal, so they are counted as suspected.</p>"


def _table(summary: Summary, label: str, kinds: Sequence[Finding], rows: Sequence[tuple[str, str, Summary]]) -> str:
    body = []
    for name, partition, of in rows:
        cells = "".join(_count(of["findings"].get(kind, 0), kind in summary["failing"]) for kind in kinds)
        body.append(f"<tr><td>{escape(name)}</td><td>{partition}</td><td>{of['records']:,}</td>{cells}</tr>")
    return _wide(label, [label, "partition" + "s" * (label == "topic"), "records", *map(_words, kinds)], body)


def _wide(label: str, heads: Sequence[str], rows: Sequence[str]) -> str:
    """Return a table that may be wider than the page, and is moved with the keyboard, too."""
    head = "".join(f"<th>{text}</th>" for text in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="region" aria-label="{label}">{table}</div>'


def _count(count: int, fails: bool) -> str:
    look = "zero" if not count else "bad" if fails else ""
    return f'<td class="{look}">{count:,}</td>'


def _wrong(audited: Audited) -> pa.Table:
    """The findings that are shown as wrong; not what is only worth a note."""
    notes = pa.array([str(kind) for kind in (*_NOTES, Finding.ACKNOWLEDGED_UNKNOWN)])
    return audited.listed.filter(pc.invert(pc.is_in(audited.listed["kind"], notes)))


def _when(audited: Audited) -> Iterator[str]:
    yield "<h2>Where and when</h2>"
    if audited.slot_start_ms < 0:
        yield '<p class="soft">The records have no times (message format v0), so there is no picture over time.</p>'
        return
    names = [place.name for place in audited.plan.places]
    wrong = _wrong(audited)
    found: Counter[tuple[int, int]] = Counter()
    columns = (wrong[name].to_pylist() for name in ("place", "timestamp", "count"))
    for place, timestamp, count in zip(*columns, strict=True):
        slot = (timestamp - audited.slot_start_ms) // audited.slot_ms
        if 0 <= slot < TIME_SLOTS:
            found[place, slot] += count
    by_place: Counter[int] = Counter()
    for (place, _), count in found.items():
        by_place[place] += count
    shown = {place: row for row, place in enumerate(pictures.shown_rows(names, by_place))}
    records = {(shown[place], slot): count for place, slot, count in audited.slots if place in shown}
    findings = {(shown[place], slot): count for (place, slot), count in found.items() if place in shown}
    yield '<p class="soft">Rows are partitions<span class="key" style="background:var(--blue)"></span>records'
    yield '<span class="key" style="background:var(--bad)"></span>findings, darker where there are more</p>'
    span = Span(audited.slot_start_ms, audited.slot_start_ms + TIME_SLOTS * audited.slot_ms, is_time=True)
    yield pictures.heat_map([names[place] for place in shown], records, findings, TIME_SLOTS, span)


def _distances(table: pa.Table) -> Iterator[str]:
    certain, suspected = (
        [value for value in table.filter(pc.equal(table["kind"], str(kind)))["distance"].to_pylist() if value > 0]
        for kind in (Finding.DUPLICATE, Finding.SUSPECTED_DUPLICATE)
    )
    if not certain and not suspected:
        return
    yield "<h2>Distance of duplicates</h2>"
    yield '<p class="soft">Offsets between a record and its first copy<span class="key" '
    yield 'style="background:var(--bad)"></span>certain<span class="key" style="background:var(--doubt)"></span>'
    yield "suspected. Retries lie close; what is far away was sent again by an application or a restarted job.</p>"
    yield pictures.distances(certain, suspected)


def _sequences(audited: Audited) -> Iterator[str]:
    if not audited.runs:
        return
    yield "<h2>Sequence against offset</h2>"
    yield '<p class="soft">A line that rises all the way is a producer without faults; what is marked is wrong. '
    yield "Each colour is a producer. Of a large partition only what is around the first finding is shown.</p>"
    wrong = _wrong(audited)
    for place, runs in audited.runs.items():
        name = audited.plan.places[place].name
        of_place = wrong.filter(pc.equal(wrong["place"], place))
        is_shown = pc.and_(
            pc.less_equal(of_place["offset"], pc.max(runs["last_offset"])),
            pc.greater_equal(of_place["last_offset"], pc.min(runs["offset"])),
        )
        marked = of_place.filter(is_shown)
        spans = joined_spans(list(zip(marked["offset"].to_pylist(), marked["last_offset"].to_pylist(), strict=True)))
        yield f"<h3>{escape(name)}</h3>"
        yield pictures.sequences(name, runs, spans[:_MARKED])


def joined_spans(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the same spans of offsets, those that touch as one."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


def _gaps(audited: Audited) -> Iterator[str]:
    gaps = audited.listed.filter(pc.equal(audited.listed["kind"], str(Finding.GAP))).to_pylist()
    if not gaps:
        return
    yield "<h2>Gaps</h2>"
    is_time = audited.slot_start_ms >= 0
    by_place: Mapping[int, int] = Counter(one["place"] for one in gaps)
    places = sorted(by_place, key=lambda place: -by_place[place])[:60]
    rows = {place: row for row, place in enumerate(sorted(places))}
    if is_time:
        span = Span(audited.slot_start_ms, audited.slot_start_ms + TIME_SLOTS * audited.slot_ms, is_time=True)
    else:
        span = Span(0, max(one["offset"] for one in gaps) + 1)
    marks = [
        (rows[one["place"]], one["timestamp"] if is_time else one["offset"], _gap(one))
        for one in gaps
        if one["place"] in rows
    ]
    yield f'<p class="soft">Where sequence numbers are missing, by {"time" if is_time else "offset"}.</p>'
    yield pictures.timeline([audited.plan.places[place].name for place in rows], marks[: 10 * _MARKED], span)


def _gap(one: Mapping[str, Any]) -> str:
    missing = f"{one['count']} missing from sequence {one['sequence']} on"
    return f"{missing}, of producer {one['producer_id']}, before offset {one['offset']}"


def _list(table: pa.Table, summary: Summary) -> Iterator[str]:
    if not table.num_rows:
        return
    where = ("kind", "topic", "partition", "offset", "last_offset", "other_offset", "distance")
    names = (*where, "producer_id", "epoch", "sequence", "count")
    failing = pc.is_in(table["kind"], pa.array(list(summary["failing"]), pa.string()))
    ordered = pa.concat_tables([table.filter(failing), table.filter(pc.invert(failing))]).slice(0, _LISTED)
    listed = (
        "All of them, as"
        if ordered.num_rows == table.num_rows
        else f"The first {_LISTED} of {table.num_rows:,}; all are"
    )
    yield f"<h2>Findings</h2><details><summary>{listed} in findings.parquet</summary>"
    rows = []
    for one in ordered.to_pylist():
        cells = "".join(f"<td>{'' if one[name] == -1 else escape(str(one[name]))}</td>" for name in names)
        rows.append(f"<tr>{cells}</tr>")
    yield _wide("findings", [name.replace("_", " ") for name in names], rows) + "</details>"


def _words(kind: str) -> str:
    return escape(str(kind).replace("_", " "))
