"""The name that a client gives, read from the tokens of its SASL exchange with a broker, and when that exchange is
over. Pure; decides nothing: the name counts once the broker has accepted these very tokens."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping

from ...codecs.sasl import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, SaslError

MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""Mechanisms whose tokens can be read. With others the client's name would be unknown."""
_NAME_BYTES_MAX = 1024


class Conversation:
    """One SASL exchange, as it passes by. ``name``: the name that the client gives; None before its first token."""

    def __init__(self, mechanism: str) -> None:
        assert mechanism in MECHANISMS
        self._mechanism = mechanism
        self._answers = 0
        self.name: str | None = None

    def client_says(self, token: bytes) -> None:
        """Read a token of the client. Raises SaslError for one without a name, and for one that names somebody to act
        for (an authorization id) other than the one who authenticates."""
        if self.name is None:
            name = _NAMES[self._mechanism](token)
            if not name or len(name.encode()) > _NAME_BYTES_MAX or not name.isprintable():
                raise SaslError("the name of the client is empty, too long or not printable")
            self.name = name

    def broker_says(self, token: bytes) -> bool:
        """Read a token of the broker: is the client accepted now?"""
        self._answers += 1
        if self._mechanism == PLAIN:
            return True
        if self._mechanism == OAUTHBEARER:
            return not token
        return self._answers == 2 and token.startswith(b"v=")


def _name_in_plain(token: bytes) -> str:
    parts = token.split(b"\0")
    if len(parts) != 3:
        raise SaslError("a token of PLAIN has three parts")
    # Brokers before 0.10.2.2 believe the first part, to whatever name the password belongs (CVE-2017-12610).
    if parts[0] not in (b"", parts[1]):
        raise SaslError("nobody acts for somebody else here: the two names of PLAIN differ")
    return _text(parts[1])


def _name_in_scram(token: bytes) -> str:
    header, acting_for, attributes = _gs2(token)
    names = [part[2:] for part in attributes.split(b",") if part.startswith(b"n=")]
    if header != b"n" or len(names) != 1 or not attributes.startswith(b"n="):
        raise SaslError("the client's first message is no SCRAM that is known here")
    if b",tokenauth=true" in attributes.lower():  # brokers ignore its case
        raise SaslError("delegation tokens are not passed through: they do not say who their owner is")
    name = names[0]
    if acting_for not in (b"", name):
        raise SaslError("nobody acts for somebody else here: the two names of SCRAM differ")
    plain = name.replace(b"=2C", b",").replace(b"=3D", b"=")
    if name.count(b"=") != name.count(b"=2C") + name.count(b"=3D"):
        raise SaslError("the name of SCRAM is not written as it should be")
    return _text(plain)


def _name_in_token(token: bytes) -> str:
    _, acting_for, rest = _gs2(token)
    # If there are several, brokers believe the last one, in whatever case its scheme is written: then the name is not
    # certain.
    said = [part[len(b"auth=") :] for part in rest.split(b"\x01") if part.startswith(b"auth=")]
    scheme, _, bearer = said[0].partition(b" ") if len(said) == 1 else (b"", b"", b"")
    parts = bearer.strip(b" ").split(b".")
    if scheme.lower() != b"bearer" or len(parts) != 3:
        raise SaslError("the client's token is no JSON web token")
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + b"=" * (-len(parts[1]) % 4)))
        name = claims["sub"]
        encoded = name.encode() if isinstance(name, str) else None  # of surrogates there is no UTF-8
    except (ValueError, KeyError, TypeError, RecursionError):
        raise SaslError("the client's token names nobody: it has no field sub") from None
    if encoded is None or acting_for not in (b"", encoded):
        raise SaslError("the client's token names somebody else than it does")
    return str(name)


def _gs2(token: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the front (RFC 5801): channel binding, the name to act for; and the rest."""
    parts = token.split(b",", 2)
    if len(parts) != 3 or not (parts[1] == b"" or parts[1].startswith(b"a=")):
        raise SaslError("the client's first message cannot be read")
    return parts[0], parts[1][2:], parts[2]


def _text(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise SaslError("the name of the client is no UTF-8") from None


_NAMES: Mapping[str, Callable[[bytes], str]] = {
    PLAIN: _name_in_plain,
    SCRAM_SHA_256: _name_in_scram,
    SCRAM_SHA_512: _name_in_scram,
    OAUTHBEARER: _name_in_token,
}
