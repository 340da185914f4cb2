"""The product's own client and servers that are none: it says so, in time, and leaves no thread."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
import trio

from idemproxy.client import Client, ConnectionFailed, NotDelivered, ProducerId, limits
from idemproxy.client.trio_client import TrioClient
from testkit.real.clients.numbered_batches import SHELLS, numbered
from testkit.real.proxies.proxy_process import wait_until

SECONDS = 0.6
ANSWERS = {
    "hangs up": b"",
    "says nothing": None,
    "speaks HTTP": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "announces 2 GB": b"\x7f\xff\xff\xff",
    "answers another question": b"\0\0\0\x04\0\0\0\x63",
}
CONNECTIONS_MAX = 60
"""Within ``SECONDS``, of both kinds of connections: more would be a busy loop."""


class BadServer:
    """Takes connections and answers each with the same bytes, then hangs up; None: is silent."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.connections = 0
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                if self._answer is None:
                    self._open.append(connection)
                    continue
                with contextlib.suppress(OSError), connection:
                    connection.sendall(self._answer)
                    connection.shutdown(socket.SHUT_WR)
                    connection.settimeout(1)
                    while connection.recv(1000):
                        pass

    def __enter__(self) -> BadServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._open:
            connection.close()


@pytest.fixture(params=ANSWERS)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[BadServer]:
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", SECONDS / 2)
    with BadServer(ANSWERS[request.param]) as running:
        yield running


def test_a_question_ends_in_time_with_a_sentence(server: BadServer) -> None:
    before = set(threading.enumerate())
    with Client(server.address, seconds_max=SECONDS) as client, pytest.raises(ConnectionFailed) as failed:
        client.init_producer_id()
    assert str(failed.value)
    assert 0 < server.connections < CONNECTIONS_MAX
    wait_until(lambda: set(threading.enumerate()) <= before, "no thread is left")

    async def main() -> None:
        async with TrioClient(server.address, seconds_max=SECONDS) as client:
            with pytest.raises(ConnectionFailed):
                await client.end_offset("t", 0)

    trio.run(main)


@pytest.mark.parametrize("shell", SHELLS)
def test_an_undeliverable_batch_fails_in_time_and_was_not_sent(server: BadServer, shell: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(NotDelivered) as given_up:
        SHELLS[shell](
            server.address,
            ProducerId(1),
            list(numbered(("t", 0), 0, 1)),
            producer_options={"delivery_seconds_max": SECONDS},
        )
    assert given_up.value.in_log is False
    assert 0 < server.connections < CONNECTIONS_MAX
    wait_until(lambda: set(threading.enumerate()) <= before, "no thread is left")
