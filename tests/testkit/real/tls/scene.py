"""TLS scenes: the shipped reactor with a listener over TLS, and blocking clients of Python's own for it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from idemproxy.proxy import limits
from idemproxy.proxy.events import TlsRefused
from idemproxy.proxy.net.event_loop import TrioReactor
from idemproxy.proxy.net.tls import Certificates
from idemproxy.proxy.settings.tls import TlsServer
from idemproxy.reactor import Endpoint, Peer, Wire

from .certificates import Authority, Files

SECONDS_MAX = 30.0
MEGABYTE = bytes(range(256)) * 4096


class TlsKit:
    """Certificates for a scene: ours, those of an authority that nobody trusts, and settings made of them."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "ours")
        self.other_authority = Authority(directory / "others", "other")
        self.own = self.authority.issue("proxy")
        self.server = TlsServer(self.own.cert, self.own.key)
        self.strict_server = TlsServer(
            self.own.cert, self.own.key, client_ca_file=self.authority.ca_file, client_auth="required"
        )


class Recorder:
    """An endpoint that remembers its calls, and does on a connection what it was made for."""

    def __init__(self, begin: Callable[[Wire], None] = lambda _wire: None) -> None:
        self.wire: Wire | None = None
        self.data = bytearray()
        self.sizes: list[int] = []
        self.expected = 0
        self.reasons: list[str] = []
        self._begin = begin

    def connected(self, wire: Wire) -> None:
        self.wire = wire
        self._begin(wire)

    def received(self, data: bytes) -> None:
        assert 0 < len(data) <= max(limits.RECEIVE_BYTES, self.expected)
        self.data += data
        self.sizes.append(len(data))

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)


@dataclass
class Scene:
    """A reactor with a listener over TLS, in a thread's trio loop that the test drives by ``do``."""

    reactor: TrioReactor
    certificates: Certificates
    events: list[Any]
    port: int = 0
    peers: list[Peer] = field(default_factory=list)
    accepted: list[Recorder] = field(default_factory=list)
    begin: Callable[[Wire], None] = lambda _wire: None
    refuses: bool = False

    def accept(self, peer: Peer) -> Endpoint | None:
        self.peers.append(peer)
        if self.refuses:
            return None
        self.accepted.append(Recorder(self.begin))
        return self.accepted[-1]

    @property
    def refused(self) -> list[str]:
        """What was said of handshakes that failed."""
        return [event.what for event in self.events if isinstance(event, TlsRefused)]


async def until(condition: Callable[[], Any]) -> None:
    with trio.move_on_after(SECONDS_MAX):
        while not condition():  # noqa: ASYNC110  (what is waited for comes by callback)
            await trio.sleep(0.005)
    assert condition(), f"nothing came of it within {SECONDS_MAX} s"


def play(settings: TlsServer, act: Callable[[Scene], Awaitable[None]]) -> Scene:
    """Run a scene: ``act`` is an async function of it. An internal error ends it at once: what it waits for would not
    come any more."""
    failures: list[tuple[str, Exception]] = []
    events: list[Any] = []

    async def run() -> Scene:
        async with trio.open_nursery() as nursery:

            def failed(where: str, error: Exception) -> None:
                failures.append((where, error))
                nursery.cancel_scope.cancel()

            reactor = TrioReactor(failed)
            scene = Scene(reactor, Certificates(events.append, reactor.later), events)
            side = scene.certificates.side(settings, "listeners[0].tls")
            await nursery.start(reactor.run)
            scene.port = reactor.listen("127.0.0.1", 0, scene.accept, side, events.append).port
            await act(scene)
            nursery.cancel_scope.cancel()
        return scene

    scene = trio.run(run)
    for where, error in failures:
        raise AssertionError(f"an internal error in {where}") from error
    return scene


def context(authority: Authority, own: Files | None = None) -> ssl.SSLContext:
    """A client's."""
    made = ssl.create_default_context(cafile=str(authority.ca_file))
    if own is not None:
        made.load_cert_chain(own.cert, own.key)
    return made


@contextmanager
def connected(port: int, trusted: ssl.SSLContext, name: str = "localhost") -> Iterator[ssl.SSLSocket]:
    """A client, in a thread of its own: everything it does blocks."""
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with trusted.wrap_socket(plain, server_hostname=name, suppress_ragged_eofs=False) as client:
            yield client


def shake_hands(tls: ssl.SSLObject, send: Callable[[], None], receive: Callable[[], object]) -> None:
    """Finish a handshake; its last bytes have been sent then."""
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            send()
            receive()
        else:
            send()
            return


def read_exactly(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = client.recv(65536)
        assert piece, f"the end after {len(data)} bytes of {size}"
        data += piece
    return bytes(data)
