"""Rules R4 and R17 on real sockets: what the shell owes to the rules, on the loopback interface."""

import contextlib
import fcntl
import os
import socket
import struct
import sys
import termios
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

import pytest
import trio

from idemproxy.proxy.net.event_loop import TrioReactor
from idemproxy.proxy.net.sockets import SocketWire
from idemproxy.reactor import Wire

SECONDS_MAX = 30.0
RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Endpoint:
    """Our end of a connection."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        self.reason: str | None = None
        self.data = b""
        self.sizes: list[int] = []
        self.on_bytes: Callable[[], None] = lambda: None

    def connected(self, wire: Wire) -> None:
        self.wire = wire

    def received(self, data: bytes) -> None:
        self.data += data
        self.sizes.append(len(data))
        self.on_bytes()

    def lost(self, reason: str) -> None:
        self.reason = reason


async def until(done: Callable[[], bool]) -> None:
    with trio.move_on_after(SECONDS_MAX):
        while not done():  # noqa: ASYNC110  (what is waited for comes by callback)
            await trio.sleep(0.005)
    assert done(), f"nothing came of it within {SECONDS_MAX} s"


def on_a_connection(scene: Callable[[TrioReactor, Endpoint, socket.socket], Awaitable[None]]) -> None:
    """Run a scene with the shipped reactor, our end, and the peer's socket."""
    failures: list[object] = []

    async def run() -> None:
        reactor = TrioReactor(lambda where, error: failures.append((where, error)))
        endpoint = Endpoint()
        with socket.create_server(("127.0.0.1", 0)) as server:
            async with trio.open_nursery() as nursery:
                await nursery.start(reactor.run)
                reactor.connect(server.getsockname(), endpoint)
                peer, _ = server.accept()
                with peer:
                    await until(lambda: endpoint.wire is not None)
                    await scene(reactor, endpoint, peer)
                nursery.cancel_scope.cancel()

    trio.run(run)
    assert failures == []


def twin_of(peer: socket.socket) -> socket.socket:
    """Our end of the peer's connection, by another descriptor."""
    for name in os.listdir("/proc/self/fd"):
        try:
            twin = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        if twin.family == socket.AF_INET and twin.getsockname() == peer.getpeername():
            return twin
        twin.close()
    raise AssertionError("our end is nowhere")


def read(peer: socket.socket) -> bytes | None:
    """What came; None: a reset."""
    peer.settimeout(SECONDS_MAX)
    try:
        return peer.recv(100)
    except ConnectionResetError:
        return None


def test_who_is_asked_before_each_read_may_leave_what_came_where_it_is() -> None:
    async def scene(reactor: TrioReactor, endpoint: Endpoint, peer: socket.socket) -> None:
        assert endpoint.wire is not None
        looks: list[int] = []

        def look() -> None:
            looks.append(len(endpoint.data))
            if len(looks) == 2:
                assert endpoint.wire is not None
                endpoint.wire.pause()

        endpoint.wire.before_reading(look)
        peer.sendall(b"one")
        await until(lambda: endpoint.data == b"one")
        peer.sendall(b"two")
        await until(lambda: len(looks) == 2)
        await trio.sleep(0.1)
        assert (looks, endpoint.data) == ([0, 3], b"one")
        endpoint.wire.resume()
        await until(lambda: endpoint.data == b"onetwo")

    on_a_connection(scene)


# ---------------------------------------------------------------------- R4
def test_a_fenced_connection_sends_nothing_after_the_lease_and_is_reset() -> None:
    async def scene(reactor: TrioReactor, endpoint: Endpoint, peer: socket.socket) -> None:
        assert endpoint.wire is not None
        endpoint.wire.fence(lambda: False)
        endpoint.wire.send(b"too late")
        reactor.end_pass()
        assert endpoint.reason is not None
        assert read(peer) is None

    on_a_connection(scene)


def test_a_connection_is_reset_when_the_lease_ends_over_the_write() -> None:
    async def scene(reactor: TrioReactor, endpoint: Endpoint, peer: socket.socket) -> None:
        assert endpoint.wire is not None
        looks = iter([True, False])
        endpoint.wire.fence(lambda: next(looks))
        endpoint.wire.send(b"late")
        reactor.end_pass()
        assert endpoint.reason is not None, "after the last byte the lease is looked at once more"

    on_a_connection(scene)


def test_a_fenced_connection_is_reset_by_the_kernel_when_its_process_is_killed() -> None:
    async def scene(reactor: TrioReactor, endpoint: Endpoint, peer: socket.socket) -> None:
        assert endpoint.wire is not None
        endpoint.wire.fence(lambda: True)
        with twin_of(peer) as twin:
            linger = twin.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, len(RESET_ON_CLOSE))
            assert linger == RESET_ON_CLOSE

    on_a_connection(scene)


def test_sockets_end_after_five_unacknowledged_seconds_and_send_without_delay() -> None:
    async def scene(reactor: TrioReactor, endpoint: Endpoint, peer: socket.socket) -> None:
        with twin_of(peer) as twin:
            assert twin.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 5000
            assert twin.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1

    on_a_connection(scene)


def test_the_clock_of_the_lease_continues_while_the_machine_sleeps() -> None:
    clock = cast(partial[float], TrioReactor(lambda _where, _error: None).now)
    assert clock.args == (time.CLOCK_BOOTTIME,)


