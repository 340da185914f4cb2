"""The network of a chaos run: one thread that carries all connections between clients, proxies, brokers and Redis, and
cuts, holds and halves them on request. Callers are in other threads; pipes live in this one."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from random import Random

from .pipe import Pipe, Strike

Address = tuple[str, int]
_BACKLOG = 128
_HOT_SECONDS = 2.0
"""A connection that was silent for longer is hit only when there is no better one."""
_ARMED_SECONDS = 5.0


class Gate:
    """An address of the relay. ``target``: where new connections are led at this moment; None: refused."""

    def __init__(self, link: str, name: str, address: Address, target: Callable[[], Address | None]) -> None:
        self.link = link
        self.name = name
        self.address = address
        self.target = target
        self.pipes: set[Pipe] = set()


class Relay:
    """A context manager: entering starts the thread."""

    def __init__(self) -> None:
        self.gates: list[Gate] = []
        self.strikes: Counter[tuple[str, Strike]] = Counter()
        """Strikes that found bytes to strike at, by link."""
        self._epoll = select.epoll()
        self._handlers: dict[int, tuple[socket.socket, Callable[[int], None]]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._commands: list[Callable[[], object]] = []
        self._listeners: list[socket.socket] = []
        self._receiver, self._sender = socket.socketpair()
        self._stopping = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="relay", daemon=True)

    def __enter__(self) -> Relay:
        self._receiver.setblocking(False)
        self.register(self._receiver, select.EPOLLIN, self._woken)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopping = True
        self._wake()
        self._thread.join(10)
        self._sender.close()
        if self._failure is not None:
            raise self._failure

    # ------------------------------------------------------------------ for callers
    def open(self, link: str, name: str, address: Address, target: Callable[[], Address | None]) -> Gate:
        """Listen at an address; port 0: any free one."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        host, port = listener.getsockname()
        gate = Gate(link, name, (host, port), target)
        self._listeners.append(listener)
        self.gates.append(gate)
        self.call(lambda: self.register(listener, select.EPOLLIN, lambda _: self._accept(listener, gate)))
        return gate

    def cut(self, link: str, share: float, random: Random, name: str | None = None) -> int:
        """Reset this share of the connections of a link (over one gate: ``name``), at least one; return how many."""
        return self._hit(link, name, share, random, lambda pipe: pipe.reset())

    def half_open(
        self, link: str, share: float, random: Random, *, client_is_cut: bool, seconds: float, name: str | None = None
    ) -> int:
        """Reset one end of so many connections and leave the other in the dark; return how many."""
        return self._hit(link, name, share, random, lambda pipe: pipe.half_open(client_is_cut, seconds))

    def hold(self, link: str, share: float, random: Random, seconds: float) -> int:
        """Let nothing pass over so many connections for a while; return how many."""
        return self._hit(link, None, share, random, lambda pipe: pipe.hold(seconds))

    def arm(self, link: str, share: float, random: Random, strike: Strike) -> int:
        """Strike at the next bytes of so many connections; return how many were armed."""
        return self._hit(link, None, share, random, lambda pipe: pipe.arm(strike, _ARMED_SECONDS))

    def call(self, command: Callable[[], object]) -> None:
        """Run this in the relay's thread."""
        self._commands.append(command)
        self._wake()

    # ------------------------------------------------------------------ for pipes
    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back once."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), callback))

    def register(self, connection: socket.socket, events: int, handler: Callable[[int], None]) -> None:
        """Call ``handler`` at these epoll events from now on."""
        number = connection.fileno()
        if number in self._handlers:
            self._epoll.modify(number, events)
        else:
            self._epoll.register(number, events)
        self._handlers[number] = (connection, handler)

    def unregister(self, connection: socket.socket) -> None:
        """Call no handler of this connection any more."""
        number = connection.fileno()
        if self._handlers.pop(number, None) is not None:
            self._epoll.unregister(number)

    # ------------------------------------------------------------------ inside
    def _hit(self, link: str, name: str | None, share: float, random: Random, blow: Callable[[Pipe], None]) -> int:
        done: Future[int] = Future()
        seed = random.random()

        def in_thread() -> None:
            pipes = [
                pipe for gate in self.gates if gate.link == link and name in (None, gate.name) for pipe in gate.pipes
            ]
            Random(seed).shuffle(pipes)
            horizon = self.now() - _HOT_SECONDS
            pipes.sort(key=lambda pipe: pipe.moved_at < horizon)
            hot = sum(pipe.moved_at >= horizon for pipe in pipes)
            chosen = pipes[: max(1, round(share * (hot or len(pipes))))]
            for pipe in chosen:
                blow(pipe)
            done.set_result(len(chosen))

        self.call(in_thread)
        return done.result(10)

    def _accept(self, listener: socket.socket, gate: Gate) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the client has gone again
        target = gate.target()
        if target is None:
            connection.close()
            return
        gate.pipes.add(
            Pipe(self, connection, target, gate.pipes.discard, lambda strike: self._count(gate.link, strike))
        )

    def _count(self, link: str, strike: Strike) -> None:
        self.strikes[link, strike] += 1

    def _woken(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._receiver.recv(4096)
        commands, self._commands = self._commands, []
        for command in commands:
            command()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._sender.send(b"!")

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._pass()
        except BaseException as error:
            self._failure = error
        finally:
            for gate in self.gates:
                for pipe in list(gate.pipes):
                    pipe.reset()
            for listener in self._listeners:
                listener.close()
            self._epoll.close()
            self._receiver.close()

    def _pass(self) -> None:
        timeout = -1.0 if not self._timers else max(0.0, self._timers[0][0] - time.monotonic())
        for number, events in self._epoll.poll(timeout):
            known = self._handlers.get(number)
            if known is not None and known[0].fileno() == number:
                known[1](events)
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
