"""The blocking shell: plain sockets, one thread for each leader that gets batches, and one that keeps the metadata and
the time. Moves bytes and decides nothing: that is done in ``producer_core.py``, ``leader_session.py`` and
``flows.py``."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from ..producing.backoff import backoff_seconds
from ..producing.errors import ClientError
from ..producing.limits import DELIVERY_SECONDS_MAX, REQUEST_SECONDS_MAX
from ..producing.numbered_batch import Place, ProducerId, Receipt
from ..producing.partition_queue import Outcome
from ..producing.producer_core import ProducerCore
from . import flows, limits, records
from .asking import EARLIEST, LATEST, Effect, Servers, fetch_cluster
from .blocking_connections import Connection, Connections, Connector
from .errors import AuthenticationFailed, ConnectionFailed, UnsupportedServer
from .flows import Cursor
from .leader_session import LeaderSession
from .records import CommittedOffset, Compression, Record, Stopped, StoredRecord
from .security import Sasl
from .settings import ClientSettings

Result = TypeVar("Result")
Batch = bytes | bytearray | memoryview


def finish(rows: Sequence[Record], *, compression: Compression = "none", now_ms: int | None = None) -> bytes:
    """Return one batch of these records without producer id, epoch and sequence. It can be kept, and get them later.

    ``now_ms``: for records without a timestamp, the time of the call by default. A batch that is made again is the same
    one only with the same timestamps: save ``now_ms``, or the batch. Raises ValueError: no records, no such
    compression."""
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    return records.finish(rows, compression=compression, now_ms=at_ms)


class Client:
    """A cluster, or a proxy in front of one. A context manager; its methods may be called from any thread."""

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
        self._lock = threading.Lock()
        self._connections = Connections(self._connector)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the client's connections. Producers and readers have their own, and have to be closed themselves."""
        with self._lock:
            self._connections.close()

    def init_producer_id(self, name: str | None = None) -> ProducerId:
        """Return a fresh producer id. Save it, with its epoch, before the first batch is sent. ``name``: of this
        producer; it gets the producer id of that name with a higher epoch, and all that had it before are fenced."""
        return self._run(flows.init_producer_id(self._servers, self._settings.seconds_max, name))

    def topics(self) -> tuple[str, ...]:
        """Return the names of all topics. No topic is named in the request, as naming one may create it on brokers
        before 0.11 (Metadata before version 4)."""
        return self._run(flows.find_topics(self._servers, self._settings.seconds_max))

    def partitions(self, topic: str) -> tuple[int, ...]:
        """Return the partitions of a topic. Raises RequestRefused when there is no such topic."""
        return self._run(flows.find_partitions(self._servers, topic, self._settings.seconds_max))

    def end_offset(self, topic: str, partition: int) -> int:
        """Return where the log ends for consumers: the offset of the next record."""
        return self._run(flows.find_offset(self._servers, Place(topic, partition), LATEST, self._settings.seconds_max))

    def start_offset(self, topic: str, partition: int) -> int:
        """Return the offset of the oldest record."""
        return self._run(
            flows.find_offset(self._servers, Place(topic, partition), EARLIEST, self._settings.seconds_max)
        )

    def where_producers_stopped(self, topic: str, partition: int) -> dict[int, Stopped]:
        """Return where producers stopped on a partition, by producer id (DescribeProducers). A proxy tells the named
        ones, and those that it has in memory; brokers that give idempotence themselves tell all that they know (from
        2.8 on). A proxy waits for the outcome of open intents before it answers."""
        place = Place(topic, partition)
        found = self._run(flows.where_they_stopped(self._servers, place, self._settings.seconds_max))
        return {one.producer_id.number: one for one in found}

    def where_it_stopped(self, number: int, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Stopped]:
        """Return where the producer with this id stopped, by (topic, partition), with one request to each leader and
        without a second try. Partitions of which no server tells are left out."""
        wanted = [Place(*place) for place in places]
        found = self._run(flows.where_it_stopped(self._servers, number, wanted))
        return {(place.topic, place.partition): one for place, one in found.items()}

    def committed_offsets(
        self, group: str, places: Iterable[tuple[str, int]]
    ) -> dict[tuple[str, int], CommittedOffset]:
        """Return what a group has stored for these (topic, partition); those without an offset are left out."""
        wanted = [Place(*place) for place in places]
        found = self._run(flows.committed_offsets(self._servers, group, wanted, self._settings.seconds_max))
        return {(place.topic, place.partition): one for place, one in found.items()}

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], CommittedOffset]) -> None:
        """Store offsets, with the text that goes with each, for a group that has no members: all of them or none. They
        are kept for ten years: the versions of OffsetCommit that are used, 2 to 4, have a retention time."""
        places = {Place(*place): one for place, one in offsets.items()}
        self._run(flows.commit_offsets(self._servers, group, places, self._settings.seconds_max))

    def producer(
        self,
        producer_id: ProducerId,
        *,
        next_sequences: Mapping[tuple[str, int], int] | None = None,
        delivery_seconds_max: float = DELIVERY_SECONDS_MAX,
        compression: Compression = "none",
    ) -> Producer:
        """Return a producer with this id and epoch. ``next_sequences``: where saved partitions continue, by (topic,
        partition); a partition that is not named begins at 0."""
        core = ProducerCore(
            producer_id,
            {Place(*place): sequence for place, sequence in (next_sequences or {}).items()},
            self._settings.timing(delivery_seconds_max),
            lambda: random.uniform(0.8, 1.2),
        )
        return Producer(core, self._connector, Servers(list(self._servers)), compression)

    def reader(self, topic: str, partition: int, offset: int = 0) -> Reader:
        """Return a reader of one partition from this offset on."""
        cursor = Cursor(Place(topic, partition), offset)
        return Reader(cursor, self._connector, Servers(list(self._servers)), self._settings.seconds_max)

    def _run(self, flow: Coroutine[Effect, Any, Result]) -> Result:
        with self._lock:
            return self._connections.run(flow)


