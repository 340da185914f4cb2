"""The virtual network itself: order, passes, fences, pauses, crashes and determinism."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from idemproxy.reactor import Wire
from testkit.virtual.network import Network, NetworkSettings, VirtualReactor

ADDRESS = ("server", 9092)


class Recorder:
    """Keeps what its wire tells it."""

    def __init__(self, on_connected: Callable[[Wire], None] | None = None) -> None:
        self.wire: Wire | None = None
        self.data = bytearray()
        self.pieces = 0
        self.reasons: list[str] = []
        self._on_connected = on_connected

    def connected(self, wire: Wire) -> None:
        self.wire = wire
        if self._on_connected is not None:
            self._on_connected(wire)

    def received(self, data: bytes) -> None:
        assert 1 <= len(data) <= 64 * 1024
        assert not self.reasons, "bytes after the loss"
        self.pieces += 1
        self.data += data

    def lost(self, reason: str) -> None:
        self.reasons.append(reason)


def pair(
    seed: int = 1, settings: NetworkSettings | None = None
) -> tuple[Network, VirtualReactor, VirtualReactor, Recorder, Recorder]:
    """A network with one open connection from host a to host b."""
    network = Network(seed, settings)
    a, b = network.host("a"), network.host("b")
    near, far = Recorder(), Recorder()
    network.listen(b, ADDRESS, lambda: far)
    a.connect(ADDRESS, near)
    assert near.wire is None, "connected is never called from inside connect"
    assert network.run(1, lambda: near.wire is not None and far.wire is not None)
    return network, a, b, near, far


def wire_of(recorder: Recorder) -> Wire:
    assert recorder.wire is not None
    return recorder.wire


@pytest.mark.parametrize("seed", range(20))
def test_bytes_arrive_whole_and_in_order_whatever_the_split(seed: int) -> None:
    network, _, _, near, far = pair(seed, NetworkSettings(split_chance=0.8, partial_write_chance=0.5))
    sent = bytes(range(256)) * 2000
    for start in range(0, len(sent), 70_001):
        wire_of(near).send(sent[start : start + 70_001])
    network.run(5)
    assert bytes(far.data) == sent
    assert far.pieces > 8
    assert wire_of(near).unsent == 0


def test_bytes_leave_after_the_flush_callbacks_in_one_write() -> None:
    network, a, _, near, far = pair(settings=NetworkSettings(split_chance=0, partial_write_chance=0))
    order: list[str] = []

    def handler() -> None:
        a.at_flush(first)
        wire_of(near).send(b"handler ")
        order.append("handler")

    def first() -> None:
        order.append("first")
        a.at_flush(second)

    def second() -> None:
        order.append("second")
        wire_of(near).send(b"flush")
        assert not far.data

    a.later(0.1, handler)
    network.run(1)
    assert order == ["handler", "first", "second"]
    assert (bytes(far.data), far.pieces) == (b"handler flush", 1)


def test_close_sends_what_is_queued_and_reset_discards_it() -> None:
    network, _, _, near, far = pair()
    wire_of(near).send(b"last words")
    wire_of(near).close()
    network.run(1)
    assert bytes(far.data) == b"last words"
    assert far.reasons == ["connection closed by peer"]
    assert near.reasons == []

    network, _, _, near, far = pair()
    wire_of(near).send(b"never sent")
    wire_of(near).reset()
    network.run(1)
    assert bytes(far.data) == b""
    assert far.reasons == ["connection reset by peer"]
    assert near.reasons == []


def test_a_fence_that_refuses_a_write_keeps_bytes_and_tells_the_endpoint() -> None:
    network, _, _, near, far = pair()
    wire_of(near).fence(lambda: False)
    wire_of(near).send(b"late")
    network.run(1)
    assert bytes(far.data) == b""
    assert near.reasons == ["the fence does not allow sending any more"]
    assert len(far.reasons) == 1


def test_a_fence_is_asked_again_after_the_write() -> None:
    network, _, _, near, far = pair(settings=NetworkSettings(truncation_chance=0))
    answers = [True, False]
    wire_of(near).fence(lambda: answers.pop(0))
    wire_of(near).send(b"just too late")
    network.run(1)
    assert answers == []
    assert bytes(far.data) == b"just too late"
    assert len(near.reasons) == 1


def test_a_paused_reader_stops_its_peer_and_still_notices_that_it_hangs_up() -> None:
    network, _, b, near, far = pair(settings=NetworkSettings(window_bytes=10_000, partial_write_chance=0))
    wire_of(far).pause()
    wire_of(near).send(bytes(25_000))
    network.run(1)
    assert not far.data
    assert wire_of(near).unsent == 15_000
    wire_of(far).resume()
    network.run(1)
    assert len(far.data) == 25_000
    wire_of(far).pause()
    wire_of(near).send(b"unread")
    wire_of(near).close()
    network.run(1)
    assert far.reasons == ["connection closed by peer"]
    assert b.alive


def test_a_crash_takes_timers_and_unwritten_bytes_and_tells_the_peer() -> None:
    network, a, _, near, far = pair()
    fired: list[int] = []
    a.later(0.5, lambda: fired.append(1))
    wire_of(near).send(b"queued, not written")
    a.crash()
    network.run(2)
    assert fired == []
    assert bytes(far.data) == b""
    assert len(far.reasons) == 1
    assert near.reasons == []


def test_bytes_written_before_a_crash_may_arrive_or_not() -> None:
    lengths = set()
    for seed in range(60):
        network, a, _, near, far = pair(seed)
        wire_of(near).send(b"0123456789")
        a.crash_after_pass()
        network.run(1)
        assert b"0123456789".startswith(bytes(far.data))
        lengths.add(len(far.data))
    assert {0, 10} <= lengths
    assert len(lengths) > 3


def test_a_half_open_connection_tells_only_who_sends_and_only_after_the_timeout() -> None:
    network, a, _, near, far = pair()
    a.crash(half_open=True)
    network.run(60)
    assert far.reasons == []
    wire_of(far).send(b"anybody?")
    network.run(4.9)
    assert far.reasons == []
    network.run(1)
    assert far.reasons == ["connection timed out"]
    assert near.reasons == []


def test_a_stranded_connection_delivers_late_and_never_tells_that_its_opener_has_gone() -> None:
    network, _, _, near, far = pair()
    network.watchers.append(lambda way, data: network.schedule(0, lambda: way.sender.connection.strand(2.0)))
    wire_of(near).send(b"late")
    network.run(1.9)
    assert len(near.reasons) == 1
    assert not far.data
    network.watchers.clear()
    network.run(60)
    assert bytes(far.data) == b"late"
    assert not far.reasons, "whoever waits for more of it is told nothing"
    wire_of(far).send(b"an answer")
    network.run(60)
    assert far.reasons
    assert not near.data


def test_a_late_cut_tells_the_opener_now_and_delivers_later() -> None:
    network, _, _, near, far = pair()
    network.watchers.append(lambda way, data: network.schedule(0, lambda: way.sender.connection.cut(late=3.0)))
    wire_of(near).send(b"on its way")
    network.run(1)
    assert len(near.reasons) == 1
    assert bytes(far.data) == b""
    network.run(3)
    assert bytes(far.data) == b"on its way"
    assert len(far.reasons) == 1


def test_a_paused_host_runs_nothing_and_catches_up_later() -> None:
    network, _, b, near, far = pair()
    b.pause(10)
    wire_of(near).send(b"hello")
    network.run(9)
    assert not far.data
    network.run(2)
    assert bytes(far.data) == b"hello"


def busy_run(seed: int) -> tuple[int, int, float]:
    """Ping-pong on several connections with a crash in the middle."""
    network = Network(seed, NetworkSettings(split_chance=0.5))
    server = network.host("server")

    class Echo(Recorder):
        def received(self, data: bytes) -> None:
            super().received(data)
            wire_of(self).send(data)

    network.listen(server, ADDRESS, Echo)
    clients = [network.host(f"client-{number}") for number in range(4)]
    for client in clients:
        echo = Echo(lambda wire: wire.send(b"ping" * 50))
        client.connect(ADDRESS, echo)
    network.schedule(0.05, clients[0].crash)
    network.run(0.2)
    return network.digest, network.events_run, network.now


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    assert busy_run(5) == busy_run(5)
    assert busy_run(5)[0] != busy_run(6)[0]


def test_after_writing_calls_back_when_the_last_queued_byte_has_left() -> None:
    network, _, _, near, far = pair(1, NetworkSettings(window_bytes=600))
    told: list[int] = []
    wire = wire_of(near)
    wire.after_writing(lambda: told.append(wire.unsent))
    wire_of(far).pause()
    wire.send(bytes(1000))
    network.run(1)
    assert (told, wire.unsent > 0) == ([], True), "the window is full"
    wire_of(far).resume()
    network.run(1)
    assert told == [0]
    assert len(far.data) == 1000