# ---------------------------------------------------------------------- R17
def test_a_peer_that_hangs_up_is_noticed_also_while_nothing_is_read_from_it() -> None:
    async def scene(reactor: TrioReactor, endpoint: Endpoint, peer: socket.socket) -> None:
        assert endpoint.wire is not None
        endpoint.wire.pause()
        peer.sendall(b"a request that is not read")
        peer.close()
        await until(lambda: endpoint.reason is not None)

    on_a_connection(scene)


def test_an_error_of_ours_in_one_connection_ends_that_one_and_not_the_process() -> None:
    failures: list[tuple[str, Exception]] = []

    async def run() -> None:
        reactor = TrioReactor(lambda where, error: failures.append((where, error)))
        ends = [Endpoint(), Endpoint()]
        with socket.create_server(("127.0.0.1", 0)) as server:
            async with trio.open_nursery() as nursery:
                await nursery.start(reactor.run)
                peers = []
                for end in ends:
                    reactor.connect(server.getsockname(), end)
                    peers.append(server.accept()[0])
                    await until(lambda end=end: end.wire is not None)  # type: ignore[misc]
                broken, other = (cast(Wire, end.wire) for end in ends)
                broken.fence(lambda: bool(1 // 0))
                reactor.later(0, lambda: broken.send(b"a"))
                await until(lambda: ends[0].reason is not None)
                reactor.later(0, lambda: other.send(b"b"))
                assert await trio.to_thread.run_sync(read, peers[1]) == b"b"
                for peer in peers:
                    peer.close()
                nursery.cancel_scope.cancel()

    trio.run(run)
    assert [(where, type(error)) for where, error in failures] == [("socket", ZeroDivisionError)]


# ---------------------------------------------------------------------- the length of a step
@pytest.mark.parametrize("by_timer", [False, True])
def test_a_step_is_measured_from_its_first_handler_to_its_last_write(by_timer: bool) -> None:
    async def scene(reactor: TrioReactor, endpoint: Endpoint, peer: socket.socket) -> None:
        steps: list[float] = []
        reactor.step_took = steps.append
        busy_seconds = 0.2

        def take_long() -> None:
            time.sleep(busy_seconds)

        if by_timer:
            reactor.later(0.01, take_long)
        else:
            endpoint.on_bytes = take_long
            peer.send(b"a request")
        await until(lambda: any(step >= busy_seconds for step in steps))

    on_a_connection(scene)


def test_each_pass_sends_a_limited_part_however_fast_the_peer_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = bytes(64 << 20)
    shipped, shipped_some = SocketWire.write, SocketWire._write_some
    sent: list[int] = []

    async def scene(reactor: TrioReactor, endpoint: Endpoint, peer: socket.socket) -> None:
        peer.setblocking(False)
        received = 0

        def receive() -> int:
            nonlocal received
            with contextlib.suppress(BlockingIOError):
                while chunk := peer.recv(1 << 20):
                    received += len(chunk)
            return received

        def write_some(wire: SocketWire) -> int:
            taken = shipped_some(wire)
            receive()
            return taken

        def write(wire: SocketWire) -> None:
            before = wire.unsent
            shipped(wire)
            sent.append(before - wire.unsent)

        monkeypatch.setattr(SocketWire, "_write_some", write_some)
        monkeypatch.setattr(SocketWire, "write", write)
        wire = endpoint.wire
        assert wire is not None
        reactor.later(0, lambda: wire.send(data))
        await until(lambda: receive() == len(data))  # a busy kernel may bring the last bytes after the last write

    on_a_connection(scene)
    assert sum(sent) == len(data)
    assert max(sent) < 16 << 20


def test_an_expected_message_is_read_in_a_few_large_pieces() -> None:
    size, behind, kib = 600 * 1024, b"behind it", 1024

    async def scene(reactor: TrioReactor, endpoint: Endpoint, peer: socket.socket) -> None:
        wire = endpoint.wire
        assert wire is not None
        wire.pause()
        with twin_of(peer) as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            await trio.to_thread.run_sync(peer.sendall, bytes(size) + behind)
            held = bytearray(4)
            await until(lambda: fcntl.ioctl(ours, termios.FIONREAD, held) == 0 and _number(held) == size + len(behind))

        def expect() -> None:
            assert endpoint.wire is not None
            if (missing_bytes := size - len(endpoint.data)) > 0:
                endpoint.wire.expect(missing_bytes)

        endpoint.on_bytes = expect
        wire.resume()
        await until(lambda: endpoint.data == bytes(size) + behind)
        assert endpoint.sizes == [64 * kib, 256 * kib, 256 * kib, 24 * kib + len(behind)]

    on_a_connection(scene)


def test_what_was_expected_of_one_read_is_not_of_the_next() -> None:
    async def scene(reactor: TrioReactor, endpoint: Endpoint, peer: socket.socket) -> None:
        wire = endpoint.wire
        assert wire is not None
        wire.expect(1 << 30)
        peer.sendall(b"a little")
        await until(lambda: endpoint.data == b"a little")
        wire.pause()
        with twin_of(peer) as ours:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            await trio.to_thread.run_sync(peer.sendall, bytes(128 * 1024))
            held = bytearray(4)
            await until(lambda: fcntl.ioctl(ours, termios.FIONREAD, held) == 0 and _number(held) == 128 * 1024)
        wire.resume()
        await until(lambda: len(endpoint.sizes) == 3)
        assert endpoint.sizes[1:] == [64 * 1024, 64 * 1024]

    on_a_connection(scene)


def _number(held: bytearray) -> int:
    return int.from_bytes(held, sys.byteorder)
