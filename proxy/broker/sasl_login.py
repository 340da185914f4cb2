"""SASL towards the brokers, as a layer over any reactor: an endpoint that connects through it sees the connection once
the broker has accepted our principal. Sans-IO: ``sasl_mechanisms.py`` makes the messages, this file runs the exchange.

Brokers from 1.0 on take tokens in requests and say why they refuse one (SaslHandshake 1, SaslAuthenticate); older ones
take them bare, with a size of 4 bytes, and close the connection on wrong ones (KIP-43, KIP-152)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...codecs import messages
from ...codecs.errors import WireError
from ...codecs.framing import SIZE_BYTES, frame
from ...codecs.headers import encode_request_header, parse_response_header
from ...reactor import Address, Endpoint, Reactor, Wire
from .. import limits
from ..events import OperatorMessage, Report
from ..settings.addresses import shown
from ..versions import ApiKey
from .sasl_mechanisms import Credentials, Mechanism, SaslError, shown_text

_CLIENT_ID = "idemproxy-sasl"
_ILLEGAL_SASL_STATE = 34
_Step = Callable[["Authentication", bytes], None]
"""Not bound: an exchange that is over would hold itself."""


@dataclass(slots=True)
class _Refusal:
    """A login that a broker refused. Until ``until`` no login is tried there; connections fail with the same reason."""

    reason: str
    seconds: float
    until: float
    version: int
    """The version of the credentials that were refused."""


class OverSasl:
    """A reactor's clock and timers, with connections that are authenticated as our principal."""

    def __init__(self, reactor: Reactor, credentials: Credentials, report: Report) -> None:
        self.now = reactor.now
        self.later = reactor.later
        self.at_flush = reactor.at_flush
        self._reactor = reactor
        self._credentials = credentials
        self._report = report
        self._refusals: dict[Address, _Refusal] = {}

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        """Open a connection; ``connected`` is called once the broker has accepted us."""
        refusal = self._refusals.get(address)
        if refusal is not None and self._is_left_alone(refusal):
            reason = refusal.reason
            self.later(0, lambda: endpoint.lost(reason))
        else:
            self._reactor.connect(address, Authentication(self, address, endpoint, self._credentials))

    def accepted(self, address: Address) -> None:
        """The broker has accepted the login."""
        if self._refusals.pop(address, None) is not None:
            self._report(
                OperatorMessage("info", f"upstream.sasl: {shown(address)} accepts {self._credentials.shown} again")
            )

    def refused(self, address: Address, reason: str) -> None:
        """The broker refused the login, or never answered."""
        now, version = self.now(), self._credentials.version
        before = self._refusals.get(address)
        seconds = limits.SASL_BACKOFF_SECONDS_MIN
        if before is not None and before.version == version:
            if now < before.until:
                return  # one of several connections at a time
            seconds = min(before.seconds * 2, limits.SASL_BACKOFF_SECONDS_MAX)
        self._refusals[address] = _Refusal(reason, seconds, now + seconds, version)
        if before is None or before.reason != reason:
            what = f"upstream.sasl: {shown(address)}, {self._credentials.shown}: {reason}"
            self._report(OperatorMessage("error", f"{what}; tried again every {limits.SASL_BACKOFF_SECONDS_MAX:.0f} s"))

    def _is_left_alone(self, refusal: _Refusal) -> bool:
        with suppress(SaslError):  # the next exchange reports it
            self._credentials.look()
        return self.now() < refusal.until and refusal.version == self._credentials.version


