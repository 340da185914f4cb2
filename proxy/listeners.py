"""The ports that clients come to: which ones, for which broker, and what a client of each is told. Opens them through
the reactor; knows no request."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable, Mapping

from ..reactor import Endpoint, Peer
from . import limits
from .door import Door
from .events import ClientRefused, Report, Said
from .security.tls import TlsSide
from .settings.addresses import Listener, join_host_and_port
from .settings.config import ConfigError
from .transport import TrioReactor

Accept = Callable[..., Endpoint | None]
"""Called with the broker's id (None: at the bootstrap port), ``PlaceOf``, the principal or None, and the visit."""


class Listeners:
    """All listeners of one process."""

    def __init__(
        self,
        reactor: TrioReactor,
        listeners: tuple[Listener, ...],
        accept: Accept,
        report: Report,
        sides: Mapping[str, TlsSide],
        accept_guest: Accept | None = None,
        door: Door | None = None,
    ) -> None:
        """``accept``: gives the endpoint of a client of a broker's port (None: of the bootstrap port);
        ``accept_guest``: of one who shows the broker who he is. ``sides``: how TLS is spoken, by the name of the
        listener. ``door``: who may come in at all."""
        self._reactor = reactor
        self._listeners = listeners
        self._accept = accept
        self._accept_guest = accept_guest or accept
        self._door = door
        self._report = report
        self._sides = sides
        self._open: set[tuple[str, int | None]] = set()
        self._waiting: set[tuple[str, int | None]] = set()
        self._planned: set[tuple[str, int | None]] = set()
        """Ports that could not be had, and those of them that are about to be tried again."""
        self._unreachable: set[tuple[str, int]] = set()

    def try_ports(self) -> None:
        """Raise ConfigError when a bootstrap port can not be had: better now than when the brokers are found."""
        problems = []
        for one in self._listeners:
            family = socket.AF_INET6 if ":" in one.host else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((one.host, one.port))
                except OSError as error:
                    problems.append(f"listener {one.name!r}: cannot listen on {_where(one)}: {_why(error)}")
        if problems:
            raise ConfigError(*problems)

    def open_bootstrap(self) -> None:
        """Let clients in, also at the ports of listed brokers."""
        for one in self._listeners:
            self._open_port(one, None, one.port)
            for broker_id in one.broker_ids:
                self._open_broker(one, broker_id)

    def open_for(self, broker_ids: Iterable[int]) -> None:
        """Have a port for each of these brokers. What is open stays open: a broker may come back."""
        for one in self._listeners:
            for broker_id in broker_ids:
                self._open_broker(one, broker_id)

    def shown(self, broker_ids: Iterable[int]) -> list[str]:
        """Return where clients should point, a sentence per listener."""
        return [_shown(one, sorted(broker_ids)) for one in self._listeners]

    # ------------------------------------------------------------------ inside
    def _open_broker(self, one: Listener, broker_id: int) -> None:
        port = one.port_of(broker_id)
        if port is not None and one.place_of(broker_id, "") is not None:
            if one.routing == "port":
                self._open_port(one, broker_id, port)
        elif (one.name, broker_id) not in self._unreachable:
            self._unreachable.add((one.name, broker_id))
            why = f"it is none of {len(one.broker_ids)} broker_ids" if one.broker_ids else "there is no such port"
            self._report(Said("error", f"listener {one.name!r} has no port for broker {broker_id}: {why}"))

    def _open_port(self, one: Listener, broker_id: int | None, port: int) -> None:
        key = (one.name, broker_id)
        if key in self._open or key in self._planned:
            return
        try:
            side, asks = self._sides.get(one.name), one.authentication == "pass_through"
            accept = self._accept_at(one, broker_id)
            self._reactor.listen(one.host, port, accept, side, self._report, self._door, asks)
        except OSError as error:
            self._try_again(one, broker_id, port, _why(error))
            return
        self._open.add(key)
        if key in self._waiting:
            self._waiting.discard(key)
            self._report(Said("info", f"listening on {join_host_and_port(one.host, port)} at last"))

    def _try_again(self, one: Listener, broker_id: int | None, port: int, why: str) -> None:
        """Somebody else has the port: told once, and tried until it is free."""
        key = (one.name, broker_id)
        if key not in self._waiting:
            what = "bootstrap" if broker_id is None else f"broker {broker_id}"
            where = join_host_and_port(one.host, port)
            again = f"tried again every {limits.LISTEN_AGAIN_SECONDS:.0f} s"
            self._report(Said("error", f"cannot listen on {where} for {what}: {why}; {again}"))
        self._waiting.add(key)
        self._planned.add(key)

        def open_it() -> None:
            self._planned.discard(key)
            self._open_port(one, broker_id, port)

        self._reactor.later(limits.LISTEN_AGAIN_SECONDS, open_it)

    def _accept_at(self, one: Listener, broker_id: int | None) -> Callable[[Peer], Endpoint | None]:
        place_of = one.place_of
        take = self._accept_guest if one.authentication == "pass_through" else self._accept

        def accept(peer: Peer) -> Endpoint | None:
            return take(broker_id, place_of, peer.principal, visit=peer.visit)

        def accept_by_name(peer: Peer) -> Endpoint | None:
            try:
                meant = one.broker_of(peer.server_name)
            except LookupError as error:
                self._report(ClientRefused(peer.host, f"at listener {one.name!r}: {error}"))
                return None
            return take(meant, place_of, peer.principal, visit=peer.visit)

        return accept if one.routing == "port" else accept_by_name


def _shown(one: Listener, broker_ids: list[int]) -> str:
    host = one.host
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    if one.routing == "sni":
        port = one.advertised.place(0, one.port, host)[1]
        return f"point clients at {one.bootstrap_name}:{port} (one port, {one.port}; brokers are {one.advertised.host})"
    told = one.advertised.place(0, one.port, host)[0] if not one.advertised.names_brokers else host
    known = [(one.port_of(broker_id), broker_id) for broker_id in broker_ids]
    ports = ", ".join(f"{port} for broker {broker_id}" for port, broker_id in known if port is not None)
    return f"point clients at {join_host_and_port(told, one.port)} (ports in use: {one.port}, {ports})"


def _where(one: Listener) -> str:
    return join_host_and_port(one.host, one.port)


def _why(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error))
