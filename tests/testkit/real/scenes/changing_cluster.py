"""Three brokers 0.10.2.2 and a fourth, whose leaders, replicas, controller, partitions and topics change while clients
produce and read in groups, through the proxy or, for comparison, at the brokers alone. No other faults.

Changes are made as Kafka's tools of that release make them: by nodes in ZooKeeper. Says what became of each client's
records: in the segment files, and at its reader.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.fault_relay import FaultPlan, FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.verdict import Verdict
from idemproxy.demo.zookeeper import ZooKeeper, ZooKeeperError
from testkit.real.brokers.kafka_cluster import stored, told, verdict
from testkit.real.clients.client_runs import AIOKAFKA, start_producer, start_reader
from testkit.real.clients.java_clients import JavaClientError
from testkit.real.clients.java_clients import JavaProgram as ClientProgram
from testkit.real.proxies.proxy_process import ProxyProcess

PARTITIONS, MORE_PARTITIONS = 3, 5
ADDED, REMOVED = 3, 2
"""Brokers: one that comes later, one that leaves for good."""
AT_FIRST = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
REASSIGNED = ((3, 0, 1), (1, 3, 0), (0, 1, 3))
NEW_REPLICAS = ((1, 3, 0), (3, 0, 1))
"""Of the partitions that are added."""
RECORDS_MAX = 1_000_000
RECORDS_PER_SECOND = 10
RUN_SECONDS_MAX = 1800
CHANGE_SECONDS_MAX = 240
GONE_SECONDS = 3
GOES_ON_SECONDS_MAX = 90
"""For a producer whose topic was recreated."""
READS_ON_SECONDS = 15
"""That its reader has, when all is produced, before it has to end."""
COMMIT_EVERY_SECONDS = 1
RECORDS_BY_THE_SECOND = 60
"""That a second producer sends to all partitions, those that were added too."""
PATIENT: Mapping[str, Mapping[str, object]] = {AIOKAFKA: {"request_timeout_ms": RUN_SECONDS_MAX * 1000}}
"""It takes its request timeout for the delivery time as well."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What became of one client's records. ``read_again``: records that its group got more than once."""

    client: str
    sent: int
    acknowledged: int
    verdict: Verdict
    errors: list[str]
    producer_ids: int
    init_producer_id_requests: int
    read: int
    read_again: int
    notices: list[str] = field(default_factory=list)
    """What its reader reported and survived: commits that a change spoilt, sessions that ended."""
    reading: list[str] = field(default_factory=list)
    """What is wrong with what its group read, in sentences."""

    def complaints(self) -> list[str]:
        """Return what is not as it should be."""
        found = [] if self.verdict.is_exactly_once else [str(self.verdict)]
        if not self.sent == self.acknowledged == self.verdict.stored:
            found.append(f"{self.sent} sent, {self.acknowledged} acknowledged, {self.verdict.stored} stored")
        if self.errors:
            found.append(f"the user saw {len(self.errors)} errors, first: {self.errors[0]}")
        return found + self.reading


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


