"""A real broker, the proxy, a fault relay between them, and one more in front of the proxy for each client.

Runs a client through all of it and says what became of its records: in the log, at a plain consumer, on the wire.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.fault_relay import FaultKind, FaultPlan, FaultRelay
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.demo.verdict import Verdict
from testkit.real.brokers.kafka_cluster import fresh_topic, stored_texts, told, verdict
from testkit.real.brokers.kraft_cluster import cluster_class
from testkit.real.clients.client_runs import ONE_IN_FLIGHT, read_plainly, start_producer, start_reader
from testkit.real.clients.java_clients import JavaClientError
from testkit.real.proxies.proxy_process import ProxyProcess

GROUP_SECONDS_MAX = 120
BREAKING_KINDS = (FaultKind.LOST_ANSWER, FaultKind.CUT, FaultKind.HALF_REQUEST, FaultKind.LATE_DELIVERY)


@dataclass(frozen=True, slots=True)
class GroupRead:
    """What a client got as the only member of a group, in its order, and what it committed then, by partition."""

    read: list[tuple[int, int, str]]
    committed: Mapping[str, int]
    error: str = ""
    """What it ended with, if not with its last line."""

    def complaints(self, stored: list[tuple[int, int, str]]) -> list[str]:
        """Return what is not as it should be: each record once, in order, and the position after them committed."""
        if self.error:
            return [f"reading in a group: {self.error}"]
        ends = {str(partition): offset + 1 for partition, offset, _ in sorted(stored)}
        found = [] if self.committed == ends else [f"its group committed {self.committed}, the log ends at {ends}"]
        if sorted(self.read, key=lambda one: one[0]) != sorted(stored):
            found.append(f"its group read {len(self.read)} records, and others than are stored, or in another order")
        return found


@dataclass(frozen=True, slots=True)
class ClientResult:
    """What became of one client's records."""

    client: str
    records: int
    """That it was to send."""
    outcome: dict[str, Any]
    """The client's own last line."""
    acknowledged: int
    verdict: Verdict
    """Of the segment files, against what the client got acknowledged."""
    consumed: list[tuple[int, int, str]]
    """(partition, offset, value) of all records as a plain consumer at the broker got them."""
    stored: list[tuple[int, int, str]]
    """The same out of the segment files."""
    faults: dict[FaultKind, int]
    """Between this client and the proxy."""
    init_producer_id_requests: int
    producer_ids: set[int]
    produce_requests: int
    seconds: float
    group: GroupRead | None = None
    """None: it was not to read in a group."""

    def complaints(self, *, ids_are_ours: bool = True, leaders_move: bool = False) -> list[str]:
        """Return what is not as it should be: once, in order, acknowledged truly, without an error; and under one
        producer id where the proxy gave it (a broker may be asked again until its coordinator is loaded).
        ``leaders_move``: a client that sends to the new leader while it waits for the old one's answer gets
        acknowledgements in the order of answers, not in that of offsets, and without an offset
        (``DUPLICATE_SEQUENCE_NUMBER``) if more than five batches were stored meanwhile."""
        found = [f"{self.verdict}"] if not self.verdict.is_exactly_once else []
        if self.verdict.stored != self.records or self.acknowledged != self.records:
            found.append(f"of {self.records} {self.verdict.stored} are stored, {self.acknowledged} acknowledged")
        if self.consumed != self.stored:
            found.append("a plain consumer reads something else than what is in the segment files")
        is_told_all = self.outcome["offsets_known"] and self.outcome["offsets_in_order"]
        if self.outcome["errors"] or not (is_told_all or leaders_move):
            found.append(f"the user saw {self.outcome}")
        if ids_are_ours and (self.init_producer_id_requests != 1 or len(self.producer_ids) != 1):
            found.append(f"{self.init_producer_id_requests} InitProducerId, producer ids {self.producer_ids}")
        if not self.producer_ids:
            found.append("no producer id crossed the wire: it went on without idempotence")
        if not self.faults[FaultKind.LOST_ANSWER] or not self.faults[FaultKind.CUT]:
            found.append(f"nothing is proven: {self.faults}")
        return found + (self.group.complaints(self.stored) if self.group is not None else [])


