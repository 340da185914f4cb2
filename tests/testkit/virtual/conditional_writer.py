"""A client that publishes conditionally for where it has read the log to: one batch, or a pipeline of up to five.

Owns its connections and what it was answered. Whether that was right is up to others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from idemproxy.codecs.record_batch import FOLLOWS
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
SPREAD_SECONDS = 0.05
"""The requests of a pipeline leave within this time: the answer to an earlier one may be on its way by then."""
TIMEOUT_MS = 5_000
LEADER_EPOCH = slice(12, 16)


@dataclass(slots=True, eq=False)
class Published:
    """One batch. ``pipeline``, ``place``: which pipeline of its writer, and where in it. ``told``: (error code, base
    offset) of its last answer that decides it; None: none yet, or its writer dropped it after a failure."""

    expected: int
    values: tuple[bytes, ...]
    pipeline: int = 0
    place: int = 0
    tries: int = 0
    told: tuple[int, int] | None = None
    is_over: bool = False
    answers: list[int] = field(default_factory=list)


class ConditionalWriter:
    """It is done after ``batches`` successes, or an answer after which nobody continues. ``pipelined``: so many batches
    are in flight at most."""

    def __init__(
        self,
        network: Network,
        name: str,
        addresses: Sequence[Address],
        place: TopicPartition,
        log: PartitionLog,
        batches: int,
        pipelined: int = 1,
    ) -> None:
        self.network = network
        self.host = network.host(name)
        self.place = place
        self.published: list[Published] = []
        self.is_over = False
        self.has_failed = False
        """Has a batch of the pipeline failed? Then nothing of it is sent any more."""
        self._addresses = list(addresses)
        self._log = log
        self._left = batches
        self._pipelined = pipelined
        self._pipelines = 0

    def go_on(self) -> None:
        """Read the log to its end, and publish for there."""
        if self._left <= 0:
            self.is_over = True
            return
        random = self.network.random
        self._pipelines += 1
        self.has_failed = False
        expected = self._log.high_watermark
        for place in range(random.randint(1, self._pipelined)):
            number = len(self.published)
            values = tuple(f"{self.host.name}/{number}/{index}".encode() for index in range(random.randint(1, 3)))
            self.published.append(Published(expected, values, self._pipelines, place))
            expected += len(values)
        self.host.later(random.uniform(0.0, 1.0), self._try)

    @property
    def _open(self) -> list[Published]:
        return [one for one in self.published if one.pipeline == self._pipelines and not one.is_over]

    def _try(self) -> None:
        """Send all that has no outcome, in order."""
        requests = []
        for number, batch in enumerate(batches := self._open):
            batch.tries += 1
            name = CONDITIONAL_ID, 0, sequence_of(batch.expected)
            self.network.sent.note(*name, len(batch.values))
            data = bytearray(wire_bytes.batch_bytes(list(batch.values), *name, EPOCH_MS, 0))
            if batch.place:
                data[LEADER_EPOCH] = FOLLOWS.to_bytes(4, "big")
            requests.append(wire_bytes.produce(number, self.host.name, TIMEOUT_MS, [(*self.place, bytes(data))], -1))
        self.host.connect(self.network.random.choice(self._addresses), _Try(self, batches, requests))

    def answered(self, batch: Published, code: int, base_offset: int) -> None:
        """Take the answer to one batch."""
        batch.answers.append(code)
        if code in RETRIABLE:
            return
        batch.told, batch.is_over = (code, base_offset), True
        if code == 0:
            self._left -= 1
        else:
            self.has_failed = True
            if code != OUT_OF_ORDER:
                self._left = 0

    def ended(self) -> None:
        """All that was sent is answered, or the connection is lost."""
        if self.has_failed:
            for batch in self._open:
                batch.is_over = True
        if self._open:
            self.host.later(PAUSE_SECONDS, self._try)  # the same bytes, until it is known
        else:
            self.go_on()


class _Try:
    """One connection: an endpoint."""

    def __init__(self, writer: ConditionalWriter, batches: Sequence[Published], requests: Sequence[bytes]) -> None:
        self._writer = writer
        self._batches = list(batches)
        self._requests = list(requests)
        self._sent = 0
        self._wire: Wire | None = None
        self._data = b""
        self._is_over = False

    def connected(self, wire: Wire) -> None:
        """Send the requests."""
        self._wire = wire
        self._send_next()
        self._writer.host.later(PATIENCE_SECONDS, self._end)

    def _send_next(self) -> None:
        if self._is_over or self._wire is None or self._writer.has_failed:
            return
        self._wire.send(self._requests[self._sent])
        self._sent += 1
        if self._sent < len(self._requests):
            self._writer.host.later(self._writer.network.random.uniform(0.0, SPREAD_SECONDS), self._send_next)

    def received(self, data: bytes) -> None:
        """Answers, whole or in pieces."""
        self._data += data
        while not self._is_over and len(self._data) >= max(5, end := 4 + int.from_bytes(self._data[:4], "big")):
            answer, self._data = self._data[8:end], self._data[end:]
            self._sent -= 1
            self._requests.pop(0)
            self._writer.answered(self._batches.pop(0), *wire_bytes.parse_produce(answer)[self._writer.place])
            if not self._batches or (self._writer.has_failed and not self._sent):
                self._end()

    def lost(self, reason: str) -> None:
        """The connection is gone."""
        self._wire = None
        self._end()

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._wire is not None:
            self._wire.reset()
            self._wire = None
        self._writer.ended()
