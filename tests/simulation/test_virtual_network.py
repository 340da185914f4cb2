"""The virtual network itself: order, passes, fences, pauses, crashes and determinism."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from idemproxy.reactor import Reactor, Wire
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


def check_reactor(reactor: Reactor) -> None:
    """Takes what the interface promises: the type checker compares."""
    assert reactor.now() >= 0


def test_a_host_is_a_reactor() -> None:
    check_reactor(Network(1).host("a"))


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


def test_timers_fire_in_order_and_not_when_cancelled() -> None:
    network = Network(3)
    host = network.host("a", clock_offset=1000.0)
    seen: list[tuple[str, float]] = []
    host.later(0.2, lambda: seen.append(("b", host.now())))
    host.later(0.1, lambda: seen.append(("a", host.now())))
    timer = host.later(0.15, lambda: seen.append(("never", host.now())))
    timer.cancel()
    timer.cancel()
    network.run(1)
    assert [name for name, _ in seen] == ["a", "b"]
    assert seen[0][1] >= 1000.1
    assert host.now() == pytest.approx(1001.0)


def test_a_refused_connection_is_lost_and_never_connected() -> None:
    network = Network(1)
    host = network.host("a")
    near = Recorder()
    host.connect(("nobody", 1), near)
    network.run(1)
    assert near.wire is None
    assert near.reasons == ["connection refused"]


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


def test_a_fence_that_says_no_before_the_write_keeps_the_bytes_and_tells_the_endpoint() -> None:
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


def test_a_host_that_crashes_inside_a_handler_does_nothing_more() -> None:
    network, a, _, near, far = pair()
    seen: list[str] = []

    def handler() -> None:
        wire_of(near).send(b"x")
        try:
            a.crash_now()
        except Exception:  # what a careless handler would catch
            seen.append("swallowed")
        seen.append("went on")

    a.later(0.1, handler)
    network.run(1)
    assert seen == []
    assert bytes(far.data) == b""
    assert not a.alive


def test_a_crash_can_be_asked_for_by_a_predicate() -> None:
    network, a, _, near, far = pair(settings=NetworkSettings(truncation_chance=0, split_chance=0))
    a.crash_at(lambda: bytes(far.data) == b"x")
    wire_of(near).send(b"x")
    network.run(1)
    assert a.alive, "it is looked at after a pass of that host"
    wire_of(near).send(b"y")
    network.run(1)
    assert not a.alive


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


@pytest.mark.parametrize("byte", [0, 1, 4, 9])
def test_a_connection_can_be_cut_after_any_byte(byte: int) -> None:
    network, _, _, near, far = pair()
    network.open_connections()[0].cut_after(0, byte)
    wire_of(near).send(b"0123456789")
    network.run(1)
    assert bytes(far.data) == b"0123456789"[:byte]
    assert len(far.reasons) == len(near.reasons) == 1


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


def test_a_listener_of_a_new_life_takes_the_address_over() -> None:
    network, a, b, near, _ = pair()
    b.crash()
    network.run(1)
    assert len(near.reasons) == 1
    again, second = Recorder(), Recorder()
    a.connect(ADDRESS, again)
    network.run(1)
    assert again.reasons == ["connection refused"]
    network.listen(network.host("b2"), ADDRESS, lambda: second)
    third = Recorder()
    a.connect(ADDRESS, third)
    network.run(1)
    assert third.wire is not None
    assert second.wire is not None
    assert wire_of(second).local_host == "server"


def test_an_error_of_a_host_comes_out_with_its_seed_and_time() -> None:
    network = Network(77)
    host = network.host("a")

    def fails() -> None:
        raise ValueError("wrong")

    host.later(1, fails)
    with pytest.raises(ValueError, match="wrong") as caught:
        network.run(2)
    assert "seed 77" in caught.value.__notes__[0]


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


def test_who_asked_for_it_is_told_when_the_last_queued_byte_has_left() -> None:
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
