"""The pipeline on Spark and Spark's own Kafka connector, both through one proxy before a real 0.10.2.2, alternately.

``make bench-spark``. Reads, writes (batch and stream), tiny micro-batches, the audit; prints a table and adds a line of
JSON for each case to ``benchmarks/results/spark.jsonl``. What counts are CPU seconds of JVM and Python together, with
those of proxy, Redis and broker next to them, and ratios within one round: connector ÷ ours, above 1 is better."""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from common import save, spread
from pyspark import SparkContext
from spark_world import PARTITIONS, PARTS, Seconds, World, world

from idemproxy.pipeline.audit.job import audit
from idemproxy.pipeline.audit.plan import of_cluster
from idemproxy.pipeline.audit.progress import Progress

CONNECTOR: Final = "connector"
ROWS: Final = (1_000, 100_000, 1_000_000)
VALUE_BYTES: Final = (100, 1_024)
TINY_BATCHES, TINY_ROWS = 12, 1_000
KINDS: Final = ("read", "write", "stream", "tiny", "audit")
_READING: Final = "reading the log"
_DISTANCE: Final = 100_000
"""As the audit has it by default."""
_TURNS_BEFORE: Final = 2
"""Of each side that are not counted: the JVM compiles what it runs often. Of the largest case one: the smaller ones
come first."""

Run = Callable[[], float]
"""Does one turn, and returns the wall seconds that count."""


@dataclass(frozen=True)
class Case:
    """One row of the table: the sides take turns."""

    kind: str
    rows: int
    value_bytes: int
    sides: Mapping[str, Run]

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.rows:,} x {self.value_bytes:,} B"


# ------------------------------------------------------------------ what is done
def _timed(do: Callable[[], object]) -> float:
    begun = time.monotonic()
    do()
    return time.monotonic() - begun


def read(of: World, topic: str, source: str, options: Mapping[str, str]) -> float:
    """Read a whole topic; Spark makes each row and throws it away."""
    reader = of.spark.read.format(source).option("kafka.bootstrap.servers", of.side.address).option("subscribe", topic)
    return _timed(lambda: reader.options(**options).load().write.format("noop").mode("overwrite").save())


def write(of: World, rows: Path, count: int, sink: str) -> float:
    """Write rows to a fresh topic as a batch; all of them are there then."""
    with fresh_topic(of, count) as topic:
        writer = of.batch(rows).write.format(sink).mode("append")
        writer = writer.option("kafka.bootstrap.servers", of.side.address).option("topic", topic)
        if sink == "idemproxy":
            writer = writer.option("producerName", topic).option("stagingLocation", str(of.folder / topic))
        return _timed(writer.save)


def stream(of: World, rows: Path, count: int, sink: str, files_at_once: int = PARTITIONS) -> float:
    """Write rows to a fresh topic as a stream. Of several batches: returns the median of one."""
    with fresh_topic(of, count) as topic:
        writer = of.stream(rows, files_at_once).writeStream.format(sink)
        writer = writer.option("kafka.bootstrap.servers", of.side.address).option("topic", topic)
        query = writer.option("checkpointLocation", str(of.folder / topic)).trigger(availableNow=True).start()
        assert query.awaitTermination(600)
        batches: list[float] = [one["durationMs"]["triggerExecution"] / 1000 for one in query.recentProgress]
        return statistics.median(batches[1:] or batches)


def audited(of: World, topic: str, count: int, stages: dict[str, list[float]]) -> float:
    """Audit a topic that has nothing wrong. ``stages``: gets the CPU and the wall seconds of each."""
    plan = of_cluster([of.cluster.address(0)], [topic], [])
    begun = time.monotonic()
    with MeteredProgress(of, stages) as progress:
        found = audit(of.spark, plan, progress, distance=_DISTANCE)
    assert sum(one.records for one in found.volumes.values()) == count
    return time.monotonic() - begun


class MeteredProgress(Progress):
    """Notes CPU and wall seconds of each stage, and says nothing."""

    def __init__(self, of: World, stages: dict[str, list[float]]) -> None:
        super().__init__()
        self._of = of
        self._stages = stages

    def say(self, text: str) -> None:
        """Nothing."""

    @contextmanager
    def stage(self, spark: SparkContext, title: str) -> Iterator[None]:
        cpu, begun = self._of.cpu()["spark"], time.monotonic()
        yield
        self._stages[title] = [self._of.cpu()["spark"] - cpu, time.monotonic() - begun]


@contextmanager
def fresh_topic(of: World, count: int) -> Iterator[str]:
    """A topic that has so many records when the block ends, and then goes."""
    topic = f"bench-{uuid.uuid4().hex}"
    of.cluster.create_topic(topic, PARTITIONS)
    yield topic
    stored = of.stored(topic)
    assert stored == count, f"{stored} records are in the topic, not {count}"
    of.cluster.delete_topic(topic)


# ------------------------------------------------------------------ cases
def cases(of: World, kinds: Sequence[str], rows: Sequence[int], sizes: Sequence[int]) -> Iterator[Case]:
    """Yield all cases, one after the other: what one needs goes before the next one."""
    for value_bytes in sizes:
        for count in rows:
            source = of.rows(count, value_bytes)
            if "read" in kinds or "audit" in kinds:
                yield from _reads(of, kinds, source, count, value_bytes)
            for kind, do in (("write", write), ("stream", stream)):
                if kind in kinds:
                    sinks = {CONNECTOR: "kafka", "sink": "idemproxy"}
                    sides = {name: partial(do, of, source, count, sink) for name, sink in sinks.items()}
                    yield Case(kind, count, value_bytes, sides)
    if "tiny" in kinds:
        count = TINY_BATCHES * TINY_ROWS
        source = of.rows(count, VALUE_BYTES[0], TINY_BATCHES)
        sides = {
            name: partial(stream, of, source, count, sink, 1)
            for name, sink in ((CONNECTOR, "kafka"), ("sink", "idemproxy"))
        }
        yield Case("tiny", count, VALUE_BYTES[0], sides)


