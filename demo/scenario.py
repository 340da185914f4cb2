"""The demo from its first process to its last figure: a real old broker, the load without and with the proxy, a scene.

Owns every process and relay while it runs; what it found is a ``Result``. Prints nothing itself.
"""

from __future__ import annotations

import time
from pathlib import Path

from .. import __version__
from .drive import Drive, Shape
from .fault_relay import FaultKind, FaultPlan, FaultRelay
from .legacy_cluster import LegacyCluster
from .load import Load
from .ports import HOST
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
"""A slow answer is no fault that could duplicate anything: it would only make the count look better."""
# Every n-th produce request is hit. Chosen so that a full run has its faults when its records are sent.
_EVERY_NTH_DIRECT = 110
_EVERY_NTH_BEFORE_PROXY = 90
_EVERY_NTH_BEHIND_PROXY = 45


class Scenario:
    """One demo in one directory."""

    def __init__(self, directory: Path, shape: Shape, progress: Progress) -> None:
        self._directory = directory
        self._shape = shape
        self._progress = progress

    def run(self) -> Result:
        """Play it all. Raises what its parts raise when they cannot continue: see ``command.py``."""
        started = time.monotonic()
        self._progress.say(f"starting Kafka {BROKER_VERSION} and its ZooKeeper")
        cluster = LegacyCluster(self._directory / "cluster", version=BROKER_VERSION, auto_create_topics=False)
        with cluster:
            for topic, partitions in (("direct", PARTITIONS), ("proxied", PARTITIONS), ("scene", 1)):
                cluster.create_topic(topic, partitions)
            direct = self._direct(cluster)
            proxied, scene = self._proxied(cluster)
        seconds = time.monotonic() - started
        return Result(__version__, direct, proxied, tuple(scene), self._shape.faults, seconds)

    def _direct(self, cluster: LegacyCluster) -> Run:
        self._progress.say("the load without the proxy: librdkafka, acks=all, idempotence off")
        title = "without the proxy"
        started = time.monotonic()
        with self._relay(cluster.address(0), _EVERY_NTH_DIRECT, 0) as relay:
            load = Load(
                relay.address, "direct", name="direct", producers=PRODUCERS, partitions=PARTITIONS, idempotent=False
            )
            drive = Drive(title, self._shape, load, {"client": relay}, self._progress)
            drive.run()
        return self._read_back(cluster, "direct", drive, started, None)

    def _proxied(self, cluster: LegacyCluster) -> tuple[Run, list[Step]]:
        title = "through the proxy"
        started = time.monotonic()
        with (
            self._relay(cluster.address(0), _EVERY_NTH_BEHIND_PROXY, 1) as behind,
            ProxyProcess(self._directory / "proxy", (HOST, behind.port)) as proxy,
            self._relay(proxy.address, _EVERY_NTH_BEFORE_PROXY, 2) as before,
        ):
            self._progress.say("starting the proxy")
            proxy.start()
            proxy.wait_until_ready()
            self._progress.say("the same load through the proxy: idempotence on, faults on both sides")
            load = Load(
                before.address, "proxied", name="proxied", producers=PRODUCERS, partitions=PARTITIONS, idempotent=True
            )
            relays = {"client": before, "broker": behind}
            log = ProxyLog(proxy.log)
            drive = Drive(title, self._shape, load, relays, self._progress, proxy, log)
            drive.run()
            counts = log.read().copy()  # the second scene is no part of this run
            self._progress.say("the second scene: sequences that no sound client sends")
            scene = play(proxy.address, "scene")
            proxy.stop()
            log.read()
        facts = ProxyFacts(
            kills=proxy.kills,
            unknown_outcomes_found=counts["found"],
            unknown_outcomes_in_part=counts["prefix"],
            unknown_outcomes_not_found=counts["not_found"],
            unknown_outcomes_unrecoverable=counts["unrecoverable"],
            duplicates_answered=counts["duplicate"],
            producer_ids=len(before.producer_ids),
            errors=tuple(log.errors),
        )
        return self._read_back(cluster, "proxied", drive, started, facts), scene

    def _relay(self, upstream: tuple[str, int], every_nth: int, number: int) -> FaultRelay:
        plan = FaultPlan(seed=3 * self._shape.seed + number, kinds=KINDS, every_nth_produce=every_nth)
        return FaultRelay(upstream, rewrite_addresses=True, plan=plan)

    def _read_back(
        self, cluster: LegacyCluster, topic: str, drive: Drive, started: float, facts: ProxyFacts | None
    ) -> Run:
        self._progress.say("reading the topic back: by a consumer, and out of the segment files")
        load = drive.load
        consumed = consume_all(cluster.bootstrap, topic, PARTITIONS)
        stored = read_segments(cluster.log_directories[0], topic, PARTITIONS)
        problems = [f"a fatal error: {text}" for text in load.fatal]
        if load.unacknowledged:
            problems.append(f"{load.unacknowledged} records have no answer")
        problems += [f"records failed: {text}" for text in sorted(set(load.failed))]
        return Run(
            name=drive.title,
            sent=load.sent,
            acknowledged=len(load.acknowledged),
            failed=len(load.failed),
            verdict=judge(stored, load.acknowledged),
            readers_agree=consumed == stored,
            faults={place: {kind.value: relay.counts[kind] for kind in KINDS} for place, relay in drive.relays.items()},
            produce_requests={place: relay.produce_requests for place, relay in drive.relays.items()},
            seconds=time.monotonic() - started,
            problems=tuple(problems),
            proxy=facts,
        )
