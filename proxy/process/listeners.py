"""The ports that clients connect to: which ones, for which broker, and which addresses a client of each gets. Opens
them through the reactor; knows no request.

A port that another process has ends the start. When a broker is found later whose port is taken, clients get no address
for it, as they would reach that other process."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from ...reactor import Endpoint, Peer
from .. import limits
from ..admission.connection_quotas import ConnectionQuotas
from ..bridge.cluster import BrokerAddress
from ..events import ClientRefused, OperatorMessage, Report
from ..net.event_loop import TrioReactor
from ..net.socket_errors import why_not_open
from ..net.tls import TlsSide
from ..settings.addresses import Listener, PlaceOf, join_host_and_port
from ..settings.config import ConfigError

Accept = Callable[..., Endpoint | None]
"""Called with the broker's id (None: at the bootstrap port), ``PlaceOf``, the principal or None, and the admitted
connection."""


_Key = tuple[str, int | None]
"""The name of a listener, and the broker that one of its ports is for; None: the bootstrap port."""


@dataclass(slots=True)
class _Taken:
    """A port that cannot be opened. ``told_at``: reactor seconds; the line is logged again after ``pause_seconds``."""

    why: str
    told_at: float
    pause_seconds: float = limits.LISTEN_TOLD_SECONDS


class Listeners:
    """All listeners of one process."""

    def __init__(
        self,
        reactor: TrioReactor,
        listeners: tuple[Listener, ...],
        accept: Accept,
        report: Report,
        sides: Mapping[str, TlsSide],
        accept_pass_through: Accept | None = None,
        quotas: ConnectionQuotas | None = None,
        give_up: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``accept`` makes the endpoint of a client of a broker's port (None: of the bootstrap port);
        ``accept_pass_through``: that of a client that authenticates at the broker. ``sides``: TLS contexts by the name
        of the listener. ``quotas`` decide which clients are admitted. ``give_up`` ends the start, with the ports that
        cannot be opened."""
        self._reactor = reactor
        self._listeners = listeners
        self._accept = accept
        self._accept_pass_through = accept_pass_through or accept
        self._quotas = quotas
        self._report = report
        self._sides = sides
        self._give_up = give_up
        self._brokers: Mapping[int, BrokerAddress] = {}
        self._open: set[_Key] = set()
        self._refused: dict[_Key, str] = {}
        """Ports that could not be opened at the start, and why not."""
        self._is_started = False
        self._taken: dict[_Key, _Taken] = {}
        self._planned: set[_Key] = set()
        """``_taken``: ports that could not be opened after the start; ``_planned``: those with a timer for the next
        try."""

    def open_bootstrap(self) -> bool:
        """Accept clients, also at the ports of listed brokers. False: a port cannot be opened, the start has ended."""
        for one in self._listeners:
            self._open_port(one, None, one.port)
            for broker_id in one.broker_ids:
                self._open_broker(one, broker_id)
        self._is_started = self._is_started or self._has_all()
        return self._is_started

    def open_for(self, brokers: Mapping[int, BrokerAddress]) -> None:
        """Open a port for each of these brokers. Ports that are open stay open: a broker may come back."""
        self._brokers = brokers
        for one in self._listeners:
            for broker_id in brokers:
                self._open_broker(one, broker_id)
        if not self._is_started:
            self._has_all()

    def shown(self, broker_ids: Iterable[int]) -> list[str]:
        """Return the addresses for clients, a sentence per listener."""
        return [
            _shown(one, [broker_id for broker_id in sorted(broker_ids) if self._is_open(one, broker_id)])
            for one in self._listeners
        ]

    def taken(self) -> list[str]:
        """Return why brokers of the cluster have no port, a sentence each. May be called from another thread."""
        return [taken.why for (_, broker_id), taken in list(self._taken.items()) if broker_id in self._brokers]

    def ports_open(self) -> dict[str, int]:
        """Return how many ports of each listener are open. May be called from another thread."""
        found = dict.fromkeys((one.name for one in self._listeners), 0)
        for name, _ in list(self._open):
            found[name] += 1
        return found

    # ------------------------------------------------------------------ inside
    def _has_all(self) -> bool:
        if self._refused:
            self._give_up("; ".join(self._refused.values()))
        return not self._refused

    def _is_open(self, one: Listener, broker_id: int) -> bool:
        return one.routing != "port" or (one.name, broker_id) in self._open

    def _open_broker(self, one: Listener, broker_id: int) -> None:
        port = one.port_of(broker_id)
        if port is not None and one.place_of(broker_id, "") is not None and one.routing == "port":
            self._open_port(one, broker_id, port)

    def _open_port(self, one: Listener, broker_id: int | None, port: int) -> None:
        key = (one.name, broker_id)
        if key in self._open or key in self._planned:
            return
        try:
            side, asks = self._sides.get(one.name), one.authentication == "pass_through"
            accept = self._accept_at(one, broker_id)
            self._reactor.listen(one.host, port, accept, side, self._report, self._quotas, asks)
        except OSError as error:
            problem = _problem(one, broker_id, port, error, self._brokers)
            if self._is_started:
                self._try_again(one, broker_id, port, problem)
            else:
                self._refused[key] = problem
            return
        self._open.add(key)
        self._refused.pop(key, None)
        if self._taken.pop(key, None) is not None:
            where = join_host_and_port(one.host, port)
            self._report(OperatorMessage("info", f"listening on {where} at last: clients see broker {broker_id}"))

    def _try_again(self, one: Listener, broker_id: int | None, port: int, problem: str) -> None:
        """Another process has the port: try until it is free; log that at once, then less and less often."""
        key, now = (one.name, broker_id), self._reactor.now()
        taken = self._taken.get(key)
        if taken is None or now >= taken.told_at + taken.pause_seconds:
            hidden = f"clients see that broker {broker_id} leads nothing"
            again = f"tried again every {limits.LISTEN_AGAIN_SECONDS:.0f} s"
            self._report(OperatorMessage("error", f"{problem}; until then {hidden}; {again}"))
        if taken is None:
            self._taken[key] = _Taken(problem, now)
        elif now >= taken.told_at + taken.pause_seconds:
            pause_seconds = min(2 * taken.pause_seconds, limits.LISTEN_TOLD_SECONDS_MAX)
            self._taken[key] = _Taken(problem, now, pause_seconds)
        self._planned.add(key)

        def open_it() -> None:
            self._planned.discard(key)
            self._open_port(one, broker_id, port)

        self._reactor.later(limits.LISTEN_AGAIN_SECONDS, open_it)

    def _place_of(self, one: Listener) -> PlaceOf:
        """Return where a broker is reached: nowhere as long as its port is not ours."""
        if one.routing != "port":
            return one.place_of

        def place_of(broker_id: int, local_host: str) -> tuple[str, int] | None:
            return one.place_of(broker_id, local_host) if (one.name, broker_id) in self._open else None

        return place_of

    def _accept_at(self, one: Listener, broker_id: int | None) -> Callable[[Peer], Endpoint | None]:
        place_of = self._place_of(one)
        take = self._accept_pass_through if one.authentication == "pass_through" else self._accept

        def accept(peer: Peer) -> Endpoint | None:
            return take(broker_id, place_of, peer.principal, admitted=peer.admitted)

        def accept_by_name(peer: Peer) -> Endpoint | None:
            try:
                meant = one.broker_of(peer.server_name)
            except LookupError as error:
                self._report(ClientRefused(peer.host, f"at listener {one.name!r}: {error}"))
                return None
            return take(meant, place_of, peer.principal, admitted=peer.admitted)

        return accept if one.routing == "port" else accept_by_name


