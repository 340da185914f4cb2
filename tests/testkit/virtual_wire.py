"""One virtual connection: two ends, two directions, and every way in which a TCP connection goes wrong.

A direction keeps bytes in order, delays and splits them, can lose a tail when its sender resets or dies, can be cut
after any byte and can swallow everything (half-open). It never reorders, invents or changes bytes: TCP does not either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from idemproxy.reactor import Address, Buffer, Endpoint

if TYPE_CHECKING:
    from testkit.virtual_network import Network, VirtualReactor

RECEIVE_BYTES_MAX = 64 * 1024
"""What one call of ``received`` carries at most, as the interface says."""


class Connection:
    """Both ends and both directions. ``ends[0]`` opened it, ``ends[1]`` accepted it."""

    def __init__(
        self, network: Network, number: int, opener: VirtualReactor, server: VirtualReactor, address: Address
    ) -> None:
        self.number = number
        self.network = network
        self.address = address
        near = VirtualWire(self, 0, opener, opener.name)
        far = VirtualWire(self, 1, server, address[0] if isinstance(address, tuple) else address)
        self.ends = (near, far)
        self.directions = (Direction(network, near, far), Direction(network, far, near))

    @property
    def is_open(self) -> bool:
        """Neither end has ended, nothing is being cut and nothing is swallowed."""
        return all(end.is_open for end in self.ends) and all(way.is_healthy for way in self.directions)

    def cut(self, reason: str = "connection reset by peer", *, late: float = 0.0) -> None:
        """Break it in the middle: what is on its way arrives in part, by the seed; both ends learn of it.

        With ``late`` the opener learns now, and what it had sent arrives whole, but only after so many seconds.
        """
        forward, back = self.directions
        if late:
            forward.hold(late)
        forward.end(reason, truncate=not late)
        back.end(reason, truncate=True)

    def cut_after(self, direction: int, bytes_left: int) -> None:
        """Deliver so many more bytes in one direction (0: from the opener), then break both."""
        self.directions[direction].cut_after = bytes_left

    def half_open(self) -> None:
        """From now on nothing arrives anywhere, and nobody is told; a sender of bytes learns of it by its timeout."""
        for way in self.directions:
            way.swallow()

    def forget(self) -> None:
        """Both ends are gone: the network need not know it any longer."""
        if not any(end.is_open for end in self.ends):
            self.network.connections.pop(self.number, None)


class Direction:
    """Bytes on their way from one end to the other."""

    def __init__(self, network: Network, sender: VirtualWire, receiver: VirtualWire) -> None:
        self.network = network
        self.sender = sender
        self.receiver = receiver
        self.unread_bytes = 0
        """Sent and not yet read by the peer's endpoint."""
        self.bytes_carried = 0
        self.cut_after: int | None = None
        self._in_flight: deque[bytes] = deque()
        self._last_arrival = 0.0
        self._held_until = 0.0
        self._may_arrive_bytes: int | None = None
        self._has_ended = False
        self._swallows = False

    @property
    def is_healthy(self) -> bool:
        """Bytes that are sent now will arrive, as far as anybody knows."""
        return not self._has_ended and not self._swallows

    @property
    def room_bytes(self) -> int:
        """What a write may add before the window is full."""
        return max(0, self.network.settings.window_bytes - self.unread_bytes)

    def carry(self, data: bytes) -> None:
        """Send bytes on their way, in one piece or in several."""
        if self._swallows:
            self._time_out()
            return
        if self._has_ended:
            return
        for watch in self.network.watchers:
            watch(self, data)
        self.unread_bytes += len(data)
        random, settings = self.network.random, self.network.settings
        pieces = [data]
        if len(data) > 1 and self.network.chance(settings.split_chance):
            at = sorted(random.randrange(1, len(data)) for _ in range(random.choice((1, 1, 2, 3))))
            borders = [0, *at, len(data)]
            pieces = [data[start:end] for start, end in pairwise(borders) if end > start]
        for piece in pieces:
            self._in_flight.append(piece)
            self._at_arrival(self._arrive)

    def end(self, reason: str, *, truncate: bool) -> None:
        """The peer learns after what is on its way; with ``truncate`` a tail of that may be lost, by the seed."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._swallows:
            return
        if (
            truncate
            and self._may_arrive_bytes is None
            and self._in_flight
            and self.network.chance(self.network.settings.truncation_chance)
        ):
            self._may_arrive_bytes = self.network.random.randrange(sum(map(len, self._in_flight)))
        self._at_arrival(lambda: self.receiver.ended(reason))

    def discard(self) -> None:
        """Nothing more arrives: the receiver has gone."""
        self._may_arrive_bytes = 0
        self._has_ended = True

    def hold(self, seconds: float) -> None:
        """Let what is on its way arrive that much later."""
        self._held_until = self.network.now + seconds

    def swallow(self) -> None:
        """Half-open from now on; bytes on their way are lost as well."""
        if self._has_ended or self._swallows:
            return
        self._swallows = True
        self._may_arrive_bytes = 0
        if self._in_flight:
            self._time_out()

    def was_read(self, count: int) -> None:
        """The receiver has taken bytes: there is room for more."""
        self.unread_bytes -= count
        if self.sender.unsent:
            self.sender.host.mark_dirty(self.sender)

    def _at_arrival(self, callback: Callable[[], None]) -> None:
        settings = self.network.settings
        at = max(self._last_arrival, self.network.now + self.network.between(settings.latency))
        self._last_arrival = at
        self.network.schedule(at - self.network.now, lambda: self._unless_held(callback))

    def _unless_held(self, callback: Callable[[], None]) -> None:
        if self.network.now < self._held_until:
            self.network.schedule(self._held_until - self.network.now, callback)
        else:
            callback()

    def _arrive(self) -> None:
        data = self._in_flight.popleft()
        if self._may_arrive_bytes is not None:
            data = data[: self._may_arrive_bytes]
            self._may_arrive_bytes -= len(data)
        if self.cut_after is not None and len(data) >= self.cut_after:
            data = data[: self.cut_after]
            self.cut_after = None
            self._may_arrive_bytes = 0
            self._deliver(data)
            self.receiver.connection.cut()
            return
        if self.cut_after is not None:
            self.cut_after -= len(data)
        self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        if data:
            self.bytes_carried += len(data)
            self.receiver.arrived(data)

    def _time_out(self) -> None:
        self.network.schedule(
            self.network.settings.user_timeout, lambda: self.sender.ended("connection timed out", at_once=True)
        )


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
        for chunk in chunks:
            data = bytes(chunk)  # a copy: what the owner does to its buffer afterwards must not show
            if data:
                self._out.append(data)
                self._unsent += len(data)
        self.host.mark_dirty(self)

    def fence(self, may_send: Callable[[], bool]) -> None:
        """From now on ask before and after every write."""
        self._may_send = may_send

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

    # What the network asks for.

    @property
    def endpoint(self) -> Endpoint | None:
        """Who is told, or None when nobody is any more."""
        return self._endpoint

    @property
    def _out_way(self) -> Direction:
        return self.connection.directions[self.side]

    @property
    def _in_way(self) -> Direction:
        return self.connection.directions[1 - self.side]

    def attach(self, endpoint: Endpoint) -> None:
        """This one is told."""
        self._endpoint = endpoint

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
        if self._out and not self._fence_allows():
            return
        taken = self._take()
        if taken:
            self._out_way.carry(taken)
            if not self._fence_allows():
                return
        if not self._out and self._is_closing:
            self._out_way.end("connection closed by peer", truncate=False)
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
        room = self._out_way.room_bytes if self._out_way.is_healthy else self._unsent
        count = min(self._unsent, room)
        network = self.host.network
        if count > 1 and network.chance(network.settings.partial_write_chance):
            count = network.random.randrange(1, count)
            network.schedule(network.between(network.settings.latency), lambda: self.host.mark_dirty(self))
        data = b"".join(self._out) if len(self._out) > 1 else (self._out[0] if self._out else b"")
        self._out.clear()
        if count < len(data):
            self._out.append(data[count:])
        self._unsent -= count
        return data[:count]

    def _post(self) -> None:
        if self._has_started and self.is_open and not self._is_posted and (self._in or self._end_reason is not None):
            self._is_posted = True
            self.host.post(self._deliver)

    def _deliver(self) -> None:
        """One pass: at most one ``received``, and ``lost`` when nothing is left to read (or nobody reads)."""
        self._is_posted = False
        if not self.is_open:
            return
        if self._in and not self._is_paused:
            data = b"".join(self._in)
            self._in.clear()
            if len(data) > RECEIVE_BYTES_MAX:
                self._in.append(data[RECEIVE_BYTES_MAX:])
                data = data[:RECEIVE_BYTES_MAX]
            self._in_way.was_read(len(data))
            self.host.network.note(self.host.name, f"read {self.connection.number}", data)
            if self._endpoint is not None:
                self._endpoint.received(data)
        if self._end_reason is not None and (not self._in or self._is_paused) and self.is_open:
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
        self._out.clear()
        self._unsent = 0
        self._in.clear()
        self._in_way.discard()
        self.host.wires.pop(self.number, None)
        self.connection.forget()
