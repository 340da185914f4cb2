"""The same programs at a real broker of Kafka >= 0.11 and at the proxy in front of one of Kafka 0.10: what differs.

``python -m runs.differences`` is ``make differences``: produce requests byte for byte
(testkit.real.clients.compared_programs), random ones, and clients whose connections break by the same seeds; then the
five real clients. What was answered and what is in the logs is compared; each difference needs a reason in
``REASONS``, else the exit status is 1. Writes lines to benchmarks/results/differences.jsonl.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from idemproxy.demo.fault_relay import FaultPlan, FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic, stored
from testkit.real.clients.client_runs import IDEMPOTENT_CLIENTS
from testkit.real.clients.compared_programs import (
    PROGRAMS,
    Program,
    Recorder,
    Seen,
    random_program,
    resent_until_answered,
)
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.faulty import BREAKING_KINDS

from .faulty_client import FaultyClient
from .results import append_result

RESULT = "differences"
BROKER, BEHIND = "3.9.1", "0.10.2.2"
PARTITIONS = 3
RANDOM_PROGRAMS, BROKEN_PROGRAMS = 20, 10
FAULT_EVERY_NTH = 5
CLIENT_RECORDS, CLIENT_FAULT_EVERY_NTH = 3_000, 6
_REFUSED_FOR = "refused on both sides; in Produce before version 8 the proxy says 87 only where no earlier code fits"
_WHOLE_LOG = "follows from the answers above"
_NEWER = (
    "a batch of the older epoch failed for good on this connection, so the first one of the new epoch may still come: "
    "19 once, 45 when the batch comes again"
)
REASONS: Mapping[str, str] = MappingProxyType(
    {
        "the sixth last batch again": "the log is searched for it, and it is there",
        "the first of ten batches again": "the log is searched for it, and it is there",
        "the numbers of the last batch with other records": (
            "a broker compares numbers alone and tells success for records that it does not store; the proxy knows the "
            "checksum, and the records in the log are others"
        ),
        "a fresh producer id that does not begin at 0": (
            "a broker takes any sequence of a producer it does not know; the proxy knows that it has just handed out "
            "the id, so what comes before is missing"
        ),
        "a producer id that nobody handed out, not at 0": (
            "a broker takes it; the proxy finds nothing of it in the log, so what comes before is missing"
        ),
        "the log of: beginnings": _WHOLE_LOG,
        "a batch that is cut off": _REFUSED_FOR,
        "a batch that tells a wrong count of records": _REFUSED_FOR,
        "no records": _REFUSED_FOR,
        "no records at all (null)": "the broker fails inside and says nothing; the proxy refuses it",
        "two batches of a producer for one partition": _REFUSED_FOR,
        "a control batch": _REFUSED_FOR,
        "a transactional batch outside of a transaction": "old brokers have no transactions; refused on both sides",
        "a record above max.message.bytes that compression makes smaller": (
            "the old format needs compression anyway, and so it fits"
        ),
        "the log of: sizes": _WHOLE_LOG,
        "a topic name that is not allowed": (
            "a broker has no such topic, and its client asks until its time is up; the proxy says that none can be"
        ),
        "the same partition twice in a request": "a broker takes the last one; the proxy refuses both",
        "the log of: places": _WHOLE_LOG,
        "a record with a header": "the old format has no place for headers (43 names header, topic and setting)",
        "the log of: headers": _WHOLE_LOG,
        "a produce with a transactional id": "old brokers have no transactions",
        "the log of: transactional produce": _WHOLE_LOG,
        "a higher epoch that does not begin at 0": _NEWER,
        "a batch behind one that is missing": _NEWER,
    }
)
"""By step. One for each that is answered differently, and none for others."""


@dataclass(frozen=True, slots=True)
class Side:
    """Who answers, and where it stores."""

    front: tuple[str, int]
    cluster: LegacyCluster


@dataclass(frozen=True, slots=True)
class Compared:
    """One step of a program at both sides. The last step of each is its log, as a count of records and their order."""

    step: str
    broker: str
    proxy: str


@contextmanager
def both_sides(directory: Path) -> Iterator[tuple[Side, Side]]:
    """The broker, and the proxy in front of the old one; both with topics that are made by hand alone."""
    with ExitStack() as started:
        broker = started.enter_context(LegacyCluster(directory / "broker", version=BROKER, auto_create_topics=False))
        behind = started.enter_context(LegacyCluster(directory / "behind", version=BEHIND, auto_create_topics=False))
        proxy = started.enter_context(ProxyProcess(directory / "proxy", behind.address(0)))
        yield Side(broker.address(0), broker), Side(proxy.address, behind)


def compare(sides: tuple[Side, Side], name: str, program: Program, plan: FaultPlan | None = None) -> list[Compared]:
    """Run a program at both, each with a new topic. ``plan``: of the faults between program and server."""
    answers, logs = zip(*(_run(side, program, plan) for side in sides), strict=True)
    found = [
        Compared(
            broker.step if broker.step == proxy.step else f"{broker.step} / {proxy.step}", broker.answer, proxy.answer
        )
        for broker, proxy in itertools.zip_longest(*answers, fillvalue=Seen("nothing", "nothing"))
    ]
    broker_log, proxy_log = ("the same", "the same") if logs[0] == logs[1] else map(_count, logs)
    if logs[0] != logs[1] and broker_log == proxy_log:
        proxy_log += ", not the same ones or in another order"
    return [*found, Compared(f"the log of: {name}", broker_log, proxy_log)]


def _count(log: Mapping[int, Sequence[object]]) -> str:
    count = sum(map(len, log.values()))
    return f"{count} record{'s' * (count != 1)}"


def _run(side: Side, program: Program, plan: FaultPlan | None) -> tuple[list[Seen], dict[int, list[tuple[int, bytes]]]]:
    topic = fresh_topic(side.cluster, PARTITIONS)
    with ExitStack() as stack:
        front = side.front
        if plan is not None:
            relay = stack.enter_context(FaultRelay(front, plan=plan))
            front = ("127.0.0.1", relay.port)
        recorder = Recorder(front, topic)
        stack.callback(recorder.close)
        program(recorder)
    log = stored(side.cluster, topic, PARTITIONS)
    return recorder.seen, {
        number: [(one.offset, one.value or b"") for one in records] for number, records in log.items()
    }


def all_programs(random_count: int, broken_count: int) -> Iterator[tuple[str, Program, FaultPlan | None]]:
    """Every program with its name and its faults."""
    for name, program in PROGRAMS.items():
        yield name, program, None
    for seed in range(1, random_count + 1):
        yield "random batches", random_program(seed), None
    for seed in range(1, broken_count + 1):
        plan = FaultPlan(seed=seed, kinds=BREAKING_KINDS, every_nth_produce=FAULT_EVERY_NTH)
        yield "lost answers and connections", resent_until_answered(seed, in_flight=1 + 4 * (seed % 2)), plan


def counted(rows: Sequence[Compared]) -> list[dict[str, object]]:
    """Each pair of answers to a step once, with how often it was seen, in the order of the programs."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in rows:
        different = one.broker != one.proxy
        # Offsets are compared, and not shown where they agree: it is the same success.
        shown = (one.broker, one.proxy) if different else ("", "")
        counts[one.step, *shown] += 1
    return [
        {"step": step, "broker": broker, "proxy": proxy, "count": count}
        for (step, broker, proxy), count in counts.items()
    ]


