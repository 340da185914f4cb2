"""A reactor on a clock of the test's own: time stands still until it is moved, and the test opens the connections."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from idemproxy.reactor import Address, Buffer, Endpoint


class Wire:
    """One open connection: what was sent, and whether it was reset."""

    local_host = ""
    unsent = 0

    def __init__(self) -> None:
        self.sent = b""
        self.was_reset = False
        self.may_write: Callable[[], bool] = lambda: True

    def send(self, *chunks: Buffer) -> None:
        self.sent += b"".join(chunks)

    def hand_over(self, endpoint: Endpoint) -> None:
        pass

    def fence(self, may_send: Callable[[], bool]) -> None:
        self.may_write = may_send

    def before_reading(self, look: Callable[[], None]) -> None:
        pass

    def after_writing(self, look: Callable[[], None]) -> None:
        pass

    def before_end(self, look: Callable[[], bool]) -> None:
        pass

    def expect(self, missing_bytes: int) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def reset(self) -> None:
        self.was_reset = True

    def close(self) -> None:
        self.was_reset = True


class Timer:
    """A callback that is due later, unless it is cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Clock:
    """A reactor whose connections the test opens."""

    def __init__(self) -> None:
        self.time = 0.0
        self.opening: list[Endpoint] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._flushes: list[Callable[[], None]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self.time

    def later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (self.time + seconds, next(self._order), timer))
        return timer

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        self.opening.append(endpoint)

    def at_flush(self, callback: Callable[[], None]) -> None:
        self._flushes.append(callback)

    def run(self, seconds: float = 0.0) -> None:
        end = self.time + seconds
        self._flush()
        while self._timers and self._timers[0][0] <= end:
            self.time, _, timer = heapq.heappop(self._timers)
            if timer.callback is not None:
                timer.callback()
            self._flush()
        self.time = end

    def _flush(self) -> None:
        while self._flushes:
            flushes, self._flushes = self._flushes, []
            for flush in flushes:
                flush()
