"""One chaos run from its first process to its last figure. Owns the order of things; judges nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from idemproxy.codecs.batch_marker import Identity

from .clock import now_ms
from .faults import Fault, Saboteur
from .journals import Journals
from .oracle import Findings, Oracle, Place, whole_lines
from .payload import decode
from .scene import Layout, Scene
from .stored import PartitionLog, Wrapper, consume, differing_replicas, read_log
from .truncations import Truncations

WARM_UP_SECONDS = 5.0
FINISH_SECONDS_MAX = 240.0
IN_SYNC_SECONDS_MAX = 60.0
_REPORT_SECONDS = 10.0


@dataclass(slots=True)
class Story:
    """All that remains of a run, for attribution and report."""

    seed: int
    version: str
    settings: str
    seconds: float
    began_ms: int
    faults: list[Fault]
    findings: Findings
    logs: dict[Place, PartitionLog]
    told_files: list[tuple[str, str, str, Path]]
    """(family, name, topic, file) of every producer."""
    outcomes: dict[str, dict[str, object]]
    journals: dict[str, list[Path]]
    proxy_logs: dict[str, Path]
    workers: int
    producer_ids: dict[str, set[int]]
    """Those that each producer wrote under, by its name."""
    truncations: Truncations
    problems: list[str] = field(default_factory=list)
    """What must not be, whatever the records say: sentences."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Pace:
    """Pauses between faults, in seconds, on average; ``kinds``: only these faults, None: all."""

    seconds: float
    process_pause: float
    connection_pause: float
    kinds: tuple[str, ...] | None


def run(directory: Path, layout: Layout, pace: Pace, say: Callable[[str], None]) -> Story:
    """Play it. Raises what a part raises when it cannot continue."""
    with Scene(directory, layout) as scene:
        say(f"{len(scene.proxies)} proxies, 3 brokers, {', '.join(layout.families)}; seed {layout.seed}")
        scene.start_producers()
        time.sleep(WARM_UP_SECONDS)
        saboteur = Saboteur(scene, layout.seed, pace.kinds)
        began_ms, began = now_ms(), time.monotonic()
        failures = _break_things(scene, saboteur, pace, say)
        say("faults are over: waiting until everything is answered")
        scene.finish_producers(FINISH_SECONDS_MAX)
        seconds = time.monotonic() - began
        problems = failures + scene.ended_by_themselves
        if not failures:
            _wait_in_sync(scene)
        before = len(scene.ended_by_themselves)
        scene.stop_proxies()
        problems += scene.ended_by_themselves[before:]
        notes = [f"{scene.open_intents()} intents were left open in Redis"] if scene.proxies else []
        say("reading back: segment files of all replicas, and a plain consumer")
        oracle = Oracle()
        sent = Journals({proxy.name: proxy.journals for proxy in scene.proxies}).by_marker()
        owners: dict[str, set[int]] = {}
        logs: dict[Place, PartitionLog] = {}
        for topic in layout.topics:
            problems += _read_topic(scene, topic, oracle, logs, sent, owners, notes)
        told = [(one.task.family, one.task.name, one.task.topic, one.told_file) for one in scene.producers]
        for _, name, topic, path in told:
            with path.open() as lines:
                oracle.take_told(name, topic, whole_lines(lines))
        return Story(
            seed=layout.seed,
            version=layout.version,
            settings=layout.settings,
            seconds=seconds,
            began_ms=began_ms,
            faults=saboteur.faults,
            findings=oracle.findings,
            logs=logs,
            told_files=told,
            outcomes={one.task.name: one.outcome() for one in scene.producers},
            journals={proxy.name: proxy.journals for proxy in scene.proxies},
            proxy_logs={proxy.name: proxy.log_file for proxy in scene.proxies},
            workers=layout.workers,
            producer_ids=owners,
            truncations=Truncations({one: scene.cluster.output(one) for one in scene.cluster.broker_ids}),
            problems=problems,
            notes=notes,
        )


