"""What an operator says about TLS: which files, and who has to show a certificate. Plain data; ``tls.py`` reads the
files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


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
    """TLS towards a server. ``ca_file`` None: the authorities of the system; ``server_name`` None: the host's name."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    server_name: str | None = None
    minimum_version: str = "1.2"
