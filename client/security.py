"""How a client shows who it is, and how it knows the server: SASL and TLS."""

from __future__ import annotations

import os
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ..codecs.sasl import (
    NONCE_BYTES,
    PLAIN,
    SCRAM_HASHES,
    Mechanism,
    Plain,
    SaltedPasswords,
    Scram,
)
from ..codecs.sasl_exchange import SaslExchange
from . import limits


@dataclass(frozen=True, slots=True)
class Sasl:
    """``mechanism``: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. PLAIN sends the password itself: over TLS only."""

    mechanism: str
    username: str
    password: str = field(repr=False)

    def __post_init__(self) -> None:
        known = (PLAIN, *SCRAM_HASHES)
        if self.mechanism not in known:
            raise ValueError(f"SASL mechanism {self.mechanism!r}: one of {', '.join(known)}")


def tls_context(
    *,
    ca_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    key_password: str | None = None,
) -> ssl.SSLContext:
    """Return the settings of TLS 1.2 and later with the server's certificate and name verified. ``ca_file`` None: the
    authorities of the system. ``cert_file``: our own certificate, where the server asks for one."""
    context = ssl.create_default_context(cafile=None if ca_file is None else Path(ca_file))
    if cert_file is not None:
        context.load_cert_chain(cert_file, key_file, key_password)
    return context


def login_maker(sasl: Sasl | None, client_id: str) -> Callable[[], SaslExchange] | None:
    """Return a function that begins a login, for each connection; None: no login."""
    if sasl is None:
        return None
    salted = SaltedPasswords()

    def mechanism() -> Mechanism:
        if sasl.mechanism == PLAIN:
            return Plain(sasl.username, sasl.password)
        nonce = b64encode(os.urandom(NONCE_BYTES))
        return Scram(SCRAM_HASHES[sasl.mechanism], sasl.username, sasl.password, nonce, salted.get)

    def begin() -> SaslExchange:
        return SaslExchange(
            sasl.mechanism,
            mechanism(),
            shown=f"{sasl.mechanism} as {sasl.username!r}",
            client_id=client_id,
            frame_bytes_max=limits.SASL_FRAME_BYTES_MAX,
        )

    return begin
