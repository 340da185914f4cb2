"""One connection to a virtual broker: requests one at a time (muting), the APIs of its release, faults of produces.

Owns the order of requests, and what becomes of one whose connection has died: a request that has arrived is executed.
The cluster's truth is in ``cluster``.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from idemproxy.reactor import Wire
from testkit.virtual import kafka_bytes as kafka
from testkit.virtual.batches import codec_in, codecs_in, is_batch
from testkit.virtual.broker_faults import CODES_AFTER_APPEND, BrokerFault, ProduceSeen
from testkit.virtual.connection import Connection
from testkit.virtual.releases import (
    NEW_FORMAT,
    describe_configs_answer,
    describe_producers_answer,
    parse_describe_producers,
)
from testkit.virtual.wire import VirtualWire

if TYPE_CHECKING:
    from testkit.virtual.cluster import Broker, Part, VirtualCluster

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_LEADER, DENIED = 1, 3, 5, 6, 29
UNSUPPORTED_COMPRESSION, INVALID_RECORD = 76, 87
WITHOUT_A_NAME = (kafka.API_VERSIONS, kafka.SASL_HANDSHAKE)
PRODUCE_KEY_BYTES = b"\x00\x00"
PROXY = "idemproxy"
"""The client id under which proxies produce. Another one is a client's own, whose bytes a proxy passes on."""
FIRST_FETCH_OF_BATCHES, FIRST_FETCH_OF_ZSTD = 4, 10
ZSTD, ZSTD_FROM = 4, 7
"""A codec, and the first version of Produce in which it may be used."""
BATCHES_FROM = 3
"""The first version of Produce that carries format v2, and nothing else."""
LOOK_SECONDS = 0.05
DEBUGGING_REPLICA = -2
CONSUMER = -1


