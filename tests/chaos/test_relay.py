"""The relay of the chaos run, on real sockets: what passes, what is lost, and what each side is told."""

import socket
import threading
import time
from collections.abc import Iterator
from random import Random

import pytest
from chaos import pipe
from chaos.pipe import Strike
from chaos.relay import Relay

RANDOM = Random(1)
HELD_SECONDS = 2.0
"""Long beside what a busy machine takes to look at a socket."""


class Peer:
    """A client and the server behind the relay, connected."""

    def __init__(self, relay: Relay) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            gate = relay.open("link", "gate", ("127.0.0.1", 0), listener.getsockname)
            self.client = socket.create_connection(gate.address, 5)
            self.server, _ = listener.accept()
        self.server.settimeout(5)
        self.client.sendall(b"hello")
        assert self.server.recv(100) == b"hello"
        self.server.sendall(b"you too")
        assert self.client.recv(100) == b"you too"

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def relay() -> Iterator[Relay]:
    with Relay() as running:
        yield running


@pytest.fixture
def peer(relay: Relay) -> Iterator[Peer]:
    one = Peer(relay)
    yield one
    one.close()


def is_reset(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) is None
    except ConnectionResetError:
        return True


def hears_nothing(connection: socket.socket, seconds: float) -> bool:
    connection.settimeout(seconds)
    try:
        return connection.recv(100) is None
    except TimeoutError:
        return True
    finally:
        connection.settimeout(5)


def test_megabytes_pass_unchanged_in_both_directions_at_once(peer: Peer) -> None:
    data = RANDOM.randbytes(8 << 20)
    got: dict[str, bytes] = {}

    def receive(name: str, connection: socket.socket) -> None:
        parts = bytearray()
        while len(parts) < len(data):
            parts += connection.recv(1 << 16)
        got[name] = bytes(parts)

    threads = [threading.Thread(target=receive, args=pair) for pair in (("s", peer.server), ("c", peer.client))]
    threads += [threading.Thread(target=one.sendall, args=(data,)) for one in (peer.client, peer.server)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert got["s"] == got["c"] == data


def test_an_end_in_order_is_passed_on_behind_the_last_bytes(peer: Peer) -> None:
    peer.client.sendall(b"last words")
    peer.client.close()
    assert peer.server.recv(100) == b"last words"
    assert peer.server.recv(100) == b""


def test_a_cut_resets_both_sides(relay: Relay, peer: Peer) -> None:
    assert relay.cut("link", 1.0, RANDOM) == 1
    assert is_reset(peer.client)
    assert is_reset(peer.server)


def test_a_link_without_connections_can_be_hit_and_nothing_is_counted(relay: Relay) -> None:
    assert relay.cut("link", 1.0, RANDOM) == 0


@pytest.mark.parametrize("client_is_cut", [True, False])
def test_half_open_resets_one_side_and_keeps_the_other_in_the_dark(
    relay: Relay, peer: Peer, client_is_cut: bool
) -> None:
    relay.half_open("link", 1.0, RANDOM, client_is_cut=client_is_cut, seconds=HELD_SECONDS)
    cut, left = (peer.client, peer.server) if client_is_cut else (peer.server, peer.client)
    assert is_reset(cut)
    left.sendall(b"is anybody there?")
    assert hears_nothing(left, 0.1)
    assert is_reset(left), "after its time it is reset as well"


def test_what_is_held_arrives_late_and_whole(relay: Relay, peer: Peer) -> None:
    relay.hold("link", 1.0, RANDOM, HELD_SECONDS)
    peer.client.sendall(b"held")
    peer.server.sendall(b"as well")
    assert hears_nothing(peer.server, 0.1)
    assert hears_nothing(peer.client, 0.1)
    assert peer.server.recv(100) == b"held"
    assert peer.client.recv(100) == b"as well"


def test_what_is_held_for_one_that_is_reset_meanwhile_never_arrives(relay: Relay, peer: Peer) -> None:
    relay.hold("link", 1.0, RANDOM, HELD_SECONDS)
    peer.client.sendall(b"held")
    peer.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.client.close()
    assert hears_nothing(peer.server, 0.2)
    assert is_reset(peer.server)


def test_a_lost_answer_is_swallowed_and_both_sides_are_reset(relay: Relay, peer: Peer) -> None:
    relay.arm("link", 1.0, RANDOM, Strike.LOST_ANSWER)
    peer.client.sendall(b"request")
    assert peer.server.recv(100) == b"request"
    peer.server.sendall(b"answer")
    assert is_reset(peer.client)
    assert is_reset(peer.server)
    assert relay.strikes == {("link", Strike.LOST_ANSWER): 1}


def test_half_a_request_arrives_before_the_reset(relay: Relay, peer: Peer) -> None:
    relay.arm("link", 1.0, RANDOM, Strike.HALF_REQUEST)
    peer.client.sendall(b"12345678")
    assert peer.server.recv(100) == b"1234"
    assert is_reset(peer.server)
    assert is_reset(peer.client)


def test_a_late_delivery_arrives_after_its_sender_was_reset(
    relay: Relay, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe, "LATE_SECONDS", HELD_SECONDS)
    relay.arm("link", 1.0, RANDOM, Strike.LATE_DELIVERY)
    started = time.monotonic()
    peer.client.sendall(b"request")
    assert is_reset(peer.client)
    assert time.monotonic() - started < HELD_SECONDS
    assert peer.server.recv(100) == b"request"
    assert time.monotonic() - started >= HELD_SECONDS


def test_a_strike_that_meets_no_bytes_is_not_counted(relay: Relay, peer: Peer) -> None:
    assert relay.arm("link", 1.0, RANDOM, Strike.LOST_ANSWER) == 1
    assert relay.strikes == {}
