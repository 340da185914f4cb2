"""Relays for two proxies: one that keeps a broker's answers, or the requests to it, and one that spreads clients.

Built on the fault relay; each is a thread of its own. Knows nothing of what the proxies decide.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from enum import Enum, auto
from random import Random

from idemproxy.demo.fault_relay import FaultPlan, FaultRelay
from idemproxy.demo.relay_frames import PRODUCE, correlation_of, request_head
from idemproxy.demo.relay_link import Link

Address = tuple[str, int]


class Keeping(Enum):
    """What a relay keeps of the produce requests that pass it, or of everything."""

    NOTHING = auto()
    ANSWERS = auto()
    """The broker has appended; its answer stays here."""
    REQUESTS = auto()
    """They never come to the broker, and their connections stay open."""
    ALL_ANSWERS = auto()
    """Answers to whatever is asked: the broker seems to stand still. One that a fault takes is lost all the same."""


class _KeepingLink(Link):
    """One connection through a ``KeepingRelay``."""

    def __init__(self, relay: KeepingRelay, connection: socket.socket, upstream: Address) -> None:
        self._keeper = relay
        self.has_swallowed = False
        super().__init__(relay, connection, upstream)

    def _request(self, frame: bytes) -> None:
        if self._keeper.keeping is Keeping.REQUESTS and request_head(frame)[0] == PRODUCE:
            self.has_swallowed = True
            self._keeper.kept += 1
            return
        super()._request(frame)

    def _answer(self, frame: bytes) -> None:
        api_key, _ = self._unanswered.get(correlation_of(frame), (-1, 0))
        is_everything = self._keeper.keeping is Keeping.ALL_ANSWERS
        if is_everything or (self._keeper.keeping is Keeping.ANSWERS and api_key == PRODUCE):
            self._keeper.kept += 1
            if self._held is None:
                self._held = []
        super()._answer(frame)

    def let_go(self) -> None:
        """Answers reach the proxy again. Where a request is missing for good, the connection is reset."""
        if self.has_swallowed:
            self.reset()
        elif self._held is not None:
            self._release()


class KeepingRelay(FaultRelay):
    """In front of the broker, for one proxy: it stays on the relay, since addresses in Metadata are rewritten."""

    def __init__(self, broker: Address, plan: FaultPlan | None = None) -> None:
        super().__init__(broker, rewrite_addresses=True, plan=plan)
        self.keeping = Keeping.NOTHING
        self.kept = 0
        """Answers or requests that were kept since ``keep``."""

    def __enter__(self) -> KeepingRelay:
        self.start()
        return self

    def keep(self, what: Keeping) -> None:
        """From now on keep these."""
        self.kept = 0
        self.keeping = what

    def let_go(self) -> None:
        """Keep nothing any more, and pass on what was kept."""
        self.keeping = Keeping.NOTHING
        self._commands.append(self._let_go)
        self._wake_sender.send(b"!")

    def _let_go(self) -> None:
        for link in list(self._links):
            assert isinstance(link, _KeepingLink)
            link.let_go()

    def _accept(self, listener: socket.socket, upstream: Address) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        self._connections += 1
        self._links.add(_KeepingLink(self, connection, upstream))


class SpreadingRelay(FaultRelay):
    """One address for several proxies: each connection goes to one of them, by chance, of those that listen.

    Their brokers' listeners are distinguished by their distance from the bootstrap port, so clients see one cluster.
    """

    def __init__(self, proxies: Sequence[Address], *, seed: int = 0, plan: FaultPlan | None = None) -> None:
        super().__init__(proxies[0], rewrite_addresses=True, plan=plan)
        self._proxies = list(proxies)
        self._dice = Random(seed)
        self.taken = [0] * len(proxies)
        """Connections that each proxy got."""

    def __enter__(self) -> SpreadingRelay:
        self.start()
        return self

    def translate(self, host: str, port: int) -> Address:
        """The listener that stands for this broker, whichever proxy named it."""
        for _, first in self._proxies:
            if 0 < port - first < 16:
                return super().translate(host, self._proxies[0][1] + port - first)
        return super().translate(host, port)

    def _accept(self, listener: socket.socket, upstream: Address) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        self._connections += 1
        distance = upstream[1] - self._proxies[0][1]
        order = self._dice.sample(range(len(self._proxies)), len(self._proxies))
        chosen = next((one for one in order if _listens(self._proxies[one], distance)), order[0])
        self.taken[chosen] += 1
        host, first = self._proxies[chosen]
        self._links.add(Link(self, connection, (host, first + distance)))


def _listens(proxy: Address, distance: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((proxy[0], proxy[1] + distance)) == 0