class BrokerConnection:
    """The broker's end of one connection."""

    def __init__(self, cluster: VirtualCluster, broker: Broker) -> None:
        self._cluster = cluster
        self._broker = broker
        self._instance = broker.lives
        self._wire: VirtualWire | None = None
        self._connection: Connection | None = None
        self._peer = ""
        self._number = 0
        self._buffer = b""
        self._frames: deque[bytes] = deque()
        self._is_muted = False
        self._principal = ""
        self._awaits_token = False
        self._unanswered: ProduceSeen | None = None

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """A client is there."""
        assert isinstance(wire, VirtualWire)
        self._wire = wire
        self._connection = wire.connection
        self._peer, self._number = wire.connection.ends[0].host.name, wire.connection.number

    def received(self, data: bytes) -> None:
        """Take whole frames; they are served one at a time."""
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big", signed=True)
            if not 0 < size <= 100 * 1024 * 1024:
                return self._break()
            if len(self._buffer) < 4 + size:
                return self._next()
            self._look_at_order(self._buffer[4 : 4 + size])
            self._frames.append(self._buffer[4 : 4 + size])
            self._buffer = self._buffer[4 + size :]
        self._next()

    def _look_at_order(self, frame: bytes) -> None:
        """R3. On a connection that a client has for himself nothing else is out while a batch is."""
        out = self._unanswered
        if out is not None and not self._is_clients_own(out) and frame[:2] == PRODUCE_KEY_BYTES:
            self._pipelined()
            return
        has_batch_out = out is not None and any(row[2] for row in out.body.partitions)
        is_busy = (self._is_muted or self._frames) and self._cluster.is_user(self._principal)
        if is_busy and (has_batch_out or kafka.has_records(frame)):
            what = f"a batch and something else are out on connection {self._number} of {self._principal}"
            self._cluster.violations.append(what)

    def lost(self, reason: str) -> None:
        """The client has gone. What is being done continues; of what queues after it some is executed, some is not."""
        self._wire = None
        self._produce_is_over()
        if not self._cluster.network.chance(0.5):
            self._frames.clear()
        self._is_muted = False
        self._next()

    # ------------------------------------------------------------------ one request after the other
    def _next(self) -> None:
        while self._frames and not self._is_muted:
            frame = self._frames.popleft()
            try:
                self._introduce(frame) if self._awaits_token else self._serve(kafka.parse_request(frame))
            except kafka.BadRequest:
                self._break()

    def _serve(self, request: kafka.Request) -> None:
        key, version = request.api_key, request.api_version
        low, high = self._broker.release.ranges.get(key, (0, -1))
        high = min(high, kafka.READ_MAX.get(key, high))
        if not low <= version <= high:
            if key == kafka.API_VERSIONS:
                self._answer(request, b"\x00\x23" + kafka.array([]))
                return
            raise kafka.BadRequest(f"api {key} version {version}")
        if self._cluster.users is not None and not self._principal and key not in WITHOUT_A_NAME:
            raise kafka.BadRequest(f"api {key} before anybody has shown who he is")
        self._is_muted = True
        if key == kafka.PRODUCE:
            self._produce(request)
        elif key == kafka.FETCH:
            self._fetch(request)
        elif key == kafka.LIST_OFFSETS:
            self._list_offsets(request)
        elif key == kafka.METADATA:
            self._metadata(request)
        elif key == kafka.API_VERSIONS:
            self._answer(request, kafka.api_versions_answer(self._broker.release.ranges))
        elif key == kafka.SASL_HANDSHAKE and self._cluster.users is not None:
            self._awaits_token = True
            self._answer(request, b"\x00\x00" + kafka.array([kafka.string("PLAIN")]))
        elif self._broker.release.has_producer_ids:
            self._answer_upgraded(request)
        else:
            raise kafka.BadRequest(f"api {key} is no part of this world")

    def _answer_upgraded(self, request: kafka.Request) -> None:
        """What brokers of Kafka ≥ 0.11 are asked in addition."""
        key, body, cluster = request.api_key, request.body, self._cluster
        if key == kafka.DESCRIBE_CONFIGS:
            release, number = self._broker.release, self._broker.number
            self._answer(request, describe_configs_answer(body, request.api_version, number, release))
        elif key == kafka.DESCRIBE_PRODUCERS:
            asked = parse_describe_producers(body)
            rows = [(topic, number, *self._known_producers(topic, number)) for topic, number in asked]
            self._answer(request, b"\x00" + describe_producers_answer(rows))
        elif key == kafka.INIT_PRODUCER_ID:
            self._answer(request, kafka.init_producer_id_answer(cluster.issue_id()))
        else:
            raise kafka.BadRequest(f"api {key} is no part of this world")

    def _known_producers(self, topic: str, number: int) -> tuple[int, list[tuple[int, int, int]]]:
        partition = self._cluster.find(topic, number)
        if partition is None:
            return UNKNOWN_TOPIC, []
        if partition.leader != self._broker.number:
            return NOT_LEADER, []
        known = partition.log.producers.items()
        return 0, [(id_, one.epoch, one.batches[-1].last_sequence) for id_, one in known]

    def _introduce(self, token: bytes) -> None:
        """SASL PLAIN with a bare token: a wrong one ends the connection, as before 1.0."""
        self._awaits_token, self._principal = False, self._cluster.user_of(token)
        if self._principal and self._wire is not None:
            self._wire.send(bytes(4))
        else:
            self._break()

    def _answer(self, request: kafka.Request, body: bytes, *, correlation_shift: int = 0) -> None:
        """Send an answer and serve the next request."""
        rates = self._cluster.rates
        self._is_muted = False
        if request.api_key == kafka.PRODUCE:
            self._produce_is_over()
        elif self._cluster.network.chance(rates.cut_answer_share):
            self._break()
            return
        if self._wire is not None:
            self._wire.send(kafka.frame(request.correlation_id + correlation_shift, body))
            self._broker.host.post(self._next)

    def _break(self) -> None:
        if self._wire is not None:
            self._wire.reset()
            self._wire = None
            self._produce_is_over()
        self._frames.clear()

    def _is_alive(self) -> bool:
        return self._broker.is_up and self._broker.lives == self._instance

    # ------------------------------------------------------------------ produce
    def _produce(self, request: kafka.Request) -> None:
        cluster, network = self._cluster, self._cluster.network
        body = kafka.parse_produce(request.body, request.api_version)
        cluster.produce_count += 1
        where = self._broker.number, self._instance, self._number, self._peer
        seen = ProduceSeen(cluster.produce_count, *where, body, self._principal, request.client_id or "")
        self._look_at_formats(request.api_version, body)
        body = self._last_of_each(body)
        has_more = any(frame[:2] == PRODUCE_KEY_BYTES for frame in self._frames)
        if body.acks != 0 and has_more and not self._is_clients_own(seen):
            self._pipelined()
        self._unanswered = seen
        for watch in cluster.on_produce:
            watch(seen)
        if cluster.users is not None and not cluster.users[self._principal]:
            return self._answer_parts(request, [(topic, number, DENIED, -1) for topic, number, _ in body.partitions])
        if self._refuse_empty(request, body) or self._refuse_zstd(request, body):
            return None
        fault = cluster.choose_fault(seen)
        cluster.faults_done[fault.value] = cluster.faults_done.get(fault.value, 0) + 1
        network.note(f"broker-{self._broker.number}", f"produce {seen.number} {fault.value}")
        self._produce_with(fault, request, body)

    def _look_at_formats(self, version: int, body: kafka.ProduceBody) -> None:
        """Version 3 and later carry batches of format v2, earlier ones messages."""
        for topic, number, data in body.partitions:
            if data and is_batch(data) != (version >= BATCHES_FROM):
                self._cluster.violations.append(f"Produce {version} with another format for {topic}-{number}")

    def _is_clients_own(self, seen: ProduceSeen) -> bool:
        """Is it what a client sends itself, and a proxy passes on? Only where brokers give idempotence."""
        return seen.client_id != PROXY and self._broker.release.message_format == NEW_FORMAT

    def _pipelined(self) -> None:
        what = f"a produce behind an unanswered one on connection {self._number} of {self._peer} (R3)"
        self._cluster.violations.append(what)

    def _last_of_each(self, body: kafka.ProduceBody) -> kafka.ProduceBody:
        last = {(topic, partition): data for topic, partition, data in body.partitions}
        if len(last) != len(body.partitions):
            self._cluster.violations.append("a partition twice in one produce request")
        rows = [(topic, partition, data) for (topic, partition), data in last.items()]
        return kafka.ProduceBody(body.acks, body.timeout_ms, rows)

    def _produce_with(self, fault: BrokerFault, request: kafka.Request, body: kafka.ProduceBody) -> None:
        cluster, network, broker = self._cluster, self._cluster.network, self._broker
        rates, random = cluster.rates, network.random
        if fault is BrokerFault.NONE:
            self._append(request, body)
        elif fault is BrokerFault.LOST_REQUEST:
            self._break()
        elif fault is BrokerFault.LOST_ANSWER:
            cluster.append(broker, body, None)
            self._break()
        elif fault is BrokerFault.LOST_AND_STALLED:
            cluster.stall(body, network.between(rates.stall))
            cluster.append(broker, body, None)
            self._break()
        elif fault is BrokerFault.STRAGGLER:
            self._break()
            network.schedule(network.between(rates.straggle), lambda: self._append_late(body))
        elif fault is BrokerFault.SLOW:
            self._append_slowly(request, body)
        elif fault is BrokerFault.LATE_ANSWER:
            self._append(request, body, delay=network.between(rates.slow))
        elif fault is BrokerFault.REFUSED:
            refused = [random.random() < 0.7 for _ in body.partitions]
            self._refuse(request, body, refused if any(refused) else [True] * len(refused))
        elif fault in (BrokerFault.ERROR_AFTER_APPEND, BrokerFault.TRUNCATED):
            self._append_and_fail(request, body, truncated=fault is BrokerFault.TRUNCATED)
        elif fault is BrokerFault.UNKNOWN:
            if random.random() < 0.5:
                cluster.append(broker, body, None)
            self._answer_parts(request, [(topic, partition, -1, -1) for topic, partition, _ in body.partitions])
        elif fault is BrokerFault.WRONG_CORRELATION:
            self._append(request, body, correlation_shift=1000)
        elif fault is BrokerFault.TORN_ANSWER:
            self._append_and_tear(request, body)
        elif fault is BrokerFault.INCOMPLETE_ANSWER:
            cluster.append(broker, body, None)
            self._answer_parts(request, [])
        else:
            assert fault is BrokerFault.CRASH
            if random.random() < 0.5:
                cluster.append(broker, body, None)
            cluster.crash_broker(broker.number)

    def _refuse_empty(self, request: kafka.Request, body: kafka.ProduceBody) -> bool:
        """From version 3 on there has to be a batch for each partition (ProduceRequest.validateRecords)."""
        empty = [(topic, number) for topic, number, data in body.partitions if not data]
        if request.api_version < BATCHES_FROM or not empty:
            return False
        self._answer_parts(request, [(topic, number, INVALID_RECORD, -1) for topic, number in empty])
        return True

    def _refuse_zstd(self, request: kafka.Request, body: kafka.ProduceBody) -> bool:
        """Before version 7 nothing may be packed with it (KIP-110)."""
        packed = [row[:2] for row in body.partitions if row[2] and is_batch(row[2]) and codec_in(row[2]) == ZSTD]
        if request.api_version >= ZSTD_FROM or not packed:
            return False
        self._answer_parts(request, [(topic, number, UNSUPPORTED_COMPRESSION, -1) for topic, number in packed])
        return True

    def _append(
        self, request: kafka.Request, body: kafka.ProduceBody, *, delay: float = 0.0, correlation_shift: int = 0
    ) -> None:
        if body.acks == 0:
            self._cluster.append(self._broker, body, None)
            self._is_muted = False
            self._produce_is_over()
            return

        def done(parts: list[Part]) -> None:
            rows = [(part.topic, part.partition, part.error_code, part.base_offset) for part in parts]
            if delay:
                self._broker.host.later(
                    delay, lambda: self._answer_parts(request, rows, correlation_shift=correlation_shift)
                )
            else:
                self._answer_parts(request, rows, correlation_shift=correlation_shift)

        self._cluster.append(self._broker, body, done)

    def _append_slowly(self, request: kafka.Request, body: kafka.ProduceBody) -> None:
        """Hold it; but what is held when its connection has died, or when its sender stands still and others may take
        over, is a straggler: the time of the quiescence check bounds that."""
        network, rates = self._cluster.network, self._cluster.rates
        connection = self._connection
        assert connection is not None
        due = network.now + network.between(rates.slow)

        def look() -> None:
            nonlocal due
            if not connection.is_open or connection.ends[0].host.stands_still:
                due = min(due, network.now + network.between(rates.straggle) - LOOK_SECONDS)
            if network.now < due and connection.is_open:
                network.schedule(LOOK_SECONDS, look)
            elif self._is_alive():
                network.schedule(max(0.0, due - network.now), append)

        def append() -> None:
            if self._is_alive():
                self._append(request, body)

        look()

    def _append_late(self, body: kafka.ProduceBody) -> None:
        if self._is_alive():
            self._cluster.network.note(f"broker-{self._broker.number}", "straggler appended")
            self._cluster.append(self._broker, body, None)

    def _refuse(self, request: kafka.Request, body: kafka.ProduceBody, refused: list[bool]) -> None:
        """Some partitions refuse; the others are appended, and the answer waits for them."""
        code = self._cluster.network.random.choice(self._cluster.rates.refusals)
        taken = [row for row, no in zip(body.partitions, refused, strict=True) if not no]
        rows = [(row[0], row[1], code, -1) for row, no in zip(body.partitions, refused, strict=True) if no]

        def done(parts: list[Part]) -> None:
            good = [(part.topic, part.partition, part.error_code, part.base_offset) for part in parts]
            self._answer_parts(request, rows + good)

        self._cluster.append(self._broker, kafka.ProduceBody(body.acks, body.timeout_ms, taken), done)

    def _append_and_fail(self, request: kafka.Request, body: kafka.ProduceBody, *, truncated: bool) -> None:
        cluster, random = self._cluster, self._cluster.network.random
        parts = cluster.append(self._broker, body, None)
        code = random.choice(CODES_AFTER_APPEND)
        rows = [
            (part.topic, part.partition, code if part.base_offset >= 0 else part.error_code, part.base_offset)
            for part in parts
        ]
        if truncated:
            for part in parts:
                if part.base_offset >= 0:
                    others = [number for number in cluster.brokers if number != self._broker.number]
                    up = [number for number in others if cluster.brokers[number].is_up]
                    if up:
                        cluster.move_leader(part.topic, part.partition, random.choice(up))
        if truncated and random.random() < 0.5:
            self._break()
        else:
            self._answer_parts(request, rows)

    def _append_and_tear(self, request: kafka.Request, body: kafka.ProduceBody) -> None:
        """Of the answer only a part is written."""
        parts = self._cluster.append(self._broker, body, None)
        rows = [(part.topic, part.partition, 0, part.base_offset) for part in parts]
        answer = kafka.frame(request.correlation_id, kafka.produce_answer(request.api_version, rows))
        if self._wire is not None:
            self._wire.send(answer[: self._cluster.network.random.randrange(1, len(answer))])
            self._wire.close()
            self._wire = None
        self._produce_is_over()
        self._frames.clear()

    def _answer_parts(
        self, request: kafka.Request, rows: list[tuple[str, int, int, int]], *, correlation_shift: int = 0
    ) -> None:
        until, delay = self._cluster.throttle
        if self._cluster.network.now >= until:
            self._answer_now(request, rows, correlation_shift, 0)
        else:  # quotas hold the answer, and all that follows on the connection
            throttle_ms = round(delay * 1000)
            self._broker.host.later(delay, lambda: self._answer_now(request, rows, correlation_shift, throttle_ms))

    def _answer_now(
        self, request: kafka.Request, rows: list[tuple[str, int, int, int]], correlation_shift: int, throttle_ms: int
    ) -> None:
        if self._is_alive():
            body = kafka.produce_answer(request.api_version, rows, throttle_ms)
            self._answer(request, body, correlation_shift=correlation_shift)

    def _produce_is_over(self) -> None:
        seen, self._unanswered = self._unanswered, None
        if seen is not None:
            for watch in self._cluster.on_produce_over:
                watch(seen)

    # ------------------------------------------------------------------ the rest
    def _fetch(self, request: kafka.Request, *, has_waited: bool = False, body: kafka.FetchBody | None = None) -> None:
        if body is None:
            body = kafka.parse_fetch(request.body, request.api_version)
        rows: list[tuple[str, int, int, int, bytes]] = []
        room = body.bytes_max
        for topic, number, offset, bytes_max in body.partitions:
            partition = self._cluster.find(topic, number)
            if partition is None or partition.leader != self._broker.number:
                rows.append((topic, number, UNKNOWN_TOPIC if partition is None else NOT_LEADER, -1, b""))
                continue
            log = partition.log
            if not log.start_offset <= offset <= log.end_offset:
                rows.append((topic, number, OFFSET_OUT_OF_RANGE, log.high_watermark, b""))
                continue
            whole = request.api_version >= 3 and not any(row[4] for row in rows)
            assert body.replica_id < 0, "a replica id of a broker disturbs replication"
            read = partial(log.read, offset, min(room, bytes_max), whole_first=whole, up_to=log.high_watermark)
            data = read()
            if request.api_version < FIRST_FETCH_OF_ZSTD and ZSTD in codecs_in(data):
                rows.append((topic, number, UNSUPPORTED_COMPRESSION, log.high_watermark, b""))
                continue
            if request.api_version < FIRST_FETCH_OF_BATCHES:
                data = read(converts_down=True)
            if request.api_version >= 3 and len(data) < 12 + int.from_bytes(data[8:12], "big"):
                data = b""  # KIP-74: not even one message is whole
            room -= len(data)
            rows.append((topic, number, 0, log.high_watermark, data))
        is_empty = rows and not any(row[2] or row[4] for row in rows)
        if is_empty and body.wait_ms_max > 0 and not has_waited:
            again = body
            self._broker.host.later(body.wait_ms_max / 1000, lambda: self._fetch(request, has_waited=True, body=again))
            return
        if self._is_alive():
            self._answer(request, kafka.fetch_answer(request.api_version, rows))

    def _list_offsets(self, request: kafka.Request) -> None:
        body = kafka.parse_list_offsets(request.body, request.api_version)
        rows = []
        for topic, number, time in body.partitions:
            partition = self._cluster.find(topic, number)
            if partition is None:
                rows.append((topic, number, UNKNOWN_TOPIC, -1))
            elif partition.leader != self._broker.number and body.replica_id != DEBUGGING_REPLICA:
                rows.append((topic, number, NOT_LEADER, -1))
            elif time == -2:
                rows.append((topic, number, 0, partition.log.start_offset))
            else:
                assert time == -1, "only the latest and the earliest offset are known here"
                log = partition.log
                rows.append((topic, number, 0, log.high_watermark if body.replica_id == CONSUMER else log.end_offset))
        self._answer(request, kafka.list_offsets_answer(request.api_version, rows))

    def _metadata(self, request: kafka.Request) -> None:
        cluster = self._cluster
        wanted = kafka.parse_metadata(request.body, request.api_version)
        up = cluster.numbers_up
        topics = cluster.described(wanted)
        brokers = [(number, *cluster.brokers[number].address) for number in up]
        answer = kafka.metadata_answer(request.api_version, brokers, cluster.cluster_id, min(up, default=-1), topics)
        self._answer(request, answer)
