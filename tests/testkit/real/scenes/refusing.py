"""A relay between a client and the proxy that answers a produce request itself, with a code of its choice; and the
table of what clients do then."""

from __future__ import annotations

import re
import socket
import threading
from collections import deque
from contextlib import suppress
from pathlib import Path
from struct import Struct
from types import TracebackType

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.produce import PartitionAnswer, encode_response, parse_request

_INT32 = Struct(">i")
_HEADER = Struct(">hhih")
_HOST = b"\0\x09127.0.0.1"
_PRODUCE = 0
_ERROR_CODES = Path(__file__).resolve().parents[4] / "docs/reference/error-codes.md"
_CLIENTS = ("Java", "librdkafka", "franz-go", "sarama", "kafkajs", "kafka-python")
_ACTIONS = ("again", "drop", "split", "new epoch")


def client_rows() -> dict[int, dict[str, str]]:
    """Return the table of produce errors in docs/reference/error-codes.md: for each error what each client does.

    A cell is what all do, and then after semicolons what some do: ``drop; Java, kafka-python split``."""
    text = _ERROR_CODES.read_text().partition("\n## Produce\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \((\d+)\) \| .* \| (.*) \|$", text, re.MULTILINE)
    assert all(ErrorCode[name] == int(number) for name, number, _ in rows)
    return {int(number): _by_client(cell) for _, number, cell in rows}


def _by_client(cell: str) -> dict[str, str]:
    usual, *others = cell.split("; ")
    assert usual in _ACTIONS, cell
    found = dict.fromkeys(_CLIENTS, usual)
    for other in others:
        (action,) = (action for action in _ACTIONS if other.endswith(f" {action}"))
        found |= dict.fromkeys(other.removesuffix(f" {action}").split(", "), action)
    assert found.keys() == set(_CLIENTS), cell
    return found


class RefusingRelay:
    """A context manager. ``codes``: the answers to the next produce requests; the others are the proxy's."""

    def __init__(self, proxy: tuple[str, int]) -> None:
        self._proxy = proxy
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.codes: deque[int] = deque()
        self._sockets: list[socket.socket] = [self._listener]

    def __enter__(self) -> RefusingRelay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(self._proxy)
            self._sockets += [client, upstream]
            threading.Thread(target=self._requests, args=(client, upstream), daemon=True).start()
            threading.Thread(target=self._answers, args=(upstream, client), daemon=True).start()

    def _requests(self, client: socket.socket, upstream: socket.socket) -> None:
        while (frame := _frame_of(client)) is not None:
            api_key, version, correlation_id, name_bytes = _HEADER.unpack_from(frame)
            if api_key == _PRODUCE and self.codes:
                code = self.codes.popleft()
                request = parse_request(memoryview(frame), _HEADER.size + max(name_bytes, 0), version)
                refused = [PartitionAnswer(one.topic, one.partition, code, -1) for one in request.partitions]
                answer = _INT32.pack(correlation_id) + encode_response(version, refused)
                _send(client, answer)
            else:
                _send(upstream, frame)
        _end(client, upstream)

    def _answers(self, upstream: socket.socket, client: socket.socket) -> None:
        """Pass answers on; the proxy's address in them becomes the relay's."""
        theirs, ours = (_HOST + _INT32.pack(port) for port in (self._proxy[1], self.address[1]))
        while (frame := _frame_of(upstream)) is not None:
            _send(client, frame.replace(theirs, ours))
        _end(client, upstream)


def _frame_of(sock: socket.socket) -> bytes | None:
    size = _exactly(sock, _INT32.size)
    return None if size is None else _exactly(sock, _INT32.unpack(size)[0])


def _send(sock: socket.socket, frame: bytes) -> None:
    with suppress(OSError):  # its end is noticed where it is read
        sock.sendall(_INT32.pack(len(frame)) + frame)


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            more = sock.recv(size - len(data))
        except OSError:
            return None
        if not more:
            return None
        data += more
    return bytes(data)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        one.close()
