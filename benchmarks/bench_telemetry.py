"""What measuring, tracing and a journal cost a produce request: the same code without, with metrics, with spans, with
a journal, round by round.

The engine is run by hand (``hot_world.py``), so the figures are the proxy's own CPU, of all its threads. Spans are made
and batched as in a real process, and dropped where they would be sent; "encoded" also encodes them as OTLP, all of them
and in the same thread, since the SDK's own drops what it cannot keep up with here. Nothing is sent. The journal is
written to files below the directory for temporary ones, and brought to the disk once a second by a thread. Adds a line
of JSON to ``benchmarks/results/telemetry.jsonl``."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench_hot_path import CASES, Side, serve
from common import ROOT, save

EXPORTED_TOGETHER = 512
"""Of the SDK's BatchSpanProcessor, by default."""


def _nothing(_world: Any) -> None:
    """As ``idemproxy run`` without an admin port and without OTEL_* variables."""


def _metrics(world: Any) -> None:
    """As with an admin port."""
    metrics = world.telemetry.metrics
    metrics.measure_passes(world.reactor.now)
    world.engine.context.observers.measure = metrics.appended
    world.reactor.pass_ended = metrics.pass_ended


def _spans(share: float, is_encoded: bool = False) -> Callable[[Any], None]:
    """As with a collector and head sampling."""

    def begin(world: Any) -> None:
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
        from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

        from idemproxy.proxy.telemetry.spans import Spans

        class Nowhere(SpanExporter):
            def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
                return SpanExportResult.SUCCESS

        class Encoding(SpanProcessor):
            def __init__(self) -> None:
                self._ended: list[ReadableSpan] = []

            def on_end(self, span: ReadableSpan) -> None:
                self._ended.append(span)
                if len(self._ended) == EXPORTED_TOGETHER:
                    encode_spans(self._ended).SerializeToString()
                    self._ended.clear()

        provider = TracerProvider(sampler=ParentBasedTraceIdRatio(share), shutdown_on_exit=False)
        provider.add_span_processor(Encoding() if is_encoded else BatchSpanProcessor(Nowhere()))
        spans, observers = Spans(provider), world.engine.context.observers
        world.telemetry.spans = spans
        world.telemetry.broker = world.engine.topology.broker
        observers.step_begins, observers.begin_trace = world.reactor.now, spans.begin_trace

    return begin


def _no_counts(world: Any) -> None:
    """As with a journal: every batch is reported by events."""
    world.engine.context.observers.counts = None
    world.engine.context.observers.wants_outcomes = True


def _journal(directory: Path, world: Any) -> Any:
    """Return what a process with a journal reports to."""
    import threading

    from idemproxy.proxy.settings.config import JournalSettings
    from idemproxy.proxy.telemetry.journal import Journal
    from idemproxy.proxy.telemetry.journal_file import JournalFile

    def wall_clock_ms() -> int:
        return time.time_ns() // 1_000_000

    settings = JournalSettings(directory / "journal.jsonl", keep_files=1)
    file = JournalFile(settings, wall_clock_ms, time.monotonic)
    journal = Journal(file.write, wall_clock_ms, world.telemetry, now=world.reactor.now)
    file.header = journal.header

    def sync() -> None:
        while True:
            time.sleep(settings.fsync_seconds)
            file.to_disk()()
            file.synced(None)

    threading.Thread(target=sync, daemon=True).start()
    return journal


JOURNAL = "journal"
KINDS = {
    "nothing": _nothing,
    "metrics": _metrics,
    "spans of 1 %": _spans(0.01),
    "spans of all": _spans(1.0),
    "spans of all, encoded": _spans(1.0, is_encoded=True),
    JOURNAL: _no_counts,
}


def main() -> None:
    """Run every kind alternately with the first one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--case", type=int, default=0, choices=range(len(CASES)))
    parser.add_argument("--only", action="append", choices=list(KINDS), help="beside nothing; repeatable")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("kind", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("directory", nargs="?", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(
            CASES[options.serve],
            KINDS[options.kind],
            partial(_journal, options.directory) if options.kind == JOURNAL else None,
        )
        return
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        kinds = [kind for kind in KINDS if not options.only or kind in (*options.only, next(iter(KINDS)))]
        sides = [Side(kind, ROOT, options.case, __file__, kind, directory) for kind in kinds]
        for side in sides:
            stack.callback(side.close)
        for number in range(options.rounds):
            for side in sides if number % 2 else reversed(sides):
                side.run_round()
    case, rows = CASES[options.case], []
    print(case.name)
    for side in sides:
        ratio = statistics.median([new / old for old, new in zip(sides[0].seconds, side.seconds, strict=True)])
        rows.append({**side.report(case), "ratio_of_the_pairs": round(ratio, 3)})
        print("   ", json.dumps(rows[-1]))
    save("telemetry", {"case": case.name, "rounds": options.rounds, "rows": rows, "load": os.getloadavg()[0]})


if __name__ == "__main__":
    main()
