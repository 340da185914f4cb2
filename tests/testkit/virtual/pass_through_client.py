"""Clients that show the virtual brokers who they are, by SASL PLAIN, through a proxy or not.

Owns the exchange (bare tokens, as 0.10 has them) and where such a client goes when the broker that it has come to does
not lead. Nothing here judges; the brokers do.
"""

from __future__ import annotations

import struct

from idemproxy.reactor import Endpoint, Wire
from testkit.virtual.client import VirtualClient, _Session
from testkit.virtual.client_bytes import _framed, parse_produce
from testkit.virtual.kafka_bytes import FETCH, METADATA, SASL_HANDSHAKE, Reader, string
from testkit.virtual.producer import Batch
from testkit.virtual.thief import VirtualThief

OPENING_SECONDS_MAX = 12.0
NOT_LEADER = 6
OTHERS_SHARE = 0.15
"""Of batches before which a client asks something else, and of those after which it does."""


def password_of(name: str) -> str:
    """What the brokers know of a user."""
    return f"{name}'s secret"


def handshake(client_id: str) -> bytes:
    """A SaslHandshake 0 for PLAIN."""
    body = struct.pack(">hhi", SASL_HANDSHAKE, 0, 0) + string(client_id) + string("PLAIN")
    return struct.pack(">i", len(body)) + body


def metadata(correlation_id: int, client_id: str, topic: str) -> bytes:
    """A Metadata 1 of one topic."""
    return _framed(METADATA, 1, correlation_id, client_id, struct.pack(">i", 1) + string(topic))


def fetch(
    correlation_id: int, client_id: str, topic: str, partition: int, offset: int, wait_ms: int, version: int = 3
) -> bytes:
    """A Fetch 3 or 4 that waits so long when there is nothing."""
    isolation = b"\0" if version >= 4 else b""
    body = struct.pack(">iiii", -1, wait_ms, 1, 1_000) + isolation + struct.pack(">i", 1) + string(topic)
    return _framed(FETCH, version, correlation_id, client_id, body + struct.pack(">iiqi", 1, partition, offset, 1_000))


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


class PassThroughClient(VirtualClient):
    """A producer that has to be introduced, and that knows no leaders: after ``NOT_LEADER_OR_FOLLOWER`` it tries
    another broker's port."""

    fetch_version = 3

    def _connect(self) -> None:
        self._connect_is_planned = False
        if self._session is not None:
            return  # it has turned to another one meanwhile
        session = _PassThroughSession(self)
        introduced = Introduced(self.name, session)
        self.host.connect(self._opens(session), introduced)
        self.host.later(OPENING_SECONDS_MAX, introduced.give_up)


class _PassThroughSession(_Session):
    """A session that its client may have left before it was introduced. Now and then it asks something else between two
    batches."""

    _client: PassThroughClient

    def __init__(self, client: VirtualClient) -> None:
        super().__init__(client)
        self._others: set[int] = set()

    def produce(self, batches: list[Batch]) -> None:
        """One request, and perhaps something else before or after it."""
        network = self._client.network
        before, behind = (network.chance(OTHERS_SHARE) for _ in range(2))
        if before:
            self._ask_something()
        super().produce(batches)
        if behind:
            self._ask_something()

    def _ask_something(self) -> None:
        correlation_id = self._register([])
        self._others.add(correlation_id)
        network, partition = self._client.network, next(iter(self._client.producer.partitions))
        if network.chance(0.5):
            self._write(metadata(correlation_id, self._client.name, partition[0]))
        else:
            wait_ms = network.random.choice((0, 100, 700, 2_500))
            told = [(one.acknowledged[1], one) for one in self._client.batches if one.acknowledged is not None]
            end = max((offset + len(one.values) for offset, one in told), default=0)
            version = self._client.fetch_version
            self._write(fetch(correlation_id, self._client.name, *partition, end, wait_ms, version))

    def connected(self, wire: Wire) -> None:
        """Begin to work."""
        if self._is_over:
            wire.reset()
        else:
            super().connected(wire)

    def _is_misled(self, answer: bytes) -> bool:
        codes = [code for code, _ in parse_produce(answer, self._client.settings.produce_version).values()]
        return NOT_LEADER in codes

    def _answer(self, frame: bytes) -> None:
        if self._is_over:  # it went elsewhere at the answer before
            return
        first = next(iter(self.waiting))
        if first in self._others:
            assert Reader(frame).int32() == first, "answers are not in the order of the requests"
            self.waiting.pop(first).deadline.cancel()
            self._client.plan()
            return
        is_produce = bool(self.waiting[first].batches)
        super()._answer(frame)
        is_in_use = self.connection is self._client.connection
        if is_produce and is_in_use and self._is_misled(frame[4:]):
            self._client.move()


class VirtualIntruder(VirtualThief):
    """A thief whom the brokers know by name; what he may write is the cluster's to say."""

    def endpoint(self, one: Endpoint) -> Endpoint:
        """His connections have to be introduced."""
        introduced = Introduced(self.host.name, one)
        self.host.later(OPENING_SECONDS_MAX, introduced.give_up)
        return introduced
