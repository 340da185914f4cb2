"""One client connection of the relay and the upstream connection that belongs to it, with the fault that may hit them.

Moves frames between two non-blocking sockets; the relay decides which produce request is hit and keeps the counts.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from .relay_frames import (
    FIND_COORDINATOR,
    METADATA,
    PRODUCE,
    FrameBuffer,
    NotKafka,
    correlation_of,
    request_head,
    rewrite_addresses,
    scan_produce,
)

READ_BYTES = 256 << 10
UNSENT_BYTES_MAX = 4 << 20
"""Above this the other side is not read any more."""
LATE_SECONDS = 0.3
SLOW_SECONDS = 0.05
_HALF_SECONDS = 0.005  # half a request must have left us before the reset, which discards what is queued
_LATE_ANSWER_SECONDS_MAX = 10.0
_RESET = struct.pack("ii", 1, 0)


class FaultKind(StrEnum):
    """What can be done to a produce request that is not answered yet."""

    LOST_ANSWER = "lost_answer"
    """Delivered whole; its answer is swallowed and both connections are reset."""
    CUT = "cut"
    """Both connections are reset while it is unanswered; whether it was executed is left to chance."""
    HALF_REQUEST = "half_request"
    """Half of it is delivered, then both connections are reset."""
    LATE_DELIVERY = "late_delivery"
    """The client's connection is reset at once; the request is delivered 300 ms later."""
    SLOW_ANSWER = "slow_answer"
    """Its answer, and what follows on the connection, comes 50 ms later."""


class _Side:
    """One socket with what could not be written yet."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.queue: deque[memoryview] = deque()
        self.unsent_bytes = 0
        self.frames = FrameBuffer()
        self.connecting = False
        self.at_end = False
        self.end_passed_on = False
        self.closed = False

    def write(self) -> None:
        """Give the kernel what it takes. Raises OSError."""
        while self.queue:
            chunk = self.queue[0]
            try:
                sent = self.socket.send(chunk)
            except BlockingIOError:
                return
            self.unsent_bytes -= sent
            if sent < len(chunk):
                self.queue[0] = chunk[sent:]
                return
            self.queue.popleft()

    def close(self, *, with_reset: bool) -> None:
        if not self.closed:
            self.closed = True
            if with_reset:
                with contextlib.suppress(OSError):
                    self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.socket.close()


class Relay(Protocol):
    """What a link needs of its relay; called in the relay's thread only."""

    rewrites_addresses: bool

    def later(self, seconds: float, callback: Callable[[], None]) -> None: ...

    def watch(self, connection: socket.socket, events: int, callback: Callable[[int], None]) -> None: ...

    def saw_request(self, api_key: int, version: int) -> None: ...

    def saw_producers(self, producer_ids: tuple[int, ...]) -> None: ...

    def choose_fault(self) -> FaultKind | None: ...

    def fault_happened(self, kind: FaultKind) -> None: ...

    def fault_missed(self) -> None: ...

    def cut_delay_seconds(self) -> float: ...

    def translate(self, host: str, port: int) -> tuple[str, int]: ...

    def ended(self, link: Link) -> None: ...


