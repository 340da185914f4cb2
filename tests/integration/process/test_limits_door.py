"""The door on real sockets: who waits, who is closed at once, and that one who has gone makes room, also over TLS."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from idemproxy.proxy.admission.connection_quotas import ConnectionQuotas
from idemproxy.proxy.events import ConnectionRefused
from idemproxy.proxy.net.event_loop import TrioReactor
from idemproxy.proxy.net.tls import Certificates
from idemproxy.proxy.settings.config import Caps
from idemproxy.reactor import Peer
from testkit.real.tls.scene import SECONDS_MAX, Recorder, TlsKit, context, until


class Scene:
    """A listener with a door, plain or over TLS."""

    def __init__(self, reactor: TrioReactor, caps: Caps) -> None:
        self.events: list[Any] = []
        self.quotas = ConnectionQuotas(reactor, lambda: caps, self.events.append)
        self.accepted: list[Recorder] = []
        self.is_full = False
        self.port = 0

    def accept(self, _peer: Peer) -> Recorder | None:
        if self.is_full:
            return None
        self.accepted.append(Recorder())
        return self.accepted[-1]

    def knock(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), SECONDS_MAX)

    @property
    def reasons(self) -> list[str]:
        return [event.reason for event in self.events if isinstance(event, ConnectionRefused)]

    @property
    def is_empty(self) -> bool:
        return not self.quotas._fair_shares and not self.quotas._unauthenticated


def play(caps: Caps, act: Callable[[Scene], Awaitable[None]], kit: TlsKit | None = None, *, asks: bool = False) -> None:
    failures: list[object] = []

    async def run() -> None:
        reactor = TrioReactor(lambda where, error: failures.append((where, error)))
        scene = Scene(reactor, caps)
        side = None
        if kit is not None:
            side = Certificates(scene.events.append, reactor.later).side(kit.server, "listeners[0].tls")
        async with trio.open_nursery() as nursery:
            await nursery.start(reactor.run)
            listener = reactor.listen("127.0.0.1", 0, scene.accept, side, scene.events.append, scene.quotas, asks)
            scene.port = listener.port
            await act(scene)
            nursery.cancel_scope.cancel()

    trio.run(run)
    assert failures == []


def test_what_comes_above_the_pace_waits_and_is_taken_in_the_end() -> None:
    rate, burst, more = 20, 100, 20

    async def act(scene: Scene) -> None:
        began = time.monotonic()
        lines = [scene.knock() for _ in range(burst + more)]
        await until(lambda: len(scene.accepted) == burst + more)
        assert time.monotonic() - began > (more - 1) / rate - 0.1
        assert scene.reasons == []
        for line in lines:
            line.close()
        await until(lambda: scene.is_empty)

    play(Caps(connection_creation_rate_max=rate), act)


def test_an_excess_connection_of_an_address_is_closed_and_leavers_make_room() -> None:
    async def act(scene: Scene) -> None:
        with scene.knock() as first, scene.knock():
            await until(lambda: len(scene.accepted) == 2)
            with scene.knock() as third:
                await until(lambda: scene.reasons == ["address"])
                assert third.recv(1) == b""
            first.close()
            await until(lambda: scene.accepted[0].reasons)
            with scene.knock():
                await until(lambda: len(scene.accepted) == 3)
        await until(lambda: scene.is_empty)

    play(Caps(connections_per_ip_max=2), act)


def test_a_connection_that_the_endpoint_refuses_is_not_counted_any_more() -> None:
    async def act(scene: Scene) -> None:
        scene.is_full = True
        for _ in range(5):
            with scene.knock() as line:
                received = await trio.to_thread.run_sync(line.recv, 1)
                assert received == b""
        assert scene.reasons == []
        await until(lambda: scene.is_empty)

    play(Caps(connections_per_ip_max=2), act)


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "TLS"])
def test_a_crowd_of_strangers_loses_its_oldest(tmp_path: Path, is_tls: bool) -> None:
    async def act(scene: Scene) -> None:
        with scene.knock() as first, scene.knock(), scene.knock():
            await until(lambda: scene.reasons == ["unauthenticated"])
            assert first.recv(1) == b""
        await until(lambda: scene.is_empty)

    caps = Caps(unauthenticated_max=2)
    play(caps, act, TlsKit(tmp_path) if is_tls else None, asks=True)


def test_over_tls_who_fails_and_who_goes_makes_room_as_well(tmp_path: Path) -> None:
    kit = TlsKit(tmp_path)

    def shake(port: int, trusted: ssl.SSLContext) -> None:
        with (
            socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as plain,
            trusted.wrap_socket(plain, server_hostname="localhost"),
        ):
            pass

    async def act(scene: Scene) -> None:
        for _ in range(4):
            await trio.to_thread.run_sync(shake, scene.port, context(kit.authority))
            await until(lambda: scene.is_empty)
            with pytest.raises(ssl.SSLError):
                await trio.to_thread.run_sync(shake, scene.port, context(kit.other_authority))
            await until(lambda: scene.is_empty)
        assert len(scene.accepted) == 4
        assert scene.reasons == []

    play(Caps(connections_per_ip_max=1), act, kit)


def test_too_few_descriptors_for_the_allowed_connections_are_reported_at_the_start(tmp_path: Path) -> None:
    run = [sys.executable, "-m", "idemproxy", "run", "--upstream", "127.0.0.1:1", "--data-directory", f"{tmp_path}"]
    with subprocess.Popen(
        ["bash", "-c", 'ulimit -n 300; exec "$@"', "bash", *run], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            said = next((line for line in process.stderr if "descriptors" in line), "it ended")
        finally:
            process.terminate()
    assert "WARNING" in said
    assert "300 descriptors are too few for limits.connections_max 10000: 20000 are wanted" in said
