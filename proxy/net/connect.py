"""One connection attempt to a host name: its addresses are tried one after the other until one opens, each for a while.
Says which address opened, for the next attempt. Opens no socket itself: ``event_loop.py`` hands in the function that
does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...reactor import Endpoint, Timer, Wire
from .. import limits
from .socket_errors import NOTHING_CAME_BACK
from .sockets import SocketWire

Place = tuple[int, object]
"""Address family and what ``connect`` of a socket takes."""
Open = Callable[[Place, Endpoint], SocketWire | None]
"""Begin to connect; None: it failed at once, and the endpoint's ``lost`` is called soon."""


class ConnectAttempts:
    """The endpoint of connections that are not open yet. The first one that opens is handed over to the real
    endpoint."""

    def __init__(
        self,
        places: Sequence[Place],
        endpoint: Endpoint,
        begin: Open,
        later: Callable[[float, Callable[[], None]], Timer],
        opened: Callable[[Place], None] = lambda _place: None,
    ) -> None:
        """``places``: at least one, best first. ``opened`` is called with the one that opened."""
        self._left = list(places)
        self._endpoint = endpoint
        self._begin = begin
        self._later = later
        self._opened = opened
        self._reasons: list[str] = []
        self._timer: Timer | None = None
        self._next()

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """This address works: hand the connection over."""
        assert isinstance(wire, SocketWire)
        self._stop_timer()
        self._opened(self._place)
        wire.hand_over(self._endpoint)
        self._endpoint.connected(wire)

    def received(self, data: bytes) -> None:
        """Never: nothing is read before ``connected``."""

    def lost(self, reason: str) -> None:
        """This address failed: try the next one, and after the last one report why none worked."""
        self._stop_timer()
        if reason not in self._reasons:
            self._reasons.append(reason)
        if self._left:
            self._next()
        else:
            self._endpoint.lost("; ".join(self._reasons))

    # ------------------------------------------------------------------ inside
    def _next(self) -> None:
        self._place = self._left.pop(0)
        wire = self._begin(self._place, self)
        if wire is not None:
            self._timer = self._later(limits.CONNECT_SECONDS_MAX, lambda: self._too_slow(wire))

    def _too_slow(self, wire: SocketWire) -> None:
        self._timer = None
        if wire.is_connecting:  # a TLS handshake has a time of its own
            wire.fail(f"no connection within {limits.CONNECT_SECONDS_MAX:.0f} s: {NOTHING_CAME_BACK}")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
