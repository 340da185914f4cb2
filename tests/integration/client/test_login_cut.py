"""A connection that ends before a token was sent is no refused login: so does a proxy that ends, or whose broker is
away while it passes SASL through."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

import pytest
import trio

from idemproxy.client import Client, ProducerId, Receipt, Record, Sasl
from idemproxy.client.trio_client import TrioClient
from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame

SASL = Sasl("PLAIN", "alice", "secret")


class Server:
    """One broker that wants SASL. ``cuts``: so many connections end at ``at``, 0: at once, 36: when a token came."""

    def __init__(self, cuts: range, at: int) -> None:
        self._cuts, self._at = cuts, at
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self.address = f"{self.host}:{self.port}"
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Server:
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


@pytest.mark.parametrize("at", [0, 18, 17, 36])
@pytest.mark.parametrize("shell", ["blocking", "trio"])
def test_a_producer_logs_in_again(shell: str, at: int) -> None:
    batch = [Record(b"v", timestamp_ms=1)]
    with Server(range(1, 3), at) as server:  # metadata is there, then the leader's connection is cut twice
        if shell == "blocking":
            with Client(server.address, sasl=SASL) as client, client.producer(ProducerId(1)) as producer:
                receipt = producer.publish("t", 0, batch)
        else:

            async def publish() -> Receipt:
                async with TrioClient(server.address, sasl=SASL) as client, client.producer(ProducerId(1)) as producer:
                    return await producer.publish("t", 0, batch)

            receipt = trio.run(publish)
        assert receipt.base_offset == 0
