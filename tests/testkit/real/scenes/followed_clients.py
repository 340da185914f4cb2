"""Real clients that produce, each to a topic of its own, and read it in a group, while something is done to the
cluster.

What that is, and what lies between clients and brokers, is the subclass's. Says what became of each client's records:
in the segment files, and at its reader.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.fault_relay import FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.verdict import Verdict
from idemproxy.demo.zookeeper import ZooKeeper, ZooKeeperError
from testkit.real.brokers.kafka_cluster import stored, told, verdict
from testkit.real.clients.client_runs import AIOKAFKA, start_producer, start_reader
from testkit.real.clients.java_clients import JavaClientError
from testkit.real.clients.java_clients import JavaProgram as ClientProgram

PARTITIONS = 3
AT_FIRST = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
RECORDS_MAX = 1_000_000
RECORDS_PER_SECOND = 10
RUN_SECONDS_MAX = 3600
CHANGE_SECONDS_MAX = 240
COMMIT_EVERY_SECONDS = 1
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

    def figures(self) -> dict[str, object]:
        """Return what the line of a run has of it."""
        return {
            "client": self.client,
            "records": self.sent,
            "acknowledged": self.acknowledged,
            "duplicates": self.verdict.duplicates,
            "losses": self.verdict.lost,
            "reorders": self.verdict.reordered,
            "wrong_offsets": self.verdict.misplaced,
            "errors": len(self.errors),
            "init_producer_ids": self.init_producer_id_requests,
            "producer_ids": self.producer_ids,
            "read_in_group": self.read,
            "read_again": self.read_again,
            "notices": len(self.notices),
            "first_notice": next(iter(self.notices), None),
        }

    def complaints(self) -> list[str]:
        """Return what is not as it should be."""
        found = [] if self.verdict.is_exactly_once else [str(self.verdict)]
        if not self.sent == self.acknowledged == self.verdict.stored:
            found.append(f"{self.sent} sent, {self.acknowledged} acknowledged, {self.verdict.stored} stored")
        if self.errors:
            found.append(f"the user saw {len(self.errors)} errors, first: {self.errors[0]}")
        return found + self.reading


class FollowedClients:
    """A context manager: entering starts what ``_open`` starts. ``partitions``: that each topic has by now."""

    def __init__(
        self, directory: Path, clients: Sequence[str], cluster: LegacyCluster, *, idempotent: bool = True
    ) -> None:
        self.directory = directory
        self.clients = tuple(clients)
        self.cluster = cluster
        self.topics: dict[str, str] = {}
        self.partitions = PARTITIONS
        self._idempotent = idempotent
        self._relays: dict[str, FaultRelay] = {}
        self._producers: dict[str, list[tuple[str, ClientProgram]]] = {}
        self._readers: dict[str, ClientProgram] = {}
        self._children = ChildProcesses()
        self._enough = directory / "enough"
        self._stack = ExitStack()

    @abstractmethod
    def _open(self, started: ExitStack) -> None:
        """Start brokers and proxies, and put a relay for each client into ``_relays``."""

    @property
    @abstractmethod
    def _proxy_logs(self) -> str:
        """What the proxies have written, for the message of what never came."""

    def __enter__(self) -> Self:
        with ExitStack() as started:
            self._open(started)
            started.enter_context(self._children)
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
        program = start_producer(
            self._children,
            self.directory,
            client,
            bootstrap=self._relays[client].address,
            topic=topic,
            partitions=self.partitions,
            records=records,
            name=name,
            idempotent=self._idempotent,
            delivery_seconds=RUN_SECONDS_MAX,
            settings=PATIENT.get(client),
            pace=pace,
        )
        return name, program

    def wait_for_more(self, records: int, seconds_max: float = CHANGE_SECONDS_MAX) -> None:
        """Return when so many more records of each client are stored. Raises AssertionError."""
        wanted = {client: self.stored_records(client) + records for client in self.clients}
        end = time.monotonic() + seconds_max
        for client, count in wanted.items():
            self._until(
                lambda client=client, count=count: self.stored_records(client) >= count,  # type: ignore[misc]
                f"{client} goes on",
                end - time.monotonic(),
            )

    def stored_records(self, client: str) -> int:
        """How many of its records are in the log of the leaders by now."""
        return sum(map(len, stored(self.cluster, self.topics[client], self.partitions).values()))

    def followed(self) -> dict[str, Followed]:
        """Let the clients end, and judge."""
        self._enough.touch()
        return {client: self._followed(client) for client in self.clients}

    # ------------------------------------------------------------------ by nodes in ZooKeeper
    def elect_preferred(self, assignment: Sequence[Sequence[int]]) -> None:
        """Let the first replica of each partition lead it."""
        numbers = range(len(assignment))
        places = [{"topic": topic, "partition": number} for topic in self.topics.values() for number in numbers]
        self._ask("/admin/preferred_replica_election", {"version": 1, "partitions": places})
        for topic in self.topics.values():
            for number, (preferred, *_) in enumerate(assignment):
                self._until(
                    lambda topic=topic, number=number, preferred=preferred: (  # type: ignore[misc]
                        self.cluster.leader(topic, number) == preferred
                    ),
                    f"{preferred} leads {topic} {number}",
                )

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
        log = stored(self.cluster, self.topics[client], self.partitions)
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
            verdict=verdict(self.cluster, topic, self.partitions, acknowledged),
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

    def _until(self, condition: Callable[[], bool], what: str, seconds_max: float = CHANGE_SECONDS_MAX) -> None:
        end = time.monotonic() + seconds_max
        while True:
            try:
                if condition():
                    return
            except (OSError, ZooKeeperError, KeyError):
                pass  # a broker or ZooKeeper that is busy with the change
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds_max:.0f} s: {what}\n{self._proxy_logs[-3000:]}")
            time.sleep(0.2)
