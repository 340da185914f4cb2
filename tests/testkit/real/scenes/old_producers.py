"""Three brokers of Kafka 4, a relay with faults in front of each, the proxy, and producers of versions that Kafka 4 has
dropped, or without idempotence: real clients, and raw connections for volume. Says what became of their records.

Everything breaks between the proxy and the brokers: answers are lost, connections cut, requests come by half or late,
leaders move, a broker is killed and comes back. Between clients and proxy nothing does: what a client itself sends
again is not the proxy's to recognise.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Self

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.fault_relay import FaultPlan, FaultRelay
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.demo.verdict import Position, Verdict, value_of
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kafka_cluster import told, verdict
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.client_runs import KAFKA_GO, KAFKAJS, OLD_JAVA, OLD_PYTHON, RSKAFKA, start_producer
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy

from .faulty import BREAKING_KINDS

BROKERS: Final = 3
CONTROLLER: Final = 0
"""It is never killed: there is one."""
PARTITIONS: Final = 3
ASSIGNMENT: Final = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
RAW, RAW_WITHOUT_ISR = "raw, acks -1", "raw, acks 1"
"""The second one writes to the broker that stays, where nothing that it has acknowledged alone can be lost."""
RAW_BATCHES, RAW_BATCHES_WITHOUT_ISR = "raw batches, acks -1", "raw batches, acks 1"
"""The same in Produce 3 to 12."""
REAL_CLIENTS: Final = (OLD_JAVA, OLD_PYTHON, KAFKAJS, KAFKA_GO, RSKAFKA)
_WITHOUT_ISR: Final = (RAW_WITHOUT_ISR, RAW_BATCHES_WITHOUT_ISR)
_SEND_BATCHES: Final = (RAW_BATCHES, RAW_BATCHES_WITHOUT_ISR)
LAST_CODE: Final = ErrorCode.POLICY_VIOLATION
"""Of Kafka 0.10.2, the last one that these clients may know; those after it are about producer ids."""
_BUFFER_BYTES, _BLOCK_MS = 6_400, 300_000
_SETTINGS: Final[dict[str, dict[str, object]]] = {
    OLD_JAVA: {"buffer.memory": _BUFFER_BYTES, "max.block.ms": _BLOCK_MS},
    OLD_PYTHON: {"api_version": [0, 10], "buffer_memory": _BUFFER_BYTES, "max_block_ms": _BLOCK_MS},
    KAFKAJS: {},
    KAFKA_GO: {},
    RSKAFKA: {},
}
"""They give up what has waited in their buffer for longer than for an answer: so little may wait there."""
_RECORDS_IN_A_SET = 20
_TIMEOUT_MS = 30_000
_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
_AGAIN_SECONDS = 0.1
_DOWN_SECONDS = 4.0
_BROKER_SETTINGS = {
    "min.insync.replicas": 2,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "auto.leader.rebalance.enable": "false",
}
RETRIED: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
"""By these the proxy says that nothing was appended."""


@dataclass(slots=True)
class Produced:
    """What became of the records of one kind of clients. ``codes``: what raw connections were answered."""

    kind: str
    records: int
    acknowledged: int = 0
    verdict: Verdict | None = None
    errors: list[str] = field(default_factory=list)
    codes: Counter[int] = field(default_factory=Counter)
    resets: int = 0
    seconds: float = 0.0

    def complaints(self) -> list[str]:
        """Return what is not as it should be."""
        assert self.verdict is not None
        found = [] if self.verdict.is_exactly_once else [f"{self.kind}: {self.verdict}"]
        if not self.records == self.acknowledged == self.verdict.stored:
            found.append(f"{self.kind}: {self.records} sent, {self.acknowledged} acknowledged, {self.verdict}")
        if self.errors:
            found.append(f"{self.kind}: the user saw {self.errors[:3]}")
        if strange := {code for code in self.codes if code > LAST_CODE or code < 0}:
            found.append(f"{self.kind}: codes that these clients do not know: {strange}")
        return found


class RawProducers:
    """Producers that are no library: they ask who leads, send set after set over a connection for each broker, and send
    again what the proxy says was not appended."""

    def __init__(
        self, bootstrap: tuple[str, int], topic: str, partitions: int, acks: int, *, sends_batches: bool
    ) -> None:
        self._bootstrap, self._topic, self._partitions, self._acks = bootstrap, topic, partitions, acks
        self._sends_batches = sends_batches
        self.acknowledged: dict[Position, int] = {}
        self.codes: Counter[int] = Counter()
        self.errors: list[str] = []
        self.resets = 0
        """Connections that the proxy has closed, as that of a broker that is away; nothing of theirs was written."""
        self.is_over = threading.Event()

    def run(self, number: int, records: int) -> None:
        """Of one of them, which sends so many records."""
        random, name = Random(number), f"raw-{number}"
        clients: dict[tuple[str, int], RawClient] = {}
        sent: Counter[int] = Counter()
        try:
            for start in range(0, records, _RECORDS_IN_A_SET):
                partition = random.randrange(self._partitions)
                first = sent[partition]
                count = min(_RECORDS_IN_A_SET, records - start)
                sent[partition] += count
                values = [value_of(name, partition, first + index) for index in range(count)]
                if self._sends_batches:
                    version, sent_set = random.randrange(3, 13), batch(values, codec=random.choice(_CODECS))
                else:
                    version, sent_set = random.randrange(3), self._message_set(values, random)
                offset = self._insist(clients, partition, sent_set, version, name)
                for index in range(count):
                    self.acknowledged[name, partition, first + index] = offset + index
        except Exception as error:
            self.errors.append(f"{name}: {error!r}")
        finally:
            for client in clients.values():
                client.close()

    @staticmethod
    def _message_set(values: Sequence[bytes], random: Random) -> bytes:
        magic, codec = random.randrange(2), random.choice(_CODECS)
        now_ms = int(time.time() * 1000)
        plain = encode_set([(None, value, now_ms) for value in values], magic=magic)
        if codec is Codec.NONE:
            return plain
        return encode_message(None, compress(codec, plain, magic=magic), magic=magic, codec=codec, timestamp=now_ms)

    def _insist(
        self, clients: dict[tuple[str, int], RawClient], partition: int, message_set: bytes, version: int, name: str
    ) -> int:
        while not self.is_over.is_set():
            leader = self._leader(partition)
            if leader is None:
                time.sleep(_AGAIN_SECONDS)
                continue
            body = RawClient.produce_body(
                [(self._topic, partition, message_set)], version=version, acks=self._acks, timeout_ms=_TIMEOUT_MS
            )
            try:
                if leader not in clients:
                    clients[leader] = RawClient(leader, timeout_seconds=2 * _TIMEOUT_MS / 1000, client_id=name)
                clients[leader].send(ApiKey.PRODUCE, version, body)
                (answer,) = clients[leader].produce_answer(version)
            except OSError:
                clients.pop(leader).close() if leader in clients else None
                self.resets += 1
                time.sleep(_AGAIN_SECONDS)
                continue
            self.codes[answer.error_code] += 1
            if answer.error_code == ErrorCode.NONE:
                return answer.base_offset
            if answer.error_code not in RETRIED:
                raise AssertionError(f"{self._topic} {partition}: {answer}")
            time.sleep(_AGAIN_SECONDS)
        raise AssertionError("no end")

    def _leader(self, partition: int) -> tuple[str, int] | None:
        try:
            with RawClient(self._bootstrap, client_id="raw-asks") as client:
                found: Any = client.ask(ApiKey.METADATA, 1, topics=[{"name": self._topic}])
        except OSError:
            return None  # this question has gone to a broker that was killed
        places = {one.node_id: (one.host, one.port) for one in found.brokers}
        leaders = {one.partition_index: one.leader_id for topic in found.topics for one in topic.partitions}
        return places.get(leaders.get(partition, -1))


class OldProducersScene:
    """A context manager: entering starts relays, brokers and the proxy."""

    def __init__(
        self, directory: Path, *, every_nth_produce: int, seed: int = 0, upstream_idempotence: Sequence[str] = ()
    ) -> None:
        self.directory = directory
        ports = free_ports(BROKERS)
        self.cluster = KraftCluster(
            directory / "cluster",
            brokers=BROKERS,
            advertised={broker: (HOST, port) for broker, port in enumerate(ports)},
            auto_create_topics=False,
            broker_settings=_BROKER_SETTINGS,
        )
        plans = [
            FaultPlan(seed=seed + broker, kinds=BREAKING_KINDS, every_nth_produce=every_nth_produce, evenly=True)
            for broker in range(BROKERS)
        ]
        self.relays = [
            FaultRelay(self.cluster.address(broker), plan=plans[broker], port=port) for broker, port in enumerate(ports)
        ]
        settings = {
            "upstream": {"bootstrap": [f"{HOST}:{ports[CONTROLLER]}"]},
            "producers": {"upstream_idempotence": list(upstream_idempotence)},
        }
        self.proxy = ConfiguredProxy(directory / "proxy", settings, listener={}, brokers=BROKERS)
        self._children = ChildProcesses()
        self._stack = ExitStack()
        self._moves = 0
        self._topics: list[str] = []

    def __enter__(self) -> Self:
        with ExitStack() as started:
            for relay in self.relays:
                started.enter_context(relay)
            started.enter_context(self.cluster)
            started.enter_context(self.proxy)
            started.enter_context(self._children)
            self._stack = started.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(None, None, None)

    @property
    def faults(self) -> Counter[str]:
        """What the relays did, by kind."""
        found: Counter[str] = Counter()
        for relay in self.relays:
            found.update({kind.value: count for kind, count in relay.counts.items()})
        return found

    # ------------------------------------------------------------------ clients
    def run(
        self,
        records: dict[str, int],
        trouble: Callable[[OldProducersScene], None],
        *,
        raw_clients: int = 4,
        seconds_max: float = 600,
    ) -> list[Produced]:
        """Let all kinds of clients produce so many records at the same time, each kind to a topic of its own, and make
        trouble meanwhile."""
        found = [self._kind(kind, count) for kind, count in records.items()]
        with ThreadPoolExecutor(len(found) * raw_clients + 1) as threads:
            running = [start(threads, raw_clients, seconds_max) for start, _ in found]
            begun = time.monotonic()
            trouble(self)
            ended = [finish() for finish in running]
        for one in ended:
            one.seconds = one.seconds or time.monotonic() - begun
        for relay in self.relays:
            relay.set_faults(False)
        for (_, topic), one in zip(found, ended, strict=True):
            partitions = 1 if one.kind in _WITHOUT_ISR else PARTITIONS
            self.cluster.wait_for_leaders(topic, partitions)
            one.verdict = verdict(self.cluster, topic, partitions, self._told[one.kind])
        return ended

    _told: dict[str, dict[Position, int]]

    def _kind(self, kind: str, records: int) -> tuple[Callable[..., Callable[[], Produced]], str]:
        self._told = {}
        is_alone = kind in _WITHOUT_ISR
        topic = f"old-{len(self._topics)}-{int(time.time())}"
        self._topics.append(topic)
        if is_alone:
            self.cluster.create_topic(topic, 1, assignment=[[CONTROLLER]], config={"min.insync.replicas": 1})
        else:
            self.cluster.create_topic(topic, PARTITIONS, assignment=ASSIGNMENT)

        def start(threads: ThreadPoolExecutor, clients: int, seconds_max: float) -> Callable[[], Produced]:
            if kind in REAL_CLIENTS:
                return self._start_real(kind, topic, records, seconds_max)
            return self._start_raw(kind, topic, records, seconds_max, threads, clients)

        return start, topic

    def _start_real(self, kind: str, topic: str, records: int, seconds_max: float) -> Callable[[], Produced]:
        begun = time.monotonic()
        program = start_producer(
            self._children,
            self.directory,
            kind,
            bootstrap="{}:{}".format(*self.proxy.address),
            topic=topic,
            partitions=PARTITIONS,
            records=records,
            idempotent=False,
            delivery_seconds=int(seconds_max),
            settings=_SETTINGS[kind],
        )

        def finish() -> Produced:
            outcome = program.wait(max(1.0, begun + seconds_max - time.monotonic()))
            self._told[kind] = told(kind, program.acknowledged())
            seconds = time.monotonic() - begun
            errors = [str(one) for one in outcome["errors"]]
            return Produced(kind, records, len(self._told[kind]), errors=errors, seconds=seconds)

        return finish

    def _start_raw(
        self, kind: str, topic: str, records: int, seconds_max: float, threads: ThreadPoolExecutor, clients: int
    ) -> Callable[[], Produced]:
        is_alone = kind in _WITHOUT_ISR
        begun = time.monotonic()
        raw = RawProducers(
            *(self.proxy.address, topic, 1 if is_alone else PARTITIONS, 1 if is_alone else -1),
            sends_batches=kind in _SEND_BATCHES,
        )
        share, rest = divmod(records, clients)
        running: list[Future[None]] = [
            threads.submit(raw.run, number + (100 if is_alone else 0), share + (number < rest))
            for number in range(clients)
        ]

        def finish() -> Produced:
            try:
                for one in running:
                    one.result(max(1.0, begun + seconds_max - time.monotonic()))
            finally:
                raw.is_over.set()
            self._told[kind] = raw.acknowledged
            return Produced(
                *(kind, records, len(raw.acknowledged)),
                errors=raw.errors,
                codes=raw.codes,
                resets=raw.resets,
                seconds=time.monotonic() - begun,
            )

        return finish

    # ------------------------------------------------------------------ trouble
    def kill_and_restart(self, broker: int) -> None:
        """SIGKILL it, and start it again after some seconds; wait until all replicas are in sync."""
        self.cluster.kill_broker(broker)
        time.sleep(_DOWN_SECONDS)
        self.cluster.start_broker(broker)
        self.wait_in_sync()

    def move_leaders(self) -> None:
        """Every partition of three replicas gets the next one of them as its leader, as by an operator."""
        self._moves += 1
        moved = [[*one[self._moves % BROKERS :], *one[: self._moves % BROKERS]] for one in ASSIGNMENT]
        topics = [topic for topic in self._topics if len(self._partitions_of(topic)) == PARTITIONS]
        with RawClient(self.cluster.address(CONTROLLER)) as client:
            wanted = [
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": index, "replicas": replicas} for index, replicas in enumerate(moved)
                    ],
                }
                for topic in topics
            ]
            changed: Any = client.ask(45, 0, timeout_ms=10_000, topics=wanted)
            assert changed.error_code == ErrorCode.NONE, changed
            of_topics = [{"topic": topic, "partitions": list(range(PARTITIONS))} for topic in topics]
            elected: Any = client.ask(43, 2, election_type=0, topic_partitions=of_topics, timeout_ms=10_000)
            assert elected.error_code == ErrorCode.NONE, elected

    def wait_in_sync(self, seconds_max: float = 90) -> None:
        """Until each partition has all of its replicas again."""
        end = time.monotonic() + seconds_max
        while not all(
            len(one.isr_nodes) == len(one.replica_nodes) for topic in self._topics for one in self._partitions_of(topic)
        ):
            assert time.monotonic() < end, "a replica does not come back"
            time.sleep(0.5)

    def _partitions_of(self, topic: str) -> Sequence[Any]:
        with RawClient(self.cluster.address(CONTROLLER)) as client:
            found: Any = client.ask(ApiKey.METADATA, 1, topics=[{"name": topic}])
        partitions: Sequence[Any] = found.topics[0].partitions
        return partitions
