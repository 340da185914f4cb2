"""The shell on trio: a task for each leader that gets batches, and one that keeps the metadata and the time. It moves
bytes as ``blocking.py`` does, and decides nothing either."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from ..producing.backoff import backoff_seconds
from ..producing.errors import ClientError, ProduceError
from ..producing.limits import DELIVERY_SECONDS_MAX, REQUEST_SECONDS_MAX
from ..producing.numbered_batch import Place, ProducerId, Receipt
from ..producing.partition_queue import Outcome
from ..producing.producer_core import ProducerCore
from . import flows, limits
from .asking import EARLIEST, LATEST, Effect, Servers, fetch_cluster
from .errors import AuthenticationFailed, ConnectionFailed, UnsupportedServer
from .flows import Cursor
from .leader_session import LeaderSession
from .records import CommittedOffset, Compression, Record, Stopped, StoredRecord, finish
from .security import Sasl
from .settings import ClientSettings
from .trio_connections import Connection, Connections, Connector

Result = TypeVar("Result")
Batch = bytes | bytearray | memoryview


class TrioClient:
    """A cluster, or a proxy in front of one. An async context manager, for any number of tasks."""

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        *,
        client_id: str = "idemproxy-client",
        tls: ssl.SSLContext | None = None,
        sasl: Sasl | None = None,
        seconds_max: float = 60.0,
        request_seconds_max: float = REQUEST_SECONDS_MAX,
    ) -> None:
        """See ``ClientSettings``. Nothing is connected yet."""
        self._settings = ClientSettings(bootstrap, client_id, tls, sasl, seconds_max, request_seconds_max)
        self._connector = Connector(self._settings)
        self._servers = Servers(self._settings.addresses())
        self._lock = trio.Lock()
        self._connections = Connections(self._connector)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connections.aclose()

    async def init_producer_id(self, name: str | None = None) -> ProducerId:
        """Return a fresh producer id. Save it, with its epoch, before the first batch is sent. ``name``: of this
        producer; it gets the producer id of that name with a higher epoch, and all that had it before are fenced."""
        return await self._run(flows.init_producer_id(self._servers, self._settings.seconds_max, name))

    async def topics(self) -> tuple[str, ...]:
        """Return the names of all topics. See ``Client.topics``."""
        return await self._run(flows.find_topics(self._servers, self._settings.seconds_max))

    async def partitions(self, topic: str) -> tuple[int, ...]:
        """Return the partitions of a topic."""
        return await self._run(flows.find_partitions(self._servers, topic, self._settings.seconds_max))

    async def end_offset(self, topic: str, partition: int) -> int:
        """Return where the log ends for consumers: the offset of the next record."""
        place = Place(topic, partition)
        return await self._run(flows.find_offset(self._servers, place, LATEST, self._settings.seconds_max))

    async def start_offset(self, topic: str, partition: int) -> int:
        """Return the offset of the oldest record."""
        place = Place(topic, partition)
        return await self._run(flows.find_offset(self._servers, place, EARLIEST, self._settings.seconds_max))

    async def where_producers_stopped(self, topic: str, partition: int) -> dict[int, Stopped]:
        """Return where producers stopped on a partition, by the number of their ids. See
        ``Client.where_producers_stopped``."""
        place = Place(topic, partition)
        found = await self._run(flows.where_they_stopped(self._servers, place, self._settings.seconds_max))
        return {one.producer_id.number: one for one in found}

    async def where_it_stopped(self, number: int, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Stopped]:
        """Return where one producer stopped on these partitions. See ``Client.where_it_stopped``."""
        wanted = [Place(*place) for place in places]
        found = await self._run(flows.where_it_stopped(self._servers, number, wanted))
        return {(place.topic, place.partition): one for place, one in found.items()}

    async def committed_offsets(
        self, group: str, places: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], CommittedOffset]:
        """Return what a group has stored for these (topic, partition); those without an offset are left out."""
        wanted = [Place(*place) for place in places]
        found = await self._run(flows.committed_offsets(self._servers, group, wanted, self._settings.seconds_max))
        return {(place.topic, place.partition): one for place, one in found.items()}

    async def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], CommittedOffset]) -> None:
        """Store offsets, with the text that goes with each, for a group that has no members: all of them or none. See
        ``Client.commit_offsets``."""
        places = {Place(*place): one for place, one in offsets.items()}
        await self._run(flows.commit_offsets(self._servers, group, places, self._settings.seconds_max))

    @asynccontextmanager
    async def producer(
        self,
        producer_id: ProducerId,
        *,
        next_sequences: Mapping[tuple[str, int], int] | None = None,
        delivery_seconds_max: float = DELIVERY_SECONDS_MAX,
        compression: Compression = "none",
    ) -> AsyncIterator[TrioProducer]:
        """A producer with this id and epoch. ``next_sequences``: where saved partitions continue, by (topic,
        partition); one that is not named begins at 0. Leaving it without an exception waits for all outcomes."""
        core = ProducerCore(
            producer_id,
            {Place(*place): sequence for place, sequence in (next_sequences or {}).items()},
            self._settings.timing(delivery_seconds_max),
            lambda: random.uniform(0.8, 1.2),
        )
        raised: Exception | None = None
        async with trio.open_nursery() as nursery:
            made = TrioProducer(core, self._connector, Servers(list(self._servers)), compression, nursery)
            nursery.start_soon(made._keep)
            try:
                yield made
                await made.flush()
            except Exception as error:
                raised = error  # outside of the nursery, so that it comes as it is and not in a group
            finally:
                made._end(ClientError("the producer is closed"), "the producer was closed")
                nursery.cancel_scope.cancel()
        if raised is not None:
            raise raised

    @asynccontextmanager
    async def reader(self, topic: str, partition: int, offset: int = 0) -> AsyncIterator[TrioReader]:
        """A reader of one partition from this offset on."""
        cursor = Cursor(Place(topic, partition), offset)
        made = TrioReader(cursor, self._connector, Servers(list(self._servers)), self._settings.seconds_max)
        try:
            yield made
        finally:
            await made._connections.aclose()

    async def _run(self, flow: Coroutine[Effect, Any, Result]) -> Result:
        async with self._lock:
            return await self._connections.run(flow)


class TrioReader:
    """One partition, from an offset on. For one task at a time."""

    def __init__(self, cursor: Cursor, connector: Connector, servers: Servers, seconds_max: float) -> None:
        self._cursor = cursor
        self._connections = Connections(connector)
        self._servers = servers
        self._seconds_max = seconds_max

    @property
    def offset(self) -> int:
        """The offset of the next record."""
        return self._cursor.offset

    async def read(self) -> list[StoredRecord]:
        """Return the next records, as one fetch brings them; empty: half a second has brought none."""
        return await self._connections.run(flows.fetch_records(self._servers, self._cursor, self._seconds_max))

    async def read_to_end(self) -> AsyncIterator[StoredRecord]:
        """Yield all records up to where the log ends for consumers at the first fetch."""
        end: int | None = None
        while end is None or self.offset < end:
            flow = flows.fetch_to_end(self._servers, self._cursor, self._seconds_max)
            records = await self._connections.run(flow)
            if not records:
                return
            end = self._cursor.high_watermark if end is None else min(end, self._cursor.high_watermark)
            for one in records:
                if one.offset < end:
                    yield one


class Delivery:
    """One batch on its way."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._result: Receipt | ProduceError | None = None

    async def receipt(self) -> Receipt:
        """Wait for the outcome, which comes after ``delivery_seconds_max`` at the latest. Raises ProduceError."""
        await self._done.wait()
        assert self._result is not None
        if isinstance(self._result, Receipt):
            return self._result
        raise self._result

    def _tell(self, result: Receipt | ProduceError) -> None:
        self._result = result
        self._done.set()


