"""A ZooKeeper client for the few calls that make and change topics on brokers that have no API for it. Blocking.

One short session per use. Source: ZooKeeper's jute file (ConnectRequest, RequestHeader, CreateRequest, ...).
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType

NO_NODE = -101
NODE_EXISTS = -110
PERSISTENT, SEQUENTIAL = 0, 2
_CREATE, _DELETE, _EXISTS, _GET_DATA, _SET_DATA, _GET_CHILDREN, _CLOSE = 1, 2, 3, 4, 5, 8, -11
_SESSION_MS = 10_000
_ANSWER_BYTES_MAX = 4 << 20
_WORLD_MAY_ALL = struct.pack(">ii", 1, 31) + struct.pack(">i5si6s", 5, b"world", 6, b"anyone")


class ZooKeeperError(Exception):
    """ZooKeeper answered with an error code, or not at all."""

    def __init__(self, code: int, path: str) -> None:
        super().__init__(f"ZooKeeper error {code} on {path}")
        self.code = code


class ZooKeeper:
    """One session. Raises OSError when the server is away, ZooKeeperError for what it refuses."""

    def __init__(self, address: tuple[str, int], timeout_seconds: float = 10) -> None:
        self._socket = socket.create_connection(address, timeout_seconds)
        self._next_xid = 1
        try:
            self._send(struct.pack(">iqiqi16s?", 0, 0, _SESSION_MS, 0, 16, bytes(16), False))
            self._receive()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> ZooKeeper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session."""
        try:
            self._call(_CLOSE, b"", "close")
        except (OSError, ZooKeeperError):
            pass
        finally:
            self._socket.close()

    def create(self, path: str, data: bytes, kind: int = PERSISTENT) -> None:
        """Make a node; its parent must exist. ZooKeeperError NODE_EXISTS when it is there."""
        self._call(_CREATE, _text(path) + _blob(data) + _WORLD_MAY_ALL + struct.pack(">i", kind), path)

    def set(self, path: str, data: bytes) -> None:
        """Replace a node's data, whatever its version; the node is made when it is missing."""
        try:
            self._call(_SET_DATA, _text(path) + _blob(data) + struct.pack(">i", -1), path)
        except ZooKeeperError as error:
            if error.code != NO_NODE:
                raise
            self.create(path, data)

    def get(self, path: str) -> bytes | None:
        """Return a node's data, None when there is no such node."""
        try:
            answer = self._call(_GET_DATA, _text(path) + b"\0", path)
        except ZooKeeperError as error:
            if error.code == NO_NODE:
                return None
            raise
        (size,) = struct.unpack_from(">i", answer)
        return answer[4 : 4 + size] if size >= 0 else b""

    def exists(self, path: str) -> bool:
        """Whether there is such a node."""
        try:
            self._call(_EXISTS, _text(path) + b"\0", path)
        except ZooKeeperError as error:
            if error.code == NO_NODE:
                return False
            raise
        return True

    def children(self, path: str) -> list[str]:
        """Return the names below a node; none when there is no such node."""
        try:
            answer = self._call(_GET_CHILDREN, _text(path) + b"\0", path)
        except ZooKeeperError as error:
            if error.code == NO_NODE:
                return []
            raise
        (count,) = struct.unpack_from(">i", answer)
        names, at = [], 4
        for _ in range(count):
            (size,) = struct.unpack_from(">i", answer, at)
            names.append(answer[at + 4 : at + 4 + size].decode())
            at += 4 + size
        return names

    def delete(self, path: str) -> None:
        """Remove a node that has no children; a missing one is no error."""
        try:
            self._call(_DELETE, _text(path) + struct.pack(">i", -1), path)
        except ZooKeeperError as error:
            if error.code != NO_NODE:
                raise

    def _call(self, operation: int, body: bytes, path: str) -> bytes:
        """Send one request and return the body of its answer."""
        xid = self._next_xid
        self._next_xid += 1
        self._send(struct.pack(">ii", xid, operation) + body)
        while True:
            answer = self._receive()
            answered_xid, _zxid, code = struct.unpack_from(">iqi", answer)
            if answered_xid == xid:
                break  # anything else would be the answer to a ping or a watch; we send neither
        if code:
            raise ZooKeeperError(code, path)
        return answer[16:]

    def _send(self, data: bytes) -> None:
        self._socket.sendall(struct.pack(">i", len(data)) + data)

    def _receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        if not 0 <= size <= _ANSWER_BYTES_MAX:
            raise ConnectionError(f"ZooKeeper sent a frame of {size} bytes")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            if not part:
                raise ConnectionError("ZooKeeper closed the connection")
            parts += part
        return bytes(parts)


def _text(value: str) -> bytes:
    return _blob(value.encode())


def _blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value
