"""The demo from its first process to its last figure: a real old broker, the load without and with the proxy, a scene.

Owns every process and relay while it goes on; what it found is a ``Result``. Prints nothing itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from .. import __version__
from .fault_relay import FaultKind, FaultPlan, FaultRelay
from .legacy_cluster import LegacyCluster
from .load import Load
from .progress import Progress
from .proxy_log import ProxyLog
from .proxy_process import ProxyProcess
from .reader import consume_all, read_segments
from .result import ProxyFacts, Result, Run
from .scene import Step, play
from .verdict import judge

BROKER_VERSION = "0.10.2.2"
PARTITIONS = 4
PRODUCERS = 3
KINDS = (FaultKind.LOST_ANSWER, FaultKind.CUT, FaultKind.HALF_REQUEST, FaultKind.LATE_DELIVERY)
"""A slow answer is no fault that could duplicate anything, so it would only make the count look better."""

FULL_RECORDS = 100_000
FULL_FAULTS = 60
"""Of a run with FULL_RECORDS; smaller runs get fewer in proportion, but not less than FAULTS_MIN."""
FAULTS_MIN = 10
_RECORDS_PER_SECOND_MAX = 5_000
_SEND_SECONDS_MIN = 6.0
_EXTRA_SECONDS_MAX = 40.0
"""A run in which something has not happened yet goes on for so long beyond its time."""
_TICK_SECONDS = 0.02
_LOG_SECONDS = 0.25
_FINISH_SECONDS_MAX = 60.0
_KILLS_AT = (0.35, 0.7)


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a demo is. ``faults``: of each run."""

    records: int
    faults: int
    records_per_second: float
    seed: int


