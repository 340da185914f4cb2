"""The settings of a client, for both shells. Frozen; checked once."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from ..producing.cluster import Address
from ..producing.limits import REQUEST_SECONDS_MAX
from ..producing.producer_core import Timing
from .security import Sasl


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """``bootstrap``: host:port, one or several (a list, or joined by commas), of brokers or proxies. ``tls``: see
    ``tls_context``. ``seconds_max``: for a call that produces nothing, with all its tries. ``request_seconds_max``: for
    the answer to one request. ``reads_old_brokers``: brokers before 0.10 are read, too, which takes one more round
    trip for each connection."""

    bootstrap: str | Sequence[str]
    client_id: str = "idemproxy-client"
    tls: ssl.SSLContext | None = None
    sasl: Sasl | None = None
    seconds_max: float = 60.0
    request_seconds_max: float = REQUEST_SECONDS_MAX
    reads_old_brokers: bool = False

    def addresses(self) -> list[Address]:
        """Return the bootstrap addresses. Raises ValueError."""
        given = self.bootstrap.split(",") if isinstance(self.bootstrap, str) else self.bootstrap
        addresses = [_address(one.strip()) for one in given]
        if not addresses:
            raise ValueError("bootstrap: no address")
        return addresses

    def timing(self, delivery_seconds_max: float) -> Timing:
        """Return the times of one producer. Raises ValueError."""
        if delivery_seconds_max <= 0:
            raise ValueError(f"delivery_seconds_max: {delivery_seconds_max}")
        return Timing(delivery_seconds_max, self.request_seconds_max)


def _address(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"bootstrap: {text!r} is not host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)
