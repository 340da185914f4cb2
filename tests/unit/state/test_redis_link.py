"""The link to Redis on a virtual network and clock: order, one write per pass, silence, ends."""

from collections.abc import Callable
from typing import Any

import hiredis
import pytest

from idemproxy.reactor import Wire
from idemproxy.state.redis_link import REPLY_BYTES_MAX, REPLY_SECONDS_MAX, RedisLink, ReplyError, SwapCommand, pack
from idemproxy.state.store import StoreAway
from testkit.virtual.network import Network, NetworkSettings

ADDRESS = ("redis", 6379)
QUIET = NetworkSettings(split_chance=0.0, partial_write_chance=0.0, truncation_chance=0.0)


class Peer:
    """The other end: keeps what arrives, answers what the test says."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.wire: Wire | None = None
        self.lost_reason: str | None = None

    def connected(self, wire: Wire) -> None:
        """The link is there."""
        self.wire = wire

    def received(self, data: bytes) -> None:
        """Keep it."""
        self.pieces.append(data)

    def lost(self, reason: str) -> None:
        """The link has gone."""
        self.lost_reason = reason

    def answer(self, data: bytes) -> None:
        """Send from outside of a pass."""
        assert self.wire is not None
        self.wire.send(data)


class Scene:
    """One link and its peer."""

    def __init__(self, *, listening: bool = True) -> None:
        self.network = Network(7, QUIET)
        self.proxy = self.network.host("proxy")
        self.server = self.network.host("redis")
        self.peer = Peer()
        if listening:
            self.network.listen(self.server, ADDRESS, lambda: self.peer)
        self.opened = 0
        self.ended: list[str] = []
        self.replies: list[Any] = []
        self.answered_before_end = 0
        self.link = RedisLink(self.proxy, self._on_open, self._on_end)
        self.proxy.connect(ADDRESS, self.link)

    def _on_open(self) -> None:
        self.opened += 1

    def _on_end(self, reason: str) -> None:
        self.ended.append(reason)
        self.answered_before_end = len(self.replies)

    def open(self) -> None:
        """Until both sides have their wire."""
        assert self.network.run(1.0, lambda: self.opened == 1 and self.peer.wire is not None)

    def call(self, *parts: bytes) -> None:
        """One command, its reply goes into ``replies``."""
        self.link.call(pack(*parts), self.replies.append)

    def run_until(self, done: Callable[[], bool], seconds: float = 5.0) -> None:
        """Let the network run until then."""
        assert self.network.run(seconds, done)


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.open()
    return scene


def test_a_packed_command_is_what_the_c_library_packs() -> None:
    assert pack(b"SET", b"key", b"a\r\nb", b"") == hiredis.pack_command((b"SET", b"key", b"a\r\nb", b""))


@pytest.mark.parametrize("ttl_ms", [0, 1, 86_400_000])
def test_the_swap_command_is_what_the_c_library_packs(ttl_ms: int) -> None:
    sha = b"f" * 40
    command = SwapCommand(sha, b"a member", b"1")
    for version, value in [(0, b""), (1, b"\r\n$5"), (2**64 - 1, b"v" * 300)]:
        keys = (b"2", b"k\xc3\xa9y", b"a member")
        parts = (b"EVALSHA", sha, *keys, version.to_bytes(8, "big"), value, b"%d" % ttl_ms)
        for beat in (b"9", b"10"):
            command.renew(beat)
            assert command.pack(b"k\xc3\xa9y", version, value, ttl_ms) == hiredis.pack_command((*parts, beat))


def test_the_time_to_live_may_change_from_call_to_call() -> None:
    command = SwapCommand(b"f" * 40, b"a member", b"7")
    packed = [command.pack(b"k", 1, b"v", ttl_ms) for ttl_ms in (0, 5000, 5000, 0)]
    assert packed[0] == packed[3]
    assert packed[1] == packed[2]
    assert packed[0].endswith(b"$1\r\n0\r\n$1\r\n7\r\n")
    assert packed[1].endswith(b"$4\r\n5000\r\n$1\r\n7\r\n")


def test_replies_go_to_the_callers_in_the_order_of_their_calls(scene: Scene) -> None:
    for number in range(5):
        scene.call(b"GET", b"%d" % number)
    scene.peer.answer(b"".join(b"$1\r\n%d\r\n" % number for number in range(5)))
    scene.run_until(lambda: len(scene.replies) == 5)
    assert scene.replies == [b"0", b"1", b"2", b"3", b"4"]


def test_all_commands_of_one_pass_leave_in_one_piece(scene: Scene) -> None:
    for number in range(50):
        scene.call(b"GET", b"%d" % number)
    scene.run_until(lambda: bool(scene.peer.pieces))
    assert scene.peer.pieces == [b"".join(pack(b"GET", b"%d" % number) for number in range(50))]


def test_a_command_that_a_reply_causes_leaves_too(scene: Scene) -> None:
    scene.link.call(pack(b"GET", b"1"), lambda reply: scene.call(b"GET", b"2"))
    scene.peer.answer(b"$-1\r\n")
    scene.run_until(lambda: b"".join(scene.peer.pieces).endswith(pack(b"GET", b"2")))
    scene.peer.answer(b"+OK\r\n")
    scene.run_until(lambda: scene.replies == [b"OK"])


def test_an_error_line_is_a_reply_like_others(scene: Scene) -> None:
    scene.call(b"EVALSHA")
    scene.peer.answer(b"-NOSCRIPT No matching script.\r\n")
    scene.run_until(lambda: bool(scene.replies))
    (reply,) = scene.replies
    assert isinstance(reply, ReplyError)
    assert reply.code == "NOSCRIPT"
    assert scene.ended == []


def test_a_script_error_of_an_old_server_is_recognised_within_its_line() -> None:
    line = (
        "ERR Error running script (call to f_0): @user_script:9: -READONLY You can't write against a read only replica."
    )
    assert ReplyError(line).mentions("READONLY")
    assert not ReplyError(line).mentions("NOSCRIPT")


def test_the_owner_learns_of_a_connections_end_before_callers_that_wait(scene: Scene) -> None:
    scene.call(b"GET", b"1")
    scene.call(b"GET", b"2")
    scene.server.crash()
    scene.run_until(lambda: len(scene.replies) == 2)
    assert len(scene.ended) == 1
    assert scene.answered_before_end == 0
    assert all(isinstance(answer, StoreAway) for answer in scene.replies)


def test_an_error_of_one_caller_does_not_keep_the_others_from_their_answer(scene: Scene) -> None:
    def fail(reply: object) -> None:
        raise ZeroDivisionError

    scene.link.call(pack(b"GET", b"1"), fail)
    scene.call(b"GET", b"2")
    with pytest.raises(ZeroDivisionError):
        scene.link.reset("enough")
    assert scene.replies == [StoreAway("enough")]


def test_a_command_that_is_not_answered_in_time_ends_the_connection(scene: Scene) -> None:
    scene.network.run(1.0)
    started = scene.network.now
    scene.call(b"GET", b"1")
    scene.run_until(lambda: bool(scene.replies))
    assert isinstance(scene.replies[0], StoreAway)
    assert REPLY_SECONDS_MAX <= scene.network.now - started < REPLY_SECONDS_MAX + 0.1
    scene.run_until(lambda: scene.peer.lost_reason is not None)


def test_answers_to_earlier_commands_do_not_save_a_stuck_one(scene: Scene) -> None:
    started = scene.network.now
    scene.call(b"GET", b"1")
    scene.network.run(0.5)
    scene.call(b"GET", b"2")
    scene.network.run(0.5)
    scene.peer.answer(b"$-1\r\n")
    scene.run_until(lambda: len(scene.replies) == 2)
    assert scene.replies[0] is None
    assert 0.5 + REPLY_SECONDS_MAX <= scene.network.now - started < 0.6 + REPLY_SECONDS_MAX


def test_an_idle_connection_stays(scene: Scene) -> None:
    scene.network.run(60.0)
    assert scene.ended == []


def test_a_connection_that_nobody_opens_is_unrecoverable_and_reset_if_it_opens_after_all() -> None:
    scene = Scene(listening=False)
    ended: list[str] = []
    link = RedisLink(scene.proxy, lambda: None, ended.append)
    scene.run_until(lambda: bool(ended), 3.0)
    assert "no connection" in ended[0]
    scene.network.listen(scene.server, ADDRESS, lambda: scene.peer)
    scene.proxy.connect(ADDRESS, link)
    scene.run_until(lambda: scene.peer.lost_reason is not None)


def test_a_refused_connection_is_reported_once() -> None:
    scene = Scene(listening=False)
    scene.run_until(lambda: bool(scene.ended))
    scene.network.run(10.0)
    assert len(scene.ended) == 1


@pytest.mark.parametrize(
    "garbage",
    [b"hello\r\n", b"*99999999999999\r\n", b"$-7\r\n", b"%1\r\n*0\r\n:1\r\n", b"\x16\x03\x01", b"HTTP/1.1 400\r\n"],
)
def test_what_is_no_reply_ends_the_connection(scene: Scene, garbage: bytes) -> None:
    scene.call(b"GET", b"1")
    scene.peer.answer(garbage)
    scene.run_until(lambda: bool(scene.replies), 1.0)
    assert isinstance(scene.replies[0], StoreAway)


def test_an_answer_that_nobody_asked_for_ends_the_connection(scene: Scene) -> None:
    scene.peer.answer(b"+OK\r\n")
    scene.run_until(lambda: bool(scene.ended), 1.0)


def test_a_reply_without_end_is_not_collected(scene: Scene) -> None:
    scene.call(b"GET", b"1")
    scene.peer.answer(b"$%d\r\n" % (REPLY_BYTES_MAX * 4) + b"x" * (REPLY_BYTES_MAX + 100_000))
    scene.run_until(lambda: bool(scene.replies), 1.5)
    assert "bytes" in scene.replies[0].reason


def test_closing_tells_nobody(scene: Scene) -> None:
    scene.link.close()
    scene.run_until(lambda: scene.peer.lost_reason is not None)
    scene.network.run(5.0)
    assert scene.ended == []
