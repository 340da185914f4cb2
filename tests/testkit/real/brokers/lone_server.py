"""A broker of one topic with one partition, on a real socket, whose connections can be cut where a test wants it."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame


class LoneServer:
    """Stores whatever is produced at offset 0, and takes every token. ``cuts``: the connections, counted from 0, that
    end when a request of the API ``at`` comes; 0: at once."""

    def __init__(self, cuts: range = range(0), at: int = 0) -> None:
        self._cuts, self._at = cuts, at
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self.address = f"{self.host}:{self.port}"
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> LoneServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                number = len(self._open)
                self._open.append(connection)
                args = connection, number in self._cuts
                threading.Thread(target=self._serve, args=args, daemon=True).start()

    def _serve(self, connection: socket.socket, is_cut: bool) -> None:
        stream = connection.makefile("rb")
        with contextlib.suppress(OSError):
            while not (is_cut and self._at == 0) and (head := stream.read(4)):
                data = stream.read(int.from_bytes(head, "big"))
                key, version, correlation_id = struct.unpack(">hhi", data[:8])
                if is_cut and key == self._at:
                    break
                time.sleep(0.01)  # as a network takes
                connection.sendall(frame(correlation_id.to_bytes(4, "big"), self._answer(key, version)))
            connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, key: int, version: int) -> bytes:
        if key == 18:
            keys = [{"api_key": one, "min_version": low, "max_version": high} for one, low, high in
                    ((18, 0, 0), (3, 1, 1), (0, 3, 3), (17, 0, 1), (36, 0, 0))]  # fmt: skip
            return messages.encode_response(18, 0, error_code=0, api_keys=keys)
        if key == 17:
            return messages.encode_response(17, version, error_code=0, mechanisms=["PLAIN"])
        if key == 36:
            return messages.encode_response(36, version, error_code=0, error_message=None, auth_bytes=b"")
        if key == 3:
            partition = {"error_code": 0, "partition_index": 0, "leader_id": 0, "replica_nodes": [0], "isr_nodes": [0]}
            return messages.encode_response(
                3, version, controller_id=0,
                brokers=[{"node_id": 0, "host": self.host, "port": self.port, "rack": None}],
                topics=[{"error_code": 0, "name": "t", "is_internal": False, "partitions": [partition]}],
            )  # fmt: skip
        one = {"index": 0, "error_code": 0, "base_offset": 0, "log_append_time_ms": -1}
        return messages.encode_response(
            0, version, throttle_time_ms=0, responses=[{"name": "t", "partition_responses": [one]}]
        )
