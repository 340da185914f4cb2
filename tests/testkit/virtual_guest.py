"""Clients that show the virtual brokers who they are, by SASL PLAIN, through a proxy or not.

Owns the exchange (bare tokens, as 0.10 has them) and where such a client goes when the broker that it has come to does
not lead. Nothing here judges; the brokers do.
"""

from __future__ import annotations

import struct

from idemproxy.reactor import Endpoint, Wire
from testkit.virtual_client import VirtualClient, _Session
from testkit.virtual_client_bytes import parse_produce
from testkit.virtual_kafka_bytes import SASL_HANDSHAKE, Reader, string
from testkit.virtual_thief import VirtualThief

OPENING_SECONDS_MAX = 12.0
NOT_LEADER = 6


def password_of(name: str) -> str:
    """What the brokers know of a user."""
    return f"{name}'s secret"


def handshake(client_id: str) -> bytes:
    """A SaslHandshake 0 for PLAIN."""
    body = struct.pack(">hhi", SASL_HANDSHAKE, 0, 0) + string(client_id) + string("PLAIN")
    return struct.pack(">i", len(body)) + body


def token(name: str) -> bytes:
    """The one token of PLAIN."""
    body = f"\0{name}\0{password_of(name)}".encode()
    return struct.pack(">i", len(body)) + body


class Introduced:
    """A connection whose endpoint hears of it only when the broker has accepted who is there."""

    def __init__(self, name: str, endpoint: Endpoint) -> None:
        self._name = name
        self._endpoint = endpoint
        self._wire: Wire | None = None
        self._data = b""
        self._answers_due = 2
        """The handshake's, and the token's."""

    def connected(self, wire: Wire) -> None:
        """Begin the exchange."""
        self._wire = wire
        wire.send(handshake(self._name))

    def received(self, data: bytes) -> None:
        """Answers of the exchange, then whatever the endpoint waits for."""
        self._data += data
        while self._answers_due and len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4], "big")
            if len(self._data) < end:
                return
            answer, self._data = self._data[4:end], self._data[end:]
            self._take(answer)
        if self._data and not self._answers_due:
            rest, self._data = self._data, b""
            self._endpoint.received(rest)

    def lost(self, reason: str) -> None:
        """It is gone, before or after."""
        self._wire = None
        self._answers_due = 0
        self._endpoint.lost(reason)

    def give_up(self) -> None:
        """It has taken too long."""
        if self._answers_due and self._wire is not None:
            self._wire.reset()
            self.lost("no answer to the exchange")

    def _take(self, answer: bytes) -> None:
        assert self._wire is not None
        self._answers_due -= 1
        if self._answers_due:
            reader = Reader(answer)
            reader.int32()
            assert reader.int16() == 0, "PLAIN is not taken"
            self._wire.send(token(self._name))
        else:
            assert answer == b"", "not what a broker says to a token of PLAIN"
            self._endpoint.connected(self._wire)


class VirtualGuest(VirtualClient):
    """A producer that has to be introduced, and that knows no leaders: told 6, it tries another broker's port."""

    def _connect(self) -> None:
        self._connect_is_planned = False
        self.connections_opened += 1
        session = self._session = _GuestSession(self)
        address, self.next_address = self.next_address, None
        introduced = Introduced(self.name, session)
        self.host.connect(address or self.network.random.choice(self.addresses), introduced)
        self.host.later(OPENING_SECONDS_MAX, introduced.give_up)


class _GuestSession(_Session):
    """A session that may have been given up before it was introduced."""

    def connected(self, wire: Wire) -> None:
        """Begin to work."""
        if self._is_over:
            wire.reset()
        else:
            super().connected(wire)

    def _answer(self, frame: bytes) -> None:
        if self._is_over:  # it went elsewhere at the answer before
            return
        is_produce = bool(self.waiting[next(iter(self.waiting))].batches)
        super()._answer(frame)
        if is_produce and any(code == NOT_LEADER for code, _ in parse_produce(frame[4:]).values()):
            self._client.move()


class VirtualIntruder(VirtualThief):
    """A thief whom the brokers know by name; what he may write is the cluster's to say."""

    def endpoint(self, one: Endpoint) -> Endpoint:
        """His connections have to be introduced."""
        introduced = Introduced(self.host.name, one)
        self.host.later(OPENING_SECONDS_MAX, introduced.give_up)
        return introduced
