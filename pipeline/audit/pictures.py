"""The plots of the report as inline SVG: heat map, distances, sequence against offset, timeline of gaps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import log2
from typing import Final

import numpy as np
import pyarrow as pa

WIDTH: Final = 900
_LEFT: Final = 170
_RIGHT: Final = 14
_ROW: Final = 16
_ROWS_MAX: Final = 60
"""Partitions in a heat map or timeline; those with findings come first."""
_TICKS: Final = 5
_NAME_SHOWN: Final = 24
_LATEST_MS: Final = 253_402_300_799_000
"""The end of the year 9999: a producer may write any time."""


@dataclass(frozen=True, slots=True)
class Span:
    """What an axis shows. ``is_time``: in ms since 1970; else offsets or the like."""

    low: float
    high: float
    is_time: bool = False

    def at(self, value: float) -> float:
        """Return where a value is, from 0 to 1."""
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5

    def told(self, share: float) -> str:
        """Return the label at a place from 0 to 1."""
        value = self.low + share * (self.high - self.low)
        if not self.is_time:
            return f"{value:,.0f}"
        moment = datetime.fromtimestamp(max(0.0, min(value, _LATEST_MS)) / 1000, UTC)
        if self.high - self.low < 10_000:
            return moment.strftime("%H:%M:%S.%f")[:-3]
        return moment.strftime("%H:%M:%S" if self.high - self.low < 86_400_000 else "%Y-%m-%d %H:%M")


def heat_map(
    names: Sequence[str],
    records: Mapping[tuple[int, int], int],
    findings: Mapping[tuple[int, int], int],
    slots: int,
    span: Span,
) -> str:
    """Draw partitions (rows) over time (columns): blue where records are, red where something is wrong. ``records``,
    ``findings``: by (row, slot)."""
    cell = (WIDTH - _LEFT - _RIGHT) / slots
    most, worst = max(records.values(), default=1), max(findings.values(), default=1)
    marks = []
    for (row, slot), count in sorted(records.items()):
        marks.append(
            _cell(row, slot, cell, "records", 0.15 + 0.6 * log2(1 + count) / log2(1 + most), f"{count} records")
        )
    for (row, slot), count in sorted(findings.items()):
        shade = 0.45 + 0.55 * log2(1 + count) / log2(1 + worst)
        marks.append(_cell(row, slot, cell, "wrong", shade, f"{count} findings"))
    return _rows("Findings by partition and time", names, marks, span)


def _cell(row: int, slot: int, width: float, kind: str, opacity: float, title: str) -> str:
    x, y = _LEFT + slot * width, row * _ROW + 1
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y}" width="{max(width - 0.5, 1):.1f}" height="{_ROW - 2}" '
        f'opacity="{opacity:.2f}"><title>{title}</title></rect>'
    )


def timeline(names: Sequence[str], marks: Iterable[tuple[int, float, str]], span: Span) -> str:
    """Draw one mark for each gap: (row, place on the axis, what it says)."""
    drawn = [
        f'<rect class="wrong" x="{_LEFT + span.at(value) * (WIDTH - _LEFT - _RIGHT) - 1:.1f}" y="{row * _ROW + 2}" '
        f'width="3" height="{_ROW - 4}"><title>{escape(title)}</title></rect>'
        for row, value, title in marks
    ]
    return _rows("Gaps by partition", names, drawn, span)


def _rows(title: str, names: Sequence[str], marks: Sequence[str], span: Span) -> str:
    labels = [
        f'<text class="label" x="{_LEFT - 8}" y="{row * _ROW + 12}" text-anchor="end">{escape(_short(name))}</text>'
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{(row + 1) * _ROW}" y2="{(row + 1) * _ROW}"/>'
        for row, name in enumerate(names)
    ]
    height = len(names) * _ROW
    return _picture(title, height + 26, [*labels, *marks, *_axis(span, height)])


def _axis(span: Span, height: float, left: float = _LEFT, right: float = WIDTH - _RIGHT) -> list[str]:
    drawn = []
    for number in range(_TICKS):
        share = number / (_TICKS - 1)
        x = left + share * (right - left)
        anchor = "start" if number == 0 else "end" if number == _TICKS - 1 else "middle"
        drawn.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height + 4:.0f}"/>')
        label = escape(span.told(share))
        drawn.append(f'<text class="label" x="{x:.1f}" y="{height + 18:.0f}" text-anchor="{anchor}">{label}</text>')
    return drawn


def distances(certain: Sequence[int], suspected: Sequence[int]) -> str:
    """Draw how many duplicates lie how many offsets after their first copy; each bar twice as far as the last one."""
    bins = max((int(value).bit_length() for value in (*certain, *suspected)), default=1)
    height, bar = 150, (WIDTH - 60 - _RIGHT) / bins
    counted = [np.bincount([int(v).bit_length() - 1 for v in of], minlength=bins) for of in (certain, suspected)]
    most = int((counted[0] + counted[1]).max()) if bins else 1
    drawn = []
    for number in range(bins):
        x, y = 60 + number * bar, float(height)
        label = f"{1 << number:,}"
        for kind, of in zip(("wrong", "doubtful"), counted, strict=True):
            count = int(of[number])
            tall = height * count / max(most, 1)
            y -= tall
            if count:
                title = f"{count} at a distance of {label} to {(2 << number) - 1:,}"
                drawn.append(
                    f'<rect class="{kind}" x="{x + 1:.1f}" y="{y:.1f}" width="{bar - 2:.1f}" height="{tall:.1f}">'
                    f"<title>{title}</title></rect>"
                )
        drawn.append(f'<text class="label" x="{x + bar / 2:.1f}" y="{height + 14}" text-anchor="middle">{label}</text>')
    drawn.append(f'<text class="label" x="52" y="10" text-anchor="end">{most:,}</text>')
    drawn.append(f'<line class="axis" x1="60" x2="{WIDTH - _RIGHT}" y1="{height}" y2="{height}"/>')
    return _picture("Distance of duplicates in offsets", height + 22, drawn)


def sequences(name: str, runs: pa.Table, wrong: Sequence[tuple[int, int]]) -> str:
    """Draw the sequence numbers of a partition over its offsets. ``runs``: offset, last_offset, sequence and producer;
    ``wrong``: offsets, from and to, that are marked."""
    first, last = (runs[column].to_numpy() for column in ("offset", "last_offset"))
    sequence, producer = runs["sequence"].to_numpy(), runs["producer_id"].to_numpy()
    height, left = 200, 90
    across = Span(float(first.min()), float(last.max() + 1))
    up = Span(float(sequence.min()), float((sequence + last - first).max() + 1))
    width = WIDTH - left - _RIGHT
    drawn = []
    for begin, end in wrong:
        x, end_x = left + across.at(begin) * width, left + across.at(end + 1) * width
        drawn.append(f'<rect class="band" x="{x:.1f}" y="0" width="{max(end_x - x, 1.5):.1f}" height="{height}"/>')
    colours = {one: number % 6 for number, one in enumerate(dict.fromkeys(producer.tolist()))}
    for index in range(len(first)):
        span = int(last[index] - first[index])
        x1, x2 = (left + across.at(value) * width for value in (first[index], last[index] + 1))
        y1, y2 = (height * (1 - up.at(value)) for value in (sequence[index], sequence[index] + span + 1))
        place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{max(x2, x1 + 1):.1f}" y2="{y2:.1f}"'
        drawn.append(f'<line class="run p{colours[int(producer[index])]}" {place}/>')
    for share in (0.0, 1.0):
        y = height * (1 - share)
        label = up.told(share)
        drawn.append(f'<text class="label" x="{left - 6}" y="{max(y, 10):.0f}" text-anchor="end">{label}</text>')
    drawn += _axis(across, height, left)
    return _picture(f"Sequence against offset in {name}", height + 26, drawn)


def shown_rows(names: Sequence[str], wrong: Mapping[int, int]) -> list[int]:
    """Return which partitions a picture shows: those with most findings, in their order; all if there are few."""
    if len(names) <= _ROWS_MAX:
        return list(range(len(names)))
    worst = sorted(range(len(names)), key=lambda number: (-wrong.get(number, 0), number))
    return sorted(worst[:_ROWS_MAX])


def _short(name: str) -> str:
    return name if len(name) <= _NAME_SHOWN else f"…{name[1 - _NAME_SHOWN :]}"


def _picture(title: str, height: float, drawn: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(drawn)}</svg>"
    )
