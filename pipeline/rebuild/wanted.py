"""What a run is given: where brokers and Redis are, and what is to be read. Plain data that tasks take along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...state.redis_bulk import Access as RedisAccess
from ...state.redis_bulk import Registration
from ..reading.broker import Access, Address, Tls


@dataclass(frozen=True, slots=True)
class OverTls:
    """Takes a connected socket and returns it with TLS. ``server_name``: what the certificate has to be for."""

    tls: Tls
    server_name: str

    def __call__(self, connected: Any) -> Any:
        """Return the socket with TLS."""
        return self.tls.context().wrap_socket(connected, server_hostname=self.server_name)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run reads and writes. ``since_ms``: only producers that have written since then, in ms since 1970; 0: all
    that the log has. ``expiry_ms``: after which what is written expires. ``registration`` None: a dry run, nothing is
    written."""

    bootstrap: tuple[Address, ...]
    access: Access
    redis: RedisAccess
    since_ms: int
    expiry_ms: int
    registration: Registration | None = None
