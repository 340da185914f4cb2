"""Three brokers 0.10.2.2 and a fourth, whose leaders, replicas, controller, partitions and topics change while clients
produce and read in groups, through the proxy or, for comparison, at the brokers alone. No other faults.

Changes are made as Kafka's tools of that release make them: by nodes in ZooKeeper.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from idemproxy.demo.fault_relay import FaultPlan, FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.verdict import Verdict
from idemproxy.demo.zookeeper import ZooKeeper
from testkit.real.brokers.kafka_cluster import verdict
from testkit.real.clients.java_clients import JavaClientError
from testkit.real.proxies.proxy_process import ProxyProcess

from .followed_clients import AT_FIRST, PARTITIONS, FollowedClients

MORE_PARTITIONS = 5
ADDED, REMOVED = 3, 2
"""Brokers: one that comes later, one that leaves for good."""
REASSIGNED = ((3, 0, 1), (1, 3, 0), (0, 1, 3))
NEW_REPLICAS = ((1, 3, 0), (3, 0, 1))
"""Of the partitions that are added."""
GONE_SECONDS = 3
GOES_ON_SECONDS_MAX = 90
"""For a producer whose topic was recreated."""
READS_ON_SECONDS = 15
"""That its reader has, when all is produced, before it has to end."""
RECORDS_BY_THE_SECOND = 60
"""That a second producer sends to all partitions, those that were added too."""


@dataclass(frozen=True, slots=True)
class Remade:
    """What became of a client whose topic was deleted and recreated under its producer and its reader. ``verdict``: of
    the new log."""

    client: str
    goes_on: bool
    sent: int
    acknowledged: int
    errors: list[str]
    verdict: Verdict
    read_recreated: int = 0
    """Records of the new log that its reader got."""
    not_read: int = 0
    """Those that it did not get: a client that does not notice continues at the old position, after the first ones."""
    reading: list[str] = field(default_factory=list)
    """What its reader ended with, if with an error, and what it reported before."""


class ChangingCluster(FollowedClients):
    """Relays count what each client asks for."""

    def __init__(self, directory: Path, clients: Sequence[str], *, without_proxy: bool = False) -> None:
        cluster = LegacyCluster(
            directory / "cluster",
            brokers=1 + max(ADDED, REMOVED),
            auto_create_topics=False,
            broker_settings={"min.insync.replicas": 2, "auto.leader.rebalance.enable": "false"},
            session_timeout_ms=6000,
        )
        super().__init__(directory, clients, cluster, idempotent=not without_proxy)
        self.proxy = None
        if not without_proxy:
            brokers = len(self.cluster.broker_ids)
            self.proxy = ProxyProcess(directory / "proxy", self.cluster.address(0), brokers=brokers)

    def _open(self, started: ExitStack) -> None:
        started.enter_context(self.cluster)
        self.cluster.stop_broker(ADDED)
        if self.proxy is not None:
            started.enter_context(self.proxy)
        front = self.cluster.address(0) if self.proxy is None else self.proxy.address
        for client in self.clients:
            relay = FaultRelay(front, rewrite_addresses=True, plan=FaultPlan(faults_max=0))
            self._relays[client] = started.enter_context(relay)

    @property
    def _proxy_logs(self) -> str:
        return "" if self.proxy is None else self.proxy.log

    def remake_topics(self) -> None:
        """Delete all topics and, some seconds later, make them again."""
        for topic in self.topics.values():
            self.cluster.delete_topic(topic)
        time.sleep(GONE_SECONDS)
        for topic in self.topics.values():
            self.cluster.create_topic(topic, assignment=AT_FIRST)

    def remade(self, records: int) -> dict[str, Remade]:
        """Wait until so many records are stored again, or never; let the clients end, and return what they reported."""
        end = time.monotonic() + GOES_ON_SECONDS_MAX
        while any(self.stored_records(client) < records for client in self.clients) and time.monotonic() < end:
            time.sleep(1)
        goes_on = {client: self.stored_records(client) >= records for client in self.clients}
        self._enough.touch()
        time.sleep(READS_ON_SECONDS)
        for client in self.clients:
            self._end_reader(client, values=0)
        return {client: self._remade(client, goes_on[client]) for client in self.clients}

    def _remade(self, client: str, goes_on: bool) -> Remade:
        ((_, program),) = self._producers[client]
        try:
            outcome = program.wait(GOES_ON_SECONDS_MAX)
        except JavaClientError as error:
            outcome = {"sent": 0, "acked": 0, "errors": [str(error)]}
        found = verdict(self.cluster, self.topics[client], PARTITIONS)
        remade = Remade(client, goes_on, int(outcome["sent"]), int(outcome["acked"]), outcome["errors"], found)
        try:
            notices = self._readers[client].wait(GOES_ON_SECONDS_MAX).get("notices") or []
        except JavaClientError as error:
            return replace(remade, not_read=found.stored, reading=[f"its reader ended: {error}"])
        there = self._there(client)
        read = there & {(one.partition, one.offset, one.value) for one in self._readers[client].consumed()}
        return replace(remade, read_recreated=len(read), not_read=len(there - read), reading=notices)

    # ------------------------------------------------------------------ changes
    def changes(self) -> Mapping[str, Callable[[], None]]:
        """All, in the order in which they can be made."""
        return {
            "a broker ends, its leaders move, and it returns": self._stop_and_start,
            "a broker dies and returns": self._kill_and_start,
            "a broker is added": lambda: self.cluster.start_broker(ADDED),
            "partitions are reassigned to it, another one has none left": self._reassign,
            "that other one is removed": lambda: self.cluster.stop_broker(REMOVED),
            "preferred leaders are elected": lambda: self.elect_preferred(REASSIGNED),
            "another broker becomes controller": self._move_controller,
            "the controller dies and returns": self._kill_controller,
            "partitions are added": self._add_partitions,
        }

    def _stop_and_start(self) -> None:
        self.cluster.stop_broker(1)
        self.wait_for_more(PARTITIONS * 3)
        self._start(1)

    def _kill_and_start(self) -> None:
        self.cluster.kill_broker(0)
        self.wait_for_more(PARTITIONS * 3)
        self._start(0)

    def _start(self, broker: int) -> None:
        self.cluster.start_broker(broker)
        for topic in self.topics.values():
            self.cluster.wait_in_sync(topic, PARTITIONS)

    def _reassign(self) -> None:
        moved = [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for topic in self.topics.values()
            for number, replicas in enumerate(REASSIGNED)
        ]
        moved += [
            {"topic": "__consumer_offsets", "partition": number, "replicas": list(REASSIGNED[number % len(REASSIGNED)])}
            for number in range(len(self.cluster.state().topics["__consumer_offsets"]))
        ]
        self._ask("/admin/reassign_partitions", {"version": 1, "partitions": moved})
        for topic in self.topics.values():
            for number, replicas in enumerate(REASSIGNED):
                self._until(
                    lambda topic=topic, number=number, replicas=replicas: (  # type: ignore[misc]
                        set(self.cluster.in_sync_replicas(topic, number)) == set(replicas)
                    ),
                    f"{topic} {number} is at {replicas}",
                )

    def _move_controller(self) -> None:
        """As operators did it: the node goes, and brokers race for it."""
        before = self._controller_epoch()
        with ZooKeeper(self.cluster.zookeeper_address) as keeper:
            keeper.delete("/controller")
        self._until(lambda: self._controller_epoch() > before, "a controller is elected")

    def _kill_controller(self) -> None:
        with ZooKeeper(self.cluster.zookeeper_address) as keeper:
            controller = int(json.loads(keeper.get("/controller") or b"{}")["brokerid"])
        self.cluster.kill_broker(controller)
        self.wait_for_more(PARTITIONS * 3)
        self._start(controller)

    def _add_partitions(self) -> None:
        for topic in self.topics.values():
            replicas = [*REASSIGNED, *NEW_REPLICAS]
            layout = {str(number): list(nodes) for number, nodes in enumerate(replicas)}
            with ZooKeeper(self.cluster.zookeeper_address) as keeper:
                keeper.set(f"/brokers/topics/{topic}", json.dumps({"version": 1, "partitions": layout}).encode())
            self.cluster.wait_for_leaders(topic, MORE_PARTITIONS)
        self.partitions = MORE_PARTITIONS
        for client in self.clients:
            more = self.start_producer(client, self.topics[client], f"{client}-more", RECORDS_BY_THE_SECOND)
            self._producers[client].append(more)

    def _controller_epoch(self) -> int:
        with ZooKeeper(self.cluster.zookeeper_address) as keeper:
            return int(keeper.get("/controller_epoch") or 0) if keeper.exists("/controller") else -1
