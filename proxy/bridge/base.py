"""What every bridge is: typing, two small values and the limit of what is rewritten. Knows no API.

A bridge serves one request and its answer: ask ``table.plan`` for a new one each time, because some remember what they
took out of the request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...codecs.errors import LimitExceeded
from ...codecs.messages import REQUEST_BYTES_MAX
from ...reactor import Buffer

Chunks = Sequence[Buffer]
"""A body in pieces, in order, so that records are never copied; ``codecs.framing.frame(header, *chunks)`` makes the
frame."""

Addresses = Mapping[int, tuple[str, int]]
"""Where clients of this listener reach each broker: broker id -> (host, port) of the proxy."""

THROTTLE_NONE = bytes(4)
"""throttle_time_ms 0: brokers of these versions delay the answer themselves, so nothing is left for the client to
wait."""


@dataclass(frozen=True, slots=True)
class RequestRefused:
    """A request that the proxy does not forward. ``answer``: body in the client's layout. None: made by ``table.plan``,
    which has not seen the request; see ``refusals.refusal``."""

    error_code: int
    reason: str
    answer: bytes | None = None


def check_size(body: memoryview) -> None:
    """Raise LimitExceeded for a body that takes too long to rewrite, entry by entry: everybody else waits."""
    if len(body) > REQUEST_BYTES_MAX:
        raise LimitExceeded(f"request to be rewritten: {len(body)} bytes, the limit is {REQUEST_BYTES_MAX} bytes")


class Bridge(Protocol):
    """One request on its way to a broker, and its answer on the way back. Both raise WireError on garbage."""

    @property
    def broker_version(self) -> int:
        """The version that the broker is spoken to in."""
        ...

    def request(self, body: memoryview) -> Chunks | RequestRefused:
        """The client's request body in the broker's version, or a refusal if that version cannot express it; its
        ``answer`` is not None."""
        ...

    def response(self, body: memoryview) -> Chunks:
        """The broker's answer body at the client's version."""
        ...
