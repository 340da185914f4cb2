"""A seeded network of virtual hosts on a virtual clock; each host implements ``idemproxy.reactor.Reactor``.

It owns time, latency, the order of passes, listeners, crashes and pauses of hosts. It knows no protocol, and it never
uses threads, sockets, the real clock or unseeded randomness: equal seeds and calls give equal runs, event for event.
Connections and what can happen to them are in ``connection``.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from random import Random

from idemproxy.reactor import Address, Endpoint
from testkit.virtual.connection import Connection, Direction
from testkit.virtual.header_markers import SentIdentities
from testkit.virtual.wire import VirtualWire

_TIME = struct.Struct(">d")
FLUSH_ROUNDS_MAX = 10_000
"""More rounds of flush callbacks than this in one pass is an endless loop."""


class HostCrashed(BaseException):
    """Unwinds whatever a host was doing when it was killed from inside. Only the network catches it."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """How the network behaves when nobody breaks it. Pairs are (least, most), seconds unless named otherwise."""

    latency: tuple[float, float] = (0.000_2, 0.002)
    pass_duration: tuple[float, float] = (0.000_05, 0.000_3)
    """Time between two passes of a host: what arrives meanwhile is handled together."""
    split_chance: float = 0.1
    """Of bytes that leave together to arrive in several pieces."""
    partial_write_chance: float = 0.02
    """Of a write that the kernel takes only in part."""
    truncation_chance: float = 0.5
    """Of bytes on their way to be lost in part when their sender resets the connection or dies."""
    window_bytes: int = 256 * 1024
    """Bytes that may be on their way or unread; a slow reader makes its peer wait."""
    keepalive_seconds: float = 20.0
    """SO_KEEPALIVE of a host that has set it: a half-open connection that it opened ends after this time."""
    user_timeout: float = 5.0
    """TCP_USER_TIMEOUT: a sender of unacknowledged bytes into a half-open connection learns of it after this time."""


class Network:
    """The event heap, the clock, the listeners and the seed."""

    def __init__(self, seed: int, settings: NetworkSettings | None = None) -> None:
        self.seed = seed
        self.settings = settings or NetworkSettings()
        self.random = Random(seed)
        self.now = 0.0
        self.events_run = 0
        self.digest = 0
        """A checksum of everything that was delivered: equal for equal runs."""
        self.trace: list[str] | None = None
        """Set to an empty list to have every delivery written down."""
        self.connections: dict[int, Connection] = {}
        self.watchers: list[Callable[[Direction, bytes], None]] = []
        """Called with every piece of bytes that leaves a host, before it is on its way: a place to break things."""
        self.sent = SentIdentities()
        """What clients have sent in it."""
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = 0
        self._connection_count = 0
        self._listeners: dict[Address, tuple[VirtualReactor, Callable[[], Endpoint | None]]] = {}
        self._away: dict[Address, tuple[float, bool]] = {}

    def host(self, name: str, *, clock_offset: float = 0.0, clock_rate: float = 1.0) -> VirtualReactor:
        """A new host. A process that comes back after a crash is a new host at the old address."""
        return VirtualReactor(self, name, clock_offset, clock_rate)

    def listen(self, host: VirtualReactor, address: Address, make_endpoint: Callable[[], Endpoint | None]) -> None:
        """From now on connections to the address get an endpoint on this host, or None: refused.

        The last listener of an address wins.
        """
        assert host.alive, f"{host.name} is dead"
        self._listeners[address] = (host, make_endpoint)

    def listener(self, address: Address) -> tuple[VirtualReactor, Callable[[], Endpoint | None]] | None:
        """Who answers at this address now, or None: the connection is refused."""
        found = self._listeners.get(address)
        return found if found is not None and found[0].alive else None

    def unlisten(self, address: Address) -> None:
        """Refuse new connections to the address. Open ones stay."""
        self._listeners.pop(address, None)

    def take_no_connections(self, address: Address, seconds: float, *, silently: bool) -> None:
        """Refuse all connections to the address in that time; or (``silently``) answer no attempt."""
        self._away[address] = self.now + seconds, silently

    def update(self, **changes: object) -> None:
        """Change settings while the network runs."""
        self.settings = replace(self.settings, **changes)  # type: ignore[arg-type]

    def schedule(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back after so many virtual seconds, outside of any host."""
        assert seconds >= 0
        self._counter += 1
        heappush(self._heap, (self.now + seconds, self._counter, callback))

    def between(self, bounds: tuple[float, float]) -> float:
        """A number between the two, by the seed."""
        least, most = bounds
        return least + (most - least) * self.random.random()

    def chance(self, probability: float) -> bool:
        """True so often, by the seed. A probability of zero uses no randomness."""
        return probability > 0 and self.random.random() < probability

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Run at most so many virtual seconds; stop early when ``until`` says so.

        Returns whether ``until`` came true (always True without one). What a host raises comes out here, with its seed.
        """
        end = self.now + seconds
        if until is not None and until():
            return True
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, callback = heappop(heap)
            self.events_run += 1
            callback()
            if until is not None and until():
                return True
        self.now = end
        return until is None

    def note(self, who: str, what: str, data: bytes = b"") -> None:
        """Write down what happened: into the digest always, into the trace when somebody asked for one."""
        self.digest = zlib.crc32(data, zlib.crc32(f"{who}|{what}".encode() + _TIME.pack(self.now), self.digest))
        if self.trace is not None:
            self.trace.append(f"{self.now:12.6f} {who:<14} {what} {data[:48].hex() if data else ''}")

    def connect(self, host: VirtualReactor, address: Address, endpoint: Endpoint) -> None:
        """Open a connection from a host; the endpoint hears of it in a later pass."""
        reached = self.between(self.settings.latency)
        back = self.between(self.settings.latency)
        self.schedule(reached, lambda: self._reach(host, address, endpoint, back))

    def _reach(self, host: VirtualReactor, address: Address, endpoint: Endpoint, back: float) -> None:
        found = self.listener(address)
        if not host.alive:
            return
        until, silently = self._away.get(address, (0.0, False))
        if self.now < until and silently:
            self.schedule(self.settings.user_timeout, lambda: host.post(lambda: endpoint.lost("connection timed out")))
            return
        if found is None or self.now < until:
            self.schedule(back, lambda: host.post(lambda: endpoint.lost("connection refused")))
            return
        server, make_endpoint = found
        self._connection_count += 1
        connection = Connection(self, self._connection_count, host, server, address)
        self.connections[connection.number] = connection
        near, far = connection.ends
        near.hand_over(endpoint)

        def accepted() -> None:
            if not far.is_open:
                return
            server.caller = host.name
            accepting = make_endpoint()
            if accepting is None:
                far.reset()
            else:
                far.hand_over(accepting)
                far.start()

        server.post(accepted)
        self.schedule(back, lambda: host.post(near.start))

    def open_connections(self, host: VirtualReactor | None = None) -> list[Connection]:
        """Connections that carry bytes both ways, all or those of one host, oldest first."""
        return [
            connection
            for connection in self.connections.values()
            if connection.is_open and (host is None or host in (end.host for end in connection.ends))
        ]


class VirtualTimer:
    """One entry of the clock."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget it. Calling this twice, or after it happened, does nothing."""
        self.callback = None

    def fire(self) -> None:
        """Happen, unless cancelled."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class VirtualReactor:
    """One host: a process life with its own clock offset, timers and connections."""

    def __init__(self, network: Network, name: str, clock_offset: float = 0.0, clock_rate: float = 1.0) -> None:
        self.network = network
        self.name = name
        self.alive = True
        self.passes_run = 0
        self.caller = ""
        """Whose connection a listener here is asked to take."""
        self.crash_after_this_pass: Callable[[], None] | None = None
        self.failed: Callable[[Exception], None] | None = None
        """Called with errors that callbacks raise, as by the real reactor, and the run continues; without it they end
        the run."""
        self.keeps_alive = False
        """Whether the connections that it opens have SO_KEEPALIVE."""
        self.wires: dict[int, VirtualWire] = {}
        self._clock_offset = clock_offset
        self._clock_rate = clock_rate
        self._ready: deque[Callable[[], None]] = deque()
        self._due: deque[VirtualTimer] = deque()
        self._flush: list[Callable[[], None]] = []
        self._dirty: dict[int, VirtualWire] = {}
        self._is_awake = False
        """A pass will come, or runs now."""
        self._free_at = 0.0

    # ------------------------------------------------------------------ asked for by idemproxy.reactor
    def now(self) -> float:
        """Seconds on this host's clock."""
        return self.network.now * self._clock_rate + self._clock_offset

    def later(self, seconds: float, callback: Callable[[], None]) -> VirtualTimer:
        """Call back once in a pass of this host, not before so many seconds have passed."""
        timer = VirtualTimer(callback)
        if self.alive:
            self.network.schedule(max(0.0, seconds) / self._clock_rate, partial(self._timer_is_due, timer))
        return timer

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        """Open a connection; ``connected`` or ``lost`` follows in a later pass."""
        if self.alive:
            self.network.connect(self, address, endpoint)

    def at_flush(self, callback: Callable[[], None]) -> None:
        """Call back once at the end of this pass, or of the next one when called from outside."""
        if self.alive:
            self._flush.append(callback)
            if not self._is_awake:
                self.wake()

    # ------------------------------------------------------------------ by the network and tests
    def post(self, callback: Callable[[], None]) -> None:
        """Have this called among the handlers of the next pass."""
        if self.alive:
            self._ready.append(callback)
            if not self._is_awake:
                self.wake()

    def mark_dirty(self, wire: VirtualWire) -> None:
        """This wire has bytes to write at the end of the pass."""
        if self.alive:
            self._dirty[wire.number] = wire
            if not self._is_awake:
                self.wake()

    def wake(self) -> None:
        """See to it that a pass follows."""
        if self.alive and not self._is_awake:
            self._is_awake = True
            self.network.schedule(max(0.0, self._free_at - self.network.now), self._run_pass)

    def pause(self, seconds: float) -> None:
        """SIGSTOP for so long: no pass runs, timers become late, the kernel still receives."""
        self._free_at = max(self._free_at, self.network.now + seconds)

    @property
    def stands_still(self) -> bool:
        """Paused, or busy with a long pass."""
        return self._free_at > self.network.now

    def crash(self, *, half_open: bool = False) -> None:
        """SIGKILL (peers learn of it), or the machine's power (``half_open``: they do not).

        Timers and queued callbacks are gone, bytes that no pass has written are gone, bytes handed to the network may
        or may not arrive, by the seed.
        """
        if not self.alive:
            return
        self.alive = False
        self.network.note(self.name, "crash")
        self._ready.clear()
        self._due.clear()
        self._flush.clear()
        self._dirty.clear()
        for wire in list(self.wires.values()):
            wire.abandon(half_open=half_open)
        self.wires.clear()

    def crash_now(self, *, half_open: bool = False) -> None:
        """Crash from inside one of this host's own callbacks: nothing that follows in them is executed."""
        self.crash(half_open=half_open)
        raise HostCrashed(self.name)

    def crash_after_pass(self, *, half_open: bool = False) -> None:
        """Crash when the present pass has written its bytes (or the next one, when called from outside)."""
        self.crash_after_this_pass = lambda: self.crash(half_open=half_open)
        self.wake()

    def _timer_is_due(self, timer: VirtualTimer) -> None:
        if self.alive and timer.callback is not None:
            self._due.append(timer)
            if not self._is_awake:
                self.wake()

    def _run_pass(self) -> None:
        network = self.network
        if not self.alive:
            return
        if self._free_at > network.now:  # paused meanwhile
            network.schedule(self._free_at - network.now, self._run_pass)
            return
        self.passes_run += 1
        try:
            self._handlers()
            if self._flush or self._dirty:
                self._write()
            if self.crash_after_this_pass is not None:
                self._crash_if_asked()
        except HostCrashed:
            assert not self.alive, "a host that lives says that it has crashed"
        finally:
            self._is_awake = False
        self._free_at = max(self._free_at, network.now + network.between(network.settings.pass_duration))
        if self._ready or self._due or self._flush or self._dirty:
            self.wake()

    def _handlers(self) -> None:
        ready, due = self._ready, self._due
        for _ in range(len(ready)):  # what is posted meanwhile belongs to the next pass
            if ready:
                callback = ready.popleft()
                try:
                    callback()
                except Exception as error:
                    self._fail(error)
        for _ in range(len(due)):
            if due:
                timer = due.popleft()
                try:
                    timer.fire()
                except Exception as error:
                    self._fail(error)

    def _write(self) -> None:
        """Flush callbacks until there are none, then the bytes; a fence that says No may cause more of both."""
        rounds = 0
        while self._flush or self._dirty:
            while self._flush:
                rounds += 1
                assert rounds < FLUSH_ROUNDS_MAX, f"{self.name}: flush callbacks without end"
                callbacks, self._flush = self._flush, []
                for callback in callbacks:
                    try:
                        callback()
                    except Exception as error:
                        self._fail(error)
            dirty, self._dirty = self._dirty, {}
            for wire in dirty.values():
                try:
                    wire.write()
                except Exception as error:
                    self._fail(error)

    def _fail(self, error: Exception) -> None:
        error.add_note(f"on host {self.name} at {self.network.now:.6f} s of the run with seed {self.network.seed}")
        if self.failed is None:
            raise error
        self.failed(error)

    def _crash_if_asked(self) -> None:
        asked, self.crash_after_this_pass = self.crash_after_this_pass, None
        if asked is not None:
            asked()