def shape_of(records: int, seed: int) -> Shape:
    """Return the shape of a demo with so many records per run."""
    faults = max(FAULTS_MIN, min(FULL_FAULTS, FULL_FAULTS * records // FULL_RECORDS))
    return Shape(records, faults, min(_RECORDS_PER_SECOND_MAX, records / _SEND_SECONDS_MIN), seed)


class Scenario:
    """One demo in one directory."""

    def __init__(self, directory: Path, shape: Shape, progress: Progress) -> None:
        self._directory = directory
        self._shape = shape
        self._progress = progress
        self._started = time.monotonic()

    def run(self) -> Result:
        """Play it all. Raises what its parts raise when they cannot go on: see ``command.py``."""
        self._progress.say(f"starting Kafka {BROKER_VERSION} and its ZooKeeper")
        cluster = LegacyCluster(self._directory / "cluster", version=BROKER_VERSION, auto_create_topics=False)
        with cluster:
            for topic, partitions in (("direct", PARTITIONS), ("proxied", PARTITIONS), ("scene", 1)):
                cluster.create_topic(topic, partitions)
            direct = self._direct(cluster)
            proxied, scene = self._proxied(cluster)
        seconds = time.monotonic() - self._started
        return Result(__version__, direct, proxied, tuple(scene), self._shape.faults, seconds)

    def _direct(self, cluster: LegacyCluster) -> Run:
        self._progress.say("the load without the proxy: librdkafka, acks=all, idempotence off")
        started = time.monotonic()
        plan = self._plan(0, self._shape.faults)
        with FaultRelay(cluster.address(0), rewrite_addresses=True, plan=plan) as relay:
            load = Load(
                relay.address, "direct", name="direct", producers=PRODUCERS, partitions=PARTITIONS, idempotent=False
            )
            relays = {"client": relay}
            self._drive("without the proxy", load, relays, lambda: relay.faults >= self._shape.faults)
        return self._read_back("without the proxy", cluster, load, relays, started)

    def _proxied(self, cluster: LegacyCluster) -> tuple[Run, list[Step]]:
        started = time.monotonic()
        with ExitStack() as stack:
            share = self._shape.faults // 2 + 1
            behind = stack.enter_context(
                FaultRelay(cluster.address(0), rewrite_addresses=True, plan=self._plan(1, share))
            )
            proxy = stack.enter_context(ProxyProcess(self._directory / "proxy", ("127.0.0.1", behind.port)))
            self._progress.say("starting the proxy in front of it")
            proxy.start()
            proxy.wait_until_ready()
            front = stack.enter_context(FaultRelay(proxy.address, rewrite_addresses=True, plan=self._plan(2, share)))
            self._progress.say("the same load through the proxy: idempotence on, faults on both sides")
            load = Load(
                front.address, "proxied", name="proxied", producers=PRODUCERS, partitions=PARTITIONS, idempotent=True
            )
            relays = {"client": front, "broker": behind}
            log = ProxyLog(proxy.log)
            self._drive("through the proxy", load, relays, _Proof(proxy, log, relays, self._shape), proxy, log)
            self._progress.say("the second scene: sequences that no sound client sends")
            scene = play(proxy.address, "scene")
            proxy.stop()
            counts = log.read()
            facts = ProxyFacts(
                kills=proxy.kills,
                doubts_found=counts["found"],
                doubts_in_part=counts["prefix"],
                doubts_not_found=counts["not_found"],
                doubts_undecided=counts["unknown"],
                duplicates_answered=counts["duplicate"],
                producer_ids=len(front.producer_ids),
                errors=tuple(log.errors),
            )
        return self._read_back("through the proxy", cluster, load, relays, started, facts), scene

    def _plan(self, number: int, faults_max: int) -> FaultPlan:
        # Chosen so that the faults are spread over the sending: each side sees some 300 produce requests a second.
        every = 90 if number < 2 else 180
        return FaultPlan(
            seed=3 * self._shape.seed + number, kinds=KINDS, every_nth_produce=every, faults_max=faults_max
        )

    def _drive(
        self,
        title: str,
        load: Load,
        relays: dict[str, FaultRelay],
        is_enough: Callable[[], bool],
        proxy: ProxyProcess | None = None,
        log: ProxyLog | None = None,
    ) -> None:
        """Send at the shape's pace until all is sent and enough has happened; then wait for the rest, without faults."""
        shape = self._shape
        begun = time.monotonic()
        deadline = begun + shape.records / shape.records_per_second + _EXTRA_SECONDS_MAX
        due = 0.0
        last_read = 0.0
        kills_due = [int(part * shape.records) for part in _KILLS_AT] if proxy is not None else []
        before = begun
        while load.sent < shape.records or (not is_enough() and time.monotonic() < deadline):
            load.poll(_TICK_SECONDS)
            now = time.monotonic()
            due = min(due + (now - before) * shape.records_per_second, shape.records_per_second)
            before = now
            sent = load.sent
            load.send(int(due))
            due -= load.sent - sent
            if kills_due and load.sent >= kills_due[0]:
                assert proxy is not None
                kills_due.pop(0)
                self._progress.say("SIGKILL: the proxy dies and is started again")
                proxy.kill_and_start()
            if now - last_read >= _LOG_SECONDS:
                last_read = now
                self._show(title, load, relays, log)
                if proxy is not None:
                    proxy.check()
        for relay in relays.values():
            relay.set_faults(False)
        deadline = time.monotonic() + _FINISH_SECONDS_MAX
        while load.unacknowledged and time.monotonic() < deadline:
            load.poll(_LOG_SECONDS)
            self._show(title, load, relays, log)
            if proxy is not None:
                proxy.check()

    def _show(self, title: str, load: Load, relays: dict[str, FaultRelay], log: ProxyLog | None) -> None:
        facts = {"faults": sum(relay.faults for relay in relays.values())}
        if log is not None:
            counts = log.read()
            facts |= {
                "doubts found": counts["found"],
                "not found": counts["not_found"],
                "duplicates answered": counts["duplicate"],
            }
        self._progress.show(title, len(load.acknowledged), max(self._shape.records, load.sent), facts)

    def _read_back(
        self,
        name: str,
        cluster: LegacyCluster,
        load: Load,
        relays: dict[str, FaultRelay],
        started: float,
        facts: ProxyFacts | None = None,
    ) -> Run:
        self._progress.say("reading the topic back: by a consumer, and out of the segment files")
        topic = "direct" if facts is None else "proxied"
        consumed = consume_all(cluster.bootstrap, topic, PARTITIONS)
        stored = read_segments(cluster.log_directories[0], topic, PARTITIONS)
        problems = [f"fatal: {text}" for text in load.fatal]
        if load.unacknowledged:
            problems.append(f"{load.unacknowledged} records have no answer")
        problems += [f"failed: {text}" for text in sorted(set(load.failed))]
        return Run(
            name=name,
            sent=load.sent,
            acknowledged=len(load.acknowledged),
            failed=len(load.failed),
            verdict=judge(stored, load.acknowledged),
            readers_agree=consumed == stored,
            faults={place: {kind.value: relay.counts[kind] for kind in KINDS} for place, relay in relays.items()},
            seconds=time.monotonic() - started,
            problems=tuple(problems),
            proxy=facts,
        )


class _Proof:
    """Has everything happened that a run through the proxy has to show?"""

    def __init__(self, proxy: ProxyProcess, log: ProxyLog, relays: dict[str, FaultRelay], shape: Shape) -> None:
        self._proxy = proxy
        self._log = log
        self._relays = relays
        self._shape = shape

    def __call__(self) -> bool:
        faults = sum(relay.faults for relay in self._relays.values())
        seen = all(self._log.counts[kind] for kind in ("found", "not_found", "duplicate"))
        return seen and faults >= self._shape.faults and self._proxy.kills == len(_KILLS_AT)
