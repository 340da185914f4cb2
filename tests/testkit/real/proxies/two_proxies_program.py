"""The shipped proxy that can be stopped between its looks at the lease, and that measures what no look covers.

``two_proxies_program.py run ...`` is ``idemproxy run ...``. SIGUSR1: before its next append, SIGUSR2: after the first
look and before the write, it stops itself as SIGSTOP does; that it has heard the signal is in its log. At its end it
writes the times from each last look to the end of its write there. The product has no switch for it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from idemproxy.proxy.broker.produce_connection import ProduceConnection
from idemproxy.proxy.broker.queued_append import QueuedAppend
from idemproxy.proxy.engine.outside import EngineOutside
from idemproxy.proxy.main import main
from idemproxy.proxy.net.sockets import SocketWire

SAYS = "uncovered nanoseconds: "
HEARD = "will stop itself"
STOP_BEFORE_APPEND, STOP_BEFORE_WRITE = signal.SIGUSR1, signal.SIGUSR2

_armed: set[int] = set()
_uncovered_ns: list[int] = []
_looked_at_ns: dict[int, int] = {}
"""File descriptor of a fenced connection -> when the last look at the lease began."""


def uncovered_in(log: str) -> list[int]:
    """Return the times in nanoseconds that the log of one process ends with; none if it did not end by itself."""
    lines = [line for line in log.splitlines() if line.startswith(SAYS)]
    return [int(time_ns) for line in lines for time_ns in json.loads(line.removeprefix(SAYS))]


def _stop_if(number: int) -> None:
    if number in _armed:
        _armed.discard(number)
        os.kill(os.getpid(), signal.SIGSTOP)


def _stop_between_looks() -> None:
    queue_append, send = EngineOutside.queue_append, ProduceConnection.send

    def stopping_push(self: EngineOutside, broker: Any, append: QueuedAppend) -> None:
        _stop_if(STOP_BEFORE_APPEND)
        queue_append(self, broker, append)

    def stopping_send(self: ProduceConnection, *what: Any) -> None:
        send(self, *what)
        _stop_if(STOP_BEFORE_WRITE)

    EngineOutside.queue_append = stopping_push  # type: ignore[method-assign]
    ProduceConnection.send = stopping_send  # type: ignore[assignment, method-assign]
    for number in (STOP_BEFORE_APPEND, STOP_BEFORE_WRITE):
        signal.signal(number, _arm)


def _arm(number: int, _frame: FrameType | None) -> None:
    _armed.add(number)
    os.write(sys.stderr.fileno(), f"{HEARD}\n".encode())


def _measure() -> None:
    fence, write_some = SocketWire.fence, SocketWire._write_some

    def measured_fence(self: SocketWire, may_send: Callable[[], bool]) -> None:
        descriptor = self._descriptor

        def look() -> bool:
            _looked_at_ns[descriptor] = time.perf_counter_ns()
            return may_send()

        fence(self, look)

    def measured_write(self: SocketWire) -> int:
        taken = write_some(self)
        if self._fence is not None:
            _uncovered_ns.append(time.perf_counter_ns() - _looked_at_ns[self._descriptor])
        return taken

    SocketWire.fence = measured_fence  # type: ignore[method-assign]
    SocketWire._write_some = measured_write  # type: ignore[method-assign]


def run(arguments: Sequence[str]) -> int:
    """Run the shipped command and return its exit status."""
    _stop_between_looks()
    _measure()
    try:
        return main(arguments)
    finally:
        os.write(sys.stderr.fileno(), f"{SAYS}{json.dumps(_uncovered_ns)}\n".encode())


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
