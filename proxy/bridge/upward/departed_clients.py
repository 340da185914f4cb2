"""Message sets that clients have left without an answer: a client that connects again waits for their outcome.

Such a client sends again what was not answered. On another connection that could overtake the first try, which the
proxy may just be repeating. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

INHERITED_IDS_MAX: Final = 10_000
"""Clients whose last producer id is remembered, 2 MB in all. One that is forgotten gets any other id: then a batch
that arrives very late is not refused."""


class ClientIdentity(NamedTuple):
    """By which a client that connects again is known. Several clients may share it: then one waits for another's
    outcome, for no longer than its own request allows."""

    address: str
    client_id: str | None
    principal: str | None = None


class DepartedClients:
    """By client: the connections that have ended with a batch out, and who waits for them."""

    def __init__(self, inherited_ids_max: int = INHERITED_IDS_MAX) -> None:
        self._inherited_ids_max = inherited_ids_max
        self._open: dict[ClientIdentity, set[object]] = {}
        self._waiting: dict[ClientIdentity, OrderedDict[object, Callable[[], None]]] = {}
        self._last_ids: OrderedDict[ClientIdentity, int] = OrderedDict()

    def depart(self, client: ClientIdentity, connection: object) -> None:
        """A client has closed a connection while something of it is out."""
        self._open.setdefault(client, set()).add(connection)

    def end(self, client: ClientIdentity, connection: object, unfinished_id: int | None) -> None:
        """What was out has an outcome. ``unfinished_id``: the producer id of a batch whose outcome is unknown: the
        client's next batch should have it, so that a broker refuses the older one if it comes late."""
        if unfinished_id is not None:
            self._last_ids[client] = unfinished_id
            self._last_ids.move_to_end(client)
            if len(self._last_ids) > self._inherited_ids_max:
                self._last_ids.popitem(last=False)
        of_client = self._open.get(client)
        if of_client is None:
            return
        of_client.discard(connection)
        if not of_client:
            del self._open[client]
            for wake in list(self._waiting.pop(client, {}).values()):
                wake()

    def has_open(self, client: ClientIdentity) -> bool:
        """Has an earlier connection of this client something out?"""
        return client in self._open

    def inherit(self, client: ClientIdentity) -> int | None:
        """Return the producer id that this client's next batch should have; None: any."""
        return self._last_ids.pop(client, None)

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
