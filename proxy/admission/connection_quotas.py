"""Who may come in: connections per address, those that have not shown who is there, their pace, failed logins.

Asked by the listeners for each connection, before a byte of it is read, and told when it has ended. Keeps counts per
address and disconnects none but the oldest that has not shown its name; knows no socket and no Kafka. Of IPv6 a whole
/64, which is what one customer gets, counts as one address."""

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

_MINUTE = 60.0


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

    def login_failed(self) -> None:
        """The client has tried to authenticate, and was refused."""
        self._quotas.login_failed(self.address)

    def end(self) -> None:
        """The connection has ended. More than once is the same as once."""
        if not self._is_over:
            self._is_over = True
            self._quotas.has_left(self)


class _Logins:
    """Failed logins of one address. ``shut_until``: reactor seconds; until then its connections to listeners that
    require authentication are closed at once."""

    __slots__ = ("allowed", "shut_until")

    def __init__(self, per_minute: int, now: float) -> None:
        self.allowed = TokenBucket(per_minute / _MINUTE, per_minute, now)
        self.shut_until = 0.0


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
        self._unauthenticated_of: dict[str, int] = {}
        self._logins: OrderedDict[str, _Logins] = OrderedDict()
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
            pace.take(now)
        if refusal := self._refusal(address, caps, now, requires_authentication):
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
            self._unauthenticated_of[address] = self._unauthenticated_of.get(address, 0) + 1
            if 0 < caps.unauthenticated_max < len(self._unauthenticated):
                self._turn_out_the_oldest(caps.unauthenticated_max)
        return admitted

    # ------------------------------------------------------------------ told by admitted connections
    def is_known(self, admitted: AdmittedConnection) -> None:
        """A client has authenticated."""
        if admitted in self._unauthenticated:
            del self._unauthenticated[admitted]
            left = self._unauthenticated_of[admitted.address] - 1
            if left:
                self._unauthenticated_of[admitted.address] = left
            else:
                del self._unauthenticated_of[admitted.address]

    def login_failed(self, address: str) -> None:
        """A client at this address has failed to authenticate."""
        per_minute = self._caps().failed_logins_per_minute_max
        if not per_minute:
            return
        now = self._now()
        found = self._logins.pop(address, None)
        if found is None or found.allowed.burst != per_minute:
            found = _Logins(per_minute, now)
        self._logins[address] = found
        if len(self._logins) > limits.ADDRESSES_REMEMBERED_MAX:
            self._logins.popitem(last=False)
        found.allowed.take(now)
        if found.allowed.wait_seconds(now) and now >= found.shut_until:
            found.shut_until = now + limits.SHUT_OUT_SECONDS
            what = f"{per_minute} failed logins in a minute: shut out for {limits.SHUT_OUT_SECONDS:.0f} s"
            self._report(ConnectionRefused(address, "failed_logins", what))

    def has_left(self, admitted: AdmittedConnection) -> None:
        """A connection has ended."""
        self.is_known(admitted)
        admitted.fair_share.left()
        if not admitted.fair_share.connections:
            self._fair_shares.pop(admitted.address, None)

    # ------------------------------------------------------------------ inside
    def _refusal(self, address: str, caps: Caps, now: float, requires_authentication: bool) -> tuple[str, str] | None:
        fair_share = self._fair_shares.get(address)
        if fair_share is not None and 0 < caps.connections_per_ip_max <= fair_share.connections:
            return "address", f"{fair_share.connections} connections are open from there"
        if requires_authentication:
            unauthenticated = self._unauthenticated_of.get(address, 0)
            if 0 < caps.unauthenticated_per_ip_max <= unauthenticated:
                return "unauthenticated", f"{unauthenticated} connections from there have not shown yet who is there"
            logins = self._logins.get(address)
            if logins is not None and now < logins.shut_until and caps.failed_logins_per_minute_max:
                return "failed_logins", "shut out after failed logins"
        why = self._why_no_room()
        return None if why is None else ("descriptors", why)

    def make_room(self) -> None:
        """There was no file descriptor left to accept a connection: ``why_no_room`` closes an idle one, if there is
        one."""
        self._why_no_room()

    def _turn_out_the_oldest(self, most: int) -> None:
        """Close the oldest unauthenticated connection, as there is one more than the limit ``most``. A login takes a
        moment only, so many connections that never authenticate lock no client out."""
        oldest = next(iter(self._unauthenticated))
        what = f"{most} connections have not shown yet who is there, and this is the oldest"
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
