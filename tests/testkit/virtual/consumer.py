"""A consumer without a group: it fetches from one proxy at a time, each time from after the last record that it got.

Owns its connection, its positions and what it was given. ``judge`` decides whether that was right, record by record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from idemproxy.codecs import messages
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import inner_messages, iterate_shallow
from idemproxy.proxy.versions import ApiKey
from idemproxy.reactor import Address, Wire
from testkit.virtual.kafka_bytes import string
from testkit.virtual.network import Network

PATIENCE_SECONDS = 6.0
PAUSE_SECONDS = 0.2
WAIT_MS = 500
ANSWER_BYTES_MAX = 1 << 20
_UNPACKED_BYTES_MAX = 1 << 20


@dataclass(slots=True)
class Stand:
    """Where it stands in one partition. ``since``: when it came there, or when its connection, or an answer with an
    error, last gave it a reason to look again."""

    offset: int
    since: float


class Judge(Protocol):
    """What learns which records a consumer gets."""

    def delivered(
        self, who: str, partition: int, stand: Stand, asked_at: float, got: Sequence[tuple[int, bytes]]
    ) -> None:
        """These records, none of them below where it stands."""


class VirtualConsumer:
    """Of all partitions of one topic. ``version``: of Fetch."""

    def __init__(
        self,
        network: Network,
        name: str,
        addresses: Sequence[Address],
        topic: str,
        partitions: int,
        judge: Judge,
    ) -> None:
        self.network = network
        self.host = network.host(name)
        self.stands = {number: Stand(0, network.now) for number in range(partitions)}
        self.version = 4
        self.bytes_max = 1000
        self.fetches = 0
        self._addresses = list(addresses)
        self._topic = topic
        self._judge = judge
        self._fetch: _Fetches | None = None

    def begin(self, version: int, bytes_max: int, offsets: dict[int, int] | None = None) -> None:
        """Connect to one of the proxies, and fetch from there on. ``offsets``: to begin at, where it stands if not
        given."""
        self.version, self.bytes_max = version, bytes_max
        for number, stand in self.stands.items():
            stand.since = self.network.now
            if offsets is not None:
                stand.offset = offsets[number]
        if self._fetch is not None:
            self._fetch.end()
        self._fetch = _Fetches(self)
        self.host.connect(self.network.random.choice(self._addresses), self._fetch)

    def seek(self, number: int, offset: int) -> None:
        """Continue at another offset, over the same connection; what was asked before is not taken any more."""
        self.stands[number] = Stand(offset, self.network.now)

    def request(self, correlation_id: int) -> bytes:
        """The next fetch of all partitions."""
        self.fetches += 1
        since_5 = {"log_start_offset": -1} if self.version >= 5 else {}
        rows = [
            {"partition": number, "fetch_offset": stand.offset, "partition_max_bytes": self.bytes_max, **since_5}
            for number, stand in self.stands.items()
        ]
        fields: dict[str, Any] = {"replica_id": -1, "max_wait_ms": WAIT_MS, "min_bytes": 1}
        fields |= {"max_bytes": ANSWER_BYTES_MAX} if self.version >= 3 else {}
        topics = [{"topic": self._topic, "partitions": rows}]
        body = messages.encode_request(ApiKey.FETCH, self.version, **fields, topics=topics)
        head = b"\x00\x01" + self.version.to_bytes(2, "big") + correlation_id.to_bytes(4, "big")
        head += string(self.host.name)
        return (len(head) + len(body)).to_bytes(4, "big") + head + body

    def answered(self, body: bytes, asked: dict[int, Stand], asked_at: float) -> bool:
        """Take an answer. Returns False if it is better to wait before the next fetch."""
        answer = messages.decode_response(ApiKey.FETCH, self.version, body)
        is_well = True
        for row in answer.responses[0].partitions:
            number, stand = row.partition_index, self.stands[row.partition_index]
            if stand is not asked[number]:
                continue  # it has gone elsewhere meanwhile
            if row.error_code:
                is_well = False
                reset = 0 if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE else stand.offset
                self.seek(number, reset)
                continue
            records = bytes(row.records or b"")
            whole = list(iterate_shallow(records))
            if records and not whole:
                self.bytes_max = min(2 * self.bytes_max, ANSWER_BYTES_MAX)  # a large message comes cut off before v3
                continue
            got = [
                (one.offset, bytes(one.value or b""))
                for message in whole
                for one in (inner_messages(message, _UNPACKED_BYTES_MAX) if message.is_wrapper else [message])
                if one.offset >= stand.offset
            ]
            if got:
                self._judge.delivered(self.host.name, number, stand, asked_at, got)
                self.seek(number, got[-1][0] + 1)
        return is_well

    def ended(self, fetch: _Fetches) -> None:
        """Its connection is gone: it goes to any proxy."""
        if fetch is self._fetch:
            self._fetch = None
            self.host.later(PAUSE_SECONDS, self._again)

    def _again(self) -> None:
        if self._fetch is None:
            self.begin(self.version, self.bytes_max)


class _Fetches:
    """One connection: an endpoint with one request out at a time."""

    def __init__(self, consumer: VirtualConsumer) -> None:
        self._consumer = consumer
        self._wire: Wire | None = None
        self._data = b""
        self._number = 0
        self._asked: dict[int, Stand] = {}
        self._asked_at = 0.0
        self._is_over = False

    def connected(self, wire: Wire) -> None:
        """Fetch."""
        self._wire = wire
        self._ask()

    def received(self, data: bytes) -> None:
        """The answer, whole or in pieces."""
        self._data += data
        end = 4 + int.from_bytes(self._data[:4], "big")
        if len(self._data) < max(5, end) or self._is_over:
            return
        assert int.from_bytes(self._data[4:8], "big") == self._number, "an answer of another request"
        body, self._data = self._data[8:end], b""
        if self._consumer.answered(body, self._asked, self._asked_at):
            self._ask()
        else:
            self._consumer.host.later(PAUSE_SECONDS, self._ask)

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        self._wire = None
        self.end()

    def end(self) -> None:
        """Nothing more is asked here."""
        if self._is_over:
            return
        self._is_over = True
        if self._wire is not None:
            self._wire.reset()
            self._wire = None
        self._consumer.ended(self)

    def _ask(self) -> None:
        if self._is_over or self._wire is None:
            return
        self._number += 1
        self._asked, self._asked_at = dict(self._consumer.stands), self._consumer.network.now
        self._wire.send(self._consumer.request(self._number))
        number = self._number
        self._consumer.host.later(PATIENCE_SECONDS, lambda: self.end() if self._number == number else None)
