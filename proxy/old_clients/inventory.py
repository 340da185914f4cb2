"""The inventory of old clients: who sends versions of APIs that Kafka 4 lacks, which, how often, and when last. Pure.

It holds ``OLD_CLIENTS_MAX`` clients: above that the one that was seen the longest ago makes room. What a client says of
itself is cut, as anybody may say anything."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from ...values import value
from .. import limits

Version = tuple[int, int]
"""API key and version."""


class OldClient(NamedTuple):
    """Who sends them. ``name``: the client id. ``address``: of its host. ``software``: its library and that one's
    version as the client states them (KIP-511), "" if it does not. ``principal``: "" if the proxy does not know it."""

    name: str
    address: str
    software: str = ""
    principal: str = ""

    def cut(self) -> OldClient:
        """Return the same with texts of at most ``OLD_CLIENT_TEXT_MAX`` characters."""
        return OldClient(*(text[: limits.OLD_CLIENT_TEXT_MAX] for text in self))


@value(frozen=True, slots=True)
class SeenOldClient:
    """What is known of one client. ``requests``: how many came, by API and version. ``refused``: how many of them the
    proxy refused, as the broker does not serve them. ``first_at``, ``last_at``: unix seconds."""

    client: OldClient
    requests: Mapping[Version, int]
    refused: int
    first_at: float
    last_at: float


class _Seen:
    """The same while it is counted. ``reported_at``, ``refusal_reported_at``: unix seconds of the last line due."""

    __slots__ = ("first_at", "last_at", "refusal_reported_at", "refused", "reported_at", "requests")

    def __init__(self, now: float) -> None:
        self.first_at = self.last_at = now
        self.reported_at = self.refusal_reported_at = float("-inf")
        self.requests: dict[Version, int] = defaultdict(int)
        self.refused = 0


class OldClients:
    """The old clients of one process. ``requests``: all their requests by API and version, also of clients that made
    room. ``forgotten``: how many times a client made room for another one. ``headers_dropped``: records that they got
    without their headers."""

    def __init__(self) -> None:
        self._seen: OrderedDict[OldClient, _Seen] = OrderedDict()
        """The one that was seen last is the last one."""
        self.requests: dict[Version, int] = defaultdict(int)
        self.forgotten = 0
        self.headers_dropped = 0

    def note(self, client: OldClient, version: Version, now: float, *, is_refused: bool) -> bool:
        """Count a request, of a version that ``versions.is_dropped``. ``now``: unix seconds. Return whether a
        line is due: one for each client and day, and one more for the first request that is refused."""
        client = client.cut()
        seen = self._seen.get(client)
        if seen is None:
            seen = self._seen[client] = _Seen(now)
            if len(self._seen) > limits.OLD_CLIENTS_MAX:
                self._seen.popitem(last=False)
                self.forgotten += 1
        else:
            self._seen.move_to_end(client)
        seen.last_at = now
        seen.requests[version] += 1
        seen.refused += is_refused
        self.requests[version] += 1
        is_due = now - (seen.refusal_reported_at if is_refused else seen.reported_at) >= limits.OLD_CLIENT_LINE_SECONDS
        if is_due:
            seen.reported_at = now
            if is_refused:
                seen.refusal_reported_at = now
        return is_due

    def newest_first(self) -> list[SeenOldClient]:
        """Return all of them, the one that was seen last first. May be called from another thread."""
        while True:
            with suppress(RuntimeError):  # another thread has moved one meanwhile
                items = list(self._seen.items())
                break
        items.reverse()
        return [
            SeenOldClient(client, seen.requests.copy(), seen.refused, seen.first_at, seen.last_at)
            for client, seen in items
        ]
