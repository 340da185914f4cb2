"""One ordered connection to Redis, shared by many callers: commands out, replies matched first in, first out. Sans-IO.

All commands of one pass leave as one piece of bytes. A command that is not answered in time ends the connection and all
that waits on it: a Redis that hangs must not be trusted, and what it does later is fenced by versions and by the
registration of the sender. Decides nothing: a reply is handed on as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import hiredis

from ..reactor import Reactor, Timer, Wire
from .store import NameCheck, StoreAway, partition_index_of

REPLY_SECONDS_MAX = 2.0
"""A command that is unanswered for this long, and a connection that is not open by then, is unrecoverable."""
REPLY_BYTES_MAX = 1024 * 1024
"""Bytes of one unfinished reply. A value has a few hundred, INFO some thousand; more means that the stream is
broken."""


class ReplyError(Exception):
    """An error reply of Redis. It is handed on as a value, never raised."""

    @property
    def text(self) -> str:
        """The whole line, code first, cut to a length that fits into a log."""
        return str(self)[:256]

    @property
    def code(self) -> str:
        """Its first word. The error of a command in a script may have its code further on: see ``mentions``."""
        return self.text.partition(" ")[0]

    def mentions(self, code: str) -> bool:
        """Tell whether the code stands anywhere in the line."""
        return code in self.text.replace("-", " ").split()


Reply = bytes | int | float | list[object] | dict[object, object] | bool | ReplyError | None
Answered = Callable[[Reply | StoreAway], None]

_UNFINISHED = object()


def pack(*parts: bytes) -> bytes:
    """Return one command in RESP. The swap, the hot one, is put together by ``SwapCommand``."""
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


class SwapCommand:
    """The EVALSHA of one loaded swap script: what does not change from call to call is encoded once."""

    __slots__ = ("_head", "_member_key", "_middle", "_registered", "_sha", "_tail", "_ttl_ms")

    def __init__(self, sha: bytes, member_key: bytes, registered: bytes) -> None:
        """``member_key``: of the sender's registration; unless its value is ``registered`` the swap is refused."""
        assert len(sha) == 40
        self._sha, self._member_key = sha, member_key
        self._head = b"*9\r\n$7\r\nEVALSHA\r\n$40\r\n" + sha + b"\r\n$1\r\n2\r\n$"
        self._middle = b"\r\n$%d\r\n%b\r\n$8\r\n" % (len(member_key), member_key)
        self.renew(registered)

    def renew(self, registered: bytes) -> None:
        """From now on the registration has another value: a command that writes it was sent before."""
        self._registered = registered
        self._ttl_ms: int | None = None
        self._tail = b""

    def pack(self, key: bytes, expected_version: int, value: bytes, ttl_ms: int) -> bytes:
        """Return the bytes of one swap. ``expected_version`` 0: the key has to be absent. ``ttl_ms`` 0: no expiry."""
        if ttl_ms != self._ttl_ms:  # nearly always one of two: none, and the setting
            text, registered = b"%d" % ttl_ms, self._registered
            self._ttl_ms = ttl_ms
            self._tail = b"\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(text), text, len(registered), registered)
        version = expected_version.to_bytes(8, "big")
        return b"%b%d\r\n%b%b%b\r\n$%d\r\n%b%b" % (
            self._head,
            len(key),
            key,
            self._middle,
            version,
            len(value),
            value,
            self._tail,
        )

    def pack_named(self, key: bytes, expected_version: int, value: bytes, ttl_ms: int, name: NameCheck) -> bytes:
        """Return the bytes of one swap that compares the newest instance of a name as well (rule R22)."""
        assert ttl_ms > 0, "what belongs to a name expires with it"
        version, ttl = expected_version.to_bytes(8, "big"), b"%d" % ttl_ms
        keys = key, self._member_key, name.key, name.index, partition_index_of(key)
        values = version, value, ttl, self._registered, name.newest, b"%d" % name.until_ms
        return pack(b"EVALSHA", self._sha, b"5", *keys, *values)


def _nobody_to_open_for() -> None:
    """Nothing to do: the link has ended before it opened."""


def _nobody_to_tell(_reason: str) -> None:
    """Nothing to do: the link has ended."""


