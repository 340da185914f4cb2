"""A producer's requests over one connection to a leader, sans-IO: what to send, and what arrived. The shell holds the
producer's lock around each call."""

from __future__ import annotations

from typing import Final

from ..codecs import produce
from ..codecs.errors import WireError
from ..producing.numbered_batch import CONDITIONAL
from ..producing.partition_queue import Outcome
from ..producing.producer_core import ProducerCore, Request
from . import limits
from .errors import ConnectionFailed, UnsupportedServer
from .link import Answered, Link

_ADD_PARTITIONS_TO_TXN: Final = 24
"""Every broker that gives idempotence has transactions (KIP-98). A proxy that gives it has none, or passes on those of
its brokers, and says that it knows conditional publish."""


class LeaderSession:
    """Produces over one connection, from a ready link to its end. The owner of the connection tells the core that it
    has ended (``ProducerCore.lost``)."""

    def __init__(self, core: ProducerCore, broker: int, link: Link) -> None:
        """Raises UnsupportedServer where the server has no batches with a producer id. Also for a producer that
        publishes conditionally where the server does not know that: it would answer success for what it did not
        append."""
        self._core = core
        self._broker = broker
        self._link = link
        self._requests: dict[int, Request] = {}
        self._failure: ConnectionFailed | None = None
        """The error that ends the connection; raised once the outcomes before it were returned."""
        lowest, highest = produce.IDEMPOTENT_VERSION_MIN, produce.SENT_VERSION_MAX
        self._version = link.version_of(produce.API_KEY, lowest, highest, "Produce")
        is_brokers = _ADD_PARTITIONS_TO_TXN in link.versions and produce.CONDITIONAL_PUBLISH not in link.versions
        if core.producer_id == CONDITIONAL and is_brokers:
            raise UnsupportedServer(
                "the server has transactions and lists no conditional publish: it is a broker, or a proxy whose "
                "brokers give idempotence themselves, or whose topics.conditional is empty"
            )
        self._timeout_ms = round(core.timing.request_seconds_max * limits.PRODUCE_TIMEOUT_SHARE * 1000)

    @property
    def is_quiet(self) -> bool:
        """Whether every request was answered, so that nothing is lost if the connection ends."""
        return self._link.is_quiet and self._failure is None

    def next_frame(self, now: float) -> bytes | None:
        """Return the next request to send; None: there is none now. Raises ConnectionFailed when an answer is overdue,
        or the last one could not be read."""
        if self._failure is not None:
            raise self._failure
        if self._core.is_overdue(self._broker, now):
            raise ConnectionFailed(f"no answer within {self._core.timing.request_seconds_max:g} s")
        request = self._core.take_request(self._broker, now)
        if request is None:
            return None
        body = produce.encode_request(self._version, -1, self._timeout_ms, request.parts())
        asked, data = self._link.request(produce.API_KEY, self._version, *body)
        self._requests[asked.correlation_id] = request
        return data

    def received(self, data: bytes, now: float) -> list[Outcome]:
        """Take bytes that arrived; return the outcomes of the answers in them. Raises ConnectionFailed, but only with
        the next call if there are outcomes before the error: the core tells each outcome once, so they must be
        returned."""
        if self._failure is not None:
            raise self._failure
        outcomes: list[Outcome] = []
        try:
            for answered in self._link.received(data):
                outcomes += self._answered(answered, now)
        except ConnectionFailed as error:
            if not outcomes:
                raise
            self._failure = error
        return outcomes

    def _answered(self, answered: Answered, now: float) -> list[Outcome]:
        try:
            answers, throttle_ms = produce.parse_response(answered.frame, answered.body_offset, self._version)
        except WireError as error:
            raise ConnectionFailed(f"the answer to a produce cannot be read: {error}") from None
        request = self._requests.pop(answered.asked.correlation_id)
        # Before version 6 the server has waited already (KIP-219).
        throttle_seconds = throttle_ms / 1000 if self._version >= 6 else 0.0
        return self._core.answered(self._broker, request, answers, throttle_seconds, now)
