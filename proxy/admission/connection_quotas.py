"""Who may come in: connections per address, those that have not shown who is there, their pace.

The listeners ask it about each connection, before they read a byte, and report the end of the connection. Keeps counts
per address and disconnects none but the oldest that has not shown its name; knows no socket and no Kafka. Of IPv6 a
whole /64, which is what one customer gets, counts as one address.

A failed login counts against nobody: as at a broker (KIP-306) its answer is late (``LOGIN_REFUSAL_SECONDS``), and its
connection counts as unauthenticated until it is closed. Passwords are hashed by the brokers, not here."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable

from ...reactor import Reactor
from .. import limits
from ..events import ConnectionRefused, Report
from ..settings.config import Caps
from .ip_fair_share import IpFairShare
from .token_bucket import TokenBucket


class AdmittedConnection:
    """One connection, from its admission to its end. ``hang_up``: closes it, with a reason."""

    __slots__ = ("_is_over", "_quotas", "address", "fair_share", "hang_up")

    def __init__(self, quotas: ConnectionQuotas, address: str, fair_share: IpFairShare) -> None:
        self._quotas = quotas
        self._is_over = False
        self.address = address
        self.fair_share = fair_share
        self.hang_up: Callable[[str], None] = lambda _reason: None

    def is_known(self) -> None:
        """The client has authenticated."""
        self._quotas.is_known(self)

    def end(self) -> None:
        """The connection has ended. More than once is the same as once."""
        if not self._is_over:
            self._is_over = True
            self._quotas.has_left(self)


class ConnectionQuotas:
    """The quotas of all listeners of one process."""

    def __init__(
        self,
        reactor: Reactor,
        caps: Callable[[], Caps],
        report: Report,
        why_no_room: Callable[[], str | None] = lambda: None,
    ) -> None:
        """``caps``: the limits of this moment. ``why_no_room``: why there is no file descriptor for a client; None if
        there is one, perhaps because it has closed an idle connection."""
        self._reactor = reactor
        self._why_no_room = why_no_room
        self._now = reactor.now
        self._caps = caps
        self._report = report
        self._fair_shares: dict[str, IpFairShare] = {}
        self._unauthenticated: OrderedDict[AdmittedConnection, None] = OrderedDict()
        self._unauthenticated_of: dict[str, OrderedDict[AdmittedConnection, None]] = {}
        self._pace: TokenBucket | None = None

    def wait_seconds(self) -> float:
        """Return how long new connections have to wait before the next one is taken; 0: it may be taken now."""
        pace = self._pace_now()
        return 0.0 if pace is None else pace.wait_seconds(self._now())

    def enter(self, host: str, requires_authentication: bool) -> AdmittedConnection | None:
        """Admit a connection from ``host``, or return None: it is to be closed then. ``requires_authentication``: it
        has to authenticate before it may do anything."""
        now, caps, address = self._now(), self._caps(), address_of(host)
        pace = self._pace_now()
        if pace is not None:
            pace.take_tokens(now)
        if refusal := self._refusal(address, caps):
            if pace is not None:
                pace.give_back(1 - limits.TURNED_AWAY_SHARE)
            self._report(ConnectionRefused(address, *refusal))
            return None
        fair_share = self._fair_shares.get(address)
        if fair_share is None:
            fair_share = self._fair_shares[address] = IpFairShare(self._reactor)
        fair_share.joined()
        admitted = AdmittedConnection(self, address, fair_share)
        if requires_authentication:
            self._unauthenticated[admitted] = None
            from_there = self._unauthenticated_of.setdefault(address, OrderedDict())
            from_there[admitted] = None
            if 0 < caps.unauthenticated_per_ip_max < len(from_there):
                self._turn_out_the_oldest(from_there, f"{caps.unauthenticated_per_ip_max} connections from there")
            if 0 < caps.unauthenticated_max < len(self._unauthenticated):
                self._turn_out_the_oldest(self._unauthenticated, f"{caps.unauthenticated_max} connections")
        return admitted

    # ------------------------------------------------------------------ called by admitted connections
    def is_known(self, admitted: AdmittedConnection) -> None:
        """A client has authenticated."""
        if admitted in self._unauthenticated:
            del self._unauthenticated[admitted]
            from_there = self._unauthenticated_of[admitted.address]
            del from_there[admitted]
            if not from_there:
                del self._unauthenticated_of[admitted.address]

    def has_left(self, admitted: AdmittedConnection) -> None:
        """A connection has ended."""
        self.is_known(admitted)
        admitted.fair_share.left()
        if not admitted.fair_share.connections:
            self._fair_shares.pop(admitted.address, None)

    # ------------------------------------------------------------------ inside
    def _refusal(self, address: str, caps: Caps) -> tuple[str, str] | None:
        fair_share = self._fair_shares.get(address)
        if fair_share is not None and 0 < caps.connections_per_ip_max <= fair_share.connections:
            return "address", f"{fair_share.connections} connections are open from there"
        why = self._why_no_room()
        return None if why is None else ("descriptors", why)

    def make_room(self) -> None:
        """There was no file descriptor left to accept a connection: ``why_no_room`` closes an idle one, if there is
        one."""
        self._why_no_room()

    def _turn_out_the_oldest(self, unauthenticated: OrderedDict[AdmittedConnection, None], most: str) -> None:
        """Close the oldest of these, as there is one more than the limit. A login takes a moment only, so many
        connections that never authenticate lock no client out, also none at their own address."""
        oldest = next(iter(unauthenticated))
        what = f"{most} have not shown yet who is there, and this is the oldest"
        self._report(ConnectionRefused(oldest.address, "unauthenticated", what))
        oldest.hang_up(what)
        oldest.end()

    def _pace_now(self) -> TokenBucket | None:
        rate = self._caps().connection_creation_rate_max
        if not rate:
            self._pace = None
        elif self._pace is None or self._pace.rate != rate:
            self._pace = TokenBucket(rate, max(1.0, rate * limits.ACCEPTS_BURST_SECONDS), self._now())
        return self._pace


def address_of(host: str) -> str:
    """Return what counts as one address: an IPv4 address, also one that is written as IPv6; the /64 of another one."""
    if ":" not in host:
        return host
    found = ipaddress.IPv6Address(host.partition("%")[0])
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False))
