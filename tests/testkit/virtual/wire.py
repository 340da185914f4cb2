"""One end of a virtual connection, as its endpoint sees it: reads once and writes once per pass of its host.

Owns what the kernel holds for an end (bytes that came, bytes that wait) and how it ends. The way between two ends is in
``connection``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from idemproxy.reactor import Buffer, Endpoint

if TYPE_CHECKING:
    from testkit.virtual.connection import Connection, Direction
    from testkit.virtual.network import VirtualReactor

RECEIVE_BYTES_MAX = 64 * 1024
"""What one call of ``received`` carries at most, as the interface says,"""
EXPECTED_BYTES_MAX = 256 * 1024
"""and where it was expected."""
CLOSED = "connection closed by peer"


class VirtualWire:
    """One end. Implements ``idemproxy.reactor.Wire``."""

    def __init__(self, connection: Connection, side: int, host: VirtualReactor, local_host: str) -> None:
        self.connection = connection
        self.side = side
        self.host = host
        self.number = connection.number * 2 + side
        self.is_open = True
        self._local_host = local_host
        self._endpoint: Endpoint | None = None
        self._has_started = False
        self._is_closing = False
        self._is_paused = False
        self._is_posted = False
        self._out: deque[bytes] = deque()
        self._unsent = 0
        self._in: deque[bytes] = deque()
        self._end_reason: str | None = None
        self._may_send: Callable[[], bool] | None = None
        self._look: Callable[[], None] | None = None
        self._written: Callable[[], None] | None = None
        self._end_look: Callable[[], bool] | None = None
        self._has_heard_all = False
        self._expected_bytes = 0
        self._out_way: Direction
        self._in_way: Direction
        host.wires[self.number] = self

    # What idemproxy.reactor asks for.

    @property
    def local_host(self) -> str:
        """The address of our side, as the peer reached it."""
        return self._local_host

    @property
    def unsent(self) -> int:
        """Bytes that were given to ``send`` and that the kernel has not taken yet."""
        return self._unsent

    def send(self, *chunks: Buffer) -> None:
        """Queue bytes. They leave in one write at the end of this pass, in order. After a loss: ignored."""
        if not self.is_open or self._is_closing:
            return
        out = self._out
        for chunk in chunks:
            if chunk:
                out.append(bytes(chunk))  # a copy: what the owner does to its buffer afterwards must not show
                self._unsent += len(chunk)
        self.host.mark_dirty(self)

    def hand_over(self, endpoint: Endpoint) -> None:
        """From now on this endpoint gets the calls."""
        self._endpoint = endpoint

    def fence(self, may_send: Callable[[], bool]) -> None:
        """From now on ask before and after every write."""
        self._may_send = may_send

    def before_reading(self, look: Callable[[], None]) -> None:
        """From now on call this before every read."""
        self._look = look

    def after_writing(self, look: Callable[[], None]) -> None:
        """From now on call this whenever the last queued byte has left."""
        self._written = look

    def before_end(self, look: Callable[[], bool]) -> None:
        """From now on call this before the end that the peer has said."""
        self._end_look = look

    def expect(self, missing_bytes: int) -> None:
        """The next read may take so many bytes."""
        self._expected_bytes = missing_bytes

    def pause(self) -> None:
        """Stop reading. A peer that hangs up is noticed all the same."""
        self._is_paused = True

    def resume(self) -> None:
        """Read again."""
        self._is_paused = False
        self._post()

    def reset(self) -> None:
        """Drop the connection with a TCP reset; queued bytes are discarded. ``lost`` is not called."""
        if self.is_open:
            self._out_way.end("connection reset by peer", truncate=True)
            self._leave()

    def close(self) -> None:
        """Send what is queued, then close. ``lost`` is not called."""
        if self.is_open and not self._is_closing:
            self._is_closing = True
            self._endpoint = None
            self.host.mark_dirty(self)

    # What the network and the tests ask for.

    def half_close(self) -> None:
        """Send nothing more, and read on."""
        self._out_way.end(CLOSED, truncate=False)

    @property
    def is_paused(self) -> bool:
        """Nobody reads here."""
        return self._is_paused

    @property
    def endpoint(self) -> Endpoint | None:
        """What gets the calls, or None when nothing does any more."""
        return self._endpoint

    def join(self, out_way: Direction, in_way: Direction) -> None:
        """These are its ways to and from the peer."""
        self._out_way, self._in_way = out_way, in_way

    def start(self) -> None:
        """Tell the endpoint that the connection is open."""
        if self.is_open and self._endpoint is not None:
            self._has_started = True
            self.host.network.note(self.host.name, f"open {self.connection.number}")
            self._endpoint.connected(self)
            self._post()

    def arrived(self, data: bytes) -> None:
        """The kernel has bytes for us."""
        if self.is_open:
            self._in.append(data)
            if not self._is_posted:
                self._post()

    def ended(self, reason: str, *, at_once: bool = False) -> None:
        """The kernel knows that it is over; the endpoint hears of it after the bytes before, unless at once."""
        if self.is_open and self._end_reason is None:
            if at_once:
                self._in.clear()
                self._out_way.end("connection reset by peer", truncate=True)
            self._end_reason = reason
            self._post()

    def write(self) -> None:
        """End of a pass: hand to the network what it takes, with the fence before and after."""
        if not self.is_open:
            return
        if self._out:
            is_fenced = self._may_send is not None
            if is_fenced and not self._fence_allows():
                return
            taken = self._take()
            if taken:
                self._out_way.carry(taken)
                if self._has_heard_all and not self._out_way.receiver.is_open:
                    self.ended("connection reset by peer")  # it had closed it whole
                if is_fenced and not self._fence_allows():
                    return
                if not self._out and self._written is not None:
                    self._written()
        if not self._out and self._is_closing:
            self._out_way.end(CLOSED, truncate=False)
            self._leave()

    def abandon(self, *, half_open: bool) -> None:
        """Our host has died."""
        if not self.is_open:
            return
        if half_open:
            self.connection.half_open()
        else:
            self._out_way.end("connection reset by peer", truncate=True)
        self._leave()

    def _fence_allows(self) -> bool:
        if self._may_send is None or self._may_send():
            return True
        endpoint = self._endpoint
        self.reset()
        if endpoint is not None:
            endpoint.lost("the fence does not allow sending any more")
        return False

    def _take(self) -> bytes:
        count = min(self._unsent, self._out_way.room_bytes)
        network = self.host.network
        if count > 1 and network.chance(network.settings.partial_write_chance):
            count = network.random.randrange(1, count)
            network.schedule(network.between(network.settings.latency), lambda: self.host.mark_dirty(self))
        data = b"".join(self._out)
        self._out.clear()
        self._unsent -= count
        if count == len(data):
            return data
        self._out.append(data[count:])
        return data[:count]

    def _post(self) -> None:
        if not self._is_posted and self._has_started and self.is_open and (self._in or self._end_reason is not None):
            self._is_posted = True
            self.host.post(self._deliver)

    def _deliver(self) -> None:
        """One pass: at most one ``received``, and ``lost`` when nothing is left to read (or nobody reads)."""
        self._is_posted = False
        if not self.is_open:
            return
        if self._in and not self._is_paused and self._look is not None:
            self._look()
            if not self.is_open:
                return
        if self._in and not self._is_paused:
            data = b"".join(self._in)
            self._in.clear()
            most = max(RECEIVE_BYTES_MAX, min(self._expected_bytes, EXPECTED_BYTES_MAX))
            self._expected_bytes = 0
            if len(data) > most:
                self._in.append(data[most:])
                data = data[:most]
            self._in_way.was_read(len(data))
            self.host.network.note(self.host.name, f"read {self.connection.number}", data)
            if self._endpoint is not None:
                self._endpoint.received(data)
            if not self._in and self._end_reason is None:
                return
        if self._end_reason is not None and (not self._in or self._is_paused) and self.is_open:
            if self._end_reason == CLOSED and self._end_look is not None and not self._in and self._end_look():
                self._end_reason, self._has_heard_all = None, True
                return
            self.host.network.note(self.host.name, f"lost {self.connection.number}")
            endpoint, reason = self._endpoint, self._end_reason
            self._out_way.end("connection reset by peer", truncate=True)
            self._leave()
            if endpoint is not None:
                endpoint.lost(reason)
        elif not self._is_paused or self._end_reason is not None:
            self._post()

    def _leave(self) -> None:
        self.is_open = False
        self._endpoint = None
        self._may_send = self._look = self._written = self._end_look = None
        self._out.clear()
        self._unsent = 0
        self._in.clear()
        self._in_way.discard()
        self.host.wires.pop(self.number, None)
        self.connection.forget()
