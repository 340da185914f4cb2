"""Everything that runs in a chaos run: three brokers, two proxies, a pair of Redis servers, producers, and the relay
that every connection between them goes over. A context manager; what it starts ends with it. Breaks nothing itself."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.ports import HOST
from idemproxy.state.entry import unpack
from testkit.real.brokers.kraft_cluster import cluster_class

from . import proxies
from .producers import CODECS, RunningProducer, Task
from .product import copy
from .proxies import Proxy
from .redis_pair import RedisPair
from .relay import Address, Relay

BROKERS = 3
LEGACY = "0.10.2.2"
CLIENT_LINK = proxies.LINK
BROKER_LINK, REDIS_LINK, REPLICATION_LINK = "to-broker", "proxy-redis", "redis-replica"
_ENTRY_KEYS = "idem:*:{*"
SESSION_TIMEOUT_MS = 4_000
"""Of the brokers at ZooKeeper: a broker that is stopped for longer loses its leaders."""
_BROKER_SETTINGS: dict[str, str | int] = {
    "min.insync.replicas": 2,
    "unclean.leader.election.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "true",
    "replica.lag.time.max.ms": 6_000,
}


@dataclass(frozen=True, slots=True)
class Layout:
    """``topics``: name -> settings. ``with_proxies`` False: producers speak to the brokers, as a control."""

    topics: dict[str, dict[str, str | int]]
    partitions: int
    families: Sequence[str]
    records_per_second: int
    outstanding_max: int
    seed: int
    with_proxies: bool
    version: str = LEGACY
    """Of Kafka."""
    settings: str = ""
    """Of the proxies, in YAML."""
    workers: int = 1
    """Processes of each proxy."""
    committed: bool = False
    """Are the proxies what was committed last, instead of the files as they are?"""


class Scene:
    """``producers``: all that ever ran, in the order of their start."""

    def __init__(self, directory: Path, layout: Layout) -> None:
        self.directory = directory
        self.layout = layout
        self.relay = Relay()
        self.proxies: list[Proxy] = []
        self.redis: RedisPair | None = None
        self.producers: list[RunningProducer] = []
        self.ended_by_themselves: list[str] = []
        """What ended or failed although the run did not stop it: error messages."""
        self.brokers_away: set[int] = set()
        """Killed or stopped at this moment; kept by the code that does that."""
        self._running: dict[str, RunningProducer] = {}
        self._children = ChildProcesses()
        self._stop_file = directory / "stop"
        self._stack = ExitStack()

    def __enter__(self) -> Scene:
        with ExitStack() as stack:
            stack.enter_context(self._children)
            stack.enter_context(self.relay)
            broker_gates = [
                self.relay.open(BROKER_LINK, f"broker {number}", (HOST, 0), lambda number=number: self._broker(number))  # type: ignore[misc]
                for number in range(BROKERS)
            ]
            bootstrap = self.relay.open("bootstrap", "any broker", (HOST, 0), self._any_broker)
            self.cluster = cluster_class(self.layout.version)(
                self.directory / "cluster",
                version=self.layout.version,
                brokers=BROKERS,
                advertised={number: gate.address for number, gate in enumerate(broker_gates)},
                auto_create_topics=False,
                broker_settings=_BROKER_SETTINGS,
                session_timeout_ms=SESSION_TIMEOUT_MS,
            )
            stack.enter_context(self.cluster)
            for topic, config in self.layout.topics.items():
                self.cluster.create_topic(topic, self.layout.partitions, BROKERS, config)
            self._bootstrap = ",".join(f"{HOST}:{gate.address[1]}" for gate in broker_gates)
            if self.layout.with_proxies:
                self._start_proxies(stack, bootstrap.address)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # ------------------------------------------------------------------ producers
    def start_producers(self) -> None:
        """One of each family, the topics in turn."""
        topics = list(self.layout.topics)
        for index, family in enumerate(self.layout.families):
            self._start_producer(family, f"{family}.1", topics[index % len(topics)])

    def look_after_producers(self) -> None:
        """One that ended before its time is noted, and another one takes its place."""
        for name, producer in list(self._running.items()):
            if producer.process.exit_code is not None:
                del self._running[name]
                stem, _, life = name.rpartition(".")
                self.ended_by_themselves.append(f"producer {name} ended: {producer.outcome().get('errors')}")
                self._start_producer(producer.task.family, f"{stem}.{int(life) + 1}", producer.task.topic)

    def finish_producers(self, seconds_max: float) -> None:
        """Let them stop, and wait until every record of theirs is answered or has failed."""
        self._stop_file.touch()
        end = time.monotonic() + seconds_max
        for name, producer in self._running.items():
            while producer.process.exit_code is None:
                if time.monotonic() > end:
                    self.ended_by_themselves.append(f"producer {name} did not come to its end")
                    producer.process.kill()
                    break
                time.sleep(0.1)

    def _start_producer(self, family: str, name: str, topic: str) -> None:
        bootstrap = self._bootstrap
        if self.proxies:
            own = [proxy.bootstrap for proxy in self.proxies]
            Random(f"{self.layout.seed} {name}").shuffle(own)
            bootstrap = ",".join(own)
        task = Task(
            family=family,
            name=name,
            topic=topic,
            partitions=self.layout.partitions,
            bootstrap=bootstrap,
            records_per_second=self.layout.records_per_second,
            outstanding_max=self.layout.outstanding_max,
            seed=self.layout.seed,
            idempotent=self.layout.with_proxies,
            compression=CODECS[family],
        )
        producer = RunningProducer(self._children, self.directory, task, self._stop_file)
        self._running[name] = producer
        self.producers.append(producer)

    # ------------------------------------------------------------------ proxies
    def look_after_proxies(self) -> None:
        """One that ended by itself is noted and started again."""
        for proxy in self.proxies:
            if proxy.process.exit_code is not None:
                proxy.is_up = False
                self.ended_by_themselves.append(f"{proxy.name} ended by itself with code {proxy.process.forget()}")
                proxy.start()

    def stop_proxies(self) -> None:
        """SIGTERM to both; how each ended is noted unless it was in order."""
        for proxy in self.proxies:
            if (code := proxy.stop()) != 0:
                self.ended_by_themselves.append(f"{proxy.name} ended with code {code} on SIGTERM")

    def open_intents(self) -> int:
        """How many batches Redis has that somebody may still be working on."""
        assert self.redis is not None
        values = (self.redis.master.call("GET", key) for key in self.redis.master.call("KEYS", _ENTRY_KEYS))
        return sum(unpack(value).intent is not None for value in values if isinstance(value, bytes))

    def _start_proxies(self, stack: ExitStack, upstream: Address) -> None:
        self.redis = RedisPair(self._children, self.directory, self._replication_address)
        redis = self.relay.open(REDIS_LINK, "master", (HOST, 0), self.redis.address)
        self._replication_gate = self.relay.open(REPLICATION_LINK, "master", (HOST, 0), self.redis.address)
        self.redis.start()
        product = copy(self.directory, committed=self.layout.committed)
        for name in ("proxy-a", "proxy-b"):
            proxy = Proxy(
                name,
                self.directory / name,
                upstream,
                redis.address,
                BROKERS,
                self.relay,
                product,
                self.layout.workers,
                self.layout.settings,
            )
            stack.callback(proxy.process.__exit__)
            self.proxies.append(proxy)
        first, second = self.proxies
        first.other, second.other = second, first
        for proxy in self.proxies:
            proxy.start()

    # ------------------------------------------------------------------ where gates lead to
    def _broker(self, number: int) -> Address:
        return self.cluster.address(number)

    def _any_broker(self) -> Address | None:
        away = self.brokers_away
        return next((self.cluster.address(one) for one in self.cluster.broker_ids if one not in away), None)

    def _replication_address(self) -> Address:
        return self._replication_gate.address
