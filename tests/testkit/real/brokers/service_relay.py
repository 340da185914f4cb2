"""A relay in front of a real broker that makes a service of it: one that speaks Kafka's protocol, and does otherwise
with producer ids, batches and offsets than Kafka does. Whole clients can be run through it.

Four are documented by their makers; the others are what a service does that fails. Blocks: two threads for each
connection. The addresses in responses become the relay's, one listener for each broker.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any, ClassVar

from crc32c import crc32c

from idemproxy.codecs import messages
from idemproxy.codecs.headers import API_VERSIONS, parse_request_header, parse_response_header
from idemproxy.codecs.record_batch import (
    CONTROL_FLAG,
    Record,
    StoredBatch,
    encode_batch,
    iterate_records,
    iterate_stored,
)
from idemproxy.demo.relay_frames import rewrite_addresses
from idemproxy.proxy.versions import ApiKey

HOST = "127.0.0.1"
_SIZE = struct.Struct(">i")
FOLLOWS_SECONDS = 0.2
"""A response that is to be answered second waits so long for another request."""
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT, _CRC_AT, _ATTRIBUTES_AT = 43, 17, 21
_NAMED_BY_ID_FROM = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 13}
"""The relay lists no versions from these on: what has topic ids is not decoded here."""
_OF_IDS = frozenset({ApiKey.INIT_PRODUCER_ID, 24, 25, 26, 27, 28})
"""InitProducerId and what transactions need."""
_AMONG_BROKERS = frozenset({ApiKey.CONTROLLED_SHUTDOWN, ApiKey.WRITE_TXN_MARKERS})
_UNPACKED_BYTES_MAX = 64 << 20
_RECORD_BYTES_MAX = 1 << 20
Address = tuple[str, int]


class Service:
    """A service that does as the broker does. ``unlisted``: APIs that it does not have; ``lowest``: the lowest version
    of some. A request of what it does not have closes the connection. ``changes``: APIs whose responses are changed by
    ``change``. ``swaps``: responses to Produce leave in another order."""

    unlisted: ClassVar[frozenset[int]] = frozenset()
    lowest: ClassVar[Mapping[int, int]] = {}
    swaps: ClassVar[bool] = False
    changes: ClassVar[frozenset[int]] = frozenset()

    def produced(self, records: bytes) -> bytes:
        """Return what is stored of the records for one partition."""
        return records

    def change(self, response: Any) -> None:
        """Change a decoded response of one of the APIs ``changes``."""

    def fetched(self, records: bytes) -> bytes:
        """Return what is given back of the records of one partition."""
        return records

    def answered(self, api_key: int, frame: bytes) -> bytes | None:
        """Return what is sent of a response without its size; None: the connection is closed. b"": nothing comes."""
        return frame


class ChecksIds(Service):
    """Does as Kafka does, and lists nothing that only brokers ask each other."""

    unlisted: ClassVar[frozenset[int]] = _AMONG_BROKERS


class CreatesNoTopics(ChecksIds):
    """Lists no CreateTopics either."""

    unlisted = _AMONG_BROKERS | {ApiKey.CREATE_TOPICS}


class IgnoresIds(ChecksIds):
    """Lists InitProducerId, gives ids, and appends what is sent again (Apache Iggy's gateway). Batches without producer
    id are kept as they are."""

    def produced(self, records: bytes) -> bytes:
        return b"".join(_without_id(one) for one in _split(records))


class ListsNoIds(IgnoresIds):
    """Lists no InitProducerId, checks nothing, and keeps batches as they are (KafScale)."""

    unlisted = _OF_IDS | _AMONG_BROKERS


class Rebuilds(IgnoresIds):
    """Stores records, not batches: without producer id, epoch, base sequence and compression. Fetches make batches of
    what lies side by side."""

    def produced(self, records: bytes) -> bytes:
        found = [one for batch in _batches(records) for one in _records_of(bytes(batch.records))]
        return _encoded(found, 0) if found else records

    def fetched(self, records: bytes) -> bytes:
        built: list[bytes] = []
        beside: list[Record] = []
        start = due = 0
        for stored in iterate_stored(records):
            if beside and (stored.base_offset != due or stored.header.attributes & CONTROL_FLAG):
                built.append(_encoded(beside, start))
                beside = []
            if stored.header.attributes & CONTROL_FLAG:
                built.append(bytes(stored.records))
                continue
            start = start if beside else stored.base_offset
            beside += _records_of(bytes(stored.records))
            due = stored.base_offset + stored.header.last_offset_delta + 1
        if beside:
            built.append(_encoded(beside, start))
        return b"".join(built) or records


class ReturnsNoOffset(ChecksIds):
    """Acknowledges with the base offset -1 (Tansu)."""

    changes = frozenset({ApiKey.PRODUCE})

    def change(self, response: Any) -> None:
        for topic in response.responses:
            for partition in topic.partition_responses:
                partition.base_offset = -1


class SameIdForAll(IgnoresIds):
    """Answers InitProducerId with id 0 to everybody (HStream)."""

    changes = frozenset({ApiKey.INIT_PRODUCER_ID})

    def change(self, response: Any) -> None:
        response.producer_id = 0


class FewVersions(ChecksIds):
    """Has dropped what old clients ask with."""

    lowest: ClassVar[Mapping[int, int]] = {
        ApiKey.PRODUCE: 7,
        ApiKey.FETCH: 11,
        ApiKey.LIST_OFFSETS: 5,
        ApiKey.METADATA: 5,
        ApiKey.INIT_PRODUCER_ID: 3,
        ApiKey.CREATE_TOPICS: 5,
        ApiKey.DELETE_TOPICS: 4,
    }


class AnswersOutOfOrder(Service):
    """Answers the second of two produce requests that are out on one connection first."""

    swaps = True


class Fails(ChecksIds):
    """Does with responses of one API what ``how`` says: "hangs", "closes", "garbage"."""

    def __init__(self, api_key: int, how: str) -> None:
        self._api_key, self._how = api_key, how

    def answered(self, api_key: int, frame: bytes) -> bytes | None:
        if api_key != self._api_key:
            return frame
        return {"hangs": b"", "closes": None, "garbage": frame[:4] + b"\xff" * 40}[self._how]


class Damages(Service):
    """Changes a byte of every n-th response, after its correlation id."""

    def __init__(self, seed: int, every_nth: int = 4) -> None:
        self._random = Random(seed)
        self._every_nth = every_nth
        self.damaged = 0

    def answered(self, api_key: int, frame: bytes) -> bytes | None:
        if len(frame) <= _SIZE.size or self._random.randrange(self._every_nth):
            return frame
        self.damaged += 1
        changed = bytearray(frame)
        changed[self._random.randrange(_SIZE.size, len(frame))] = self._random.choice((0, 1, 0x7F, 0x80, 0xFF))
        return bytes(changed)


class ServiceRelay:
    """The relay in front of one broker, and of those that its responses name. A context manager. ``requests``: how many
    of each API key came; ``producer_ids``: of all batches that came."""

    def __init__(self, broker: Address, service: Service, port: int = 0) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._listeners: dict[Address, socket.socket] = {}
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._broker, self._port = broker, port
        self.requests: Counter[int] = Counter()
        self.producer_ids: set[int] = set()
        self.address: Address = (HOST, 0)

    def __enter__(self) -> ServiceRelay:
        self.address = self._translate(*self._broker, port=self._port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            everything = [*self._listeners.values(), *self._sockets]
        for one in everything:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(10)

    @property
    def bootstrap(self) -> str:
        """``127.0.0.1:port``."""
        return "{}:{}".format(*self.address)

    # ------------------------------------------------------------------ sockets
    def _translate(self, host: str, port_there: int, port: int = 0) -> Address:
        """Return the listener that stands for a broker; it is opened when it is new."""
        with self._lock:
            own = {listener.getsockname() for listener in self._listeners.values()}
            if (host, port_there) in own:
                return host, port_there
            if (host, port_there) not in self._listeners:
                listener = socket.create_server((HOST, port))
                self._listeners[host, port_there] = listener
                self._start(self._accept, listener, (host, port_there))
            address: Address = self._listeners[host, port_there].getsockname()
            return address

    def _start(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, broker: Address) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                upstream = socket.create_connection(broker, 10)
            except OSError:
                client.close()
                continue
            asked: dict[int, tuple[int, int]] = {}
            for one in (client, upstream):
                one.settimeout(None)
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets += [client, upstream]
            self._start(self._pass_requests, client, upstream, asked)
            self._start(self._pass_responses, upstream, client, asked)

    def _pass_requests(self, client: socket.socket, upstream: socket.socket, asked: dict[int, tuple[int, int]]) -> None:
        with suppress(OSError):
            while (frame := _frame_of(client)) is not None:
                request = self._request(frame, asked)
                if request is None:
                    break
                upstream.sendall(_SIZE.pack(len(request)) + request)
        _end(client, upstream)

    def _pass_responses(
        self, upstream: socket.socket, client: socket.socket, asked: dict[int, tuple[int, int]]
    ) -> None:
        held = b""
        with suppress(OSError):
            while (frame := _frame_of(upstream)) is not None:
                (correlation_id,) = _SIZE.unpack_from(frame)
                key, version = asked.pop(correlation_id)
                response = self._service.answered(key, self._response(key, version, frame))
                if response is None:
                    break
                if not response:
                    continue
                response = _SIZE.pack(len(response)) + response
                if self._service.swaps and not held and key == ApiKey.PRODUCE and _is_followed(asked):
                    held = response
                    continue
                client.sendall(response + held)
                held = b""
        _end(client, upstream)

    # ------------------------------------------------------------------ bytes
    def _request(self, frame: bytes, asked: dict[int, tuple[int, int]]) -> bytes | None:
        """Return the request as the broker gets it; None: the service does not have it."""
        head = parse_request_header(frame)
        key, version = head.api_key, head.api_version
        self.requests[key] += 1
        if key in self._service.unlisted or version < self._service.lowest.get(key, 0):
            return None
        if key == ApiKey.PRODUCE:
            request = messages.decode_request(key, version, frame[head.body_offset :])
            for topic in request.topic_data:
                for partition in topic.partition_data:
                    if partition.records:
                        data = bytes(partition.records)
                        self.producer_ids |= {one.header.producer_id for one in _batches(data)} - {-1}
                        partition.records = self._service.produced(data)
            frame = frame[: head.body_offset] + messages.encode_request(key, version, **messages.fields_of(request))
            if request.acks == 0:  # there is no response
                return frame
        asked[head.correlation_id] = key, version
        return frame

    def _response(self, key: int, version: int, frame: bytes) -> bytes:
        if key in (ApiKey.METADATA, ApiKey.FIND_COORDINATOR):
            return rewrite_addresses(_SIZE.pack(len(frame)) + frame, key, version, self._translate)[_SIZE.size :]
        if key not in (ApiKey.FETCH, API_VERSIONS, *self._service.changes):
            return frame
        _, start = parse_response_header(frame, key, version)
        response = messages.decode_response(key, version, frame[start:])
        if key in self._service.changes:
            self._service.change(response)
        elif key == ApiKey.FETCH:
            for topic in response.responses:
                for partition in topic.partitions:
                    if partition.records:
                        partition.records = self._service.fetched(bytes(partition.records))
        elif response.error_code:
            return frame
        else:
            response.api_keys = [one for one in response.api_keys if one.api_key not in self._service.unlisted]
            for one in response.api_keys:
                one.min_version = max(one.min_version, self._service.lowest.get(one.api_key, 0))
                one.max_version = min(one.max_version, _NAMED_BY_ID_FROM.get(one.api_key, 1 << 15) - 1)
        return frame[:start] + messages.encode_response(key, version, **messages.fields_of(response))


def _batches(records: bytes) -> list[StoredBatch]:
    """Return the batches; none of another format."""
    return list(iterate_stored(records))


def _split(records: bytes) -> list[bytes]:
    """Return the batches of a request; what is in another format stays one piece."""
    return [bytes(one.records) for one in _batches(records)] or [records]


def _without_id(batch: bytes) -> bytes:
    """Return the batch without its producer id, and with a checksum that fits; epoch and base sequence stay."""
    if not any(one.header.producer_id >= 0 for one in _batches(batch)):
        return batch
    changed = bytearray(batch)
    _, epoch, sequence = _PRODUCER.unpack_from(changed, _PRODUCER_AT)
    _PRODUCER.pack_into(changed, _PRODUCER_AT, -1, epoch, sequence)
    changed[_CRC_AT:_ATTRIBUTES_AT] = crc32c(changed[_ATTRIBUTES_AT:]).to_bytes(4, "big")
    return bytes(changed)


def _records_of(batch: bytes) -> list[Record]:
    (stored,) = _batches(batch)
    return list(iterate_records(stored.records, stored.header, _UNPACKED_BYTES_MAX, is_stored=True))


def _encoded(records: Sequence[Record], base_offset: int) -> bytes:
    return encode_batch(
        [one._replace(offset_delta=delta) for delta, one in enumerate(records)], base_offset=base_offset
    )


def _frame_of(connection: socket.socket) -> bytes | None:
    size = _exactly(connection, _SIZE.size)
    return None if size is None else _exactly(connection, _SIZE.unpack(size)[0])


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(size - len(data), _RECORD_BYTES_MAX))
        if not more:
            return None
        data += more
    return bytes(data)


def _is_followed(asked: dict[int, tuple[int, int]]) -> bool:
    """Is another request out? One that left together with the last may be read after that one's response."""
    until = time.monotonic() + FOLLOWS_SECONDS
    while not asked and time.monotonic() < until:
        time.sleep(FOLLOWS_SECONDS / 20)
    return bool(asked)


def _end(*connections: socket.socket) -> None:
    for one in connections:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
