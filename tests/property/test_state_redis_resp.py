"""However the bytes of replies are cut, callers get the same; whatever the bytes are, each caller is answered once."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from idemproxy.reactor import Buffer
from idemproxy.state.redis_link import RedisLink, ReplyError, pack
from idemproxy.state.store import StoreAway
from testkit.virtual.network import Network

plain = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=300),
    st.builds(ReplyError, st.from_regex(r"[A-Z]{1,12} [ -~]{0,40}", fullmatch=True)),
)
replies = st.recursive(plain, lambda inner: st.lists(inner, max_size=4), max_leaves=6)


class Ear:
    """A wire that only listens to whether it was reset."""

    local_host = ""
    unsent = 0

    def __init__(self) -> None:
        self.resets = 0

    def send(self, *chunks: Buffer) -> None:
        """Gone."""

    def hand_over(self, endpoint: object) -> None:
        """Not used."""

    def fence(self, may_send: Callable[[], bool]) -> None:
        """Not used."""

    def before_reading(self, look: Callable[[], None]) -> None:
        """Not used."""

    def after_writing(self, look: Callable[[], None]) -> None:
        """Not used."""

    def before_end(self, look: Callable[[], bool]) -> None:
        """Not used."""

    def expect(self, missing_bytes: int) -> None:
        """Not used."""

    def pause(self) -> None:
        """Not used."""

    def resume(self) -> None:
        """Not used."""

    def reset(self) -> None:
        """Counted."""
        self.resets += 1

    def close(self) -> None:
        """Not used."""


def encode(reply: Any) -> bytes:
    """RESP 2."""
    match reply:
        case None:
            return b"$-1\r\n"
        case int():
            return b":%d\r\n" % reply
        case bytes():
            return b"$%d\r\n%b\r\n" % (len(reply), reply)
        case list():
            return b"*%d\r\n" % len(reply) + b"".join(map(encode, reply))
        case _:
            return b"-%b\r\n" % str(reply).encode()


def comparable(reply: Any) -> Any:
    """Errors compare by their text."""
    if isinstance(reply, list):
        return [comparable(item) for item in reply]
    return ("error", str(reply)) if isinstance(reply, ReplyError) else reply


def open_link(callers: int) -> tuple[RedisLink, Ear, list[list[Any]]]:
    """A link with so many callers that wait; what each of them got."""
    link, ear = RedisLink(Network(1).host("proxy"), lambda: None, lambda reason: None), Ear()
    link.connected(ear)
    got: list[list[Any]] = [[] for _ in range(callers)]
    for answers in got:
        link.call(pack(b"GET", b"k"), answers.append)
    return link, ear, got


@given(st.lists(replies, min_size=1, max_size=8), st.data())
def test_replies_cut_anywhere_are_the_same_replies(expected: list[Any], data: st.DataObject) -> None:
    stream = b"".join(map(encode, expected))
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(stream) - 1)), max_size=20)))
    link, ear, got = open_link(len(expected))
    for start, end in pairwise([0, *cuts, len(stream)]):
        if start < end:
            link.received(stream[start:end])
    assert [[comparable(reply) for reply in answers] for answers in got] == [[comparable(e)] for e in expected]
    assert ear.resets == 0


@given(st.lists(replies, min_size=1, max_size=5))
def test_replies_byte_by_byte_are_the_same_as_in_one_piece(expected: list[Any]) -> None:
    stream = b"".join(map(encode, expected))
    whole, _, got_whole = open_link(len(expected))
    whole.received(stream)
    single, _, got_single = open_link(len(expected))
    for byte in stream:
        single.received(bytes([byte]))
    for left, right in zip(got_whole, got_single, strict=True):
        assert [comparable(r) for r in left] == [comparable(r) for r in right]
        assert len(left) == 1


@given(st.lists(st.binary(min_size=1, max_size=80), max_size=6), st.integers(0, 4))
def test_any_bytes_end_in_one_answer_for_each_caller(pieces: list[bytes], callers: int) -> None:
    link, ear, got = open_link(callers)
    for piece in pieces:
        link.received(piece)
        if ear.resets:
            break
    link.lost("the end")
    assert ear.resets <= 1
    assert all(len(answers) == 1 for answers in got)


@given(st.lists(replies, min_size=2, max_size=6), st.integers(0, 1000))
def test_a_stream_that_breaks_off_gives_right_replies_first_and_then_none(expected: list[Any], where: int) -> None:
    stream = b"".join(map(encode, expected))
    place = where % len(stream)
    link, _, got = open_link(len(expected))
    link.received(stream[:place])
    whole = sum(bool(answers) for answers in got)
    assert [comparable(answers[0]) for answers in got[:whole]] == [comparable(e) for e in expected[:whole]]
    link.lost("broken off")
    assert all(isinstance(answers[0], StoreAway) for answers in got[whole:])
