"""The client's side of the SASL mechanisms that Kafka has: PLAIN (RFC 4616), SCRAM (RFC 5802, 7677) and OAUTHBEARER
(RFC 7628). Knows no frame: ``sasl_exchange.py`` carries the messages. Names and passwords are plain UTF-8, as in
Kafka's own code.

No secret is ever in an error."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Final, Protocol

PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"

SCRAM_ITERATIONS_MIN: Final = 4096
SCRAM_ITERATIONS_MAX: Final = 1_000_000
"""With fewer (Kafka's own minimum) a password is guessed too easily; with more a broker could keep us busy for
seconds."""

NONCE_BYTES: Final = 18
"""Random bytes of a SCRAM nonce."""
SCRAM_HASHES: Final = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
_GS2_HEADER: Final = b"n,,"
_SALTED_MAX: Final = 64
"""Hashes that are kept. There is one for each salt: salts differ by broker and mechanism, and change with the
password."""
_SAID_MAX: Final = 200


class SaslError(Exception):
    """The exchange cannot continue, or must not. The message says why."""


class Mechanism(Protocol):
    """The client's side of one exchange; used once."""

    def first(self) -> bytes:
        """Return the client's first message."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the answer to the broker's message; None: the exchange is over, and the broker has proven who it is.
        Raises SaslError."""
        ...


class Plain:
    """User name and password, in clear text."""

    def __init__(self, username: str, password: str) -> None:
        self._first = b"\0".join((b"", username.encode(), password.encode()))

    def first(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class OAuthBearer:
    """A token. A broker that refuses it says why as JSON, waits for one byte, and then ends the exchange."""

    def __init__(self, token: str) -> None:
        self._token = token

    def first(self) -> bytes:
        return b"n,,\x01auth=Bearer %s\x01\x01" % self._token.encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        try:
            status = json.loads(challenge).get("status")
        except (ValueError, AttributeError, RecursionError):
            status = None
        raise SaslError(f"the token is refused: {shown_text(status if isinstance(status, str) else challenge)}")


class Scram:
    """Proves that we know the password without sending it, and has the broker prove the same."""

    def __init__(
        self,
        hash_name: str,
        username: str,
        password: str,
        nonce: bytes,
        salted: Callable[[str, str, bytes, int], bytes],
    ) -> None:
        """``nonce``: printable, never used before, without commas. ``salted``: returns the slow hash (PBKDF2) of hash
        name, password, salt and iterations: see ``SaltedPasswords.get``."""
        self._hash_name = hash_name
        self._password = password
        self._nonce = nonce
        self._salted = salted
        name = username.replace("=", "=3D").replace(",", "=2C").encode()
        self._first_bare = b"n=%s,r=%s" % (name, nonce)
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return _GS2_HEADER + self._first_bare

    def answer(self, challenge: bytes) -> bytes | None:
        if self._signature is None:
            return self._prove(challenge)
        self._verify(challenge)
        return None

    def _prove(self, server_first: bytes) -> bytes:
        nonce, salt, iterations = _parse_server_first(server_first)
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslError("the broker's nonce does not continue ours")
        least, most = SCRAM_ITERATIONS_MIN, SCRAM_ITERATIONS_MAX
        if not least <= iterations <= most:
            raise SaslError(f"the broker wants {iterations} iterations, {least} to {most} are taken")
        salted = self._salted(self._hash_name, self._password, salt, iterations)
        without_proof = b"c=%s,r=%s" % (b64encode(_GS2_HEADER), nonce)
        message = b",".join((self._first_bare, server_first, without_proof))
        client_key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash_name, client_key).digest(), message)
        proof = bytes(key ^ sign for key, sign in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return b"%s,p=%s" % (without_proof, b64encode(proof))

    def _verify(self, server_final: bytes) -> None:
        name, _, value = server_final.partition(b",")[0].partition(b"=")
        if name == b"e":
            raise SaslError(f"the broker says {shown_text(value)}")
        assert self._signature is not None
        if name != b"v" or not hmac.compare_digest(_base64(value, "signature"), self._signature):
            raise SaslError("the broker does not show that it knows the password: it may be somebody else")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash_name)


def _parse_server_first(message: bytes) -> tuple[bytes, bytes, int]:
    """Return nonce, salt and iterations. Unknown attributes are allowed after these, not before them."""
    parts = [part.partition(b"=") for part in message.split(b",")]
    names = [name for name, _, _ in parts]
    if names[:1] == [b"e"]:
        raise SaslError(f"the broker says {shown_text(parts[0][2])}")
    if names[:3] != [b"r", b"s", b"i"]:
        raise SaslError("the broker's first message is no SCRAM that is known here")
    nonce, salt, count = (value for _, _, value in parts[:3])
    if not count.isdigit() or len(count) > len(str(SCRAM_ITERATIONS_MAX)):
        raise SaslError(f"the broker wants {shown_text(count)} iterations")
    if not salt:
        raise SaslError("the broker's salt is empty")
    return nonce, _base64(salt, "salt"), int(count)


def _base64(text: bytes, what: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise SaslError(f"the broker's {what} is no Base64") from None


class SaltedPasswords:
    """The slow hashes of passwords (PBKDF2), each computed once: they are slow on purpose, and every connection needs
    one."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, bytes, int], bytes] = {}

    def get(self, hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
        key = (hash_name, password, salt, iterations)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _SALTED_MAX:
                self._known.clear()
            found = self._known[key] = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
        return found


def shown_text(said: str | bytes) -> str:
    """Return a text of the other side, short and printable."""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return repr(text[:_SAID_MAX])
