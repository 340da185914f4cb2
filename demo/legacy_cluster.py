"""A real old Kafka cluster on loopback: one ZooKeeper and n brokers as child processes, made small.

Everything lies in one directory: settings, logs, output. Owns the processes' lives; never speaks produce or fetch.
Settings and flags were measured per version: 192 MB heaps, 500 ms ticks.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from . import broker_metadata
from .broker_metadata import ClusterState
from .broker_settings import (
    LOG4J,
    common_settings,
    listener_settings,
    parse_version,
    write_properties,
    zookeeper_settings,
)
from .child_processes import ChildProcess, ChildProcesses
from .jars import broker_class_path, class_archive, java_runtime
from .ports import HOST, free_ports
from .zookeeper import SEQUENTIAL, ZooKeeper, ZooKeeperError

Answer = TypeVar("Answer")

READY_SECONDS_MAX = 90
"""For a start on a machine that has other things to do; alone it takes 2 to 5 s."""
_POLL_SECONDS = 0.05
_JVM_FLAGS = (
    "-Xms32m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dzookeeper.jmx.log4j.disable=true",  # else 1.1 without log4j 1.x dies
    "-Djava.awt.headless=true",
)


class ClusterError(Exception):
    """The cluster did not do what was asked; the message ends with what the process in question printed last."""


class LegacyCluster:
    """A ZooKeeper and brokers 0..n-1. A context manager: entering starts all and waits, leaving kills all.

    ``broker_settings`` are lines of server.properties that overrule ours. ``advertised`` gives clients another address
    than the broker's own, by broker id (a relay's; before 0.10.2 brokers reach each other there too).
    ``replication`` is that of automatically created topics.
    ``session_timeout_ms``: for so long a busy machine may keep a broker waiting before its leaders move, and for so
    long a killed one is missed before it can start again. Who pauses brokers gives more than the pause, who kills them
    gives less.
    """

    def __init__(
        self,
        directory: Path,
        *,
        version: str = "0.10.2.2",
        brokers: int = 1,
        replication: int | None = None,
        auto_create_topics: bool = True,
        broker_settings: Mapping[str, str | int] | None = None,
        advertised: Mapping[int, tuple[str, int]] | None = None,
        tick_ms: int = 500,
        session_timeout_ms: int = 8000,
        heap_mb: int = 192,
        java_options: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.version = version
        self._version = parse_version(version)
        self._replication = replication or min(brokers, 3)
        self._auto_create_topics = auto_create_topics
        self._settings = {name: str(value) for name, value in (broker_settings or {}).items()}
        self._advertised = dict(advertised or {})
        self._tick_ms = tick_ms
        self._session_timeout_ms = session_timeout_ms
        self._heap_mb = heap_mb
        self._java_options = tuple(java_options)
        zookeeper_port, *ports = free_ports(1 + 2 * brokers)
        self._ports, self._internal_ports = ports[:brokers], ports[brokers:]
        self.zookeeper_address = (HOST, zookeeper_port)
        self._children = ChildProcesses()
        self._running: dict[int, ChildProcess] = {}
        self._paused: set[int] = set()
        self._zookeeper_process: ChildProcess | None = None

    def __enter__(self) -> Self:
        try:
            self._start_zookeeper()
            for broker in self.broker_ids:
                self._spawn_broker(broker)
            self.wait_until_ready()
        except BaseException:
            self._children.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.clear()
        self._children.close()

    # What it is

    @property
    def broker_ids(self) -> range:
        """All broker ids, running or not."""
        return range(len(self._ports))

    @property
    def bootstrap(self) -> str:
        """``host:port,...`` of the brokers' own listeners, whatever they advertise."""
        return ",".join(f"{HOST}:{port}" for port in self._ports)

    def address(self, broker: int) -> tuple[str, int]:
        """The broker's own listener."""
        return HOST, self._ports[broker]

    @property
    def log_directories(self) -> list[Path]:
        """The brokers' data directories, by broker id."""
        return [self.directory / f"broker-{broker}" for broker in self.broker_ids]

    def output(self, broker: int) -> Path:
        """The file with all that this broker printed."""
        return self.directory / f"broker-{broker}.out"

    def process_id(self, broker: int) -> int:
        """The process id of a running broker."""
        return self._running[broker].pid

    # Brokers

    def start_broker(self, broker: int) -> None:
        """Start a broker that was killed or stopped, and wait until the cluster knows it again."""
        assert broker not in self._running, "it runs"
        # Its old registration must be gone, else it ends at once (0.9 and later).
        self._wait(lambda: not self._zookeeper(lambda keeper: keeper.exists(f"/brokers/ids/{broker}")), "left", broker)
        self._spawn_broker(broker)
        self.wait_until_ready()

    def become(self, version: str, broker_settings: Mapping[str, str | int] | None = None) -> None:
        """Let brokers that are started from now on have this version, and these settings in place of the earlier."""
        self.version, self._version = version, parse_version(version)
        self._settings = {name: str(value) for name, value in (broker_settings or {}).items()}

    def kill_broker(self, broker: int) -> None:
        """End it with SIGKILL: nothing is written or said any more."""
        self._running.pop(broker).kill()
        self._paused.discard(broker)

    def stop_broker(self, broker: int, timeout_seconds: float = 60) -> None:
        """End it with SIGTERM: a controlled shutdown that moves its leaders first."""
        process = self._running.pop(broker)
        self._paused.discard(broker)
        process.stop(timeout_seconds)

    def pause_broker(self, broker: int) -> None:
        """SIGSTOP: its sockets stay open and nothing is answered."""
        self._running[broker].pause()
        self._paused.add(broker)

    def resume_broker(self, broker: int) -> None:
        """SIGCONT."""
        self._paused.discard(broker)
        self._running[broker].signal(signal.SIGCONT)

    def wait_until_ready(self) -> None:
        """Return when every broker that runs answers Metadata and lists exactly those that run (0.8: is registered)."""
        for broker in self._awake():
            self._wait(partial(self._is_ready, broker), "became ready", broker)

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication: int = 1,
        config: Mapping[str, str | int] | None = None,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Make a topic and wait until every broker that runs knows a leader of every partition.

        ``assignment`` lists the replicas of each partition, the preferred leader first; otherwise they go round.
        """
        count = len(self._ports)
        assert replication <= count, "more replicas than brokers"
        replicas = assignment or [
            [(partition + copy) % count for copy in range(replication)] for partition in range(partitions)
        ]
        layout = {str(partition): list(nodes) for partition, nodes in enumerate(replicas)}
        with ZooKeeper(self.zookeeper_address) as keeper:
            keeper.set(f"/config/topics/{name}", _topic_config(config or {}))
            try:
                keeper.create(f"/brokers/topics/{name}", _json({"version": 1, "partitions": layout}))
            except ZooKeeperError as error:
                raise ClusterError(f"topic {name} can not be created: {error}") from None
        self.wait_for_leaders(name, len(layout))

    def add_partitions(self, name: str, partitions: int) -> None:
        """Give a topic so many partitions, each new one on one broker, and wait until they have leaders."""
        with ZooKeeper(self.zookeeper_address) as keeper:
            known = keeper.get(f"/brokers/topics/{name}")
            if known is None:
                raise ClusterError(f"there is no topic {name}")
            layout = json.loads(known)["partitions"]
            for partition in range(len(layout), partitions):
                layout[str(partition)] = [partition % len(self._ports)]
            keeper.set(f"/brokers/topics/{name}", _json({"version": 1, "partitions": layout}))
        self.wait_for_leaders(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until no broker that runs knows it."""
        with ZooKeeper(self.zookeeper_address) as keeper:
            keeper.create(f"/admin/delete_topics/{name}", b"")
        for broker in self._awake():
            self._wait(partial(self._has_forgotten, broker, name), f"forgot the topic {name}", broker)

    def alter_topic_config(self, name: str, config: Mapping[str, str | int]) -> None:
        """Replace all settings of a topic. The brokers are notified at once and take them over within milliseconds."""
        if self._version >= (0, 10, 1):
            change = _json({"version": 2, "entity_path": f"topics/{name}"})
        elif self._version >= (0, 9):
            change = _json({"version": 1, "entity_type": "topics", "entity_name": name})
        else:
            change = _json(name)
        with ZooKeeper(self.zookeeper_address) as keeper:
            keeper.set(f"/config/topics/{name}", _topic_config(config))
            keeper.create("/config/changes/config_change_", change, SEQUENTIAL)

    def state(self, broker: int | None = None) -> ClusterState:
        """What one broker (else the first one awake) says of the cluster. Raises OSError."""
        return broker_metadata.ask(self.address(self._awake()[0] if broker is None else broker))

    def leader(self, topic: str, partition: int) -> int:
        """The leader as the first broker awake knows it; -1 when there is none."""
        known = self.state().topics.get(topic, {}).get(partition)
        return -1 if known is None else known.leader

    def in_sync_replicas(self, topic: str, partition: int) -> list[int]:
        """The in-sync replicas as ZooKeeper has them (what Metadata says of them is old)."""
        data = self._zookeeper(lambda keeper: keeper.get(f"/brokers/topics/{topic}/partitions/{partition}/state"))
        return [] if data is None else list(json.loads(data)["isr"])

    def wait_for_leaders(self, topic: str, partitions: int = 1) -> None:
        """Return when every broker that runs knows a leader that runs for each of so many partitions."""
        for broker in self._awake():
            self._wait(partial(self._has_leaders, broker, topic, partitions), f"learned the leaders of {topic}", broker)

    def wait_in_sync(self, topic: str, partitions: int = 1) -> None:
        """Return when the in-sync replicas of so many partitions are exactly those that run, as ZooKeeper has it."""
        for number in range(partitions):
            replicas = self.state().topics[topic][number].replicas
            wanted = self._running.keys() & set(replicas)
            what = f"saw the replicas {sorted(wanted)} of {topic} {number} in sync"
            self._wait(partial(self._are_in_sync, topic, number, wanted), what, self._awake()[0])

    # Inside

    def _awake(self) -> list[int]:
        return sorted(self._running.keys() - self._paused)

    def _is_ready(self, broker: int) -> bool:
        if self._version < (0, 9):
            # 0.8 lists no broker before the first topic exists.
            registered = self._zookeeper(lambda keeper: keeper.children("/brokers/ids"))
            self.state(broker)
            return set(registered) >= {str(one) for one in self._awake()}
        known = self.state(broker).brokers.keys()
        return set(self._awake()) <= known <= self._running.keys()

    def _are_in_sync(self, topic: str, partition: int, wanted: set[int]) -> bool:
        return wanted == set(self.in_sync_replicas(topic, partition))

    def _has_forgotten(self, broker: int, topic: str) -> bool:
        in_zookeeper = self._zookeeper(lambda keeper: keeper.exists(f"/brokers/topics/{topic}"))
        return not in_zookeeper and topic not in self.state(broker).topics

    def _has_leaders(self, broker: int, topic: str, partitions: int) -> bool:
        known = self.state(broker).topics.get(topic, {})
        return len(known) >= partitions and all(one.leader in self._running for one in known.values())

    def _zookeeper(self, ask: Callable[[ZooKeeper], Answer]) -> Answer:
        with ZooKeeper(self.zookeeper_address) as keeper:
            return ask(keeper)

    def _wait(self, condition: Callable[[], bool], what: str, broker: int) -> None:
        """Poll until the condition holds; a connection error means not yet, a dead process means never."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while True:
            try:
                if condition():
                    return
            except OSError:
                pass
            for child in (self._zookeeper_process, self._running.get(broker)):
                if child is not None and child.exit_code is not None:
                    raise ClusterError(f"{child.name} ended with code {child.exit_code}:\n{child.last_output()}")
            if time.monotonic() > deadline:
                child = self._running.get(broker)
                printed = "" if child is None else f":\n{child.last_output()}"
                raise ClusterError(f"broker {broker} never {what} within {READY_SECONDS_MAX} s{printed}")
            time.sleep(_POLL_SECONDS)

    def _start_zookeeper(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        data = self.directory / "zookeeper"
        data.mkdir(exist_ok=True)
        (self.directory / "temporary").mkdir(exist_ok=True)
        (self.directory / "log4j.properties").write_text(LOG4J)
        settings = zookeeper_settings(data, self.zookeeper_address, self._tick_ms, self._session_timeout_ms)
        path = write_properties(self.directory / "zookeeper.properties", settings)
        self._zookeeper_process = self._java(
            "ZooKeeper", 64, "org.apache.zookeeper.server.quorum.QuorumPeerMain", path, self.directory / "zookeeper.out"
        )

    def _spawn_broker(self, broker: int) -> None:
        path = write_properties(self.directory / f"broker-{broker}.properties", self._broker_settings(broker))
        self._running[broker] = self._java(f"broker {broker}", self._heap_mb, "kafka.Kafka", path, self.output(broker))

    def _broker_settings(self, broker: int) -> dict[str, str]:
        ours = common_settings(self._version, broker, self._replication) | {
            "log.dirs": str(self.log_directories[broker]),
            "zookeeper.connect": "{}:{}".format(*self.zookeeper_address),
            "zookeeper.session.timeout.ms": str(self._session_timeout_ms),
            "auto.create.topics.enable": str(self._auto_create_topics).lower(),
        }
        address, internal = self.address(broker), (HOST, self._internal_ports[broker])
        listeners = listener_settings(self._version, address, internal, self._advertised.get(broker))
        return ours | listeners | self._settings

    def _java(self, name: str, heap_mb: int, main_class: str, settings: Path, output: Path) -> ChildProcess:
        class_path = broker_class_path(self.version)
        archive = class_archive(class_path)
        command: list[str | Path] = [
            java_runtime(),
            f"-Xmx{heap_mb}m",
            *_JVM_FLAGS,
            *([f"-XX:SharedArchiveFile={archive}"] if archive.is_file() else []),
            *self._java_options,
            f"-Djava.io.tmpdir={self.directory / 'temporary'}",
            f"-Dlog4j.configuration=file:{self.directory / 'log4j.properties'}",
            "-cp",
            class_path,
            main_class,
            settings,
        ]
        try:
            return self._children.start(name, command, output, directory=self.directory)
        except (OSError, subprocess.SubprocessError) as error:
            raise ClusterError(f"{name} can not be started: {error}") from error


def _topic_config(config: Mapping[str, str | int]) -> bytes:
    return _json({"version": 1, "config": {name: str(value) for name, value in config.items()}})


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
