"""For a moment the system gives no thread or no descriptor: what was not sent is not sent later, and what is sent has
an outcome."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
import trio
from trio._core import _thread_cache

from idemproxy.client.blocking import Client
from idemproxy.client.errors import ConnectionFailed
from idemproxy.client.records import Record
from idemproxy.client.settings import ClientSettings
from idemproxy.client.trio_connections import Connector
from idemproxy.producing.errors import ProduceError
from idemproxy.producing.numbered_batch import ProducerId

RECORDS = [Record(value=b"value")]


def refused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def a_client() -> Client:
    return Client(f"127.0.0.1:{refused_port()}")


def test_a_batch_whose_send_has_raised_is_not_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    client = a_client()
    producer = client.producer(ProducerId(7, 0), delivery_seconds_max=1.0)
    with monkeypatch.context() as scarce:

        def no_pair(*_args: Any) -> Any:
            raise OSError(24, "Too many open files")

        scarce.setattr(socket, "socketpair", no_pair)
        with pytest.raises(OSError, match="Too many"):
            producer.send("t", 0, RECORDS)
    producer.send("t", 0, RECORDS)  # its caller tries it again
    with producer._changed:
        queued = len(producer._core._queues[next(iter(producer._core._queues))]._batches)
    producer.close()
    assert queued == 1, "it is sent twice, with two sequences"


def test_a_producer_whose_thread_did_not_start_at_first_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    client = a_client()
    producer = client.producer(ProducerId(7, 0), delivery_seconds_max=1.0)
    with monkeypatch.context() as scarce:

        def start(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        scarce.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError):
            producer.send("t", 0, RECORDS)
    future = producer.send("t", 0, RECORDS)
    with pytest.raises(ProduceError):
        future.result(timeout=5)  # fails when its delivery time of one second is over
    producer.close()


def test_a_trio_client_without_a_thread_for_a_look_up_has_lost_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread_cache, "THREAD_CACHE", _thread_cache.ThreadCache())
    monkeypatch.setattr(threading.Thread, "start", start)

    async def run() -> None:
        await Connector(ClientSettings("broker.example:9092")).connect(
            ("broker.example", 9092), trio.current_time() + 5
        )

    with pytest.raises(ConnectionFailed):
        trio.run(run)
