"""A port on any loopback address that leads to another one, byte by byte: makes a broker reachable by IPv6, and can be
moved as a failover moves a name.

Threads and blocking sockets; everything ends with the context. It breaks no message on purpose, that is the relays'
part.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable
from contextlib import suppress

_BUFFER_BYTES = 64 * 1024


class Forwarder:
    """A context manager. ``address``: where it listens."""

    def __init__(self, host: str, target: tuple[str, int] | None = None) -> None:
        """``target`` may be set later, before the first connection comes."""
        self.target = target
        self.connections = 0
        self._listening = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.address = (host, int(self._listening.getsockname()[1]))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Forwarder:
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._threads[0].join()
        self._cut(self._open)
        for thread in self._threads[1:]:
            thread.join()
        for one in self._open:
            one.close()

    def move(self, target: tuple[str, int]) -> None:
        """New connections lead there; those that are open are cut."""
        self.target = target
        self._cut(list(self._open))

    @staticmethod
    def _cut(connections: Iterable[socket.socket]) -> None:
        for one in connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(near)
            target = self.target
            assert target is not None
            try:
                far = socket.create_connection(target)
            except OSError:
                self._cut([near])
                continue
            self._open.append(far)
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target != self.target:  # it was moved meanwhile
                self._cut([near, far])
            for source, sink in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pass_on, args=(source, sink), daemon=True)
                self._threads.append(thread)
                thread.start()

    @staticmethod
    def _pass_on(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_BUFFER_BYTES):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
