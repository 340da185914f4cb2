"""The login at Redis that is sent ahead of all commands, and can be another one for the next connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from idemproxy.proxy.process.redis_login import OverRedisLogin
from idemproxy.reactor import Wire
from idemproxy.state.redis_facts import RedisAddress
from idemproxy.state.redis_link import RedisLink, ReplyError, pack
from testkit.virtual.network import Network, NetworkSettings

ADDRESS = ("redis", 6379)
QUIET = NetworkSettings(split_chance=0.0, partial_write_chance=0.0, truncation_chance=0.0)
OLD, NEW = RedisAddress(ADDRESS, "me", "old"), RedisAddress(ADDRESS, None, "new")
PING = pack(b"PING")


class Peer:
    """Redis: keeps what arrives, answers what the test says."""

    def __init__(self) -> None:
        self.heard = b""
        self.wire: Wire | None = None

    def connected(self, wire: Wire) -> None:
        """Somebody is there."""
        self.wire = wire

    def received(self, data: bytes) -> None:
        """Keep it."""
        self.heard += data

    def lost(self, reason: str) -> None:
        """He has gone."""


class Scene:
    """A reactor that logs in, and the links that were opened through it."""

    def __init__(self, login: RedisAddress) -> None:
        self.network = Network(7, QUIET)
        self.peers: list[Peer] = []
        self.network.listen(self.network.host("redis"), ADDRESS, self._accept)
        self.reactor = OverRedisLogin(self.network.host("proxy"), login)
        self.ended: list[str] = []

    def _accept(self) -> Peer:
        self.peers.append(Peer())
        return self.peers[-1]

    def until(self, done: Callable[[], bool]) -> None:
        """Let the network run."""
        assert self.network.run(1.0, done)

    def pinged(self) -> tuple[Peer, list[Any]]:
        """A new connection over which one command was sent: what Redis has of it, and the replies."""
        replies: list[Any] = []
        link = RedisLink(self.reactor, lambda: link.call(PING, replies.append), self.ended.append)
        before = len(self.peers)
        self.reactor.connect(ADDRESS, link)
        self.until(lambda: len(self.peers) > before and self.peers[-1].heard.endswith(PING))
        return self.peers[-1], replies

    def answer(self, peer: Peer, *pieces: bytes) -> None:
        """What Redis says, each piece in a read of its own."""
        for piece in pieces:
            assert peer.wire is not None
            peer.wire.send(piece)
            self.network.run(0.1, lambda: False)


@pytest.mark.parametrize(
    ("login", "sent"),
    [
        (OLD, pack(b"AUTH", b"me", b"old") + PING),
        (NEW, pack(b"AUTH", b"new") + PING),
        (RedisAddress(ADDRESS), PING),
    ],
)
def test_the_login_is_in_the_first_write_and_absent_without_a_password(login: RedisAddress, sent: bytes) -> None:
    peer, _ = Scene(login).pinged()
    assert peer.heard == sent


@pytest.mark.parametrize("size", [1, 2, 4, 5, 6, 100])
def test_the_connections_user_sees_no_login_answer_however_it_is_cut(size: int) -> None:
    scene = Scene(OLD)
    peer, replies = scene.pinged()
    text = b"+OK\r\n+OK\r\n"
    scene.answer(peer, *(text[start : start + size] for start in range(0, len(text), size)))
    assert replies == [b"OK"]
    assert scene.ended == []


def test_a_refusal_is_the_answer_to_the_first_command() -> None:
    scene = Scene(OLD)
    peer, replies = scene.pinged()
    scene.answer(peer, b"-WRONGPASS no\r\n")
    (refusal,) = replies
    assert isinstance(refusal, ReplyError)
    assert refusal.code == "WRONGPASS"


def test_another_login_is_for_the_next_connection_and_the_one_that_is_up_stays() -> None:
    scene = Scene(OLD)
    first, replies = scene.pinged()
    scene.reactor.replace(NEW)
    scene.answer(first, b"+OK\r\n", b"+PONG\r\n")
    assert replies == [b"PONG"]
    second, _ = scene.pinged()
    assert second.heard == pack(b"AUTH", b"new") + PING
    assert scene.ended == []


def test_the_end_is_reported_also_before_the_login_answer() -> None:
    scene = Scene(OLD)
    peer, _ = scene.pinged()
    assert peer.wire is not None
    peer.wire.reset()
    scene.until(lambda: bool(scene.ended))