class FaultyScene:
    """A context manager: entering starts relay, broker and proxy. Clients come one by one, or several at once."""

    def __init__(
        self,
        directory: Path,
        plan: FaultPlan,
        version: str = "0.10.2.2",
        *,
        broker_settings: Mapping[str, str | int] | None = None,
        settings: str = "",
        without_proxy: bool = False,
        proxy_program: str | None = None,
    ) -> None:
        """``settings``: of the proxy, in YAML. ``without_proxy``: for comparison, clients reach the broker through the
        relays alone. ``proxy_program``: what is run in the place of ``idemproxy``."""
        self.directory = directory
        (port,) = free_ports(1)
        self.cluster = cluster_class(version)(
            directory / "cluster",
            version=version,
            advertised={0: (HOST, port)},
            auto_create_topics=False,
            broker_settings=broker_settings,
        )
        self.broker_relay = FaultRelay(self.cluster.address(0), plan=plan, port=port)
        self.proxy = ProxyProcess(directory / "proxy", (HOST, port), program=proxy_program, settings=settings)
        self._front = (HOST, port) if without_proxy else self.proxy.address
        self.topics: tuple[str, ...] = ()
        """Those of the last run, in the order of its clients."""
        self._children = ChildProcesses()
        self._stack = ExitStack()

    def __enter__(self) -> FaultyScene:
        with ExitStack() as started:
            started.enter_context(self.broker_relay)
            started.enter_context(self.cluster)
            if self._front == self.proxy.address:
                started.enter_context(self.proxy)
            started.enter_context(self._children)
            self._stack = started.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def run(
        self,
        clients: tuple[str, ...],
        *,
        partitions: int,
        records: int,
        plan: FaultPlan,
        seconds_max: float,
        one_in_flight: bool = False,
        in_group: bool = False,
        kind: str = "topic",
    ) -> dict[str, ClientResult]:
        """Let these clients produce at the same time, each to a topic and over a relay of its own; judge each.
        ``one_in_flight``: each sends a request only when the last one was answered. ``in_group``: each reads its topic
        as a member of a group, too, through its relay and the proxy. ``kind``: with which the topics' names begin."""
        topics = {client: fresh_topic(self.cluster, partitions, kind=kind) for client in clients}
        self.topics = tuple(topics.values())
        results = {}
        with ExitStack() as stack:
            relays = {
                client: stack.enter_context(FaultRelay(self._front, rewrite_addresses=True, plan=plan))
                for client in clients
            }
            start = time.monotonic()
            programs = {
                client: start_producer(
                    self._children,
                    self.directory,
                    client,
                    bootstrap=relays[client].address,
                    topic=topics[client],
                    partitions=partitions,
                    records=records,
                    delivery_seconds=int(seconds_max),
                    settings=ONE_IN_FLIGHT[client] if one_in_flight else None,
                )
                for client in clients
            }
            for client, program in programs.items():
                outcome = program.wait(max(1.0, start + seconds_max - time.monotonic()))
                seconds = time.monotonic() - start
                acknowledged = told(client, program.acknowledged())
                relay, kept = relays[client], stored_texts(self.cluster, topics[client], partitions)
                results[client] = ClientResult(
                    client=client,
                    records=records,
                    outcome=outcome,
                    acknowledged=len(acknowledged),
                    verdict=verdict(self.cluster, topics[client], partitions, acknowledged),
                    consumed=read_plainly(
                        self._children,
                        self.directory,
                        bootstrap=self.cluster.bootstrap,
                        topic=topics[client],
                        partitions=partitions,
                        records=len(kept),
                        name=f"{client}-checked",
                    ),
                    stored=kept,
                    faults=relay.counts,
                    init_producer_id_requests=relay.init_producer_id_requests,
                    producer_ids=relay.producer_ids,
                    produce_requests=relay.produce_requests,
                    seconds=seconds,
                    group=self._read_in_group(client, relay, topics[client], partitions, len(kept))
                    if in_group
                    else None,
                )
        return results

    def unknown_outcomes(self, producer_id: int) -> int:
        """How often the proxy did not know what had become of a batch of this producer."""
        return self.proxy.log.count(f"in doubt: producer {producer_id} ")

    def _read_in_group(self, client: str, relay: FaultRelay, topic: str, partitions: int, records: int) -> GroupRead:
        reader = start_reader(
            self._children,
            self.directory,
            client,
            bootstrap=relay.address,
            topic=topic,
            partitions=partitions,
            records=records,
            group=f"readers-of-{topic}",
            name=f"{client}-in-group",
        )
        try:
            outcome = reader.wait(GROUP_SECONDS_MAX)
        except JavaClientError as error:
            return GroupRead([], {}, str(error))
        return GroupRead([(one.partition, one.offset, one.value) for one in reader.consumed()], outcome["committed"])
