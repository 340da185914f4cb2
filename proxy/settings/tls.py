"""The TLS settings: which files, and which side has to show a certificate. Plain data; ``proxy/net/tls.py`` reads the
files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

OLD_VERSIONS = ("1.0", "1.1")
"""Old versions of TLS, which may be all that brokers of 2016 have. OpenSSL speaks them at its security level 0 only."""


@dataclass(frozen=True, slots=True)
class TlsServer:
    """TLS of a listener. ``client_auth``: none, optional or required, with certificates of ``client_ca_file`` that
    ``client_crl_file`` does not revoke."""

    cert_file: Path
    key_file: Path
    key_password: str | None = field(default=None, repr=False)
    client_ca_file: Path | None = None
    client_auth: str = "none"
    minimum_version: str = "1.2"
    client_crl_file: Path | None = None


@dataclass(frozen=True, slots=True)
class TlsClient:
    """TLS towards a server. ``ca_file`` None: the authorities of the system; ``server_name`` None: the host's name;
    ``security_level`` (0 to 5) None: OpenSSL's own. ``OLD_VERSIONS`` need 0."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    minimum_version: str = "1.2"
    security_level: int | None = None