class ChangingCluster:
    """A context manager: entering starts brokers, the proxy, and relays that count what each client asks for."""

    def __init__(self, directory: Path, clients: Sequence[str], *, without_proxy: bool = False) -> None:
        self.directory = directory
        self.clients = tuple(clients)
        self.cluster = LegacyCluster(
            directory / "cluster",
            brokers=1 + max(ADDED, REMOVED),
            auto_create_topics=False,
            broker_settings={"min.insync.replicas": 2, "auto.leader.rebalance.enable": "false"},
            session_timeout_ms=6000,
        )
        self.proxy = None
        if not without_proxy:
            brokers = len(self.cluster.broker_ids)
            self.proxy = ProxyProcess(directory / "proxy", self.cluster.address(0), brokers=brokers)
        self.topics: dict[str, str] = {}
        self._relays: dict[str, FaultRelay] = {}
        self._producers: dict[str, list[tuple[str, ClientProgram]]] = {}
        self._readers: dict[str, ClientProgram] = {}
        self._children = ChildProcesses()
        self._enough = directory / "enough"
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as started:
            started.enter_context(self.cluster)
            self.cluster.stop_broker(ADDED)
            if self.proxy is not None:
                started.enter_context(self.proxy)
            started.enter_context(self._children)
            front = self.cluster.address(0) if self.proxy is None else self.proxy.address
            for client in self.clients:
                relay = FaultRelay(front, rewrite_addresses=True, plan=FaultPlan(faults_max=0))
                self._relays[client] = started.enter_context(relay)
            self._stack = started.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(None, None, None)

    # ------------------------------------------------------------------ clients
    def start_clients(self, *, notes_errors: bool = False) -> None:
        """Let each produce to a topic of its own until ``followed`` or ``remade``, and read it in a group.
        ``notes_errors``: readers continue where their clients do, whatever these report to their users."""
        for client in self.clients:
            self.topics[client] = f"topic-of-{client}"
            self.cluster.create_topic(self.topics[client], assignment=AT_FIRST)
            self._readers[client] = self._start_reader(client, notes_errors=notes_errors)
            pace = {"records_per_second": RECORDS_PER_SECOND, "until_file": str(self._enough)}
            self._producers[client] = [self.start_producer(client, self.topics[client], client, RECORDS_MAX, pace=pace)]

    def start_producer(
        self, client: str, topic: str, name: str, records: int, *, pace: Mapping[str, object] | None = None
    ) -> tuple[str, ClientProgram]:
        """Its name, and the program."""
        partitions = MORE_PARTITIONS if pace is None else PARTITIONS
        program = start_producer(
            self._children,
            self.directory,
            client,
            bootstrap=self._relays[client].address,
            topic=topic,
            partitions=partitions,
            records=records,
            name=name,
            idempotent=self.proxy is not None,
            delivery_seconds=RUN_SECONDS_MAX,
            settings=PATIENT.get(client),
            pace=pace,
        )
        return name, program

    def wait_for_more(self, records: int) -> None:
        """Return when so many more records of each client are stored. Raises AssertionError."""
        wanted = {client: self.stored_records(client) + records for client in self.clients}
        for client, count in wanted.items():
            self._until(lambda client=client, count=count: self.stored_records(client) >= count, f"{client} goes on")  # type: ignore[misc]

    def stored_records(self, client: str) -> int:
        """How many of its records are in the log of the leaders by now."""
        return sum(map(len, stored(self.cluster, self.topics[client], self._partitions).values()))

    def followed(self) -> dict[str, Followed]:
        """Let the clients end, and judge."""
        self._enough.touch()
        return {client: self._followed(client) for client in self.clients}

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
            "preferred leaders are elected": self._elect_preferred,
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

    def _elect_preferred(self) -> None:
        places = [{"topic": topic, "partition": number} for topic in self.topics.values() for number in range(3)]
        self._ask("/admin/preferred_replica_election", {"version": 1, "partitions": places})
        for topic in self.topics.values():
            for number, (preferred, *_) in enumerate(REASSIGNED):
                self._until(
                    lambda topic=topic, number=number, preferred=preferred: (  # type: ignore[misc]
                        self.cluster.leader(topic, number) == preferred
                    ),
                    f"{preferred} leads {topic} {number}",
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
        for client in self.clients:
            more = self.start_producer(client, self.topics[client], f"{client}-more", RECORDS_BY_THE_SECOND)
            self._producers[client].append(more)

    @property
    def _partitions(self) -> int:
        return MORE_PARTITIONS if any(len(programs) > 1 for programs in self._producers.values()) else PARTITIONS

    def _controller_epoch(self) -> int:
        with ZooKeeper(self.cluster.zookeeper_address) as keeper:
            return int(keeper.get("/controller_epoch") or 0) if keeper.exists("/controller") else -1

    def _ask(self, node: str, what: Mapping[str, Any]) -> None:
        """Put a node there and wait until the controller has taken it away."""
        with ZooKeeper(self.cluster.zookeeper_address) as keeper:
            keeper.create(node, json.dumps(what).encode())
            self._until(lambda: not keeper.exists(node), f"the controller has done {node}")

    # ------------------------------------------------------------------ inside
    def _start_reader(self, client: str, *, notes_errors: bool) -> ClientProgram:
        return start_reader(
            self._children,
            self.directory,
            client,
            bootstrap=self._relays[client].address,
            topic=self.topics[client],
            partitions=PARTITIONS,
            records=RECORDS_MAX,
            group=f"readers-of-{self.topics[client]}",
            name=f"{client}-reader",
            seconds_max=RUN_SECONDS_MAX,
            follow={
                "until_file": str(self._count_file(client)),
                "commit_every_seconds": COMMIT_EVERY_SECONDS,
                "lives_through_errors": notes_errors,
            },
        )

    def _end_reader(self, client: str, *, values: int) -> None:
        """Let it end when it has got so many different ones."""
        fresh = self._count_file(client).with_suffix(".fresh")
        fresh.write_text(str(values))
        fresh.rename(self._count_file(client))

    def _there(self, client: str) -> set[tuple[int, int, str]]:
        """(partition, offset, value) of all records in the log of the leaders."""
        log = stored(self.cluster, self.topics[client], self._partitions)
        return {(number, one.offset, (one.value or b"").decode()) for number, records in log.items() for one in records}

    def _count_file(self, client: str) -> Path:
        return self.directory / f"{client}.count"

    def _followed(self, client: str) -> Followed:
        sent, errors = 0, []
        acknowledged: dict[tuple[str, int, int], int] = {}
        for name, program in self._producers[client]:
            try:
                outcome = program.wait(CHANGE_SECONDS_MAX)
            except JavaClientError as error:
                errors.append(str(error))
                continue
            sent += int(outcome["sent"])
            errors += outcome["errors"]
            acknowledged |= told(name, program.acknowledged())
        self._end_reader(client, values=sent)
        topic, relay = self.topics[client], self._relays[client]
        read, notices, reading = self._read(client)
        return Followed(
            client=client,
            sent=sent,
            acknowledged=len(acknowledged),
            verdict=verdict(self.cluster, topic, self._partitions, acknowledged),
            errors=errors,
            producer_ids=len(relay.producer_ids),
            init_producer_id_requests=relay.init_producer_id_requests,
            read=len(read),
            read_again=len(read) - len(set(read)),
            notices=notices,
            reading=reading,
        )

    def _read(self, client: str) -> tuple[list[tuple[int, int, str]], list[str], list[str]]:
        """What its group got, what its reader reported, and what is wrong: each record at least once, in order."""
        reader = self._readers[client]
        try:
            outcome = reader.wait(CHANGE_SECONDS_MAX)
        except JavaClientError as error:
            return [], [], [f"its reader: {error}"]
        read = [(one.partition, one.offset, one.value) for one in reader.consumed()]
        there = self._there(client)
        found = []
        if missing := there - set(read):
            found.append(f"its group did not get {len(missing)} records, such as {min(missing)}")
        if foreign := set(read) - there:
            found.append(f"its group got {len(foreign)} records that are not stored there, such as {min(foreign)}")
        newest: dict[int, int] = {}
        for partition, offset, value in dict.fromkeys(read):
            if offset <= newest.get(partition, -1):
                found.append(f"its group got {value} behind later ones")
            newest[partition] = max(offset, newest.get(partition, -1))
        return read, outcome.get("notices") or [], found

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + CHANGE_SECONDS_MAX
        while True:
            try:
                if condition():
                    return
            except (OSError, ZooKeeperError, KeyError):
                pass  # a broker or ZooKeeper that is busy with the change
            if time.monotonic() > end:
                log = "" if self.proxy is None else self.proxy.log[-3000:]
                raise AssertionError(f"not within {CHANGE_SECONDS_MAX} s: {what}\n{log}")
            time.sleep(0.2)
