"""Finds out what listens at an address where no Kafka broker answers: something that speaks HTTP, or TLS. Blocking; for
``idemproxy check`` alone, so that a wrong port is called what it is."""

from __future__ import annotations

import socket
import ssl

from ..settings.addresses import join_host_and_port

_SECONDS_MAX = 2.0
_BYTES_MAX = 64


def what_listens(host: str, port: int) -> str | None:
    """Return what is there, and what can be done; None if it does not say. Takes some seconds at most."""
    where = join_host_and_port(host, port)
    if _answer(host, port).startswith(b"HTTP/"):
        return f"an HTTP server listens at {where}, no Kafka broker: give the port of a broker's listener"
    if _speaks_tls(host, port):
        return f"TLS is spoken at {where}: say `tls: {{}}` below upstream, or give the port of a plain listener"
    return None


def _answer(host: str, port: int) -> bytes:
    """Return how it answers to HTTP. To a Kafka broker these bytes are a request that is too large."""
    try:
        with socket.create_connection((host, port), _SECONDS_MAX) as connection:
            connection.settimeout(_SECONDS_MAX)
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return connection.recv(_BYTES_MAX)
    except OSError:
        return b""


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is only asked what it speaks
    try:
        with (
            socket.create_connection((host, port), _SECONDS_MAX) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        return "WRONG_VERSION_NUMBER" not in str(error) and "alert" in str(error).lower()
    except (OSError, ValueError):
        return False
