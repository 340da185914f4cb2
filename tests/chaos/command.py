"""The command line of the chaos run: options, the run, the report, the exit status."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random

from runs.results import append_result

from .attribution import Judge
from .faults import KINDS
from .journals import Journals
from .producers import CONFLUENT, FAMILIES, JAVA_3, JAVA_4, KAFKA_PYTHON
from .report import has_anomalies, is_clean, result_of, table_of
from .run import Pace, run
from .scene import LEGACY, Layout

_STAMPED: dict[str, str | int] = {"message.timestamp.type": "LogAppendTime"}
_TOPICS = {"chaos": {}, "stamped": _STAMPED}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run once; return 0 when everything is explained."""
    options = _options(arguments)
    seed = options.seed if options.seed is not None else int.from_bytes(Random().randbytes(3))
    directory = Path(tempfile.mkdtemp(prefix="chaos-", dir=options.directory))
    families = options.clients.split(",") if options.clients else _families(seed, options.control)
    layout = Layout(
        topics=_TOPICS,
        partitions=options.partitions,
        families=families,
        records_per_second=options.rate,
        outstanding_max=options.outstanding,
        seed=seed,
        with_proxies=not options.control,
        version=options.broker,
        settings=options.settings,
        workers=options.workers,
        committed=options.committed,
    )
    kinds = tuple(options.faults.split(",")) if options.faults else None
    pace = Pace(options.minutes * 60, options.process_pause, options.connection_pause, kinds)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f}] {text}", file=sys.stderr, flush=True)

    say(f"everything is written to {directory}")
    try:
        story = run(directory, layout, pace, say)
    except KeyboardInterrupt:
        say("interrupted: everything was ended, nothing is judged")
        shutil.rmtree(directory)
        return 130
    journals = Journals(story.journals)
    judge = Judge(story.logs, journals, story.faults, story.truncations, with_proxies=layout.with_proxies)
    attribution = judge.attribute(story.findings, story.producer_ids)
    result = result_of(story, attribution, journals, minutes=options.minutes, with_proxies=layout.with_proxies)
    (directory / "faults.json").write_text(json.dumps([asdict(fault) for fault in story.faults], indent=0))
    (directory / "result.json").write_text(json.dumps(result, indent=1))
    if options.record:
        append_result("chaos", result)
    print(json.dumps(result, indent=1) if options.json else table_of(result))
    if not is_clean(result) or has_anomalies(result) or options.keep:
        say(f"kept: {directory}")
        return 0 if is_clean(result) else 1
    shutil.rmtree(directory)
    return 0


def _families(seed: int, control: bool) -> list[str]:
    """Three families; the Java client is the newest 3.x or the newest one (which speaks to no 0.10 broker itself)."""
    return [CONFLUENT, KAFKA_PYTHON, JAVA_3 if control or seed % 2 else JAVA_4]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="how long things are broken (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of the faults (default: drawn, and told)")
    parser.add_argument("--control", action="store_true", help="without proxies and without idempotence")
    parser.add_argument("--broker", default=LEGACY, help="the release of Kafka (default: %(default)s)")
    parser.add_argument("--settings", default="", help="of the proxies, in YAML: 'upstream: {idempotence: proxy}'")
    parser.add_argument(
        "--committed", action="store_true", help="proxies are the last commit, not the files as they are"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        help="processes of each proxy; of several, one alone is killed or stopped, too",
    )
    parser.add_argument("--json", action="store_true", help="print the result for machines")
    parser.add_argument("--keep", action="store_true", help="keep logs and journals of a run without an anomaly, too")
    parser.add_argument("--record", action="store_true", help="add a line to benchmarks/results/chaos.jsonl")
    parser.add_argument("--clients", help=f"of {', '.join(FAMILIES)} (default: three of them)")
    parser.add_argument("--faults", help=f"only these, of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--rate", type=int, default=1500, help="records per second and client (default: %(default)s)")
    parser.add_argument("--outstanding", type=int, default=6000, help="records under way per partition")
    parser.add_argument("--partitions", type=int, default=4, help="of each of the two topics (default: %(default)s)")
    parser.add_argument("--process-pause", type=float, default=6.0, help="mean seconds between two faults of processes")
    parser.add_argument("--connection-pause", type=float, default=5.0, help="the same for connections")
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="where its own directory is made")
    return parser.parse_args(arguments)
