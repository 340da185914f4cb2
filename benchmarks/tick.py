"""A relay that passes bytes and looks at none: one trio task that waits for one epoll, as the proxy's event loop does.
What it costs is what a proxy in Python costs before it does anything.

Run as a program: ``tick.py PORT UPSTREAM``."""

from __future__ import annotations

import select
import socket
import sys

import trio

HOST = "127.0.0.1"
_RECEIVE_BYTES = 1 << 16
_EVENTS_MAX = 256


class End:
    """One of the two sockets of a connection. ``unsent``: what it was given and the kernel did not take."""

    __slots__ = ("other", "socket", "unsent")
    other: End

    def __init__(self, opened: socket.socket) -> None:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setblocking(False)
        self.socket = opened
        self.unsent = b""


class Relay:
    """All connections."""

    def __init__(self, port: int, upstream: tuple[str, int]) -> None:
        self._upstream = upstream
        self._epoll = select.epoll()
        self._ends: dict[int, End] = {}
        self._listener = socket.create_server((HOST, port), backlog=1024)
        self._listener.setblocking(False)
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)

    async def serve(self) -> None:
        """Until the process ends."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            for descriptor, events in self._epoll.poll(0, _EVENTS_MAX):
                end = self._ends.get(descriptor)
                if end is not None:
                    self._pass_on(end, events)
                elif descriptor == self._listener.fileno():
                    self._accept()

    def _accept(self) -> None:
        client, broker = End(self._listener.accept()[0]), End(socket.create_connection(self._upstream))
        client.other, broker.other = broker, client
        for end in (client, broker):
            self._ends[end.socket.fileno()] = end
            self._epoll.register(end.socket.fileno(), select.EPOLLIN)

    def _pass_on(self, end: End, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                self._send(end, b"")
            if events & ~select.EPOLLOUT:
                data = end.socket.recv(_RECEIVE_BYTES)
                if not data:
                    raise ConnectionError
                self._send(end.other, data)
        except OSError:
            for one in (end, end.other):
                del self._ends[one.socket.fileno()]
                one.socket.close()

    def _send(self, end: End, data: bytes) -> None:
        """What the kernel does not take keeps the other one from being read."""
        waited = bool(end.unsent)
        data = end.unsent + data if waited else data
        try:
            end.unsent = data[end.socket.send(data) :]
        except BlockingIOError:
            end.unsent = data
        if waited != bool(end.unsent):
            for one in (end, end.other):
                wanted = (select.EPOLLOUT if one.unsent else 0) | (0 if one.other.unsent else select.EPOLLIN)
                self._epoll.modify(one.socket.fileno(), wanted)


def main() -> None:
    """Serve until the process ends."""
    host, port = sys.argv[2].rsplit(":", 1)
    relay = Relay(int(sys.argv[1]), (host, int(port)))
    print("READY", flush=True)
    trio.run(relay.serve)


if __name__ == "__main__":
    main()