def _clients(names: Sequence[str], seed: int) -> bool:
    """Run the clients at both; is all well?"""
    is_well = True
    for name in names:
        broker, proxy = (
            FaultyClient(
                name,
                CLIENT_RECORDS,
                CLIENT_FAULT_EVERY_NTH,
                seed,
                broker=version,
                ids_are_ours=not direct,
                without_proxy=direct,
            ).run()
            for version, direct in ((BROKER, True), (BEHIND, False))
        )
        logs = [
            {
                partition: [value for at, _, value in sorted(ran.result.stored) if at == partition]
                for partition in range(PARTITIONS)
            }
            for ran in (broker, proxy)
        ]
        figures: dict[str, object] = {
            "client": name,
            "records": CLIENT_RECORDS,
            "seed": seed,
            "same_log": logs[0] == logs[1],
            "broker_errors": broker.result.outcome["errors"],
            "proxy_errors": proxy.result.outcome["errors"],
            "broker_complaints": broker.complaints,
            "proxy_complaints": proxy.complaints,
            "broker_faults": broker.figures["faults_client_side"],
            "proxy_faults": proxy.figures["faults_client_side"],
        }
        append_result(RESULT, figures)
        print(figures, flush=True)
        is_well = is_well and logs[0] == logs[1] and not proxy.complaints
    return is_well


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it, or the programs alone; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="*", default=IDEMPOTENT_CLIENTS, choices=[*IDEMPOTENT_CLIENTS, []])
    parser.add_argument("--random", type=int, default=RANDOM_PROGRAMS, metavar="COUNT")
    parser.add_argument("--broken", type=int, default=BROKEN_PROGRAMS, metavar="COUNT")
    options = parser.parse_args(arguments)
    rows: list[Compared] = []
    with (
        tempfile.TemporaryDirectory(prefix="idemproxy-differences-") as directory,
        both_sides(Path(directory)) as sides,
    ):
        for name, program, plan in all_programs(options.random, options.broken):
            rows += compare(sides, name, program, plan)
    result = counted(rows)
    append_result(RESULT, {"programs": len(PROGRAMS) + options.random + options.broken, "rows": result})
    unexplained = [row for row in result if row["broker"] != row["proxy"] and row["step"] not in REASONS]
    for row in unexplained:
        print(f"no reason is known: {row}", file=sys.stderr)
    is_well = _clients(options.clients, seed=1)
    return 1 if unexplained or not is_well else 0


if __name__ == "__main__":
    sys.exit(main())