def _reads(of: World, kinds: Sequence[str], source: Path, count: int, value_bytes: int) -> Iterator[Case]:
    """Yield what reads one topic, which the connector has written through the proxy."""
    topic = f"bench-{count}-{value_bytes}"
    of.cluster.create_topic(topic, PARTITIONS)
    writer = of.batch(source).selectExpr(
        "*", f"CAST(CAST(CAST(key AS STRING) AS BIGINT) % {PARTITIONS} AS INT) AS partition"
    )
    writer.write.format("kafka").option("kafka.bootstrap.servers", of.side.address).option("topic", topic).save()
    assert of.stored(topic) == count
    if "read" in kinds:
        sides: dict[str, Run] = {
            CONNECTOR: partial(read, of, topic, "kafka", {}),
            "records": partial(read, of, topic, "idemproxy", {}),
            "batches": partial(read, of, topic, "idemproxy", {"rows": "batches"}),
        }
        yield Case("read", count, value_bytes, sides)
    if "audit" in kinds:
        stages: dict[str, list[float]] = {}
        yield Case("audit", count, value_bytes, {"audit": partial(audited, of, topic, count, stages)})
    of.cluster.delete_topic(topic)


# ------------------------------------------------------------------ measuring
def measured(of: World, case: Case, rounds: int) -> dict[str, list[Seconds]]:
    """Run all sides alternately; return what each turn of each took."""
    found: dict[str, list[Seconds]] = {name: [] for name in case.sides}
    before_first = 1 if case.rows == max(ROWS) else _TURNS_BEFORE
    for number in range(-before_first, rounds):
        names = list(case.sides)
        for name in names if number % 2 else reversed(names):
            before = of.cpu()
            seconds = case.sides[name]()
            after = of.cpu()
            if number >= 0:
                figures = {part: after[part] - before[part] for part in PARTS}
                stages = _stages(case.sides[name])
                found[name].append({**figures, "wall": seconds, **stages})
    return found


def _stages(side: Run) -> Seconds:
    """Return what the audit's stages took after the reading, all together."""
    if not isinstance(side, partial) or side.func is not audited:
        return {}
    behind = [took for title, took in side.args[-1].items() if title != _READING]
    return {"judging": sum(took[0] for took in behind), "judging_wall": sum(took[1] for took in behind)}


def row_of(case: Case, found: Mapping[str, Sequence[Seconds]]) -> dict[str, object]:
    """Return the line of a case: lowest, median and highest of everything."""
    sides = {name: {part: spread([turn[part] for turn in turns]) for part in turns[0]} for name, turns in found.items()}
    ratios = {
        name: spread(
            [
                ours["spark"] and theirs["spark"] / ours["spark"]
                for theirs, ours in zip(found[CONNECTOR], turns, strict=True)
            ]
        )
        for name, turns in found.items()
        if CONNECTOR in found and name != CONNECTOR
    }
    more: dict[str, object] = {}
    if case.kind == "tiny":
        pairs = zip(found[CONNECTOR], found["sink"], strict=True)
        more["seconds_more_per_batch"] = spread([ours["wall"] - theirs["wall"] for theirs, ours in pairs])
    if case.kind == "audit":
        more["records_per_second_of_two_cores"] = spread([2 * case.rows / turn["judging"] for turn in found["audit"]])
    return {"case": case.name, "kind": case.kind, "rows": case.rows, "value_bytes": case.value_bytes,
            "cpu_seconds": sides, "ratios": ratios, **more}  # fmt: skip


def table_of(row: Mapping[str, object]) -> Iterator[str]:
    """Yield the lines of a case for people."""
    sides, ratios = row["cpu_seconds"], row["ratios"]
    assert isinstance(sides, dict)
    assert isinstance(ratios, dict)
    for name, figures in sides.items():
        cells = [" / ".join(f"{value:.2f}" for value in figures[part][:2]) for part in (*PARTS, "wall")]
        ratio = " / ".join(f"{value:.2f}" for value in ratios[name][:2]) if name in ratios else ""
        yield f"| {row['case']} | {name} | " + " | ".join([*cells, ratio]) + " |"
    for name in ("seconds_more_per_batch", "records_per_second_of_two_cores"):
        if name in row:
            yield f"{name}: {row[name]}"


def main() -> None:
    """Run all cases, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these")
    parser.add_argument("--rows", type=int, action="append", help="only so many")
    parser.add_argument("--bytes", type=int, action="append", help="only values of this size")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as name, world(Path(name)) as of:
        print(f"| case | side | {' | '.join(PARTS)} | wall | ratio |\n{'| --- ' * (len(PARTS) + 4)}|")
        for case in cases(of, options.kind or KINDS, options.rows or ROWS, options.bytes or VALUE_BYTES):
            load = os.getloadavg()[0]
            row = row_of(case, measured(of, case, options.rounds))
            print(*table_of(row), sep="\n", flush=True)
            loads = [round(load, 1), round(os.getloadavg()[0], 1)]
            if not options.dry:
                save("spark", {**row, "rounds": options.rounds, "load": loads, "versions": of.versions()})


if __name__ == "__main__":
    main()
