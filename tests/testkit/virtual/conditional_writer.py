"""A client that publishes conditionally, one batch after the other, for where it has read the log to.

Owns its connections and what it was answered. Whether that was right is up to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from idemproxy.reactor import Address, Wire
from idemproxy.state.conditional import sequence_of
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.virtual import client_bytes as wire_bytes
from testkit.virtual.client import EPOCH_MS
from testkit.virtual.log import PartitionLog
from testkit.virtual.network import Network
from testkit.virtual.producer import OUT_OF_ORDER, RETRIABLE, TopicPartition

PATIENCE_SECONDS = 6.0
PAUSE_SECONDS = 0.2
TIMEOUT_MS = 5_000


@dataclass(slots=True, eq=False)
class Published:
    """One batch. ``told``: (error code, base offset) of its last answer that settles it; None: none yet."""

    expected: int
    values: tuple[bytes, ...]
    tries: int = 0
    told: tuple[int, int] | None = None
    answers: list[int] = field(default_factory=list)


class ConditionalWriter:
    """It is done after ``batches`` successes, or an answer after which nobody goes on."""

    def __init__(
        self,
        network: Network,
        name: str,
        addresses: Sequence[Address],
        place: TopicPartition,
        log: PartitionLog,
        batches: int,
    ) -> None:
        self.network = network
        self.host = network.host(name)
        self.place = place
        self.published: list[Published] = []
        self.is_over = False
        self._addresses = list(addresses)
        self._log = log
        self._left = batches

    def go_on(self) -> None:
        """Read the log to its end, and publish for there."""
        if self._left <= 0:
            self.is_over = True
            return
        count = self.network.random.randint(1, 3)
        number = len(self.published)
        values = tuple(f"{self.host.name}/{number}/{index}".encode() for index in range(count))
        self.published.append(Published(self._log.high_watermark, values))
        self.host.later(self.network.random.uniform(0.0, 1.0), self._try)

    def _try(self) -> None:
        batch = self.published[-1]
        batch.tries += 1
        name = CONDITIONAL_ID, 0, sequence_of(batch.expected)
        data = wire_bytes.batch_bytes(list(batch.values), *name, EPOCH_MS, 0)
        request = wire_bytes.produce(1, self.host.name, TIMEOUT_MS, [(*self.place, data)], -1)
        self.host.connect(self.network.random.choice(self._addresses), _Try(self, batch, request))

    def ended(self, batch: Published, code: int | None, base_offset: int) -> None:
        """One try has ended; ``code`` None: without an answer."""
        if code is not None:
            batch.answers.append(code)
        if code is None or code in RETRIABLE:
            self.host.later(PAUSE_SECONDS, self._try)  # the same bytes, until it is known
            return
        batch.told = code, base_offset
        if code == 0:
            self._left -= 1
        elif code != OUT_OF_ORDER:
            self._left = 0
        self.go_on()


class _Try:
    """One connection: an endpoint."""

    def __init__(self, writer: ConditionalWriter, batch: Published, request: bytes) -> None:
        self._writer = writer
        self._batch = batch
        self._request = request
        self._wire: Wire | None = None
        self._data = b""
        self._is_over = False

    def connected(self, wire: Wire) -> None:
        """Send the request."""
        self._wire = wire
        wire.send(self._request)
        self._writer.host.later(PATIENCE_SECONDS, lambda: self._end(None, -1))

    def received(self, data: bytes) -> None:
        """The answer, whole or in pieces."""
        self._data += data
        end = 4 + int.from_bytes(self._data[:4], "big")
        if len(self._data) >= max(5, end):
            self._end(*wire_bytes.parse_produce(self._data[8:end])[self._writer.place])

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        self._wire = None
        self._end(None, -1)

    def _end(self, code: int | None, base_offset: int) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._wire is not None:
            self._wire.reset()
            self._wire = None
        self._writer.ended(self._batch, code, base_offset)
