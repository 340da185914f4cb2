"""Reads topics of a Kafka cluster, 0.8.2 to 4.x, or what a proxy shows of one: metadata, offsets, raw Fetch.

Blocking sockets, one request at a time; each task has connections of its own. Writes nothing and joins no group.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ...codecs import messages
from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...codecs.framing import frame
from ...codecs.headers import encode_request_header, parse_response_header

Address = tuple[str, int]
Answer = TypeVar("Answer")

FETCH_BYTES: Final = 4 << 20
"""Of one partition in one request: larger ones are no faster, and a task holds several in memory."""
FETCH_BYTES_MAX: Final = 256 << 20
"""Before Fetch v3 a message comes only whole; what is asked for grows up to this."""
_ANSWER_BYTES_MAX: Final = FETCH_BYTES_MAX + (1 << 20)
_ANSWER_SECONDS_MAX: Final = 30.0
_TRIES: Final = 6
_BETWEEN_TRIES_SECONDS: Final = (0.2, 0.5, 1.0, 2.0, 4.0)
"""In sum longer than an election takes."""
_CLIENT_ID: Final = "idemproxy-audit"
_INT32_BYTES: Final = 4

_FETCH, _LIST_OFFSETS, _METADATA, _API_VERSIONS = 1, 2, 3, 18
_KNOWN: Final = {_FETCH: range(5), _LIST_OFFSETS: range(2), _METADATA: range(2)}
"""Versions that are spoken here. In these, records come as they are stored, if the highest common one is used."""
_LATEST, _EARLIEST = -1, -2
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class BrokerProblem(Exception):
    """The cluster cannot be read; the message is one sentence for a person."""


class _Moved(Exception):
    """Another broker has to be asked, or the same one later."""


class OutOfRange(Exception):
    """The offset is not in the log."""


class Connection:
    """One connection to one broker."""

    def __init__(self, address: Address) -> None:
        """Raises OSError, EOFError, WireError, BrokerProblem."""
        self._socket = socket.create_connection(address, _ANSWER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._numbers = itertools.count(1)
        self._versions = dict.fromkeys(_KNOWN, 0)
        self._learn_versions()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def ask(self, api_key: int, **fields: Any) -> Any:
        """Send a request in the highest version that both know, and return its answer. Raises OSError, WireError."""
        version = self._versions[api_key]
        return messages.decode_response(api_key, version, self._call(api_key, version, fields))

    def metadata(self, topics: Sequence[str] | None) -> Any:
        """Return what the broker says of these topics; None: of all. Raises OSError, WireError."""
        everything: list[object] | None = [] if self._versions[_METADATA] == 0 else None
        return self.ask(_METADATA, topics=everything if topics is None else [{"name": name} for name in topics])

    def _learn_versions(self) -> None:
        """0.8 and 0.9 tell no versions, and 0.9 forgets requests of others when it is asked for them. So first comes a
        question that every broker answers, the older ones in a layout that shows their age."""
        answer = self._call(_METADATA, 1, {"topics": []})
        try:
            messages.decode_response(_METADATA, 1, answer)
        except WireError:
            messages.decode_response(_METADATA, 0, answer)
            return
        told = messages.decode_response(_API_VERSIONS, 0, self._call(_API_VERSIONS, 0, {}))
        offered = {one.api_key: range(one.min_version, one.max_version + 1) for one in told.api_keys}
        for api_key, known in _KNOWN.items():
            common = set(known) & set(offered.get(api_key, ()))
            if not common:
                raise BrokerProblem(f"the broker has API {api_key} in no version from {known.start} to {known[-1]}")
            self._versions[api_key] = max(common)

    def _call(self, api_key: int, version: int, fields: Mapping[str, Any]) -> memoryview:
        """Send a request; return the body of its answer."""
        number = next(self._numbers)
        if api_key == _FETCH and version >= 3:
            fields = {**fields, "max_bytes": fields["topics"][0]["partitions"][0]["partition_max_bytes"]}
        body = messages.encode_request(api_key, version, **fields)
        self._socket.sendall(frame(encode_request_header(api_key, version, number, _CLIENT_ID), body))
        size = int.from_bytes(self._read(_INT32_BYTES), "big")
        if not _INT32_BYTES <= size <= _ANSWER_BYTES_MAX:
            raise ConnectionError(f"an answer of {size} bytes: this is no Kafka broker, or one that wants TLS")
        answer = self._read(size)
        said, position = parse_response_header(answer, api_key, version)
        if said != number:
            raise ConnectionError(f"an answer to request {said} where {number} was asked")
        return memoryview(answer)[position:]

    def _read(self, count: int) -> bytearray:
        data = bytearray(count)
        view = memoryview(data)
        filled = 0
        while filled < count:
            read = self._socket.recv_into(view[filled:])
            if not read:
                raise EOFError("the broker has hung up")
            filled += read
        return data


@dataclass(frozen=True, slots=True)
class Fetched:
    """What lies at an offset and behind it, as stored; it may end in a part of an entry."""

    records: memoryview
    high_watermark: int


class Cluster:
    """The cluster behind some addresses. A context manager: leaving closes its connections."""

    def __init__(self, bootstrap: Sequence[Address]) -> None:
        self._bootstrap = tuple(bootstrap)
        self._connections: dict[Address, Connection] = {}
        self._leaders: dict[tuple[str, int], Address] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def partitions(self) -> dict[str, list[int]]:
        """Return every topic with its partitions. Raises BrokerProblem."""
        answer = self._metadata(None)
        return {topic.name: sorted(one.partition_index for one in topic.partitions) for topic in answer.topics}

    def offsets(self, topic: str, partition: int) -> tuple[int, int]:
        """Return (first offset in the log, high watermark). Raises BrokerProblem."""
        return self._offset(topic, partition, _EARLIEST), self._offset(topic, partition, _LATEST)

    def fetch(self, topic: str, partition: int, offset: int, bytes_max: int = FETCH_BYTES) -> Fetched:
        """Return what is there. Raises OutOfRange, BrokerProblem."""
        wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": bytes_max}
        fields = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "topics": [{"topic": topic, "partitions": [wanted]}],
        }

        def ask(connection: Connection) -> Fetched:
            one = connection.ask(_FETCH, **fields).responses[0].partitions[0]
            if one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise OutOfRange
            _check(one.error_code, topic, partition)
            return Fetched(memoryview(one.records or b""), one.high_watermark)

        return self._at_leader(topic, partition, ask)

    def _offset(self, topic: str, partition: int, timestamp: int) -> int:
        wanted = {"partition_index": partition, "timestamp": timestamp, "max_num_offsets": 1}

        def ask(connection: Connection) -> int:
            answer = connection.ask(_LIST_OFFSETS, replica_id=-1, topics=[{"name": topic, "partitions": [wanted]}])
            one = answer.topics[0].partitions[0]
            _check(one.error_code, topic, partition)
            found: int = one.old_style_offsets[0] if getattr(one, "old_style_offsets", None) else one.offset
            return found

        return self._at_leader(topic, partition, ask)

    def _at_leader(self, topic: str, partition: int, ask: Callable[[Connection], Answer]) -> Answer:
        """Ask the leader; where it has moved or cannot be reached, look for it anew. Raises BrokerProblem."""
        problem: Exception | None = None
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_BETWEEN_TRIES_SECONDS[attempt - 1])
            address = None
            try:
                address = self._leader(topic, partition)
                return ask(self._connection(address))
            except (OSError, EOFError, _Moved) as error:
                problem = error
                self._leaders.pop((topic, partition), None)
                if address is not None and not isinstance(error, _Moved):
                    self._forget(address)
            except WireError as error:
                raise BrokerProblem(f"{topic}-{partition}: an answer that cannot be read: {error}") from None
        raise BrokerProblem(f"{topic}-{partition} cannot be read: {problem}")

    def _leader(self, topic: str, partition: int) -> Address:
        if (topic, partition) not in self._leaders:
            answer = self._metadata([topic])
            addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            for found in answer.topics:
                for one in found.partitions:
                    if one.leader_id in addresses:
                        self._leaders[found.name, one.partition_index] = addresses[one.leader_id]
        leader = self._leaders.get((topic, partition))
        if leader is None:
            raise _Moved("it has no leader")
        return leader

    def _metadata(self, topics: Sequence[str] | None) -> Any:
        problem: Exception | None = None
        for address in self._bootstrap:
            try:
                return self._connection(address).metadata(topics)
            except (OSError, EOFError) as error:
                problem = error
                self._forget(address)
            except WireError as error:
                raise BrokerProblem(f"the broker's metadata cannot be read: {error}") from None
        places = ", ".join(f"{host}:{port}" for host, port in self._bootstrap)
        raise BrokerProblem(f"no broker can be reached at {places}: {problem}")

    def _connection(self, address: Address) -> Connection:
        if address not in self._connections:
            self._connections[address] = Connection(address)
        return self._connections[address]

    def _forget(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


def _check(error_code: int, topic: str, partition: int) -> None:
    if error_code in _MOVED:
        raise _Moved(f"the broker answers with code {error_code}")
    if error_code:
        raise BrokerProblem(f"{topic}-{partition}: the broker answers with code {error_code}")
