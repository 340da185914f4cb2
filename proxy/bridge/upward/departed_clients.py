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
        self._open: dict[ClientIdentity, set[object]] = {}
        self._waiting: dict[ClientIdentity, OrderedDict[object, Callable[[], None]]] = {}

    def depart(self, client: ClientIdentity, connection: object) -> None:
        """A client has closed a connection while something of it is out."""
        self._open.setdefault(client, set()).add(connection)

    def end(self, client: ClientIdentity, connection: object) -> None:
        """What was out has an outcome, or its time is over."""
        of_client = self._open.get(client)
        if of_client is None:
            return
        of_client.discard(connection)
        if not of_client:
            del self._open[client]
            for wake in list(self._waiting.pop(client, {}).values()):
                wake()

    @property
    def are_open(self) -> bool:
        """Has any client left something?"""
        return bool(self._open)

    def has_open(self, client: ClientIdentity) -> bool:
        """Has an earlier connection of this client something out?"""
        return client in self._open

    # ------------------------------------------------------------------ waiting
    def wait(self, client: ClientIdentity, who: object, wake: Callable[[], None]) -> None:
        """Call ``wake`` once nothing of this client is out."""
        self._waiting.setdefault(client, OrderedDict())[who] = wake

    def wait_no_more(self, client: ClientIdentity, who: object) -> None:
        """Its time is over."""
        of_client = self._waiting.get(client)
        if of_client is not None:
            of_client.pop(who, None)
            if not of_client:
                del self._waiting[client]
