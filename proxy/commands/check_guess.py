"""Finds out what listens at an address where no Kafka broker answers: something that speaks HTTP or TLS, or
a listener that asks for SASL. Blocking; for ``idemproxy check`` alone, so that a wrong port is called what it is."""

from __future__ import annotations

import socket
import ssl

from ..settings.addresses import join_host_and_port

_SECONDS_MAX = 2.0
_BYTES_MAX = 64
_HANDSHAKE = bytes.fromhex("0000000e 0011 0000 00000001 ffff 0002") + b"no"
"""A frame of 14 bytes: SaslHandshake, version 0, correlation id 1, no client id, the mechanism \"no\"."""
_UNKNOWN_MECHANISM = bytes.fromhex("00000001 0021")
"""How its answer begins: the same correlation id, and code 33 (UNSUPPORTED_SASL_MECHANISM)."""
_HANDSHAKE_BYTES_MAX = 1024


def what_listens(host: str, port: int, *, asks_sasl: bool = True) -> str | None:
    """Return what is there, and what can be done; None if it does not say. Takes some seconds at most.

    ``asks_sasl``: whether to ask for SASL, too; not where a login was tried, which said more."""
    where = join_host_and_port(host, port)
    if _answer(host, port).startswith(b"HTTP/"):
        return f"an HTTP server listens at {where}, no Kafka broker: give the port of a broker's listener"
    if asks_sasl and (mechanisms := _sasl_mechanisms(host, port)):
        return f"the broker asks for SASL at {where} ({mechanisms}): say `sasl` below upstream, with mechanism and user"
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


def _sasl_mechanisms(host: str, port: int) -> str:
    """Return the SASL mechanisms that a Kafka listener takes; empty where it takes none, or is none.

    A listener with SASL closes the connection on any other request, but answers a SaslHandshake (version 0) for an
    unknown mechanism with code 33 and the names of those that it has."""
    try:
        with socket.create_connection((host, port), _SECONDS_MAX) as connection:
            connection.settimeout(_SECONDS_MAX)
            connection.sendall(_HANDSHAKE)
            answer = connection.recv(_HANDSHAKE_BYTES_MAX)
    except OSError:
        return ""
    if answer[4:10] != _UNKNOWN_MECHANISM:
        return ""
    names, rest = [], answer[14:]
    while len(rest) > 2:
        length = int.from_bytes(rest[:2], "big")
        names.append(rest[2 : 2 + length].decode("ascii", "replace"))
        rest = rest[2 + length :]
    return "".join(one for one in ", ".join(sorted(names)) if one.isprintable())


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
