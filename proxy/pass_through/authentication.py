"""A client that authenticates at the broker itself: the handler of its connection until the broker has accepted it.
Sans-IO.

Only ApiVersions and the exchange of tokens are answered; nothing else of an unauthenticated client gets any further.
Once it is accepted a session takes its place, whose backend (``backend.py``) is the connection to the broker over which
it has authenticated, for this client alone."""

from __future__ import annotations

from functools import partial

from ...codecs import messages
from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...codecs.framing import Frame, FrameSplitter, frame
from ...codecs.headers import RequestHeader, encode_response_header, parse_request_header
from ...codecs.sasl import SaslError, shown_text
from ...reactor import Reactor
from .. import limits
from ..bridge import api_versions
from ..broker.broker import Broker
from ..connection.handler import Handler
from ..connection.shell import ConnectionShell
from ..events import ClientRefused
from ..session.session import Session
from ..versions import ApiKey
from .backend import SASL_RANGES, ClientBackend, refuse_sasl
from .connection import ClientConnection
from .host import PassThroughHost
from .principal import MECHANISMS, Conversation
from .sasl_relay import SaslRelay


class ClientAuthentication(Handler):
    """The authentication on one connection. ``below``: opens connections to brokers on which nobody has authenticated
    yet."""

    def __init__(self, below: Reactor, host: PassThroughHost, shell: ConnectionShell) -> None:
        self._below = below
        self._host = host
        self._shell = shell
        self._splitter = FrameSplitter(min(limits.SASL_FRAME_BYTES_MAX, host.caps.request_bytes_max))
        self._relay: SaslRelay | None = None
        self._conversation: Conversation | None = None
        self._requests = 0
        self._handshakes = 0
        self._handshake_version = -1
        self._broker: Broker | None = None
        self._is_token_out = False
        """The broker has to answer first."""
        self._is_refused = False
        """By the broker, or its connection has ended: nothing more is passed on, and the client's will be closed."""
        self._asked: RequestHeader | None = None
        """Header of the request whose answer waits for the broker's."""
        self._behind: list[bytes] = []
        """Answers that wait for that one."""

    # ------------------------------------------------------------------ for the shell
    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return int(self._asked is not None) + len(self._behind)

    def begin(self) -> None:
        """The client is there."""
        self._shell.wait_for_login()

    def received(self, data: bytes) -> bool:
        """Bytes of requests, or of bare tokens."""
        frames = self._splitter.feed(data)
        for one in frames:
            self._handle(one)
            if self.is_closed:
                return False
        buffered_bytes, missing_bytes = self._splitter.buffered_bytes, self._splitter.missing_bytes
        self._shell.request_has(buffered_bytes, missing_bytes, begins=bool(frames))
        return True

    def end(self, *, is_lost: bool) -> None:
        """The connection has ended."""
        self.is_closed = True
        if self._relay is not None:
            self._relay.close()
            self._relay = None

    # ------------------------------------------------------------------ requests
    def _handle(self, frame: Frame) -> None:
        if self._is_refused:
            self._hold(frame)
            return
        if self._handshake_version == 0:
            self._say(bytes(frame))
            return
        key = int.from_bytes(frame[:2], "big")
        if key != ApiKey.API_VERSIONS and key not in SASL_RANGES:
            raise WireError(f"API {key} before authentication: this listener wants SASL")
        header = parse_request_header(frame)
        if header.client_id:
            self.name = header.client_id[:64]
        self._host.count_request(key)
        self._requests += 1
        if self._requests > limits.REQUESTS_BEFORE_AUTHENTICATION_MAX:
            raise WireError("request after request before authentication")
        version = header.api_version
        if key == ApiKey.API_VERSIONS:
            self.software = api_versions.software(version, memoryview(frame)[header.body_offset :])
            self._answer(header, api_versions.answer(version, {**self._host.advertised(), **SASL_RANGES}))
            return
        first, last = SASL_RANGES[key]
        if not first <= version <= last:
            raise WireError(f"API {key} is not served in version {version}")
        request = messages.decode_request(key, version, memoryview(frame)[header.body_offset :])
        if self._is_token_out:
            self._answer(header, refuse_sasl(key, version, "another token is not answered yet"))
        elif key == ApiKey.SASL_HANDSHAKE:
            self._handshake(header, request.mechanism)
        elif self._conversation is None:
            self._answer(header, refuse_sasl(key, version, "a SaslHandshake is due"))
        else:
            self._asked = header
            self._say(bytes(request.auth_bytes))

    def _hold(self, frame: Frame) -> None:
        """Take what comes between the refusal and the end of the connection: a token gets the refusal as its answer if
        that is certain; all else gets no answer, so that the client tries again."""
        if self._handshake_version == 0 or self._asked is not None:
            return
        header = parse_request_header(frame)
        first, last = SASL_RANGES[ApiKey.SASL_AUTHENTICATE]
        if header.api_key == ApiKey.SASL_AUTHENTICATE and first <= header.api_version <= last:
            self._asked = header

    def _answer(self, header: RequestHeader, body: bytes) -> None:
        start = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        self._behind.append(frame(start, body))
        self._send_ready()

    def _answer_asked(self, body: bytes) -> None:
        """Answer the request that has waited for the broker, and then those after it."""
        header, self._asked = self._asked, None
        behind, self._behind = self._behind, []
        assert header is not None
        self._answer(header, body)
        self._behind += behind
        self._send_ready()

    def _send_ready(self) -> None:
        wire = self._shell.wire
        if self._asked is None and self._behind and wire is not None:
            behind, self._behind = self._behind, []
            wire.send(*behind)

    # ------------------------------------------------------------------ the exchange
    def _handshake(self, header: RequestHeader, mechanism: str) -> None:
        self._handshakes += 1
        if self._handshakes > limits.SASL_HANDSHAKES_MAX:
            raise WireError("SaslHandshake again and again")
        broker = self._host.target(self._shell.broker_id)
        if broker is None:
            self._shell.abort("the broker is away")
            return
        if self._relay is not None:
            self._relay.close()
        self._broker = broker
        self._conversation = None
        self._asked = header
        self._is_token_out = True  # nothing else before the broker has answered
        version = header.api_version

        def has_begun(code: int, mechanisms: list[str]) -> None:
            self._is_token_out = False
            common = [one for one in mechanisms if one in MECHANISMS]
            if code == 0 and mechanism in MECHANISMS:
                self._conversation = Conversation(mechanism)
                self._handshake_version = version
            elif code == 0:
                code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            body = messages.encode_response(ApiKey.SASL_HANDSHAKE, version, error_code=code, mechanisms=common)
            self._answer_asked(body)

        self._relay = SaslRelay(
            self._below,
            broker.address,
            broker.ranges,
            mechanism,
            version,
            has_begun=has_begun,
            answered=self._broker_says,
            refused=self._refused,
        )

    def _say(self, token: bytes) -> None:
        assert self._relay is not None
        assert self._conversation is not None
        if self._is_token_out:
            raise WireError("a token before the answer to the last one")
        try:
            self._conversation.client_says(token)
        except SaslError as error:
            self._relay.close()
            self._end_refused(str(error), is_certain=True)
            return
        self._is_token_out = True
        self._relay.say(token)

    def _broker_says(self, token: bytes) -> None:
        assert self._conversation is not None
        wire = self._shell.wire
        assert wire is not None
        self._is_token_out = False
        accepted = self._conversation.broker_says(token)
        if self._is_token_asked:
            self._answer_asked(self._token_answer(ErrorCode.NONE, None, token))
        else:
            wire.send(frame(token))
        if accepted:
            self._accepted()

    @property
    def _is_token_asked(self) -> bool:
        """Did the last token come in a request, which is not answered yet?"""
        return self._asked is not None and self._asked.api_key == ApiKey.SASL_AUTHENTICATE

    def _token_answer(self, code: int, message: str | None, token: bytes = b"") -> bytes:
        assert self._asked is not None
        return messages.encode_response(
            ApiKey.SASL_AUTHENTICATE, self._asked.api_version, error_code=code, error_message=message, auth_bytes=token
        )

    def _accepted(self) -> None:
        """Make way for a session with the same shell, whose backend has the connection to the broker."""
        relay, conversation, broker, shell = self._relay, self._conversation, self._broker, self._shell
        assert relay is not None
        assert conversation is not None
        assert broker is not None
        if self._splitter.buffered_bytes:
            shell.refuse("a request before authentication was over")
            return
        self._relay = None
        self.end(is_lost=False)
        host = self._host
        shell.authenticated(f"User:{conversation.name}")
        connection = ClientConnection(host.reactor)
        backend = ClientBackend(host, broker, connection, shell.broker_id)
        session = Session(host, shell, backend)
        session.use(connection, broker)
        backend.abort = connection.broken = session.abort
        relay.hand_over(connection.pipe)
        shell.become(session)
        shell.is_known()

    def _refused(self, reason: str, is_certain: bool) -> None:
        """The broker has refused the login, or its connection ended. An old broker refuses by closing the connection;
        it has done so if the broker is still there a moment later. That has to be certain, because clients do not try
        again after a refusal."""
        if is_certain or not self._is_token_asked:
            self._end_refused(reason, is_certain)
        else:
            self._host.reactor.later(limits.QUIESCENCE_SECONDS, partial(self._look_whether_refused, reason))

    def _look_whether_refused(self, reason: str) -> None:
        is_certain = self._broker is not None and self._broker.is_ready
        if not self.is_closed:
            self._end_refused(reason, is_certain)

    def _end_refused(self, reason: str, is_certain: bool) -> None:
        name = "" if self._conversation is None else f" of {self._conversation.name!r}"
        what = f"authentication{name} from {self._shell.address} failed: {shown_text(reason)}"
        self._host.report(ClientRefused(self.name, what))
        self._is_refused = True
        self._host.reactor.later(limits.LOGIN_REFUSAL_SECONDS, partial(self._say_no, is_certain))

    def _say_no(self, is_certain: bool) -> None:
        if self.is_closed:
            return
        if self._is_token_asked and is_certain:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            self._answer_asked(self._token_answer(code, "authentication failed"))
        self._shell.close()
