"""A TLS 1.3 client that writes its records itself once the handshake is done, so that it can send messages of TLS
alone, as often as it likes (RFC 8446, sections 4.6.3, 5.2 and 7)."""

from __future__ import annotations

import hmac
import socket
import ssl
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .scene import shake_hands

_HASH, _KEY_BYTES, _NONCE_BYTES, _TAG_BYTES = "sha384", 32, 12, 16
"""Of TLS_AES_256_GCM_SHA384, which OpenSSL prefers."""
_HANDSHAKE, _DATA = 22, 23
_SECRET = "CLIENT_TRAFFIC_SECRET_0"


def _expand(secret: bytes, label: bytes, size: int) -> bytes:
    info = size.to_bytes(2, "big") + bytes([6 + len(label)]) + b"tls13 " + label + b"\0"
    assert size <= len(secret), "one round is enough"
    return hmac.digest(secret, info + b"\1", _HASH)[:size]


class TlsRecords:
    """Over a socket that is connected. ``key_log``: a file to be written."""

    def __init__(self, line: socket.socket, trusted: ssl.SSLContext, key_log: Path) -> None:
        trusted.keylog_filename = str(key_log)
        trusted.minimum_version = ssl.TLSVersion.TLSv1_3
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trusted.wrap_bio(incoming, outgoing, server_hostname="localhost")
        shake_hands(client, lambda: line.sendall(outgoing.read()), lambda: incoming.write(line.recv(65536)))
        assert client.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
        (secret,) = [text.split()[2] for text in key_log.read_text().splitlines() if text.startswith(_SECRET)]
        self._take(bytes.fromhex(secret))

    def data(self, data: bytes) -> bytes:
        """Return a record for the application."""
        return self._record(data, _DATA)

    def new_keys(self, wants_answer: bool) -> bytes:
        """Return a KeyUpdate; what comes after it has other keys."""
        record = self._record(b"\x18\0\0\1" + bytes([wants_answer]), _HANDSHAKE)
        self._take(_expand(self._secret, b"traffic upd", len(self._secret)))
        return record

    def unfinished(self) -> bytes:
        """Return the beginning of a KeyUpdate. A peer that has read it can write nothing before it has the rest."""
        return self._record(b"\x18\0\0\1", _HANDSHAKE)

    def _take(self, secret: bytes) -> None:
        self._secret, self._number = secret, 0
        self._cipher = AESGCM(_expand(secret, b"key", _KEY_BYTES))
        self._nonce = int.from_bytes(_expand(secret, b"iv", _NONCE_BYTES), "big")

    def _record(self, data: bytes, kind: int) -> bytes:
        nonce = (self._nonce ^ self._number).to_bytes(_NONCE_BYTES, "big")
        self._number += 1
        start = b"\x17\x03\x03" + (len(data) + 1 + _TAG_BYTES).to_bytes(2, "big")
        return start + self._cipher.encrypt(nonce, data + bytes([kind]), start)
