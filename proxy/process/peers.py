"""What listens at an address that takes connections and does not answer as a broker, or as Redis: one look, over two
connections. Sans-IO. Changes nothing there: neither question is a command that any of these servers executes.

ZooKeeper answers ``srvr``, one of its four-letter words (alone allowed by default since 3.5.3), Redis refuses it as an
unknown command, and an HTTP server as a bad request. A broker takes it for the size of a request that is too large and
closes the connection, so it is asked for its API versions over another one."""

from __future__ import annotations

from collections.abc import Callable

from ...codecs.framing import frame
from ...codecs.headers import encode_request_header
from ...reactor import Address, Reactor, Wire
from .. import limits
from ..versions import ApiKey

BROKER, REDIS, ZOOKEEPER, HTTP, TLS = (
    "a Kafka broker",
    "Redis",
    "ZooKeeper",
    "an HTTP server",
    "a server that wants TLS",
)
_NO_ANSWER = (
    "no answer",
    "the peer closed the connection",
    "the peer hung up",
    "cannot receive: Connection reset by peer",
    "Redis sent something that is no reply",
    "Redis answered something that nobody asked for",
)
"""How the reason begins where a connection was taken that ends without the right answer."""
_WORD = b"srvr\r\n"
_CORRELATION_ID = 0x69_64_65_6D
_API_VERSIONS = frame(encode_request_header(ApiKey.API_VERSIONS, 0, _CORRELATION_ID, "idemproxy-look"))
_ZOOKEEPER_SAYS = (
    b"Zookeeper version",
    b"This ZooKeeper instance is not currently serving requests",
    b"srvr is not executed because it is not in the whitelist",
)
_REDIS_SAYS = (b"-ERR unknown command", b"-NOAUTH", b"-DENIED", b"-LOADING", b"-NOPERM")
_HTML = (b"<!doctype html", b"<html")
"""Some HTTP servers take the word for a request of HTTP 0.9, and answer without a status line."""
_TLS_ALERT = b"\x15\x03"
_HEARD_BYTES_MAX = 4096


def is_no_answer(reason: str) -> bool:
    """Did something take the connection, and not answer as it should? Then it is worth a look what it is."""
    return reason.removeprefix("Redis is away: ").startswith(_NO_ANSWER) and "TLS handshake" not in reason


def reported(kind: str, wanted: str) -> str:
    """Return the error message for a peer of this kind where ``wanted`` should listen; empty: nothing."""
    if kind in ("", wanted):
        return ""
    if kind == TLS:  # it may well be what is wanted
        setting = "redis.tls" if wanted == REDIS else "upstream.tls"
        return f"TLS is spoken there: set {setting}, or name another address"
    return f"{kind} listens there, not {wanted}: name another address"


def kind_of(heard: bytes) -> str:
    """Return what answered so, empty: that cannot be said."""
    if any(text in heard for text in _ZOOKEEPER_SAYS):
        return ZOOKEEPER
    if heard.startswith(_REDIS_SAYS):
        return REDIS
    if heard.startswith(b"HTTP/") or heard.lower().startswith(_HTML):
        return HTTP
    if heard.startswith(_TLS_ALERT):
        return TLS
    return BROKER if heard[4:8] == _CORRELATION_ID.to_bytes(4, "big") else ""


class PeerLook:
    """One look at one address; ``done`` is called once, with what listens there; "": that cannot be said."""

    def __init__(self, reactor: Reactor, address: Address, done: Callable[[str], None]) -> None:
        self._reactor = reactor
        self._address = address
        self._done = done
        _Asked(reactor, address, _WORD, self._first)

    def _first(self, heard: bytes) -> None:
        kind = kind_of(heard)
        if kind or heard:
            self._done(kind)
        else:
            _Asked(self._reactor, self._address, _API_VERSIONS, lambda heard: self._done(kind_of(heard)))


class _Asked:
    """One question over one connection; ``done`` gets the beginning of the answer, empty: there was none in time."""

    def __init__(self, reactor: Reactor, address: Address, question: bytes, done: Callable[[bytes], None]) -> None:
        self._question = question
        self._done = done
        self._heard = b""
        self._wire: Wire | None = None
        self._is_over = False
        reactor.later(limits.PEER_LOOK_SECONDS, self._end)
        reactor.connect(address, self)

    def connected(self, wire: Wire) -> None:
        """The connection is open."""
        if self._is_over:
            wire.reset()
            return
        self._wire = wire
        wire.send(self._question)

    def received(self, data: bytes) -> None:
        """Bytes of the answer."""
        self._heard = (self._heard + data)[:_HEARD_BYTES_MAX]
        if kind_of(self._heard):
            self._end()

    def lost(self, _reason: str) -> None:
        """The connection ended, or could not be opened."""
        self._wire = None
        self._end()

    def _end(self) -> None:
        if not self._is_over:
            self._is_over = True
            if self._wire is not None:
                self._wire.reset()
            self._done(self._heard)
