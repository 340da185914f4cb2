"""One virtual connection: two ends, two directions, and every way in which a TCP connection goes wrong.

A direction keeps bytes in order, delays and splits them, can lose a tail when its sender resets or dies, can be cut
after any byte and can swallow everything (half-open). It never reorders, invents or changes bytes: TCP does not either.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from idemproxy.reactor import Address
from testkit.virtual.wire import VirtualWire

if TYPE_CHECKING:
    from testkit.virtual.network import Network, VirtualReactor


class FramePart(Enum):
    """Where in the next frame a connection breaks."""

    BEFORE = "before the frame"
    SIZE = "in the size"
    HEADER = "in the header"
    BODY = "in the body"
    LAST_BYTE = "before the last byte"
    BEHIND = "behind the frame"


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
        forward, back = Direction(network, near, far), Direction(network, far, near)
        self.directions = (forward, back)
        near.join(forward, back)
        far.join(back, forward)

    @property
    def is_open(self) -> bool:
        """Neither end has ended, nothing is being cut and nothing is swallowed."""
        return all(end.is_open for end in self.ends) and all(route.is_healthy for route in self.directions)

    def cut(self, reason: str = "connection reset by peer", *, late: float = 0.0) -> None:
        """Break it in the middle: what is on its way arrives in part, by the seed; both ends learn of it.

        With ``late`` the opener learns now, and what it had sent arrives whole, but only after so many seconds.
        """
        forward, back = self.directions
        if late:
            forward.hold(late)
        forward.end(reason, truncate=not late)
        back.end(reason, truncate=True)

    def strand(self, seconds: float) -> None:
        """The opener learns now that it is broken; what it had sent arrives so much later, and that it has gone never
        does: something on the way held the bytes and lost all the rest."""
        forward, back = self.directions
        forward.hold(seconds)
        forward.end_unseen()
        back.swallow()
        self.ends[0].ended("connection reset by peer", at_once=True)

    def cut_after(self, direction: int, bytes_left: int) -> None:
        """Deliver so many more bytes in one direction (0: from the opener), then break both."""
        self.directions[direction].cut_after = bytes_left

    def cut_next_frame(self, direction: int, part: FramePart) -> None:
        """Break both directions at this place of what is written next in one of them (0: by the opener)."""
        self.directions[direction].cut_part = part

    def half_open(self) -> None:
        """From now on nothing arrives anywhere, without any notice; a sender of bytes learns of it by its timeout, and
        an opener that keeps its connections alive by their silence."""
        for route in self.directions:
            route.swallow()
        opener = self.ends[0]
        if opener.host.keeps_alive:
            seconds = self.network.settings.keepalive_seconds
            self.network.schedule(seconds, lambda: opener.ended("connection timed out", at_once=True))

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
        self.offered_bytes = 0
        """All that its sender has written, whether or not it arrives."""
        self.offered_at = 0.0
        """When its sender wrote last."""
        self.arrived_at = 0.0
        """When bytes arrived last."""
        self.cut_after: int | None = None
        self.cut_part: FramePart | None = None
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
    def is_delivering(self) -> bool:
        """Bytes are on their way and will arrive, whether or not their sender is still there."""
        return bool(self._in_flight) and self._may_arrive_bytes != 0

    @property
    def room_bytes(self) -> int:
        """What a write may add before the window is full; what nobody will read needs no room."""
        if not self.is_healthy:
            return sys.maxsize
        return max(0, self.network.settings.window_bytes - self.unread_bytes)

    def carry(self, data: bytes) -> None:
        """Send bytes on their way, in one piece or in several."""
        self.offered_bytes += len(data)
        self.offered_at = self.network.now
        if self._swallows:
            self._time_out()
            return
        if self._has_ended:
            return
        network, size = self.network, len(data)
        for watch in network.watchers:
            watch(self, data)
        if self.cut_part is not None:
            self._cut_in(data)
        self.unread_bytes += size
        if size > 1 and network.chance(network.settings.split_chance):
            random = network.random
            at = sorted(random.randrange(1, size) for _ in range(random.choice((1, 1, 2, 3))))
            pieces = [data[start:end] for start, end in pairwise([0, *at, size]) if end > start]
        else:
            pieces = [data]
        for piece in pieces:
            self._in_flight.append(piece)
            self._at_arrival(self._arrive)

    def _cut_in(self, data: bytes) -> None:
        """What is written is a frame, or begins with one: it arrives up to the chosen place of it."""
        random, part, size = self.network.random, self.cut_part, len(data)
        places = {
            FramePart.BEFORE: 0,
            FramePart.SIZE: random.randrange(1, 4),
            FramePart.HEADER: random.randrange(4, 14),
            FramePart.BODY: random.randrange(14, max(15, size)),
            FramePart.LAST_BYTE: size - 1,
            FramePart.BEHIND: size,
        }
        assert part is not None
        self.cut_part = None
        self.cut_after = sum(map(len, self._in_flight)) + min(places[part], size)

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

    def end_unseen(self) -> None:
        """Nothing more is sent, and the peer never learns of it."""
        self._has_ended = True

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
        network = self.network
        now = network.now
        at = self._last_arrival = max(self._last_arrival, now + network.between(network.settings.latency))
        network.schedule(at - now, partial(self._unless_held, callback))

    def _unless_held(self, callback: Callable[[], None]) -> None:
        if self.network.now < self._held_until:
            self.network.schedule(self._held_until - self.network.now, callback)
        else:
            callback()

    def _arrive(self) -> None:
        data = self._in_flight.popleft()
        self.arrived_at = self.network.now
        if self._may_arrive_bytes is None and self.cut_after is None:
            self.receiver.arrived(data)
            return
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
            self.receiver.arrived(data)

    def _time_out(self) -> None:
        self.network.schedule(
            self.network.settings.user_timeout, lambda: self.sender.ended("connection timed out", at_once=True)
        )