def _break_things(scene: Scene, saboteur: Saboteur, pace: Pace, say: Callable[[str], None]) -> list[str]:
    """Let the faults happen for their time; return what went wrong with them."""
    failures: list[str] = []

    def guarded(work: Callable[[float], None], pause: float) -> None:
        try:
            work(pause)
        except Exception as error:  # whatever it is: the run cannot prove anything any more
            failures.append(f"the faults ended early: {error!r}")

    threads = [
        threading.Thread(target=guarded, args=pair, daemon=True)
        for pair in (
            (saboteur.hit_brokers, pace.process_pause),
            (saboteur.hit_proxies, pace.process_pause),
            (saboteur.hit_connections, pace.connection_pause),
        )
    ]
    for thread in threads:
        thread.start()
    end = time.monotonic() + pace.seconds
    reported = time.monotonic()
    counter = _Counter(scene)
    while time.monotonic() < end and not failures:
        time.sleep(0.5)
        scene.look_after_producers()
        if time.monotonic() - reported >= _REPORT_SECONDS:
            reported = time.monotonic()
            faults = sum(fault.count > 0 for fault in list(saboteur.faults))
            say(f"{end - reported:5.0f} s left, {faults} faults, {counter.lines()} records answered")
    saboteur.stop()
    for thread in threads:
        thread.join()
    return failures


class _Counter:
    """Counts the answered records while the producers write their files."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._positions: dict[Path, int] = {}
        self._lines = 0

    def lines(self) -> int:
        for producer in self._scene.producers:
            with producer.told_file.open("rb") as told:
                told.seek(self._positions.get(producer.told_file, 0))
                data = told.read()
                self._positions[producer.told_file] = told.tell()
                self._lines += data.count(b"\n")
        return self._lines


def _wait_in_sync(scene: Scene) -> None:
    end = time.monotonic() + IN_SYNC_SECONDS_MAX
    for topic in scene.layout.topics:
        for number in range(scene.layout.partitions):
            while len(scene.cluster.in_sync_replicas(topic, number)) < len(scene.cluster.broker_ids):
                assert time.monotonic() < end, f"{topic} {number}: the replicas do not come in sync again"
                time.sleep(0.2)


def _read_topic(
    scene: Scene,
    topic: str,
    oracle: Oracle,
    logs: dict[Place, PartitionLog],
    sent: Mapping[int, Identity],
    owners: dict[str, set[int]],
    notes: list[str],
) -> list[str]:
    """Give the leaders' segment files to the oracle; return where a consumer reads something else."""
    cluster, partitions, problems = scene.cluster, scene.layout.partitions, []
    consumed = consume(cluster.bootstrap, topic, partitions)
    for number in range(partitions):
        log = logs[topic, number] = PartitionLog()
        leader = cluster.leader(topic, number)
        records = read_log(cluster.log_directories[leader], topic, number, log, sent)
        oracle.take_log((topic, number), _noting_owners(records, log, owners))
        if consumed[number] != (log.offsets, log.digests):
            problems.append(f"{topic} {number}: a consumer reads something else than what the leader has stored")
        notes += differing_replicas(cluster.log_directories, topic, number)
        unmarked = sum(not one.identities for one in log.wrappers)
        if scene.proxies and unmarked:
            problems.append(f"{topic} {number}: {unmarked} messages are stored without a batch marker")
    return problems


def _noting_owners(
    records: Iterable[tuple[int, bytes]], log: PartitionLog, owners: dict[str, set[int]]
) -> Iterator[tuple[int, bytes]]:
    """Pass the records on, and note whose they are: which name writes under which producer ids."""
    newest: Wrapper | None = None
    beginnings: dict[int, int] = {}
    for offset, value in records:
        if log.wrappers[-1] is not newest:
            newest = log.wrappers[-1]
            beginnings, at = {}, newest.first_offset
            for one in newest.identities:
                beginnings[at] = one.producer_id
                at += one.record_count
        producer_id = beginnings.get(offset)
        if producer_id is not None and (payload := decode(value)) is not None:
            owners.setdefault(payload.name, set()).add(producer_id)
        yield offset, value
