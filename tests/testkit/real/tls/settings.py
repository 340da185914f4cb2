"""The ``tls`` of a configuration file, as an operator writes it."""

from __future__ import annotations

from .certificates import Authority, Files


def listener_tls(own: Files, clients: Authority | None = None, client_auth: str = "required") -> dict[str, str]:
    """Return the ``tls`` of a listener; ``clients``: the authority of their certificates."""
    found = {"cert_file": str(own.cert), "key_file": str(own.key)}
    if clients is not None:
        found |= {"client_ca_file": str(clients.ca_file), "client_auth": client_auth}
    return found


def client_tls(authority: Authority, own: Files | None = None) -> dict[str, str]:
    """Return the ``tls`` of something that is connected to."""
    found = {"ca_file": str(authority.ca_file)}
    if own is not None:
        found |= {"cert_file": str(own.cert), "key_file": str(own.key)}
    return found
