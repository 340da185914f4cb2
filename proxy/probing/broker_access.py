"""How the commands that are clients of the brokers log in: as the proxy does, by the same settings."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from ..net.tls import TlsError, client_context
from ..settings.config import ConfigError, Settings

if TYPE_CHECKING:
    from ...client import Sasl


def broker_access(settings: Settings) -> tuple[ssl.SSLContext | None, Sasl | None]:
    """Return TLS and login towards the brokers; None for each that is not set. Raises ConfigError."""
    from ...client import Sasl

    try:
        tls = None if settings.upstream_tls is None else client_context(settings.upstream_tls)
    except TlsError as error:
        raise ConfigError(f"upstream.tls: {error}") from None
    said = settings.upstream_sasl
    if said is None:
        return tls, None
    if said.token_file is not None:
        raise ConfigError("brokers that want a token (OAUTHBEARER) cannot be read by it yet")
    return tls, Sasl(said.mechanism, said.username or "", said.password or "")
