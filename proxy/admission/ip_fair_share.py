"""All connections of one address, which share one turn: opening hundreds of them gains no more than opening a dozen.

A request costs one, and more if it is large (``IP_COST_BYTES``). Where an address has only a few connections, nothing
is counted. Pure: called by sessions, woken by the end of a pass and by timers; knows no Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ...reactor import Buffer, Reactor
from .. import limits

_COUNTED_FROM = limits.IP_COST_PER_TURN // limits.REQUESTS_PER_TURN_MAX + 1
"""From this number on, connections of an address can ask for more than a turn has."""
Turn = Callable[[], None]


class IpFairShare:
    """The turn of one address. ``is_counted``: it has so many connections that each request is counted."""

    __slots__ = (
        "_ends_at",
        "_is_refill_planned",
        "_is_turn_planned",
        "_left",
        "_reactor",
        "_waiting",
        "connections",
        "is_counted",
    )

    def __init__(self, reactor: Reactor) -> None:
        self.connections = 0
        self.is_counted = False
        self._reactor = reactor
        self._left = limits.IP_COST_PER_TURN
        self._ends_at = 0.0
        """When the turn of this pass is over, in reactor seconds, however much is left."""
        self._is_refill_planned = False
        self._waiting: deque[Turn] = deque()
        self._is_turn_planned = False

    def joined(self) -> None:
        """One more connection."""
        self.connections += 1
        self.is_counted = self.connections >= _COUNTED_FROM

    def left(self) -> None:
        """One connection less."""
        self.connections -= 1
        self.is_counted = self.connections >= _COUNTED_FROM

    def takes(self, request_bytes: int) -> bool:
        """May a request be taken in this turn? The last one may cost more than is left: the next turns are shorter."""
        if self._is_over:
            return False
        self._left -= 1 + request_bytes // limits.IP_COST_BYTES
        self._plan_refill()
        return True

    @property
    def _is_over(self) -> bool:
        return self._left <= 0 or (self._is_refill_planned and self._reactor.now() > self._ends_at)

    def stops(self, requests: Sequence[Buffer]) -> bool:
        """Does it have to be checked which of these may be taken? Nearly always one comes alone, and is taken at
        once."""
        if len(requests) == 1 and self._is_refill_planned and not self._is_over:
            self._left -= 1 + len(requests[0]) // limits.IP_COST_BYTES
            return False
        return len(requests) != 1 or not self.takes(len(requests[0]))

    def wait(self, turn: Turn) -> None:
        """Call back when it is this connection's turn, in the order in which they wait."""
        self._waiting.append(turn)
        self._plan_turn()

    def _plan_turn(self) -> None:
        if not self._is_turn_planned:
            self._is_turn_planned = True
            self._reactor.later(0, self._take_turn)

    def _take_turn(self) -> None:
        self._is_turn_planned = False
        for _ in range(len(self._waiting)):
            if self._is_over:
                self._plan_refill()  # and with it the next turn, after the others had theirs
                return
            self._waiting.popleft()()

    def _plan_refill(self) -> None:
        if not self._is_refill_planned:
            self._is_refill_planned = True
            self._ends_at = self._reactor.now() + limits.IP_TURN_SECONDS
            self._reactor.at_flush(self._refill)

    def _refill(self) -> None:
        self._is_refill_planned = False
        if self._waiting:
            self._plan_turn()
        self._left = min(limits.IP_COST_PER_TURN, self._left + limits.IP_COST_PER_TURN)