class Link:
    """A client, its upstream, and the requests between them that the relay cares about."""

    def __init__(self, relay: Relay, connection: socket.socket, upstream: tuple[str, int]) -> None:
        self._relay = relay
        self._client = _Side(connection)
        self._upstream = _Side(socket.socket())
        self._unanswered: dict[int, tuple[int, int]] = {}
        self._fault: FaultKind | None = None
        self._fault_correlation = 0
        self._held: list[bytes] | None = None
        self._half_sent = False
        self._client_is_cut = False
        for side in (self._client, self._upstream):
            side.socket.setblocking(False)
            side.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._upstream.connecting = True
        try:
            self._upstream.socket.connect(upstream)
        except BlockingIOError:
            pass
        except OSError:
            relay.later(0, self.reset)
            return
        self._watch()

    def reset(self) -> None:
        """Drop both connections with TCP resets."""
        if self._client.closed and self._upstream.closed:
            return
        if self._fault is not None:
            self._relay.fault_missed()
            self._fault = None
        self._close(with_reset=True)

    # Sockets

    def _close(self, *, with_reset: bool) -> None:
        for side in (self._client, self._upstream):
            if not side.closed:
                self._relay.watch(side.socket, 0, self._on_client)
                side.close(with_reset=with_reset)
        self._relay.ended(self)

    def _watch(self) -> None:
        """Ask for the events that matter now: reads stop while the other side does not take what was read."""
        client, upstream = self._client, self._upstream
        if not client.closed:
            reads = not client.at_end and upstream.unsent_bytes < UNSENT_BYTES_MAX and not self._half_sent
            events = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if client.queue else 0)
            self._relay.watch(client.socket, events, self._on_client)
        if not upstream.closed:
            reads = not upstream.at_end and client.unsent_bytes < UNSENT_BYTES_MAX and not upstream.connecting
            writes = upstream.connecting or bool(upstream.queue)
            events = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)
            self._relay.watch(upstream.socket, events, self._on_upstream)

    def _on_client(self, events: int) -> None:
        self._on_event(self._client, events)

    def _on_upstream(self, events: int) -> None:
        if self._upstream.connecting:
            if self._upstream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self.reset()
                return
            self._upstream.connecting = False
        self._on_event(self._upstream, events)

    def _on_event(self, side: _Side, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                side.write()
            if events & selectors.EVENT_READ:
                data = side.socket.recv(READ_BYTES)
                side.at_end = not data
                for frame in side.frames.feed(data):
                    if side.closed:
                        break
                    if side is self._client:
                        self._request(frame)
                    else:
                        self._answer(frame)
            if not self._upstream.closed:
                self._pass_on_ends()
        except BlockingIOError:
            pass
        except (OSError, NotKafka):
            self.reset()
            return
        self._watch()

    def _pass_on_ends(self) -> None:
        """A side that ended in order ends the other in order, once all that it sent has left."""
        client, upstream = self._client, self._upstream
        if upstream.at_end and not client.queue and not self._held:
            if self._fault is not None:
                self._relay.fault_missed()
                self._fault = None
            self._close(with_reset=False)
        elif client.at_end and not upstream.queue and not upstream.connecting and not client.end_passed_on:
            client.end_passed_on = True
            upstream.socket.shutdown(socket.SHUT_WR)

    def _send(self, side: _Side, data: bytes | memoryview) -> None:
        if side.closed:
            return
        chunk = memoryview(data)
        side.queue.append(chunk)
        side.unsent_bytes += len(chunk)
        if not side.connecting and len(side.queue) == 1:
            side.write()

    # Frames

    def _request(self, frame: bytes) -> None:
        if self._half_sent:
            return  # nothing may follow half a request
        relay = self._relay
        api_key, version, correlation_id = request_head(frame)
        relay.saw_request(api_key, version)
        if api_key == PRODUCE:
            facts = scan_produce(frame, version)
            relay.saw_producers(facts.producer_ids)
            if facts.acks != 0:
                self._unanswered[correlation_id] = (api_key, version)
                kind = relay.choose_fault() if self._fault is None else None
                if kind is not None:
                    self._fault, self._fault_correlation = kind, correlation_id
                    self._begin_fault(frame)
                    return
        elif relay.rewrites_addresses and api_key in (METADATA, FIND_COORDINATOR):
            self._unanswered[correlation_id] = (api_key, version)
        self._send(self._upstream, frame)

    def _answer(self, frame: bytes) -> None:
        correlation_id = correlation_of(frame)
        api_key, version = self._unanswered.pop(correlation_id, (-1, 0))
        if self._client_is_cut:
            if correlation_id == self._fault_correlation:
                self._close(with_reset=False)
            return
        if api_key in (METADATA, FIND_COORDINATOR):
            frame = rewrite_addresses(frame, api_key, version, self._relay.translate)
        if self._fault is not None and correlation_id == self._fault_correlation:
            if self._fault is FaultKind.LOST_ANSWER:
                self._happened()
                self.reset()
                return
            if self._fault is FaultKind.SLOW_ANSWER:
                self._happened()
                if self._held is None:
                    self._held = []
                    self._relay.later(SLOW_SECONDS, self._release)
        if self._held is not None:
            self._held.append(frame)
        else:
            self._send(self._client, frame)

    # Faults

    def _begin_fault(self, frame: bytes) -> None:
        if self._fault is FaultKind.HALF_REQUEST:
            self._half_sent = True
            self._send(self._upstream, memoryview(frame)[: len(frame) // 2])
            self._relay.later(_HALF_SECONDS, self._cut)
        elif self._fault is FaultKind.LATE_DELIVERY:
            self._happened()
            self._client_is_cut = True
            self._relay.watch(self._client.socket, 0, self._on_client)
            self._client.close(with_reset=True)
            self._client.queue.clear()
            self._client.unsent_bytes = 0
            self._relay.later(LATE_SECONDS, lambda: self._deliver_late(frame))
        else:
            self._send(self._upstream, frame)
            if self._fault is FaultKind.CUT:
                self._relay.later(self._relay.cut_delay_seconds(), self._cut)

    def _cut(self) -> None:
        """Reset both sides, if the produce request in question still waits for its answer."""
        if self._fault is None or self._upstream.closed:
            return
        if self._fault_correlation in self._unanswered:
            self._happened()
            self.reset()
        else:
            self._relay.fault_missed()
            self._fault = None

    def _deliver_late(self, frame: bytes) -> None:
        if self._upstream.closed:
            return
        try:
            self._send(self._upstream, frame)
        except OSError:
            self.reset()
            return
        self._watch()
        self._relay.later(_LATE_ANSWER_SECONDS_MAX, self.reset)

    def _release(self) -> None:
        """Pass on the answers that were held back."""
        held, self._held = self._held or [], None
        try:
            for frame in held:
                self._send(self._client, frame)
            if not self._upstream.closed:
                self._pass_on_ends()
        except OSError:
            self.reset()
            return
        self._watch()

    def _happened(self) -> None:
        assert self._fault is not None
        self._relay.fault_happened(self._fault)
        self._fault = None
