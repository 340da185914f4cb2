"""One connection to a broker or proxy, sans-IO: login, ApiVersions, then requests and their answers.

Answers come in the order of the requests (the protocol says so, and a correlation id shows it). Sockets, TLS and time
are the shell's; what is asked, and why, is the caller's."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..codecs import messages
from ..codecs.errors import WireError
from ..codecs.framing import Frame, FrameSplitter, frame
from ..codecs.headers import API_VERSIONS, encode_request_header, parse_response_header
from ..codecs.primitives import Buffer
from ..codecs.sasl import SaslError
from ..codecs.sasl_exchange import SaslExchange
from ..producing.cluster import METADATA
from . import limits
from .asking import FETCH, LIST_OFFSETS
from .errors import AnswersOutOfOrder, AuthenticationFailed, ConnectionFailed, UnsupportedServer

_FIRST_CORRELATION_ID: Final = 1
_OF_OLD_BROKERS: Final = {FETCH: (0, 0), LIST_OFFSETS: (0, 0), METADATA: (0, 0)}
"""What every broker before 0.10 has of the APIs that are asked for here."""


@dataclass(slots=True, eq=False)
class Asked:
    """A request that is out."""

    correlation_id: int
    api_key: int
    api_version: int


@dataclass(slots=True)
class Answered:
    """A request with its answer. ``body_offset``: where the body starts in the frame."""

    asked: Asked
    frame: Frame
    body_offset: int

    @property
    def body(self) -> memoryview:
        return memoryview(self.frame)[self.body_offset :]


class Link:
    """One connection. After an error it cannot be used any more: it is not known where the next answer starts."""

    def __init__(
        self, client_id: str, begin_login: Callable[[], SaslExchange] | None, *, reads_old_brokers: bool = False
    ) -> None:
        """``reads_old_brokers``: brokers before 0.10 are read, too."""
        self._client_id = client_id
        self._reads_old_brokers = reads_old_brokers
        self._login = begin_login() if begin_login is not None else None
        self._splitter = FrameSplitter(limits.RESPONSE_BYTES_MAX)
        self._asked: deque[Asked] = deque()
        self._next_correlation_id = _FIRST_CORRELATION_ID
        self._versions: dict[int, tuple[int, int]] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether requests can be sent."""
        return self._versions is not None

    @property
    def is_quiet(self) -> bool:
        """Whether every request was answered."""
        return not self._asked

    def start(self) -> bytes:
        """Return what a fresh connection says first."""
        return self._greet() if self._login is None else self._login.start()

    def greeted(self, data: bytes) -> bytes:
        """Take what arrives before the connection is ready, and return what is to be sent. Raises ConnectionFailed,
        AuthenticationFailed, UnsupportedServer."""
        if self._login is not None:
            try:
                reply = self._login.received(data)
            except SaslError as error:
                raise AuthenticationFailed(str(error)) from None
            except WireError as error:
                raise ConnectionFailed(f"the answer cannot be read: {error}") from None
            if not self._login.is_over:
                return reply
            self._login = None
            return self._greet()
        for answered in self.received(data):
            if answered.asked.api_key == METADATA:
                if _is_in_its_version(answered):
                    return self._ask_versions()
                self._versions = _OF_OLD_BROKERS
                return b""
            answer = decode_answer(answered)
            if answer.error_code != 0:
                raise UnsupportedServer(f"ApiVersions is answered with code {answer.error_code}")
            self._versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        return b""

    def explain_loss(self, reason: str) -> ConnectionFailed:
        """Return the error for a connection that ended. Old brokers refuse a raw SASL token by closing the connection:
        while one is unanswered, the error is AuthenticationFailed. Else it is ConnectionFailed: servers that end, and
        proxies whose broker is away, close connections as well."""
        if self._login is None:
            return ConnectionFailed(reason)
        kind = AuthenticationFailed if self._login.is_refused_by_closing else ConnectionFailed
        return kind(self._login.explain_loss(reason))

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The (lowest, highest) version of each API that the server has, by API key."""
        assert self._versions is not None
        return self._versions

    def version_of(self, api_key: int, lowest: int, highest: int, what: str) -> int:
        """Return the highest version of an API that both sides have. Raises UnsupportedServer."""
        assert self._versions is not None
        theirs = self._versions.get(api_key)
        if theirs is None or max(lowest, theirs[0]) > min(highest, theirs[1]):
            has = "it has none" if theirs is None else f"it has {theirs[0]} to {theirs[1]}"
            raise UnsupportedServer(f"the server has no {what} in version {lowest} to {highest}: {has}")
        return min(highest, theirs[1])

    def request(self, api_key: int, api_version: int, *body: Buffer) -> tuple[Asked, bytes]:
        """Return what will be answered, and the bytes to send."""
        asked = Asked(self._next_correlation_id, api_key, api_version)
        self._next_correlation_id = self._next_correlation_id % 0x7FFF_FFFF + 1
        self._asked.append(asked)
        return asked, frame(encode_request_header(api_key, api_version, asked.correlation_id, self._client_id), *body)

    def received(self, data: bytes) -> list[Answered]:
        """Return the answers that ``data`` completes. Raises ConnectionFailed."""
        answers = []
        try:
            for one in self._splitter.feed(data):
                if not self._asked:
                    raise ConnectionFailed("the server answers what was not asked")
                asked = self._asked.popleft()
                correlation_id, body_offset = parse_response_header(one, asked.api_key, asked.api_version)
                if correlation_id != asked.correlation_id:
                    kind = AnswersOutOfOrder if self._is_asked(correlation_id) else ConnectionFailed
                    raise kind(f"the server answers {correlation_id} where {asked.correlation_id} is due")
                answers.append(Answered(asked, one, body_offset))
        except WireError as error:
            raise ConnectionFailed(f"the answer cannot be read: {error}") from None
        return answers

    def _is_asked(self, correlation_id: int) -> bool:
        return any(one.correlation_id == correlation_id for one in self._asked)

    def _greet(self) -> bytes:
        """Return the first request. Brokers before 0.10 have no ApiVersions, and 0.9 loses requests of other
        connections when it gets one. So Metadata 1 is asked first where these are read: every broker answers it, and
        old ones in the layout of version 0."""
        if not self._reads_old_brokers:
            return self._ask_versions()
        return self.request(METADATA, 1, messages.encode_request(METADATA, 1, topics=[]))[1]

    def _ask_versions(self) -> bytes:
        # Version 0: every server that knows this API has it.
        return self.request(API_VERSIONS, 0)[1]


def _is_in_its_version(answered: Answered) -> bool:
    """Whether an answer has the layout of the version that was asked for. Raises ConnectionFailed if it has that of
    version 0 neither."""
    try:
        messages.decode_response(answered.asked.api_key, answered.asked.api_version, answered.body)
    except WireError:
        answered.asked.api_version = 0
        decode_answer(answered)
        return False
    return True


def decode_answer(answered: Answered) -> Any:
    """Return the decoded answer. Raises ConnectionFailed."""
    try:
        return messages.decode_response(answered.asked.api_key, answered.asked.api_version, answered.body)
    except WireError as error:
        raise ConnectionFailed(f"the answer cannot be read: {error}") from None
