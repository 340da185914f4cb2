"""What one broker says of its cluster: Metadata v0 by hand, which every broker version answers.

Blocking; one call, one socket. Never creates a topic by asking.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_ANSWER_BYTES_MAX = 16 << 20
_HEADER = struct.pack(">hhih", 3, 0, 1, 9) + b"idemproxy"


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition as a broker sees it; leader -1 means that there is none."""

    error_code: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Brokers by id with their advertised addresses; partitions by topic and number."""

    brokers: dict[int, tuple[str, int]]
    topics: dict[str, dict[int, PartitionState]]


def ask(address: tuple[str, int], timeout_seconds: float = 5) -> ClusterState:
    """Return what this broker knows of all topics (asking for all never creates one). Raises OSError."""
    request = _HEADER + struct.pack(">i", 0)
    with socket.create_connection(address, timeout_seconds) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _exactly(connection, 4))
        if not 4 <= size <= _ANSWER_BYTES_MAX:
            raise ConnectionError(f"a broker announced a metadata answer of {size} bytes")
        return _parse(_Reader(_exactly(connection, size), 4))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def int16(self) -> int:
        (value,) = struct.unpack_from(">h", self._data, self._at)
        self._at += 2
        return int(value)

    def int32(self) -> int:
        (value,) = struct.unpack_from(">i", self._data, self._at)
        self._at += 4
        return int(value)

    def text(self) -> str:
        size = self.int16()
        value = self._data[self._at : self._at + size].decode()
        self._at += size
        return value

    def ids(self) -> tuple[int, ...]:
        return tuple(self.int32() for _ in range(self.int32()))


def _parse(reader: _Reader) -> ClusterState:
    try:
        brokers: dict[int, tuple[str, int]] = {}
        for _ in range(reader.int32()):
            node = reader.int32()
            brokers[node] = (reader.text(), reader.int32())
        topics: dict[str, dict[int, PartitionState]] = {}
        for _ in range(reader.int32()):
            reader.int16()
            partitions = topics.setdefault(reader.text(), {})
            for _ in range(reader.int32()):
                error, number, leader = reader.int16(), reader.int32(), reader.int32()
                partitions[number] = PartitionState(error, leader, reader.ids(), reader.ids())
    except struct.error as error:
        raise ConnectionError(f"a broker's metadata answer can not be read: {error}") from None
    return ClusterState(brokers, topics)
