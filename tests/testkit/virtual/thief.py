"""A client with a name of its own that produces under other clients' producer ids, one request on each connection.

Owns its connections and what it was answered. It judges nothing and never tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from idemproxy.reactor import Address, Endpoint, Wire
from testkit.virtual import client_bytes as wire_bytes
from testkit.virtual.client import EPOCH_MS
from testkit.virtual.network import Network
from testkit.virtual.producer import Identity, TopicPartition

PATIENCE_SECONDS = 30.0
TIMEOUT_MS = 5_000


class VirtualThief:
    """One of them. ``answers``: of each request that was answered its time, its identity, error code and offset."""

    def __init__(self, network: Network, name: str = "thief") -> None:
        self.network = network
        self.host = network.host(name)
        self.answers: list[tuple[float, Identity, int, int]] = []
        self.on_answer: Callable[[TopicPartition, Identity], None] = lambda _place, _identity: None
        """Called when an answer has come for such a batch."""
        self._tries = 0

    def produce(
        self, address: Address, place: TopicPartition, identity: Identity, values: Sequence[bytes] | None = None
    ) -> None:
        """Send one batch under this identity; None: with values of its own."""
        self._tries += 1
        own = [f"{self.host.name}/{self._tries}/{number}".encode() for number in range(identity.record_count)]
        name = identity.producer_id, identity.producer_epoch, identity.base_sequence
        self.network.sent.note(*identity)
        data = wire_bytes.batch_bytes(values or own, *name, EPOCH_MS + int(self.network.now * 1000), 0)
        request = wire_bytes.produce(1, self.host.name, TIMEOUT_MS, [(*place, data)], -1)
        self.host.connect(address, self.endpoint(_Try(self, place, identity, request)))

    def endpoint(self, one: Endpoint) -> Endpoint:
        """What a connection is opened with."""
        return one


class _Try:
    """One connection: an endpoint."""

    def __init__(self, thief: VirtualThief, place: TopicPartition, identity: Identity, request: bytes) -> None:
        self._thief = thief
        self._place = place
        self._identity = identity
        self._request = request
        self._wire: Wire | None = None
        self._data = b""

    def connected(self, wire: Wire) -> None:
        """Send the request."""
        self._wire = wire
        wire.send(self._request)
        self._thief.host.later(PATIENCE_SECONDS, self._leave)

    def received(self, data: bytes) -> None:
        """The answer, whole or in pieces."""
        self._data += data
        end = 4 + int.from_bytes(self._data[:4], "big")
        if len(self._data) >= max(5, end):
            error, base_offset = wire_bytes.parse_produce(self._data[8:end])[self._place]
            self._thief.answers.append((self._thief.network.now, self._identity, error, base_offset))
            self._thief.on_answer(self._place, self._identity)
            self._leave()

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        self._wire = None

    def _leave(self) -> None:
        if self._wire is not None:
            self._wire.reset()
            self._wire = None