class Reader:
    """One partition, from an offset on. A context manager, for one thread at a time."""

    def __init__(self, cursor: Cursor, connector: Connector, servers: Servers, seconds_max: float) -> None:
        self._cursor = cursor
        self._connections = Connections(connector)
        self._servers = servers
        self._seconds_max = seconds_max

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    @property
    def offset(self) -> int:
        """The offset of the next record."""
        return self._cursor.offset

    def read(self) -> list[StoredRecord]:
        """Return the next records, as one fetch brings them; empty: half a second has brought none."""
        return self._connections.run(flows.fetch_records(self._servers, self._cursor, self._seconds_max))

    def read_to_end(self) -> Iterator[StoredRecord]:
        """Yield all records up to where the log ends for consumers at the first fetch."""
        end: int | None = None
        while end is None or self.offset < end:
            flow = flows.fetch_to_end(self._servers, self._cursor, self._seconds_max)
            records = self._connections.run(flow)
            if not records:
                return
            end = self._cursor.high_watermark if end is None else min(end, self._cursor.high_watermark)
            yield from (one for one in records if one.offset < end)


class Producer:
    """One producer id and epoch. ``send`` may be called from any thread; batches of a partition go in the order of the
    calls. A context manager: leaving it without an exception waits for all outcomes."""

    def __init__(self, core: ProducerCore, connector: Connector, servers: Servers, compression: Compression) -> None:
        self._core = core
        self._connector = connector
        self._servers = servers
        self._compression = compression
        self._changed = threading.Condition()
        """Its lock guards the core; notified whenever batches get outcomes."""
        self._leaders: dict[int, _LeaderThread] = {}
        self._ended: BaseException | None = None
        """Why nothing is sent any more: closed, not accepted by a server, or an error of ours."""
        self._keeper: _KeeperThread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    @property
    def producer_id(self) -> ProducerId:
        """Its id and epoch."""
        return self._core.producer_id

    def next_sequence(self, topic: str, partition: int) -> int:
        """Return the base sequence of the partition's next batch."""
        with self._changed:
            return self._core.next_sequence(Place(topic, partition))

    def next_sequences(self) -> dict[tuple[str, int], int]:
        """Return those of all partitions that were named or used: what is saved once their batches have receipts."""
        with self._changed:
            return {(one.topic, one.partition): sequence for one, sequence in self._core.next_sequences().items()}

    def start_at(self, topic: str, partition: int, sequence: int) -> None:
        """Let the partition's next batch have this sequence, also after a failure. After going back, the same batches
        have to be sent again. Raises ValueError while batches of it have no outcome, and Fenced."""
        with self._changed:
            self._core.start_at(Place(topic, partition), sequence)

    def send(
        self, topic: str, partition: int, batch: Batch | Sequence[Record], *, expected_offset: int | None = None
    ) -> Future[Receipt]:
        """Queue one batch: records, or a finished batch as ``finish`` makes it. Waits while too much is buffered.

        The future has a receipt, or a ProduceError, after ``delivery_seconds_max`` at the latest; its callbacks run in
        a thread of the producer and must not wait. Raises the partition's failure, if it has one, and what has ended
        the producer.

        ``expected_offset``: append the batch there or not at all (``Conflict``). Only for a producer with the id
        ``CONDITIONAL``. Batches of the partition without an outcome have to end right at this offset, else
        ValueError."""
        data = batch if isinstance(batch, Batch) else self._finish(batch)
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()
        with self._changed:
            while self._core.buffered_bytes + len(data) > limits.BUFFERED_BYTES_MAX and not self._core.is_idle:
                self._raise_if_ended()
                self._changed.wait()
            self._raise_if_ended()
            place, now = Place(topic, partition), time.monotonic()
            if self._keeper is None:  # before the batch is queued: what raises here has queued nothing
                self._keeper = _started(_KeeperThread(self))
            self._core.submit(place, data, now, future, expected_offset)
            leader = self._leaders.get(self._core.cluster.leaders.get(place, -1))
            keeper_sleeps_on = not self._keeper.wakes_by(now + self._core.timing.delivery_seconds_max)
        if leader is not None:
            leader.wake()
        if leader is None or keeper_sleeps_on:
            self._keeper.wake()
        return future

    def publish(
        self, topic: str, partition: int, batch: Batch | Sequence[Record], *, expected_offset: int | None = None
    ) -> Receipt:
        """Send one batch and wait for its receipt. Raises ProduceError."""
        return self.send(topic, partition, batch, expected_offset=expected_offset).result()

    def flush(self) -> None:
        """Wait until every batch has an outcome. Raises the failure of a partition that has one."""
        with self._changed:
            while not self._core.is_idle:
                self._changed.wait()
            if self._core.failures:
                raise self._core.failures[0]

    def close(self) -> None:
        """Stop. Batches without an outcome get one: whether they may be in the log."""
        self._end(ClientError("the producer is closed"), "the producer was closed")
        for thread in self._threads():
            thread.abort()
            if thread is not threading.current_thread():
                thread.join()

    # ------------------------------------------------------------------ for the threads
    def _finish(self, records: Sequence[Record]) -> bytes:
        return finish(records, compression=self._compression)

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended

    def _end(self, reason: BaseException, why: str) -> None:
        with self._changed:
            self._ended = self._ended or reason
            outcomes = self._core.give_up(why)
            self._changed.notify_all()
        self._tell(outcomes, reason)
        for thread in self._threads():
            thread.wake()

    def _threads(self) -> list[_Worker]:
        return [*self._leaders.values(), *([self._keeper] if self._keeper else [])]

    def _tell(self, outcomes: Sequence[Outcome], cause: BaseException | None = None) -> None:
        """Set the results of the batches' futures, without holding the lock, as a future calls its callbacks at
        once."""
        for outcome in outcomes:
            future = outcome.batch.token
            assert isinstance(future, Future)
            if isinstance(outcome.result, Receipt):
                future.set_result(outcome.result)
            else:
                outcome.result.__cause__ = cause
                future.set_exception(outcome.result)
        if outcomes:
            with self._changed:
                self._changed.notify_all()