class RedisLink:
    """One connection: an Endpoint of ``reactor.py``. It is connected once, ends once, and is not used again."""

    def __init__(self, reactor: Reactor, opened: Callable[[], None], ended: Callable[[str], None]) -> None:
        """``ended`` is called once, with the reason, before the waiting callers get StoreAway; not after ``close``."""
        self.measure: Callable[[float], None] | None = None
        """Called for each write with the seconds until the last command in it was answered."""
        self._reactor = reactor
        self._opened = opened
        self._ended = ended
        self._reader = hiredis.Reader(replyError=ReplyError, notEnoughData=_UNFINISHED)
        self._wire: Wire | None = None
        self._is_over = False
        self._pending: deque[Answered] = deque()
        self._outgoing: list[bytes] = []
        self._issued = 0
        self._answered = 0
        self._marks: deque[tuple[float, int]] = deque()
        self._watchdog: Timer = reactor.later(REPLY_SECONDS_MAX, self._watch)

    def call(self, command: bytes, answered: Answered) -> None:
        """Send a packed command with this pass. ``answered`` gets the reply, or StoreAway if the link ends first."""
        assert self._wire is not None, "a link is used only while it is open"
        assert not self._is_over, "a link is used only while it is open"
        if not self._outgoing:
            self._reactor.at_flush(self._flush)
        self._outgoing.append(command)
        self._pending.append(answered)

    def reset(self, reason: str) -> None:
        """Reset the connection now. Every waiting caller gets StoreAway."""
        if not self._is_over:
            if self._wire is not None:
                self._wire.reset()
            self._end(reason)

    def close(self) -> None:
        """Close once all is sent, without calling ``ended``. For the end of the process, when no caller waits any
        more."""
        assert not self._pending, "somebody still waits"
        self._is_over = True
        self._watchdog.cancel()
        if self._wire is not None:
            self._wire.close()

    # ------------------------------------------------------------------ Endpoint
    def connected(self, wire: Wire) -> None:
        """The connection is open."""
        if self._is_over:  # unrecoverable while it was being opened
            wire.reset()
            return
        self._wire = wire
        self._opened()

    def received(self, data: bytes) -> None:
        """Pass every complete reply to the caller that waits longest."""
        reader, pending = self._reader, self._pending
        reader.feed(data)
        while not self._is_over:
            try:
                reply = reader.gets()
            except Exception as error:  # hiredis raises several kinds, MemoryError among them
                self.reset(f"Redis sent something that is no reply: {type(error).__name__} {error}")
                return
            if reply is _UNFINISHED:
                break
            if not pending:
                self.reset("Redis answered something that nobody asked for")
                return
            self._answered += 1
            pending.popleft()(reply)
        marks, measure = self._marks, self.measure
        now = self._reactor.now() if measure is not None else 0.0
        while marks and marks[0][1] <= self._answered:
            sent_at, _ = marks.popleft()
            if measure is not None:
                measure(now - sent_at)
        if reader.len() > REPLY_BYTES_MAX:
            self.reset(f"Redis sent a reply of more than {REPLY_BYTES_MAX} bytes")

    def lost(self, reason: str) -> None:
        """The connection ended, or was never opened."""
        if not self._is_over:
            self._end(reason)

    # ------------------------------------------------------------------ inside
    def _flush(self) -> None:
        if self._is_over or self._wire is None:
            return
        self._issued += len(self._outgoing)
        self._marks.append((self._reactor.now(), self._issued))
        self._wire.send(b"".join(self._outgoing))
        self._outgoing.clear()

    def _watch(self) -> None:
        if self._wire is None:
            self.reset(f"no connection within {REPLY_SECONDS_MAX:g} s")
            return
        now = self._reactor.now()
        due = self._marks[0][0] + REPLY_SECONDS_MAX if self._marks else now + REPLY_SECONDS_MAX
        if due <= now:
            self.reset(f"no answer within {REPLY_SECONDS_MAX:g} s")
        else:
            self._watchdog = self._reactor.later(due - now, self._watch)

    def _end(self, reason: str) -> None:
        self._is_over = True
        self._watchdog.cancel()
        self._outgoing.clear()
        pending, self._pending = self._pending, deque()
        away = StoreAway(reason)
        failure: Exception | None = None
        ended = self._ended
        # Otherwise the link and its callbacks would refer to each other.
        self._opened, self._ended = _nobody_to_open_for, _nobody_to_tell
        try:
            ended(reason)
        except Exception as error:
            failure = error
        while pending:  # all of them are called, even if one raises
            try:
                pending.popleft()(away)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
