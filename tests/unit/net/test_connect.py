"""Connections that cannot be opened, on the real reactor: each endpoint hears of it once, and never that it is open."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy import limits
from idemproxy.proxy.net.event_loop import TrioReactor
from idemproxy.proxy.net.socket_errors import NOTHING_CAME_BACK
from idemproxy.reactor import Address, Wire

TRIES = 50
REFUSED = "connection refused: nothing listens there"


class Witness:
    """Notes what it hears, and when that was the end."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.ended = trio.Event()

    def connected(self, wire: Wire) -> None:
        self.told.append("connected")

    def received(self, data: bytes) -> None:
        self.told.append("received")

    def lost(self, reason: str) -> None:
        self.told.append(reason)
        self.ended.set()


def _nobody(kind: str, directory: Path) -> Address:
    if kind == "no socket":
        return str(directory / "none")
    if kind == "a port":
        return HOST, free_ports(1)[0]
    path = str(directory / "left")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    return path


@pytest.mark.trio
@pytest.mark.parametrize(
    ("kind", "reason"),
    [("no socket", "there is no such socket"), ("a socket nobody serves", REFUSED), ("a port", REFUSED)],
)
async def test_a_failed_connection_is_reported_once_and_never_as_open(tmp_path: Path, kind: str, reason: str) -> None:
    address = _nobody(kind, tmp_path)
    failures: list[str] = []
    reactor = TrioReactor(lambda what, error: failures.append(f"{what}: {error}"))
    witnesses = [Witness() for _ in range(TRIES)]
    async with trio.open_nursery() as nursery:
        await nursery.start(reactor.run)
        for witness in witnesses:
            reactor.connect(address, witness)
            await trio.lowlevel.checkpoint()
        with trio.fail_after(5):
            for witness in witnesses:
                await witness.ended.wait()
        nursery.cancel_scope.cancel()
    assert [witness.told for witness in witnesses] == [[f"cannot connect: {reason}"]] * TRIES
    assert failures == []


@pytest.mark.trio
async def test_a_port_that_answers_no_attempt_is_reported_with_the_likely_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue that is full drops what comes, as a firewall does."""
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", 0.3)
    witness = Witness()
    reactor = TrioReactor(lambda what, error: pytest.fail(f"{what}: {error}"))
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        async with trio.open_nursery() as nursery:
            await nursery.start(reactor.run)
            reactor.connect(full.getsockname(), witness)
            with trio.fail_after(10):
                await witness.ended.wait()
            nursery.cancel_scope.cancel()
    assert witness.told == [f"no connection within 0 s: {NOTHING_CAME_BACK}"]