class _Worker(threading.Thread, ABC):
    """A thread of a producer. An error of ours ends the producer instead of leaving its callers waiting."""

    def __init__(self, producer: Producer, name: str) -> None:
        super().__init__(name=f"idemproxy-{name}", daemon=True)
        self.producer = producer
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._is_woken = False
        """A wake-up is pending: a second one is not needed."""

    def wake(self) -> None:
        """Wake the thread from ``wait``. Callable from any thread."""
        if self._is_woken:
            return
        self._is_woken = True
        with contextlib.suppress(OSError):  # it was woken often enough, or is gone
            self._wake_sender.send(b"!")

    def run(self) -> None:
        try:
            while self.producer._ended is None:
                self.work()
        except BaseException as error:
            self.producer._end(error, "an internal error")
            raise
        finally:
            self._wake_receiver.close()
            self._wake_sender.close()

    @abstractmethod
    def work(self) -> None:
        """One turn."""

    def abort(self) -> None:
        """End a wait for the server, from another thread."""

    def wait(self, until: float | None, connection: Connection | None = None) -> bool:
        """Wait until woken, until the moment ``until`` (None: never), or for bytes; return whether there are bytes."""
        if connection is not None and connection.has_bytes:
            return True
        poll = select.poll()
        poll.register(self._wake_receiver, select.POLLIN)
        if connection is not None:
            poll.register(connection.socket, select.POLLIN)
        timeout = None if until is None else max(0.0, until - time.monotonic()) * 1000 + 1
        ready = [descriptor for descriptor, _ in poll.poll(timeout)]
        if self._wake_receiver.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                self._wake_receiver.recv(4096)
            self._is_woken = False  # a wake-up from here on sends a byte again; what came before is looked at now
        return connection is not None and connection.socket.fileno() in ready


_AnyWorker = TypeVar("_AnyWorker", bound=_Worker)


