"""A byte stream that is passed on as it comes, but for the starts of some of its frames."""

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.codecs.errors import LimitExceeded, Malformed, WireError
from idemproxy.codecs.frame_stream import PASSES, Cut, FrameStream
from idemproxy.codecs.framing import frame

REPLACED, DROPPED, LOOKED_AT = b"R", b"D", b"L"
START_BYTES = 8
"""Of a frame that begins with ``LOOKED_AT``, before anything is said of it."""


def look(data: bytes, start: int, size: int) -> Cut | None:
    """Decide by the first byte of the frame."""
    there = data[start + 4 : start + 4 + size]
    if size and not there:
        return None
    if there.startswith(REPLACED):
        return Cut(5, frame(b"new" + bytes(size - 1))[:7])
    if there.startswith(DROPPED):
        return Cut(0, b"", drops_rest=True)
    if there.startswith(LOOKED_AT) and len(there) < min(size, START_BYTES):
        return None
    return PASSES


def expected(bodies: Sequence[bytes]) -> bytes:
    """What is passed on of these frames."""
    kept = [b"new" + body[1:] if body.startswith(REPLACED) else body for body in bodies]
    return b"".join(frame(body) for body in kept if not body.startswith(DROPPED))


def fed(stream: FrameStream, pieces: Sequence[bytes]) -> bytes:
    return b"".join(bytes(part) for piece in pieces if piece for part in stream.feed(piece))


def a_stream(look: Callable[[bytes, int, int], Cut | None] = look, start_bytes_max: int = 64) -> FrameStream:
    return FrameStream(look, 1 << 20, start_bytes_max)


BODIES = st.lists(
    st.tuples(st.sampled_from([b"x", REPLACED, DROPPED, LOOKED_AT, b""]), st.binary(max_size=40)).map(
        lambda parts: parts[0] + parts[1]
    ),
    max_size=8,
)


@given(
    BODIES.map(lambda bodies: [b"x" + one if one[:1] not in (b"R", b"D", b"L") else one for one in bodies]), st.data()
)
def test_it_is_the_same_in_one_piece_byte_by_byte_and_in_any_pieces(bodies: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(map(frame, bodies))
    wanted = expected(bodies)
    assert fed(a_stream(), [whole]) == wanted
    assert fed(a_stream(), [bytes((byte,)) for byte in whole]) == wanted
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    ends = [0, *cuts, len(whole)]
    assert fed(a_stream(), [whole[a:b] for a, b in itertools.pairwise(ends)]) == wanted


def test_what_passes_is_the_very_object_that_came() -> None:
    data = frame(b"one") + frame(b"two")
    (passed,) = a_stream().feed(data)
    assert passed is data


def test_a_frame_that_is_larger_than_what_comes_is_not_kept() -> None:
    stream, body = a_stream(), b"x" * 100_000
    assert sum(len(part) for part in stream.feed(frame(body)[:1000])) == 1000
    assert (stream.start_bytes, stream.is_between) == (0, False)
    assert sum(len(part) for part in stream.feed(frame(body)[1000:])) == len(body) + 4 - 1000
    assert stream.is_between


def test_no_more_of_a_start_is_kept_than_was_said() -> None:
    stream = FrameStream(lambda _data, _start, _size: None, 1 << 20, 64)
    stream.feed(frame(bytes(1000))[:64])
    with pytest.raises(LimitExceeded, match="more than 64 bytes"):
        stream.feed(bytes(8))


@pytest.mark.parametrize(
    ("start", "error"),
    [
        (b"\x7f\xff\xff\xff", LimitExceeded),
        (b"\xff\xff\xff\xff", Malformed),
        (b"GET ", Malformed),
        (b"\x16\x03\x01\x00", Malformed),
    ],
)
def test_a_size_that_cannot_be_is_refused(start: bytes, error: type[WireError]) -> None:
    with pytest.raises(error, match="frame size"):
        a_stream().feed(start)


def test_a_closed_stream_shows_nothing_and_lets_nothing_through() -> None:
    stream = a_stream()
    stream.close()
    assert fed(stream, [frame(b"x1"), frame(b"R2")]) == b""


@pytest.mark.parametrize("first", [1, 3, 9], ids=["size", "frame", "whole"])
def test_frames_before_an_impossible_size_are_passed_on(first: int) -> None:
    stream, data = a_stream(), frame(b"x1") + frame(b"R2") + frame(b"x3") + b"\xff\xff\xff\xff rest"
    assert fed(stream, [data[:first], data[first:]]) == expected([b"x1", b"R2", b"x3"])
    assert isinstance(stream.error, Malformed)
