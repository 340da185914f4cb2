"""One connection to the virtual Redis server: RESP, login, the order of replies, faults of single commands.

Owns what happens to a command on its way; what commands mean is in ``redis_server``.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING

import hiredis

from idemproxy.reactor import Wire

if TYPE_CHECKING:
    from testkit.virtual.redis import VirtualRedis
    from testkit.virtual.redis_server import RedisServer

Reply = bytes | int | str | None | list[object] | Exception
"""bytes: bulk string; int: integer; str: status line; None: nil; Exception: error line."""


class RedisFault(Enum):
    """What can happen to one command."""

    NONE = auto()
    LOST_REPLY = auto()
    """Executed, then the connection breaks."""
    LOST_COMMAND = auto()
    """The connection breaks, nothing is executed."""
    LATE = auto()
    """The connection breaks; this command and those after it in the socket are executed later."""
    SLOW = auto()
    """Executed now, answered later, and all that follows on this connection as well."""
    REFUSED = auto()
    """A write that is not executed: out of memory, a full disk, too few replicas. Not for reads."""


class ReplyError(Exception):
    """An error line."""


class RedisConnection:
    """One client connection to the server: parsing, authentication, order of replies, faults."""

    def __init__(self, redis: VirtualRedis, server: RedisServer) -> None:
        self._redis = redis
        self._server = server
        self._reader = hiredis.Reader()
        self._wire: Wire | None = None
        self._is_trusted = redis.password is None
        self._answers_from = 0.0
        self._held: list[bytes] = []
        self._watched: dict[bytes, bytes | None] = {}
        """What was stored when the client began to watch. That a value changes and changes back is not noticed."""
        self._queued: list[list[bytes]] | None = None
        """The commands of a transaction that has begun; None: none has."""

    def connected(self, wire: Wire) -> None:
        """The connection is open."""
        self._wire = wire

    def received(self, data: bytes) -> None:
        """Execute every whole command that has arrived."""
        self._reader.feed(data)
        commands = deque[list[bytes]]()
        while (command := self._reader.gets()) is not False:
            commands.append(command)
        while commands and self._wire is not None:
            fault = self._redis.fault_of(commands[0])
            if fault is RedisFault.LATE:
                self._execute_later(list(commands))
                return
            self._one(commands.popleft(), fault)

    def lost(self, reason: str) -> None:
        """The client has gone. What had arrived was executed."""
        self._wire = None

    def _one(self, arguments: list[bytes], fault: RedisFault) -> None:
        network = self._redis.network
        if fault is RedisFault.LOST_COMMAND:
            self._break()
            return
        if fault is RedisFault.REFUSED:
            self._refuse(arguments)
            return
        reply = self._execute(arguments)
        if fault is RedisFault.LOST_REPLY:
            self._break()
            return
        if fault is RedisFault.SLOW:
            self._answers_from = network.now + network.between(self._redis.rates.slow_seconds)
        self._answer(reply)

    def _refuse(self, arguments: list[bytes]) -> None:
        """Execute it on a server that takes no writes just now: a swap that does not fit is answered as ever."""
        server = self._server
        before, server.refuses = server.refuses, server.network.random.choice(("OOM", "MISCONF", "NOREPLICAS"))
        reply = self._execute(arguments)
        server.refuses = before
        self._answer(reply)

    def _execute(self, arguments: list[bytes]) -> Reply:
        name = arguments[0].upper()
        if name == b"AUTH":
            if self._redis.password is None:
                return ReplyError("ERR AUTH <password> called without any password configured for the default user.")
            self._is_trusted = arguments[-1] == self._redis.password
            return "OK" if self._is_trusted else ReplyError("WRONGPASS invalid username-password pair")
        if name == b"HELLO":
            return ReplyError("ERR unknown command 'HELLO'")
        if not self._is_trusted:
            return ReplyError("NOAUTH Authentication required.")
        if name == b"WATCH":
            self._watched |= {key: self._server.get(key) for key in arguments[1:]}
            return "OK"
        if name == b"MULTI":
            self._queued = []
            return "OK"
        if self._queued is None:
            return self._server.execute(arguments)
        if name != b"EXEC":
            self._queued.append(arguments)
            return "QUEUED"
        watched, queued, self._watched, self._queued = self._watched, self._queued, {}, None
        if any(self._server.get(key) != value for key, value in watched.items()):
            return None
        return [self._server.execute(command) for command in queued]

    def _execute_later(self, commands: list[list[bytes]]) -> None:
        """The client learns of a broken connection; its commands lie in the socket and are executed after others'."""
        self._break()
        redis, server = self._redis, self._server

        def execute() -> None:
            if server.host.alive:  # a socket does not survive its process
                for command in commands:
                    redis.network.note("redis", "late", command[0])
                    self._execute(command)

        redis.network.schedule(redis.network.between(redis.rates.late_seconds), execute)

    def _break(self) -> None:
        if self._wire is not None:
            self._wire.reset()
            self._wire = None

    def _answer(self, reply: Reply) -> None:
        data = encode_reply(reply)
        delay = self._answers_from - self._redis.network.now
        if self._held or delay > 0:
            self._held.append(data)
            if len(self._held) == 1:
                self._server.host.later(delay, self._release)
        elif self._wire is not None:
            self._wire.send(data)

    def _release(self) -> None:
        delay = self._answers_from - self._redis.network.now
        if delay > 0:
            self._server.host.later(delay, self._release)
            return
        held, self._held = self._held, []
        if self._wire is not None:
            self._wire.send(*held)


def encode_reply(reply: object) -> bytes:
    """Return the reply as RESP 2."""
    if reply is None:
        return b"$-1\r\n"
    if isinstance(reply, bytes):
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if isinstance(reply, str):
        return b"+%b\r\n" % reply.encode()
    if isinstance(reply, int):
        return b":%d\r\n" % reply
    if isinstance(reply, list):
        return b"*%d\r\n" % len(reply) + b"".join(map(encode_reply, reply))
    assert isinstance(reply, ReplyError)
    return b"-%b\r\n" % str(reply).encode()