def _started(worker: _AnyWorker) -> _AnyWorker:
    """Raises RuntimeError where there is no thread."""
    try:
        worker.start()
    except RuntimeError:
        worker._wake_receiver.close()
        worker._wake_sender.close()
        raise
    return worker


class _KeeperThread(_Worker):
    """Asks for leaders, gives up batches whose time is over, starts a thread for each leader."""

    def __init__(self, producer: Producer) -> None:
        super().__init__(producer, "metadata")
        self._connections = Connections(producer._connector)
        self._wakes_at: float | None = None

    def wakes_by(self, deadline: float) -> bool:
        """Does the keeper wake in time to give up a batch with this deadline?"""
        return self._wakes_at is not None and self._wakes_at <= deadline

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._connections.close()

    def work(self) -> None:
        producer, core = self.producer, self.producer._core
        now = time.monotonic()
        with producer._changed:
            outcomes = core.expire(now)
            topics = core.topics_to_ask_for(now)
            self._wakes_at = until = core.wakes_at(now)
        producer._tell(outcomes)
        if topics:
            self._ask_for(topics, until)
        self._wake_leaders()
        if not topics:
            self.wait(until)

    def _ask_for(self, topics: list[str], until: float | None) -> None:
        producer, core = self.producer, self.producer._core
        try:
            found = self._connections.run(fetch_cluster(producer._servers, topics), until, limits.CONNECT_SECONDS_MAX)
        except (AuthenticationFailed, UnsupportedServer) as error:
            producer._end(error, f"{error}")
        except ClientError:
            with producer._changed:
                core.not_learned(time.monotonic())
        else:
            with producer._changed:
                core.learned(topics, found, time.monotonic())

    def _wake_leaders(self) -> None:
        producer = self.producer
        with producer._changed:
            brokers = [] if producer._ended is not None else producer._core.brokers()
            for broker in brokers:
                if broker not in producer._leaders:
                    producer._leaders[broker] = _started(_LeaderThread(producer, broker))
            leaders = [producer._leaders[broker] for broker in brokers]
        for leader in leaders:
            leader.wake()


class _LeaderThread(_Worker):
    """One leader: connects when there is something to send, sends, reads, and begins again when the connection ends."""

    def __init__(self, producer: Producer, broker: int) -> None:
        super().__init__(producer, f"broker-{broker}")
        self._broker = broker
        self._failures = 0
        """Connections in a row that brought no outcome, for the back-off."""
        self._connection: Connection | None = None

    def abort(self) -> None:
        if (connection := self._connection) is not None:
            connection.abort()

    def work(self) -> None:
        producer, core = self.producer, self.producer._core
        with producer._changed:
            is_wanted = self._broker in core.brokers()
            address = core.cluster.brokers.get(self._broker)
        if not is_wanted or address is None:
            self.wait(None)
            return
        try:
            connection = producer._connector.connect(address, time.monotonic() + limits.CONNECT_SECONDS_MAX)
            self._connection = connection
            with contextlib.closing(connection):
                self._serve(connection)
            self._pause()  # a server may close each one at once
        except (AuthenticationFailed, UnsupportedServer) as error:
            producer._end(error, f"{error}")
        except ConnectionFailed:
            with producer._changed:
                outcomes = core.lost(self._broker, time.monotonic())
            producer._tell(outcomes)
            assert producer._keeper is not None
            producer._keeper.wake()
            self._pause()

    def _serve(self, connection: Connection) -> None:
        """Return when the server has closed a connection without an unanswered request, or the producer has ended.
        Raises ConnectionFailed."""
        producer = self.producer
        session = LeaderSession(producer._core, self._broker, connection.link)
        while producer._ended is None:
            while True:
                now = time.monotonic()
                with producer._changed:
                    frame = session.next_frame(now)
                    until = producer._core.broker_wakes_at(self._broker, now)
                if frame is None:
                    break
                connection.send(frame, now + producer._core.timing.request_seconds_max)
            if not self.wait(until, connection):
                continue
            data = connection.receive_some()
            if data is None:
                continue
            if not data:
                if session.is_quiet:
                    return
                raise ConnectionFailed("the server closed the connection")
            with producer._changed:
                outcomes = session.received(data, time.monotonic())
                is_keeper_wanted = producer._core.take_unfinished()
            producer._tell(outcomes)
            if outcomes:
                self._failures = 0
            if is_keeper_wanted:
                assert producer._keeper is not None
                producer._keeper.wake()

    def _pause(self) -> None:
        self._failures += 1
        end = time.monotonic() + backoff_seconds(self._failures) * random.uniform(0.8, 1.2)
        while self.producer._ended is None and time.monotonic() < end:
            self.wait(end)
