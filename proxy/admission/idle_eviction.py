"""Which idle client connections are closed: one that is idle for long enough, and where as many are open as may be, the
one without a request for longest for a new one, those that have produced last: otherwise a few hosts that connect and
send nothing would lock all clients out. Knows no Kafka and no socket."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from .. import limits
from ..events import ConnectionRefused, Report


class EvictableConnection(Protocol):
    """A client connection, as far as eviction needs it."""

    @property
    def has_produced(self) -> bool:
        """Was a produce of it answered?"""
        ...

    @property
    def quiet_since(self) -> float | None:
        """When bytes came last, in the clock's seconds. None: a request of it is not answered yet, or bytes are on
        their way."""
        ...

    @property
    def address(self) -> str:
        """The client's address."""
        ...

    def abort(self, reason: str) -> None:
        """Close the connection."""
        ...

    def look_whether_idle(self) -> None:
        """Close it if it is idle for longer than a connection may be."""
        ...


class IdleEviction:
    """The eviction of one process."""

    def __init__(
        self, connections: Callable[[], Collection[EvictableConnection]], now: Callable[[], float], report: Report
    ) -> None:
        """``connections``: all that are open at the moment. ``now``: a clock in seconds."""
        self._connections = connections
        self._now = now
        self._report = report
        self._quiet: list[tuple[bool, float, EvictableConnection]] = []
        self._next_look_at = 0.0
        self._closes_at = 0.0

    def close_idle(self, now: float) -> None:
        """Close those that have been idle for too long, every ``IDLE_LOOK_SECONDS``. To be called more often."""
        if now >= self._closes_at:
            self._closes_at = now + limits.IDLE_LOOK_SECONDS
            for connection in list(self._connections()):
                connection.look_whether_idle()

    def refusal(self, most: int) -> tuple[str, str] | None:
        """Admit one more connection, if fewer than ``most`` are open or an idle one could be closed for it: returns
        None. Else returns why it is not admitted: one of ``metric_names.REFUSALS`` and a sentence."""
        count = len(self._connections())
        why = f"{count} connections are open"
        if count < most or self.make_room("too_many", why):
            return None
        return "too_many", why

    def make_room(self, reason: str, why: str) -> bool:
        """Close the connection that has been idle for longest, first of those that have not produced. False: none has
        been idle for long enough (``QUIET_SECONDS``; ``PRODUCER_QUIET_SECONDS`` for those that have)."""
        now = self._now()
        leaves = self._next_quiet(now)
        if leaves is None and now >= self._next_look_at:
            self._look(now, len(self._connections()))
            leaves = self._next_quiet(now)
        if leaves is None:
            return False
        since = leaves.quiet_since
        assert since is not None
        what = f"idle for {now - since:.0f} s, closed to admit a new client: {why}"
        self._report(ConnectionRefused(leaves.address, reason, what))
        leaves.abort(what)
        return True

    def _next_quiet(self, now: float) -> EvictableConnection | None:
        """Take the next connection that is still as idle as when it was found."""
        while self._quiet:
            _, since, connection = self._quiet.pop()
            if connection.quiet_since == since and _may_leave(connection, now):
                return connection
        return None

    def _look(self, now: float, count: int) -> None:
        """Find all connections that may be closed, and put them in order. Each makes room for one new connection before
        the next search; one that becomes idle meanwhile comes after them. A search that finds none is not repeated for
        every new connection."""
        self._next_look_at = now + limits.QUIET_LOOK_SECONDS * max(1, count // limits.CONNECTIONS_MAX)
        found = [(one.has_produced, one.quiet_since or 0.0, one) for one in self._connections() if _may_leave(one, now)]
        self._quiet = sorted(found, key=lambda entry: entry[:2], reverse=True)


def _may_leave(connection: EvictableConnection, now: float) -> bool:
    since = connection.quiet_since
    if since is None:
        return False
    return now - since >= (limits.PRODUCER_QUIET_SECONDS if connection.has_produced else limits.QUIET_SECONDS)
