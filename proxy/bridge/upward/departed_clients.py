"""Message sets that clients have left without an answer: a client that connects again waits for their outcome.

Such a client sends again what was not answered. On another connection that could overtake the first try, which the
proxy may just be repeating. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple


class ClientIdentity(NamedTuple):
    """By which a client that connects again is known. Several clients may share it: then one waits for another's
    outcome, for no longer than its own request allows."""

    address: str
    client_id: str | None
    principal: str | None = None


class DepartedClients:
    """By client: the connections that have ended with a batch out, and who waits for them."""

    def __init__(self) -> None:
        self.count = 0
        """How many have ended so, of all clients."""
        self._open: dict[ClientIdentity, dict[object, int]] = {}
        """In the order in which they have ended, and what the count was then."""
        self._waiting: dict[ClientIdentity, OrderedDict[object, Callable[[], None]]] = {}

    def depart(self, client: ClientIdentity, connection: object) -> None:
        """A client has closed a connection while something of it is out, or is still to be begun."""
        self.count += 1
        self._open.setdefault(client, {}).setdefault(connection, self.count)

    def end(self, client: ClientIdentity, connection: object) -> None:
        """What was out has an outcome, or its time is over."""
        of_client = self._open.get(client)
        if of_client is None or connection not in of_client:
            return
        del of_client[connection]
        if not of_client:
            del self._open[client]
        for wake in list(self._waiting.pop(client, {}).values()):
            wake()

    @property
    def are_open(self) -> bool:
        """Has any client left something?"""
        return bool(self._open)

    def has_open_before(self, client: ClientIdentity, connection: object, count: int) -> bool:
        """Has a connection of this client something out that ended before this one, which may be in use, and when no
        more than ``count`` had? Without that, who waits would wait for others that go on coming and leaving."""
        oldest, number = next(iter(self._open.get(client, {}).items()), (connection, 0))
        return oldest is not connection and number <= count

    # ------------------------------------------------------------------ waiting
    def wait(self, client: ClientIdentity, who: object, wake: Callable[[], None]) -> None:
        """Call ``wake`` once something of this client has an outcome."""
        self._waiting.setdefault(client, OrderedDict())[who] = wake

    def wait_no_more(self, client: ClientIdentity, who: object) -> None:
        """Its time is over."""
        of_client = self._waiting.get(client)
        if of_client is not None:
            of_client.pop(who, None)
            if not of_client:
                del self._waiting[client]