class TrioProducer:
    """One producer id and epoch. Batches of a partition go in the order of the calls."""

    def __init__(
        self,
        core: ProducerCore,
        connector: Connector,
        servers: Servers,
        compression: Compression,
        nursery: trio.Nursery,
    ) -> None:
        self._core = core
        self._connector = connector
        self._servers = servers
        self._compression = compression
        self._nursery = nursery
        self._changed = trio.lowlevel.ParkingLot()
        """The tasks that wait for outcomes."""
        self._keeper = _Bell()
        self._keeper_wakes_at: float | None = None
        self._leaders: dict[int, _Bell] = {}
        self._failures: dict[int, int] = {}
        """By leader: connections in a row that brought no outcome, for the back-off."""
        self._ended: Exception | None = None

    @property
    def producer_id(self) -> ProducerId:
        """Its id and epoch."""
        return self._core.producer_id

    def next_sequence(self, topic: str, partition: int) -> int:
        """Return the base sequence of the partition's next batch."""
        return self._core.next_sequence(Place(topic, partition))

    def next_sequences(self) -> dict[tuple[str, int], int]:
        """Return those of all partitions that were named or used: what is saved once their batches have receipts."""
        return {(one.topic, one.partition): sequence for one, sequence in self._core.next_sequences().items()}

    def start_at(self, topic: str, partition: int, sequence: int) -> None:
        """Let the partition's next batch have this sequence, also after a failure. After going back, the same batches
        have to be sent again. Raises ValueError while batches of it have no outcome, and Fenced."""
        self._core.start_at(Place(topic, partition), sequence)

    async def send(
        self, topic: str, partition: int, batch: Batch | Sequence[Record], *, expected_offset: int | None = None
    ) -> Delivery:
        """Queue one batch: records, or a finished batch as ``finish`` makes it. Waits while too much is buffered.
        Raises the partition's failure, if it has one. ``expected_offset``: as in ``Producer.send``."""
        if isinstance(batch, Batch):
            data: Batch = batch
        else:
            data = finish(batch, compression=self._compression, now_ms=time.time_ns() // 1_000_000)
        while self._core.buffered_bytes + len(data) > limits.BUFFERED_BYTES_MAX and not self._core.is_idle:
            self._raise_if_ended()
            await self._changed.park()
        self._raise_if_ended()
        delivery = Delivery()
        place, now = Place(topic, partition), trio.current_time()
        self._core.submit(place, data, now, delivery, expected_offset)
        leader = self._leaders.get(self._core.cluster.leaders.get(place, -1))
        if leader is not None:
            leader.ring()
        if leader is None or not self._keeper_wakes_by(now + self._core.timing.delivery_seconds_max):
            self._keeper.ring()
        return delivery

    async def publish(
        self, topic: str, partition: int, batch: Batch | Sequence[Record], *, expected_offset: int | None = None
    ) -> Receipt:
        """Send one batch and wait for its receipt. Raises ProduceError."""
        return await (await self.send(topic, partition, batch, expected_offset=expected_offset)).receipt()

    async def flush(self) -> None:
        """Wait until every batch has an outcome. Raises the failure of a partition that has one."""
        while not self._core.is_idle:
            await self._changed.park()
        if self._core.failures:
            raise self._core.failures[0]

    # ------------------------------------------------------------------ tasks
    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _end(self, reason: Exception, why: str) -> None:
        self._ended = self._ended or reason
        self._tell(self._core.give_up(why), reason)
        self._changed.unpark_all()

    def _tell(self, outcomes: Sequence[Outcome], cause: Exception | None = None) -> None:
        for outcome in outcomes:
            delivery = outcome.batch.token
            assert isinstance(delivery, Delivery)
            if isinstance(outcome.result, ProduceError):
                outcome.result.__cause__ = cause
            delivery._tell(outcome.result)
        if outcomes:
            self._changed.unpark_all()

    def _keeper_wakes_by(self, deadline: float) -> bool:
        """Does the keeper wake in time to give up a batch with this deadline?"""
        return self._keeper_wakes_at is not None and self._keeper_wakes_at <= deadline

    async def _keep(self) -> None:
        """Ask for leaders, give up batches whose time is over, start a task for each leader."""
        connections = Connections(self._connector)
        try:
            while self._ended is None:
                now = trio.current_time()
                self._tell(self._core.expire(now))
                topics = self._core.topics_to_ask_for(now)
                self._keeper_wakes_at = until = self._core.wakes_at(now)
                if topics:
                    await self._ask_for(connections, topics, until)
                for broker in self._core.brokers():
                    if broker not in self._leaders:
                        self._leaders[broker] = _Bell()
                        self._nursery.start_soon(self._lead, broker)
                    self._leaders[broker].ring()
                if not topics:
                    await self._keeper.wait(until)
        finally:
            await connections.aclose()

    async def _ask_for(self, connections: Connections, topics: list[str], until: float | None) -> None:
        try:
            found = await connections.run(fetch_cluster(self._servers, topics), until, limits.CONNECT_SECONDS_MAX)
        except (AuthenticationFailed, UnsupportedServer) as error:
            self._end(error, f"{error}")
        except ClientError:
            self._core.not_learned(trio.current_time())
        else:
            self._core.learned(topics, found, trio.current_time())

    async def _lead(self, broker: int) -> None:
        """One leader: connect when there is something to send, send, read, and begin again when the connection ends."""
        bell = self._leaders[broker]
        while self._ended is None:
            address = self._core.cluster.brokers.get(broker)
            if broker not in self._core.brokers() or address is None:
                await bell.wait(None)
                continue
            try:
                connection = await self._connector.connect(address, trio.current_time() + limits.CONNECT_SECONDS_MAX)
                try:
                    await self._serve(broker, bell, connection)
                finally:
                    await connection.aclose()
            except (AuthenticationFailed, UnsupportedServer) as error:
                self._end(error, f"{error}")
            except ConnectionFailed:
                self._tell(self._core.lost(broker, trio.current_time()))
                self._keeper.ring()
            # Also where nothing was out: a server may close each connection at once.
            self._failures[broker] = failures = self._failures.get(broker, 0) + 1
            pause = backoff_seconds(failures)
            await trio.sleep(pause * random.uniform(0.8, 1.2))

    async def _serve(self, broker: int, bell: _Bell, connection: Connection) -> None:
        """Return when the server has closed a connection without an unanswered request. Raises ConnectionFailed."""
        session = LeaderSession(self._core, broker, connection.link)
        failure: ConnectionFailed | None = None
        async with trio.open_nursery() as nursery:

            async def receive() -> None:
                nonlocal failure
                try:
                    while data := await connection.receive(None):
                        outcomes = session.received(data, trio.current_time())
                        self._tell(outcomes)
                        if outcomes:
                            self._failures.pop(broker, None)
                        bell.ring()
                        self._keeper.ring()  # a leader may have to be asked for
                    if not session.is_quiet:
                        failure = ConnectionFailed("the server closed the connection")
                except ConnectionFailed as error:
                    failure = error
                nursery.cancel_scope.cancel()

            nursery.start_soon(receive)
            try:
                while True:
                    now = trio.current_time()
                    frame = session.next_frame(now)
                    if frame is None:
                        await bell.wait(self._core.broker_wakes_at(broker, now))
                    else:
                        await connection.send(frame, now + self._core.timing.request_seconds_max)
            except ConnectionFailed as error:
                failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure


class _Bell:
    """Wakes one task; a ring that comes before the task waits is not lost."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def ring(self) -> None:
        self._event.set()

    async def wait(self, until: float | None) -> None:
        """Wait for a ring, or until this moment; None: without end."""
        with trio.move_on_at(float("inf") if until is None else until):
            await self._event.wait()
        self._event = trio.Event()
