"""What an audit writes for machines: ``findings.parquet`` and ``summary.json``; and lines for the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ... import __version__
from ..reading.places import END_OF_FILE
from .job import FINDINGS_MAX, Audited
from .kinds import Finding
from .rows import Kind

Summary = dict[str, Any]


def write_findings(audited: Audited, path: Path) -> None:
    """Write every listed finding, one row each, sorted by kind and place."""
    pq.write_table(named(audited), path)


def named(audited: Audited) -> pa.Table:
    """Return the findings with names in place of numbers, and the distance of each to what it is compared with."""
    listed = audited.listed.sort_by([("kind", "ascending"), ("place", "ascending"), ("offset", "ascending")])
    numbers = listed["place"].to_numpy()
    places = audited.plan.places
    other = listed["other_offset"].to_numpy()
    distance = np.where(other < 0, -1, np.abs(listed["offset"].to_numpy() - other))
    topics = pa.array([places[number].topic for number in numbers.tolist()], pa.string())
    partitions = pa.array([places[number].partition for number in numbers.tolist()], pa.int32())
    listed = listed.drop_columns(["place"]).add_column(1, "topic", topics).add_column(2, "partition", partitions)
    return listed.append_column("distance", pa.array(distance))


def summary_of(audited: Audited, failing: Sequence[Finding]) -> Summary:
    """Return what ``summary.json`` says. ``failing``: kinds with which the audit has failed."""
    partitions = [_of_place(audited, number) for number in range(len(audited.plan.places))]
    totals = {kind: sum(one["findings"].get(kind, 0) for one in partitions) for kind in Finding}
    topics: dict[str, Summary] = {}
    for one in partitions:
        topic = topics.setdefault(one["topic"], {"partitions": 0, "records": 0, "bytes": 0, "findings": {}})
        topic["partitions"] += 1
        topic["records"] += one["records"]
        topic["bytes"] += one["bytes"]
        for kind, count in one["findings"].items():
            topic["findings"][kind] = topic["findings"].get(kind, 0) + count
    records = sum(one["records"] for one in partitions)
    return {
        "version": __version__,
        "source": ",".join(f"{host}:{port}" for host, port in audited.plan.bootstrap) or "segment files",
        "records": records,
        "bytes": sum(one["bytes"] for one in partitions),
        "seconds": round(audited.seconds, 2),
        "records_per_second": round(records / audited.seconds) if audited.seconds else 0,
        "stage_seconds": dict(audited.stage_seconds),
        "acknowledged_batches": audited.journal_batches,
        "pairs_compared": audited.compared_pairs,
        "listed_max": FINDINGS_MAX,
        "findings": {str(kind): count for kind, count in totals.items()},
        "failing": {str(kind): totals[kind] for kind in failing if totals[kind]},
        "topics": topics,
        "partitions": partitions,
        "gone_while_reading": sum(
            last - first + 1 for kind, _, first, last, _ in audited.notes if kind == Kind.DELETED
        ),
        "unreadable": [
            {"place": audited.plan.places[place].name, "first_offset": first, "last_offset": last, "reason": reason}
            for kind, place, first, last, reason in audited.notes
            if kind == Kind.UNREADABLE
        ][:100],
        "cut_off": [
            {"place": audited.plan.places[place].name, "offset": offset, "what": what}
            for kind, place, offset, _, what in audited.notes
            if kind == Kind.CUT
        ],
        "without_files": [
            place.name
            for number, place in enumerate(audited.plan.places)
            if place.end == END_OF_FILE and number not in {one.place for one in audited.plan.ranges}
        ],
        "holes_unexplained": [
            one["topic"] + f"-{one['partition']}"
            for one, place in zip(partitions, audited.plan.places, strict=True)
            if place.has_holes is None and one["findings"].get(Finding.OFFSET_HOLE)
        ],
        "not_compared": pc.sum(pc.equal(audited.listed["compared"], 0)).as_py() or 0,
    }


def _of_place(audited: Audited, number: int) -> Summary:
    place, volume = audited.plan.places[number], audited.volumes.get(number)
    found = {str(kind): count for (kind, at), count in audited.counts.items() if at == number and count}
    return {
        "topic": place.topic,
        "partition": place.partition,
        "records": volume.records if volume else 0,
        "identified_records": volume.identified_records if volume else 0,
        "bytes": max(0, volume.bytes) if volume else 0,
        "first_offset": volume.first_offset if volume else -1,
        "last_offset": volume.last_offset if volume else -1,
        "findings": found,
    }


def write_summary(summary: Mapping[str, Any], path: Path) -> None:
    """Write it as JSON for machines and people."""
    path.write_text(json.dumps(summary, indent=2) + "\n")


def told(summary: Summary) -> Iterator[str]:
    """Yield the lines that the terminal shows of a summary."""
    yield (
        f"{summary['records']} records in {len(summary['partitions'])} partitions of {len(summary['topics'])} topics, "
        f"{summary['seconds']} s"
    )
    for kind, count in summary["findings"].items():
        if count:
            mark = "FOUND" if kind in summary["failing"] else "note "
            yield f"{mark} {kind}: {count}"
    if not any(summary["findings"].values()):
        yield "nothing was found"
    yield from not_read(summary)


def not_read(summary: Summary) -> Iterator[str]:
    """Yield a sentence for each kind of thing that the audit has not read, or not a second time."""
    for name in summary["without_files"]:
        yield f"not audited: {name}, whose folder has no segment file, though a broker always leaves one"
    if summary["gone_while_reading"]:
        yield f"not audited: {summary['gone_while_reading']} offsets, deleted by retention while the log was read"
    if summary["not_compared"]:
        yield f"{summary['not_compared']} of the findings could not be read again, so their bytes were not compared"
    if summary["holes_unexplained"]:
        yield (
            f"offsets are missing in {', '.join(summary['holes_unexplained'][:10])}: nothing here tells whether these "
            "topics are compacted; if they are not, records are lost"
        )
    for one in summary["cut_off"]:
        yield f"{one['place']} behind offset {one['offset'] - 1}: {one['what']}, as a crash leaves them"
