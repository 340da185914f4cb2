"""The login at Redis, as a layer over any reactor: a connection through it begins with the login, and other credentials
can be set at any time, for the next connection. Sans-IO."""

from __future__ import annotations

from ...reactor import Address, Endpoint, Reactor, Wire
from ...state.redis_facts import RedisAddress
from ...state.redis_link import pack

_OK = b"+OK\r\n"


class OverRedisLogin:
    """A reactor's clock and timers, and connections that begin with a login."""

    def __init__(self, reactor: Reactor, login: RedisAddress) -> None:
        """``login``: user name and password; without a password nothing is sent."""
        self.now = reactor.now
        self.later = reactor.later
        self.at_flush = reactor.at_flush
        self._reactor = reactor
        self._login = login

    def replace(self, login: RedisAddress) -> None:
        """Log in with this from the next connection on."""
        self._login = login

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        """Open a connection; ``connected`` is called once the login is on its way."""
        name, password = self._login.username, self._login.password
        if password is not None:
            command = pack(b"AUTH", *((name.encode(),) if name else ()), password.encode())
            endpoint = _LoginFirst(command, endpoint)
        self._reactor.connect(address, endpoint)


class _LoginFirst:
    """Takes the OK out of Redis's answers. A refusal is left there: it takes the place of the answer to the first
    command, and says why there will be none."""

    def __init__(self, command: bytes, endpoint: Endpoint) -> None:
        self._command = command
        self._endpoint = endpoint
        self._is_answered = False
        self._begun = b""

    def connected(self, wire: Wire) -> None:
        """The connection is open."""
        wire.send(self._command)
        self._endpoint.connected(wire)

    def received(self, data: bytes) -> None:
        """Hand on everything but the OK."""
        if self._is_answered:
            self._endpoint.received(data)
            return
        self._begun += data
        if len(self._begun) < len(_OK) and _OK.startswith(self._begun):
            return
        self._is_answered = True
        if rest := self._begun.removeprefix(_OK):
            self._endpoint.received(rest)
        self._begun = b""

    def lost(self, reason: str) -> None:
        """The connection ended, or could not be opened."""
        self._endpoint.lost(reason)
