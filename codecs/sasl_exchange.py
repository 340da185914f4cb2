"""The client's SASL exchange on a fresh connection, sans-IO: bytes in, bytes out, until the broker has accepted us.

Brokers from 1.0 on take tokens in requests and say why they refuse one (SaslHandshake 1, SaslAuthenticate); older ones
take them bare, with a size of 4 bytes, and close the connection on wrong ones (KIP-43, KIP-152). What the tokens say is
the mechanism's; time, back-off and whom to tell are the caller's."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final

from . import messages
from .error_codes import ErrorCode
from .framing import SIZE_BYTES, frame
from .headers import API_VERSIONS, encode_request_header, parse_response_header
from .sasl import Mechanism, SaslError, shown_text

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36


class _Due(Enum):
    """Which answer of the broker comes next."""

    VERSIONS = auto()
    HANDSHAKE = auto()
    TOKEN = auto()
    NOTHING = auto()


class SaslExchange:
    """One exchange. It begins with ApiVersions 0: the form of the tokens depends on what the broker has."""

    def __init__(
        self, mechanism_name: str, mechanism: Mechanism, *, shown: str, client_id: str, frame_bytes_max: int
    ) -> None:
        """``shown``: our principal, for messages to people. ``frame_bytes_max``: of an answer, before we are
        accepted."""
        self._name = mechanism_name
        self._mechanism = mechanism
        self._shown = shown
        self._client_id = client_id
        self._frame_bytes_max = frame_bytes_max
        self._buffer = b""
        self._due = _Due.VERSIONS
        self._asked: tuple[int, int, int] | None = None
        """API key, version and correlation id of the request that is out; None while bare tokens are exchanged."""
        self._correlation_id = 0

    @property
    def is_over(self) -> bool:
        """Whether the broker has accepted us."""
        return self._due is _Due.NOTHING

    @property
    def is_refused_by_closing(self) -> bool:
        """Whether a bare token is out: a broker refuses it by closing the connection. All else is refused in words."""
        return self._due is _Due.TOKEN and self._asked is None

    def start(self) -> bytes:
        """Return the first request."""
        return self._ask(API_VERSIONS, 0)

    def received(self, data: bytes) -> bytes:
        """Take what arrived and return what is to be sent. Raises SaslError and WireError: the connection is of no use
        then."""
        self._buffer += data
        chunks = []
        while not self.is_over and (answer := self._next_frame()) is not None:
            chunks.append(self._answered(self._body_of(answer)))
        return b"".join(chunks)

    def explain_loss(self, reason: str) -> str:
        """Return the sentence for a connection that ended before the exchange did: old brokers refuse a token so."""
        if self._due is _Due.TOKEN:
            return f"authentication failed: the broker closed the connection after {self._shown} ({reason})"
        if self._due is _Due.VERSIONS:
            return f"the broker closed the connection before authentication ({reason}): is this a listener for SASL?"
        return f"the broker closed the connection during the SASL handshake ({reason})"

    # ------------------------------------------------------------------ steps
    def _answered(self, body: bytes) -> bytes:
        match self._due:
            case _Due.VERSIONS:
                return self._shake_hands(body)
            case _Due.HANDSHAKE:
                return self._begin(body)
            case _:
                return self._go_on(body)

    def _shake_hands(self, body: bytes) -> bytes:
        answer = messages.decode_response(API_VERSIONS, 0, body)
        ranges = {one.api_key: one.max_version for one in answer.api_keys}
        if answer.error_code != 0 or SASL_HANDSHAKE not in ranges:
            raise SaslError("the broker knows no SaslHandshake: 0.10 is the oldest that is spoken to")
        in_requests = ranges[SASL_HANDSHAKE] >= 1 and SASL_AUTHENTICATE in ranges
        self._due = _Due.HANDSHAKE
        return self._ask(SASL_HANDSHAKE, int(in_requests), mechanism=self._name)

    def _begin(self, body: bytes) -> bytes:
        assert self._asked is not None
        version = self._asked[1]
        answer = messages.decode_response(SASL_HANDSHAKE, version, body)
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise SaslError("this listener of the broker takes no SASL (error 34)")
        if answer.error_code != 0:
            offered = shown_text(", ".join(sorted(answer.mechanisms or ())))
            raise SaslError(f"the mechanism {self._name} is not enabled at the broker, it has {offered}")
        self._due = _Due.TOKEN
        if version == 0:
            self._asked = None
        return self._say(self._mechanism.first())

    def _go_on(self, body: bytes) -> bytes:
        challenge = body
        if self._asked is not None:
            answer = messages.decode_response(SASL_AUTHENTICATE, 0, body)
            if answer.error_code != 0:
                said = shown_text(answer.error_message or f"error {answer.error_code}")
                raise SaslError(f"authentication failed: the broker says {said}")
            challenge = bytes(answer.auth_bytes)
        reply = self._mechanism.answer(challenge)
        if reply is not None:
            return self._say(reply)
        if self._buffer:
            raise SaslError("the broker continues after the end of the exchange")
        self._due = _Due.NOTHING
        return b""

    # ------------------------------------------------------------------ frames
    def _ask(self, api_key: int, api_version: int, **fields: Any) -> bytes:
        self._correlation_id += 1
        self._asked = (api_key, api_version, self._correlation_id)
        header = encode_request_header(api_key, api_version, self._correlation_id, self._client_id)
        return frame(header, messages.encode_request(api_key, api_version, **fields))

    def _say(self, token: bytes) -> bytes:
        return frame(token) if self._asked is None else self._ask(SASL_AUTHENTICATE, 0, auth_bytes=token)

    def _next_frame(self) -> bytes | None:
        """Return the next frame, or None. Unlike in the rest of the protocol a frame may be empty here."""
        if len(self._buffer) < SIZE_BYTES:
            return None
        size = int.from_bytes(self._buffer[:SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= self._frame_bytes_max:
            raise SaslError(f"the broker's answer has {size} bytes: this is no listener of Kafka, or it speaks TLS")
        end = SIZE_BYTES + size
        if len(self._buffer) < end:
            return None
        found, self._buffer = self._buffer[SIZE_BYTES:end], self._buffer[end:]
        return found

    def _body_of(self, answer: bytes) -> bytes:
        if self._asked is None:
            return answer
        api_key, api_version, expected = self._asked
        correlation_id, body_offset = parse_response_header(answer, api_key, api_version)
        if correlation_id != expected:
            raise SaslError(f"the broker answers {correlation_id} where {expected} is due")
        return answer[body_offset:]