def try_ports(listeners: Iterable[Listener]) -> None:
    """Raise ConfigError when a bootstrap port, or that of a listed broker, cannot be opened: better now than when the
    brokers are found."""
    problems = []
    for one in listeners:
        listed = [(broker_id, one.port_of(broker_id)) for broker_id in one.broker_ids if one.routing == "port"]
        for broker_id, port in [(None, one.port), *listed]:
            if port is not None and (error := bind_error(one.host, port)) is not None:
                problems.append(_problem(one, broker_id, port, error, {}))
    if problems:
        raise ConfigError(*problems)


def _problem(
    one: Listener, broker_id: int | None, port: int, error: OSError, brokers: Mapping[int, BrokerAddress]
) -> str:
    """Return which port cannot be opened, for which broker, why not, and what can be done. ``brokers``: as far as they
    are known."""
    what = "" if broker_id is None else f" for broker {broker_id}"
    start = f"listener {one.name!r}: cannot listen on {join_host_and_port(one.host, port)}{what}"
    problem = f"{start}: {why_not_open(error)}"
    if error.errno != errno.EADDRINUSE:
        return problem
    others = "give the listener other ports (--listen; in the file bind and first_broker_port)"
    there = brokers.get(broker_id) if broker_id is not None else None
    if there is not None and there.port == port:
        return f"{start}: the broker itself has this port; {others}"
    return f"{problem}; end it, or {others}"


def _shown(one: Listener, broker_ids: list[int]) -> str:
    host = one.host
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    if one.routing == "sni":
        port = one.advertised.place(0, one.port, host)[1]
        return f"point clients at {one.bootstrap_name}:{port} (one port, {one.port}; brokers are {one.advertised.host})"
    reported = one.advertised.place(0, one.port, host)[0] if not one.advertised.names_brokers else host
    known = [(one.port_of(broker_id), broker_id) for broker_id in broker_ids]
    ports = ", ".join(f"{port} for broker {broker_id}" for port, broker_id in known if port is not None)
    return f"point clients at {join_host_and_port(reported, one.port)} (ports in use: {one.port}, {ports})"


def bind_error(host: str, port: int) -> OSError | None:
    """Return why a port cannot be opened now; None if it can."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None
