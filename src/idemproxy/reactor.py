"""The border between what decides and what moves bytes: typing only, nothing runs here.

An endpoint is sans-IO: it gets what arrived and says what shall leave. A reactor owns sockets and the clock. The real
one is ``proxy/net/event_loop.py``; the simulation has another one on a virtual network and clock, under these same
names."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview
Address = tuple[str, int] | str
"""(host, port), or the path of a unix socket."""


class Timer(Protocol):
    """A callback that will be called once, unless it is cancelled."""

    def cancel(self) -> None:
        """Do not call it. Calling this twice, or after the callback, does nothing."""
        ...


class Wire(Protocol):
    """One open connection, as its endpoint sees it."""

    @property
    def local_host(self) -> str:
        """The address of our side, as the peer reached it."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes that were given to ``send`` and that the kernel has not taken yet."""
        ...

    def send(self, *chunks: Buffer) -> None:
        """Queue bytes. They leave in order, in one write at the end of this pass. Ignored after the connection was
        lost."""
        ...

    def hand_over(self, endpoint: Endpoint) -> None:
        """Deliver the connection's events to this endpoint from now on. ``connected`` is not called: the caller passes
        the wire on itself."""
        ...

    def fence(self, may_send: Callable[[], bool]) -> None:
        """From now on call this before and after every write. False resets the connection, and the endpoint's ``lost``
        is called (rule R4)."""
        ...

    def before_reading(self, look: Callable[[], None]) -> None:
        """From now on call this before every read: it may pause the connection, or end it."""
        ...

    def after_writing(self, look: Callable[[], None]) -> None:
        """From now on call this whenever the last queued byte has left."""
        ...

    def before_end(self, look: Callable[[], bool]) -> None:
        """From now on call this when the peer says that it sends nothing more (FIN). True: the connection stays open
        for what is still to be sent, and ``lost`` follows only if the peer resets it. False: it has ended."""
        ...

    def expect(self, missing_bytes: int) -> None:
        """So many bytes are missing of the one message that has begun to arrive: the next read may take more at once
        than usual, but then no byte beyond the message. Holds for that read only."""
        ...

    def pause(self) -> None:
        """Stop reading. A peer that closes the connection is noticed all the same (rule R17); real sockets then deliver
        what it had sent before (rule R16)."""
        ...

    def resume(self) -> None:
        """Read again."""
        ...

    def reset(self) -> None:
        """Drop the connection with a TCP reset; queued bytes are discarded. ``lost`` is not called."""
        ...

    def close(self) -> None:
        """Send what is queued, then close. ``lost`` is not called."""
        ...


class Endpoint(Protocol):
    """One side of one connection: sans-IO, called only from inside the reactor's pass."""

    def connected(self, wire: Wire) -> None:
        """The connection is open."""
        ...

    def received(self, data: bytes) -> None:
        """Bytes arrived: at least one, at most 64 KiB, or 256 KiB of what was expected."""
        ...

    def lost(self, reason: str) -> None:
        """The connection ended, or could not be opened. Called at most once, nothing is called after it."""
        ...


class Peer(NamedTuple):
    """Who connected to a listener. ``host``: its address. ``server_name``: what the client asked for in TLS (SNI), in
    lower case; ``principal``: the subject of its certificate. Both None where there is none. ``admitted``: what the
    connection quotas keep of the connection; only passed on."""

    host: str
    server_name: str | None = None
    principal: str | None = None
    admitted: object = None


Accept = Callable[[Peer], Endpoint | None]
"""Gives the endpoint of a new connection, or None to refuse it."""


class Reactor(Protocol):
    """Clock, timers and connections. Everything is called back in one thread, one thing after the other."""

    def now(self) -> float:
        """Seconds on a clock that never jumps back and also runs while the machine sleeps (CLOCK_BOOTTIME)."""
        ...

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call back once, not before so many seconds have passed."""
        ...

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        """Open a connection; ``endpoint.connected`` or ``endpoint.lost`` follows, never from inside this call."""
        ...

    def at_flush(self, callback: Callable[[], None]) -> None:
        """Call back once at the end of this pass, before the bytes leave: there batches are put together."""
        ...
