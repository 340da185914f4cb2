"""``idemproxy inspect`` and ``idemproxy forget`` as tests call them, and producers that fill Redis for them."""

from __future__ import annotations

import io
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from idemproxy.proxy.main import main
from idemproxy.state.entry import Entry, unpack
from idemproxy.state.store import entry_key
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import wait_until

from .two_proxies_redis import ExternalRedis

Place = tuple[str, int]
COMMAND_SECONDS_MAX = 60


@dataclass(frozen=True)
class Done:
    """What a run of the command line returned and printed."""

    returncode: int
    stdout: str
    stderr: str


def idemproxy(*arguments: str | int | Path, typed: str = "") -> Done:
    """Run the command line, in this process: a new one takes most of a second to begin."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "stdin", io.StringIO(typed))
        status = main([str(argument) for argument in arguments])
    return Done(status, out.getvalue(), err.getvalue())


def lines_of(*arguments: str | int) -> list[str]:
    """Return what an ``inspect`` that goes well prints."""
    done = idemproxy("inspect", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def objects_of(*arguments: str | int) -> list[dict[str, Any]]:
    """Return what it prints for machines."""
    return [json.loads(line) for line in lines_of("--json", *arguments)]


def stored(redis: ExternalRedis, producer_id: int, place: Place) -> Entry:
    """Return an entry as it is now."""
    value = redis.call("GET", entry_key("default", producer_id, *place))
    assert isinstance(value, bytes)
    return unpack(value)


def send(client: RawClient, place: Place, producer_id: int, sequence: int) -> tuple[int, int]:
    """Return code and offset of a batch of two records."""
    values = [b"%d" % sequence, b"%d" % (sequence + 1)]
    answer = client.produce_one(*place, batch(values, producer_id=producer_id, sequence=sequence))
    return answer.error_code, answer.base_offset


def insist(client: RawClient, place: Place, producer_id: int, sequence: int, seconds_max: float = 60) -> int:
    """Send the same batch until it is taken, and return its offset."""
    end = time.monotonic() + seconds_max
    while True:
        code, offset = send(client, place, producer_id, sequence)
        if code == 0:
            return offset
        assert code in (6, 7, 19), code
        assert time.monotonic() < end, code
        time.sleep(0.1)


def begin(client: RawClient, redis: ExternalRedis, place: Place, batches: int = 3) -> int:
    """Return a new producer id that has some batches of two in the log, all committed."""
    producer_id = client.new_producer_id()
    for number in range(batches):
        assert send(client, place, producer_id, 2 * number) == (0, 2 * number)
    wait_until(lambda: stored(redis, producer_id, place).intent is None, "the last commit is written")
    return producer_id


def member_names(redis: ExternalRedis) -> list[str]:
    """Return the living proxy instances of the default cluster, in hexadecimal."""
    return sorted(key.decode().rpartition(":")[2] for key in redis.call("KEYS", "idem:default:member:*"))


@contextmanager
def tls_in_front_of(address: tuple[str, int], cert: Path, key: Path) -> Iterator[int]:
    """Yield the port of a relay that speaks TLS: the redis-server of the tests is built without it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):  # the listener is closed at the end
                while True:
                    plain, _ = listener.accept()
                    threads.append(threading.Thread(target=_serve_one, args=(context, plain, address), daemon=True))
                    threads[-1].start()

        threads.append(threading.Thread(target=serve, daemon=True))
        threads[0].start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(5)
    assert not any(thread.is_alive() for thread in threads), "a client of the relay has not hung up"


def _serve_one(context: ssl.SSLContext, plain: socket.socket, address: tuple[str, int]) -> None:
    with plain, suppress(OSError), context.wrap_socket(plain, server_side=True) as client:
        _relay(client, address)


def _relay(client: socket.socket, address: tuple[str, int]) -> None:
    """Hand bytes on until one side ends. Answers are waited for in a thread of their own."""
    with socket.create_connection(address) as server:

        def hand_back() -> None:
            with suppress(OSError):
                while data := server.recv(65536):
                    client.sendall(data)

        answers = threading.Thread(target=hand_back, daemon=True)
        answers.start()
        while data := client.recv(65536):
            server.sendall(data)
        server.shutdown(socket.SHUT_RDWR)
        answers.join(5)
