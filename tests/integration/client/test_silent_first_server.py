"""Two servers are named; the first one takes connections and says nothing (a proxy that stands still, a machine that is
gone). The second one serves."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

import pytest
import trio

from idemproxy.client import Client, NotDelivered, ProducerId, Receipt, Record, Undecided, limits
from idemproxy.client.trio_client import TrioClient
from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame

SECONDS = 0.3


class GoodServer:
    """One broker, one topic, whatever is produced is stored at offset 0."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self.address = f"{self.host}:{self.port}"
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> GoodServer:
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
                self._open.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        with contextlib.suppress(OSError):
            while head := stream.read(4):
                data = stream.read(int.from_bytes(head, "big"))
                key, version, correlation_id = struct.unpack(">hhi", data[:8])
                time.sleep(0.01)  # as a network takes
                connection.sendall(frame(correlation_id.to_bytes(4, "big"), self._answer(key, version)))

    def _answer(self, key: int, version: int) -> bytes:
        if key == 18:
            keys = [{"api_key": one, "min_version": low, "max_version": high} for one, low, high in
                    ((18, 0, 0), (3, 1, 1), (0, 3, 3))]  # fmt: skip
            return messages.encode_response(18, 0, error_code=0, api_keys=keys)
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


@pytest.mark.parametrize("shell", ["blocking", "trio"])
def test_a_producer_goes_to_the_next_server(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", SECONDS)
    batch = [Record(b"v", timestamp_ms=1)]
    with socket.create_server(("127.0.0.1", 0)) as silent, GoodServer() as good:  # the kernel takes connections
        both = ["{}:{}".format(*silent.getsockname()), good.address]
        if shell == "blocking":
            with Client(both) as client, client.producer(ProducerId(1), delivery_seconds_max=SECONDS * 10) as producer:
                receipt = producer.publish("t", 0, batch)
        else:

            async def publish() -> Receipt:
                async with (
                    TrioClient(both) as client,
                    client.producer(ProducerId(1), delivery_seconds_max=SECONDS * 10) as producer,
                ):
                    return await producer.publish("t", 0, batch)

            receipt = trio.run(publish)
        assert receipt.base_offset == 0


@pytest.mark.parametrize("shell", ["blocking", "trio"])
def test_a_producer_with_little_time_goes_to_the_next_server(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As examples/kv_store.py: 5 s for a delivery, 10 s for a connection."""
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", SECONDS * 2)
    batch = [Record(b"v", timestamp_ms=1)]
    with socket.create_server(("127.0.0.1", 0)) as silent, GoodServer() as good:
        both = ["{}:{}".format(*silent.getsockname()), good.address]
        if shell == "blocking":
            with Client(both) as client, client.producer(ProducerId(1), delivery_seconds_max=SECONDS) as producer:
                for _ in range(3):
                    with contextlib.suppress(NotDelivered, Undecided):
                        assert producer.publish("t", 0, batch).base_offset == 0
                        return
                    producer.start_at("t", 0, 0)
        else:

            async def publish() -> None:
                async with (
                    TrioClient(both) as client,
                    client.producer(ProducerId(1), delivery_seconds_max=SECONDS) as producer,
                ):
                    for _ in range(3):
                        with contextlib.suppress(NotDelivered, Undecided):
                            assert (await producer.publish("t", 0, batch)).base_offset == 0
                            return
                        producer.start_at("t", 0, 0)
                    raise AssertionError

            return trio.run(publish)
    raise AssertionError
