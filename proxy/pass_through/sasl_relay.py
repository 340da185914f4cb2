"""A client's own connection to a broker while the client authenticates there: its tokens are forwarded, the broker's
come back. Sans-IO; afterwards the same connection is a pipe.

Tokens of clients that put them into requests (SaslAuthenticate) are sent bare to brokers before 1.0, which take only
that. The other way round nothing is translated: newer brokers take bare tokens too, after a SaslHandshake 0."""

from __future__ import annotations

from collections.abc import Callable

from ...codecs import messages
from ...codecs.errors import WireError
from ...codecs.framing import SIZE_BYTES, frame
from ...codecs.headers import encode_request_header, parse_response_header
from ...codecs.sasl import SaslError
from ...reactor import Address, Endpoint, Reactor, Wire
from .. import limits
from ..versions import ApiKey, BrokerRanges

_CLIENT_ID = "idemproxy-client"


class SaslRelay:
    """One exchange. ``has_begun``: gets the broker's error code and its mechanisms; ``answered``: gets each token of
    the broker; ``refused``: called at most once, with what the broker said (True) or how the connection ended
    (False)."""

    def __init__(
        self,
        reactor: Reactor,
        address: Address,
        ranges: BrokerRanges,
        mechanism: str,
        client_version: int,
        *,
        has_begun: Callable[[int, list[str]], None],
        answered: Callable[[bytes], None],
        refused: Callable[[str, bool], None],
    ) -> None:
        """``client_version``: of the SaslHandshake that the client has sent."""
        in_requests = ranges.get(ApiKey.SASL_HANDSHAKE, (0, 0))[1] >= 1 and ApiKey.SASL_AUTHENTICATE in ranges
        self._version = min(client_version, int(in_requests))
        self._mechanism = mechanism
        self._has_begun = has_begun
        self._answered = answered
        self._refused = refused
        self._wire: Wire | None = None
        self._buffer = b""
        self._asked: tuple[int, int] | None = None
        """API key and version of the request that is out; None while bare tokens are exchanged."""
        self._is_over = False
        reactor.connect(address, self)

    def say(self, token: bytes) -> None:
        """Send a token of the client on."""
        if self._version >= 1:
            self._ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=token)
        else:
            self._asked = None
            self._send(frame(token))

    def hand_over(self, endpoint: Endpoint) -> None:
        """The client is accepted: what follows on this connection are its requests, and their answers are for this
        endpoint."""
        assert self._wire is not None
        assert not self._buffer
        self._is_over = True
        self._wire.hand_over(endpoint)
        endpoint.connected(self._wire)

    def close(self) -> None:
        """The client has gone, or begins again."""
        self._is_over = True
        if self._wire is not None:
            self._wire.reset()
            self._wire = None

    # ------------------------------------------------------------------ endpoint
    def connected(self, wire: Wire) -> None:
        """The connection to the broker is open."""
        if self._is_over:
            wire.reset()
            return
        self._wire = wire
        self._ask(ApiKey.SASL_HANDSHAKE, self._version, mechanism=self._mechanism)

    def received(self, data: bytes) -> None:
        """Bytes of the broker."""
        self._buffer += data
        try:
            while not self._is_over and (answer := self._next_frame()) is not None:
                self._take(answer)
        except (WireError, SaslError) as error:
            self._fail(str(error))

    def lost(self, reason: str) -> None:
        """The connection ended: old brokers close it on wrong tokens."""
        self._wire = None
        if not self._is_over:
            self._is_over = True
            self._refused(reason, False)

    # ------------------------------------------------------------------ inside
    def _take(self, answer: bytes) -> None:
        if self._asked is None:
            self._answered(answer)
            return
        api_key, version = self._asked
        _, body_offset = parse_response_header(answer, api_key, version)
        body = messages.decode_response(api_key, version, answer[body_offset:])
        if api_key == ApiKey.SASL_HANDSHAKE:
            self._has_begun(body.error_code, list(body.mechanisms or ()))
        elif body.error_code != 0:
            self.close()
            self._refused(body.error_message or f"error {body.error_code}", True)
        else:
            self._answered(bytes(body.auth_bytes))

    def _ask(self, api_key: int, api_version: int, **fields: object) -> None:
        self._asked = (api_key, api_version)
        header = encode_request_header(api_key, api_version, 0, _CLIENT_ID)
        self._send(frame(header, messages.encode_request(api_key, api_version, **fields)))

    def _send(self, data: bytes) -> None:
        assert self._wire is not None
        self._wire.send(data)

    def _next_frame(self) -> bytes | None:
        if len(self._buffer) < SIZE_BYTES:
            return None
        size = int.from_bytes(self._buffer[:SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= limits.SASL_FRAME_BYTES_MAX:
            raise SaslError(f"the broker's answer has {size} bytes")
        end = SIZE_BYTES + size
        if len(self._buffer) < end:
            return None
        found, self._buffer = self._buffer[SIZE_BYTES:end], self._buffer[end:]
        return found

    def _fail(self, reason: str) -> None:
        if self._wire is not None:
            self._wire.reset()
        self.lost(reason)
