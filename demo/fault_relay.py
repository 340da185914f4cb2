"""A TCP relay that knows Kafka's frames and breaks connections where it hurts: around an unanswered produce request.

One thread of its own with one selector; callers start and stop it and read its counts. With ``rewrite_addresses`` it
opens one more listener per broker that it sees in an answer, so a client stays on it. It never changes a request.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import selectors
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from types import TracebackType

from .ports import HOST
from .relay_frames import INIT_PRODUCER_ID, PRODUCE
from .relay_link import FaultKind, Link

__all__ = ["FaultKind", "FaultPlan", "FaultRelay"]

Address = tuple[str, int]
_ACCEPT_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Which produce requests are hit: every n-th, or each with a probability. The same seed gives the same choices."""

    seed: int = 0
    kinds: Sequence[FaultKind | str] = tuple(FaultKind)
    every_nth_produce: int | None = None
    evenly: bool = False
    """The kinds that have happened least come first, where so few requests pass that each has to count."""
    rate: float = 0.0
    faults_max: int | None = None


class FaultRelay:
    """The relay in front of one broker or proxy (rewriting addresses: and of those it names). A context manager too."""

    def __init__(
        self, upstream: Address, *, rewrite_addresses: bool = False, plan: FaultPlan | None = None, port: int = 0
    ) -> None:
        self.upstream = upstream
        self.rewrites_addresses = rewrite_addresses
        self._plan = plan or FaultPlan()
        self._kinds = tuple(FaultKind(kind) for kind in self._plan.kinds)
        self._wanted_port = port
        self._random = Random(self._plan.seed)
        self._faults_on = True
        self._counts: Counter[FaultKind] = Counter()
        self._under_way = 0
        self._produce_requests = 0
        self._requests: Counter[tuple[int, int]] = Counter()
        self._producer_ids: set[int] = set()
        self._connections = 0
        self._selector = selectors.DefaultSelector()
        self._watched: dict[object, tuple[int, Callable[[int], None]]] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_numbers = itertools.count()
        self._listeners: dict[Address, socket.socket] = {}
        self._links: set[Link] = set()
        self._commands: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._failure: BaseException | None = None

    # For the caller

    def start(self) -> FaultRelay:
        """Listen; from now on ``port`` is known."""
        assert self._thread is None, "it was started before"
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self.watch(self._wake_receiver, selectors.EVENT_READ, self._woken)
        self._listen(self.upstream, self._wanted_port)
        self._thread = threading.Thread(target=self._run, name=f"relay to {self.upstream}", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close everything and end the thread. Raises what the thread failed with, if it did."""
        if self._thread is None:
            return
        self._stopping = True
        with contextlib.suppress(OSError):  # the thread may have failed before
            self._wake_sender.send(b"!")
        self._thread.join(10)
        self._wake_sender.close()
        self._thread = None
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> FaultRelay:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1 that stands for the upstream."""
        return self.port_of(self.upstream)

    @property
    def address(self) -> str:
        """``127.0.0.1:port``, as a client's bootstrap setting."""
        return f"{HOST}:{self.port}"

    def port_of(self, upstream: Address) -> int:
        """The port that stands for this broker; KeyError when no answer has named it yet."""
        port: int = self._listeners[upstream].getsockname()[1]
        return port

    def set_faults(self, on: bool) -> None:
        """Faults or none, from the next produce request on. What is under way still happens."""
        self._faults_on = on

    def cut_all(self) -> None:
        """Reset every connection, on both sides, whatever is under way."""
        self._commands.append(self._reset_all)
        self._wake_sender.send(b"!")

    @property
    def counts(self) -> dict[FaultKind, int]:
        """Faults that happened, by kind (all kinds are keys). One that found nothing unanswered is not counted."""
        return {kind: self._counts[kind] for kind in FaultKind}

    @property
    def faults(self) -> int:
        """Faults that happened, of all kinds."""
        return sum(self.counts.values())

    @property
    def init_producer_id_requests(self) -> int:
        """InitProducerId requests that passed."""
        return sum(count for (key, _), count in self.requests.items() if key == INIT_PRODUCER_ID)

    @property
    def produce_requests(self) -> int:
        """Produce requests that came from the client side, of all versions."""
        return self._produce_requests

    @property
    def producer_ids(self) -> set[int]:
        """Producer ids, 0 and above, that were seen in record batches."""
        return set(self._producer_ids)

    @property
    def requests(self) -> dict[tuple[int, int], int]:
        """Requests by (api key, version)."""
        return dict(self._requests)

    @property
    def connections(self) -> int:
        """Client connections so far."""
        return self._connections

    # For the links; in the relay's thread only

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call back once."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._timer_numbers), callback))

    def watch(self, connection: socket.socket, events: int, callback: Callable[[int], None]) -> None:
        """Call back at these events from now on; 0 means at none."""
        known, _ = self._watched.pop(connection, (0, None))
        if events:
            self._watched[connection] = (events, callback)
        if events and not known:
            self._selector.register(connection, events)
        elif events != known and events:
            self._selector.modify(connection, events)
        elif known and not events:
            self._selector.unregister(connection)

    def saw_request(self, api_key: int, version: int) -> None:
        """Count a request."""
        self._requests[api_key, version] += 1
        if api_key == PRODUCE:
            self._produce_requests += 1

    def saw_producers(self, producer_ids: tuple[int, ...]) -> None:
        """Remember whose batches passed."""
        self._producer_ids.update(producer_ids)

    def choose_fault(self) -> FaultKind | None:
        """Say what shall happen to the produce request that just came. Each choice is ended by one of the two below."""
        plan = self._plan
        if plan.every_nth_produce is not None:
            hit = self._produce_requests % plan.every_nth_produce == 0
        else:
            hit = plan.rate > 0 and self._random.random() < plan.rate
        if not hit or not self._faults_on or not self._kinds:
            return None
        if plan.faults_max is not None and self._counts.total() + self._under_way >= plan.faults_max:
            return None
        self._under_way += 1
        kinds = self._kinds
        if plan.evenly:
            fewest = min(self._counts[kind] for kind in kinds)
            kinds = tuple(kind for kind in kinds if self._counts[kind] == fewest)
        return self._random.choice(kinds)

    def fault_happened(self, kind: FaultKind) -> None:
        """Count a fault that hit an unanswered produce request."""
        self._under_way -= 1
        self._counts[kind] += 1

    def fault_missed(self) -> None:
        """The connection ended, or all was answered, before the fault could happen."""
        self._under_way -= 1

    def cut_delay_seconds(self) -> float:
        """How long after its delivery a request is cut off: sometimes before, sometimes after its execution."""
        return self._random.choice((0.0, 0.0005, 0.002, 0.005))

    def translate(self, host: str, port: int) -> Address:
        """Return the address under which a client reaches this broker: a listener of ours, opened when it is new."""
        if host == HOST and any(port == own.getsockname()[1] for own in self._listeners.values()):
            return host, port
        if (host, port) not in self._listeners:
            self._listen((host, port), 0)
        return HOST, self.port_of((host, port))

    def ended(self, link: Link) -> None:
        """A link has closed both of its sockets."""
        self._links.discard(link)

    # The loop

    def _listen(self, upstream: Address, port: int) -> None:
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, port))
            listener.listen(_ACCEPT_BACKLOG)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        self._listeners[upstream] = listener
        self.watch(listener, selectors.EVENT_READ, lambda _: self._accept(listener, upstream))

    def _accept(self, listener: socket.socket, upstream: Address) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # the client has gone again
        self._connections += 1
        self._links.add(Link(self, connection, upstream))

    def _woken(self, _events: int) -> None:
        self._wake_receiver.recv(4096)
        commands, self._commands = self._commands, []
        for command in commands:
            command()

    def _reset_all(self) -> None:
        for link in list(self._links):
            link.reset()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._pass()
        except BaseException as error:
            self._failure = error
        finally:
            self._reset_all()
            for listener in self._listeners.values():
                listener.close()
            self._wake_receiver.close()
            self._selector.close()

    def _pass(self) -> None:
        timeout = None if not self._timers else max(0.0, self._timers[0][0] - time.monotonic())
        for key, events in self._selector.select(timeout):
            _, callback = self._watched.get(key.fileobj, (0, None))
            if callback is not None:  # an earlier callback of this pass may have closed it
                callback(events)
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()