class Authentication:
    """The endpoint of a connection until the broker has accepted the login; then everything goes to the endpoint that
    asked for the connection."""

    def __init__(self, over: OverSasl, address: Address, endpoint: Endpoint, credentials: Credentials) -> None:
        self._over = over
        self._address = address
        self._endpoint = endpoint
        self._credentials = credentials
        self._wire: Wire | None = None
        self._mechanism: Mechanism | None = None
        self._buffer = b""
        self._step: _Step = Authentication._versions
        self._asked: tuple[int, int, int] | None = None
        """API key, version and correlation id of the request that is out; None while bare tokens are exchanged."""
        self._correlation_id = 0
        self._is_over = False

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """The connection is open: ask in which form this broker takes tokens."""
        self._wire = wire
        self._timer = self._over.later(limits.SASL_SECONDS, self._time_out)
        try:
            self._mechanism = self._credentials.begin()
        except SaslError as error:
            self._give_up(str(error))
            return
        self._ask(ApiKey.API_VERSIONS, 0)

    def received(self, data: bytes) -> None:
        """Bytes of the exchange."""
        self._buffer += data
        try:
            while not self._is_over and (answer := self._next_frame()) is not None:
                self._step(self, self._body_of(answer))
        except WireError as error:
            self._give_up(f"the broker's answer cannot be read: {error}")
        except SaslError as error:
            self._give_up(str(error))

    def lost(self, reason: str) -> None:
        """The connection ended. While a token is out, this is how old brokers refuse it."""
        if self._wire is None:  # it was never open
            self._endpoint.lost(reason)
            return
        if self._is_over:
            return
        if self._step is Authentication._token:
            reason = (
                f"authentication failed: the broker closed the connection after {self._credentials.shown} ({reason})"
            )
            self._end(reason)
        elif self._step is Authentication._versions:
            self._end(
                f"the broker closed the connection before authentication ({reason}): is this a listener for SASL?"
            )
        else:
            self._end(f"the broker closed the connection during the SASL handshake ({reason})")

    # ------------------------------------------------------------------ steps
    def _versions(self, body: bytes) -> None:
        answer = messages.decode_response(ApiKey.API_VERSIONS, 0, body)
        ranges = {one.api_key: one.max_version for one in answer.api_keys}
        if answer.error_code != 0 or ApiKey.SASL_HANDSHAKE not in ranges:
            raise SaslError("the broker knows no SaslHandshake: 0.10 is the oldest that is spoken to")
        in_requests = ranges[ApiKey.SASL_HANDSHAKE] >= 1 and ApiKey.SASL_AUTHENTICATE in ranges
        self._step = Authentication._handshake
        self._ask(ApiKey.SASL_HANDSHAKE, int(in_requests), mechanism=self._credentials.settings.mechanism)

    def _handshake(self, body: bytes) -> None:
        assert self._asked is not None
        version = self._asked[1]
        answer = messages.decode_response(ApiKey.SASL_HANDSHAKE, version, body)
        if answer.error_code == _ILLEGAL_SASL_STATE:
            raise SaslError("this listener of the broker takes no SASL (error 34)")
        if answer.error_code != 0:
            offered = shown_text(", ".join(sorted(answer.mechanisms or ())))
            mechanism = self._credentials.settings.mechanism
            raise SaslError(f"the mechanism {mechanism} is not enabled at the broker, it has {offered}")
        self._step = Authentication._token
        if version == 0:
            self._asked = None
        assert self._mechanism is not None
        self._say(self._mechanism.first())

    def _token(self, body: bytes) -> None:
        assert self._mechanism is not None
        challenge = body
        if self._asked is not None:
            answer = messages.decode_response(ApiKey.SASL_AUTHENTICATE, 0, body)
            if answer.error_code != 0:
                said = shown_text(answer.error_message or f"error {answer.error_code}")
                raise SaslError(f"authentication failed: the broker says {said}")
            challenge = bytes(answer.auth_bytes)
        reply = self._mechanism.answer(challenge)
        if reply is not None:
            self._say(reply)
        elif self._buffer:
            raise SaslError("the broker goes on after the end of the exchange")
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        assert self._wire is not None
        self._is_over = True
        self._timer.cancel()
        self._over.accepted(self._address)
        self._wire.hand_over(self._endpoint)
        self._endpoint.connected(self._wire)

    # ------------------------------------------------------------------ frames
    def _ask(self, api_key: int, api_version: int, **fields: Any) -> None:
        assert self._wire is not None
        self._correlation_id += 1
        self._asked = (api_key, api_version, self._correlation_id)
        header = encode_request_header(api_key, api_version, self._correlation_id, _CLIENT_ID)
        self._wire.send(frame(header, messages.encode_request(api_key, api_version, **fields)))

    def _say(self, token: bytes) -> None:
        assert self._wire is not None
        if self._asked is None:
            self._wire.send(frame(token))
        else:
            self._ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=token)

    def _next_frame(self) -> bytes | None:
        """Return the next frame, or None. Unlike in the rest of the protocol a frame may be empty here."""
        if len(self._buffer) < SIZE_BYTES:
            return None
        size = int.from_bytes(self._buffer[:SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= limits.SASL_FRAME_BYTES_MAX:
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

    # ------------------------------------------------------------------ the end
    def _time_out(self) -> None:
        if not self._is_over:
            self._give_up(f"the broker does not finish the SASL exchange within {limits.SASL_SECONDS:.0f} s")

    def _give_up(self, reason: str) -> None:
        assert self._wire is not None
        self._wire.reset()
        self._end(reason)

    def _end(self, reason: str) -> None:
        self._is_over = True
        self._timer.cancel()
        self._over.refused(self._address, reason)
        self._endpoint.lost(reason)
