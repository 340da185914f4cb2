"""The login of a client that authenticates at the broker itself: what it may send before, and when the broker has
accepted it. Sans-IO.

All bytes are forwarded as they come, tokens too, whatever the mechanism. Nothing of a client that has not authenticated
gets to the broker but ApiVersions and the exchange of tokens. Keeps no token. Source: KIP-43, KIP-152, KIP-368."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...codecs.headers import parse_request_header
from .. import limits
from ..bridge.fields import Reader
from ..versions import SASL_KEYS, ApiKey

_ROUNDS: Final[Mapping[str, int]] = {"PLAIN": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""How many tokens of the client the broker accepts until it knows who the client is. With other mechanisms the error
codes do not show when that is so: with OAUTHBEARER a broker answers a wrong token without an error, and refuses the
next one."""


class Login:
    """The login on one connection. ``is_done``: the broker has accepted the client. ``has_asked``: the client has begun
    a request that only an accepted client may send, with a mechanism where only the broker knows whether it is
    accepted. ``takes_tokens``: what comes next is no request but a bare token (after SaslHandshake v0)."""

    __slots__ = (
        *("_handshakes", "_is_accepted_once", "_mechanism", "_requests", "_rounds"),
        *("has_asked", "is_done", "takes_tokens"),
    )

    def __init__(self) -> None:
        self.is_done = self.has_asked = False
        self.takes_tokens = False
        self._mechanism = ""
        self._rounds: int | None = None
        """So many tokens are still to be accepted; None: only the broker knows."""
        self._is_accepted_once = False
        """Was a token accepted?"""
        self._requests = self._handshakes = 0

    def admit(self, api_key: int, api_version: int, data: bytes, position: int, size: int) -> bool:
        """May this request be forwarded? False: more of its frame is needed to tell. ``position``: where its header
        begins. Raises WireError if it may not."""
        if self.is_done:
            if api_key == ApiKey.SASL_HANDSHAKE and api_version == 0:
                raise WireError("SaslHandshake 0 on a connection that is authenticated")
            return True
        if api_key != ApiKey.API_VERSIONS and api_key not in SASL_KEYS:
            if self._is_accepted_once and self._rounds is None:
                self.has_asked = True
                return True  # the broker judges it
            raise WireError(f"API {api_key} before authentication: this listener wants SASL")
        if size > limits.SASL_FRAME_BYTES_MAX:
            raise WireError(f"{size} bytes before authentication, the limit is {limits.SASL_FRAME_BYTES_MAX}")
        if api_key == ApiKey.SASL_HANDSHAKE:
            if len(data) - position < size:
                return False
            self._begin(data[position : position + size])
        self._requests += 1
        if self._requests > limits.REQUESTS_BEFORE_AUTHENTICATION_MAX:
            raise WireError("request after request before authentication")
        return True

    def admit_token(self, is_one_out: bool, size: int) -> None:
        """Check a bare token. ``is_one_out``: the last one is not answered yet. Raises WireError if it may not
        pass."""
        if is_one_out:
            raise WireError("a token before the answer to the last one")
        if size > limits.SASL_FRAME_BYTES_MAX:
            raise WireError(f"a token of {size} bytes, the limit is {limits.SASL_FRAME_BYTES_MAX}")

    def answered(self, api_key: int, api_version: int, body: memoryview) -> bool:
        """The broker has answered a request. Returns False if it refuses the client. Raises WireError for a mechanism
        with bare tokens whose number is not known."""
        if self.is_done:
            return True
        if api_key == ApiKey.API_VERSIONS:
            return True
        if api_key not in SASL_KEYS:
            self.is_done = True  # the broker disconnects clients that it has not accepted
            return True
        error_code = Reader(body).int16("error_code")
        if api_key == ApiKey.SASL_AUTHENTICATE:
            if error_code == ErrorCode.NONE:
                self._accepted()
            return error_code == ErrorCode.NONE
        if error_code == ErrorCode.NONE and api_version == 0:
            if self._rounds is None:
                raise WireError(f"mechanism {self._mechanism[:32]!r} is not passed on with SaslHandshake 0")
            self.takes_tokens = True
        return True

    def token_answered(self) -> None:
        """The broker has answered a bare token, so it has accepted it: otherwise it closes the connection."""
        self._accepted()

    def _begin(self, frame: bytes) -> None:
        self._handshakes += 1
        if self._handshakes > limits.SASL_HANDSHAKES_MAX:
            raise WireError("SaslHandshake again and again")
        self._mechanism = Reader(frame, parse_request_header(frame).body_offset).string("mechanism")
        self._rounds = _ROUNDS.get(self._mechanism)
        self._is_accepted_once = False

    def _accepted(self) -> None:
        self._is_accepted_once = True
        if self._rounds is not None:
            self._rounds -= 1
            if self._rounds <= 0:
                self.is_done, self.takes_tokens = True, False
