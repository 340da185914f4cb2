"""Notes of failed batches, of all connections of a process together (``producer/retry_notes.py``). Where clients have
more of them noted than is good, a connection with many is closed: its client connects again and sends in order what has
no answer, as after any lost connection, so no note is missed (rule R11). A note that was forgotten while its connection
stays open would be. Pure; knows no Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from .. import limits


class NotingConnection(Protocol):
    """A connection on which failed batches are noted."""

    @property
    def address(self) -> str: ...

    def close_soon(self, reason: str) -> None:
        """Close it, in a later step."""
        ...


Client = str | NotingConnection
"""Whom notes count for: an address, or a connection alone."""


class NotedFailures:
    """The notes of one process. ``count``: how many there are, without those of connections that are about to close.
    ``counts_addresses``: does an address stand for one client? Not behind a load balancer: there each connection counts
    alone."""

    def __init__(self, counts_addresses: Callable[[], bool] = lambda: True) -> None:
        self.count = 0
        self._counts_addresses = counts_addresses
        self._of: dict[NotingConnection, tuple[Client, int]] = {}
        """Whom each connection counts for, and its notes."""
        self._of_client: Counter[Client] = Counter()
        self._leaving: set[NotingConnection] = set()

    def keep(self, connection: NotingConnection, count: int) -> None:
        """The connection has so many notes now. If that makes too many, the connection with most notes is closed: of
        the client that has the most, so that others keep theirs."""
        if connection in self._leaving:
            return
        client: Client = connection.address if self._counts_addresses() else connection
        client, _ = self._of.get(connection, (client, 0))
        self._set(connection, client, count)
        while self._of_client[client] > limits.FAILURES_NOTED_OF_ONE_MAX or self.count > limits.FAILURES_NOTED_MAX:
            self._close_one()

    def end(self, connection: NotingConnection) -> None:
        """The connection has ended, and its notes with it."""
        self._leaving.discard(connection)
        if connection in self._of:
            self._set(connection, self._of[connection][0], 0)

    def _set(self, connection: NotingConnection, client: Client, count: int) -> None:
        _, before = self._of.pop(connection, (client, 0))
        self.count += count - before
        self._of_client[client] += count - before
        if count:
            self._of[connection] = client, count
        if not self._of_client[client]:
            del self._of_client[client]

    def _close_one(self) -> None:
        client, of_client = max(self._of_client.items(), key=lambda item: item[1])
        own = ((one, count) for one, (whose, count) in self._of.items() if whose == client)
        connection, count = max(own, key=lambda item: item[1])
        reason = (
            f"{self.count} failed batches are remembered for clients that are to send them again, {of_client} of them "
            f"for {connection.address}, and {count} on this connection: it is closed, and its client connects again"
        )
        self._set(connection, client, 0)
        self._leaving.add(connection)
        connection.close_soon(reason)
