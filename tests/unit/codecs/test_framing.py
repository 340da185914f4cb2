from __future__ import annotations

import tracemalloc

import pytest

from idemproxy.codecs.errors import LimitExceeded, Malformed
from idemproxy.codecs.framing import FrameSplitter, frame


def test_a_frame_is_its_size_and_its_chunks() -> None:
    assert frame(b"ab", memoryview(b"c"), bytearray(b"")) == b"\0\0\0\3abc"


def test_one_whole_frame_comes_out_at_once() -> None:
    splitter = FrameSplitter(100)

    assert splitter.feed(frame(b"hello")) == [b"hello"]
    assert splitter.buffered_bytes == 0


def test_several_frames_and_a_part_come_out_in_order() -> None:
    splitter = FrameSplitter(100)

    assert splitter.feed(frame(b"a") + frame(b"bb") + frame(b"ccc")[:5]) == [b"a", b"bb"]
    assert splitter.buffered_bytes == 5
    assert splitter.feed(b"cc" + frame(b"d")) == [b"ccc", b"d"]
    assert splitter.buffered_bytes == 0


def test_a_size_that_arrives_in_pieces_is_waited_for() -> None:
    splitter = FrameSplitter(100)

    assert splitter.feed(b"\0") == []
    assert splitter.feed(b"") == []
    assert splitter.feed(b"\0\0") == []
    assert splitter.buffered_bytes == 3
    assert splitter.feed(b"\1") == []
    assert splitter.buffered_bytes == 4
    assert splitter.feed(b"x") == [b"x"]


def test_a_frame_of_the_largest_size_passes_and_one_byte_more_does_not() -> None:
    assert FrameSplitter(5).feed(frame(b"12345")) == [b"12345"]
    with pytest.raises(LimitExceeded, match="6 bytes, the limit is 5 bytes"):
        FrameSplitter(5).feed(frame(b"123456"))


@pytest.mark.promise("false-size")
def test_a_large_size_takes_no_memory_before_its_bytes_arrive() -> None:
    splitter = FrameSplitter(100_000_000)

    tracemalloc.start()
    try:
        assert splitter.feed((100_000_000).to_bytes(4, "big")) == []
        assert splitter.feed(bytes(1000)) == []
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert splitter.buffered_bytes == 1004
    assert peak_bytes < 100_000


@pytest.mark.parametrize("behind", [b"", b"\0\0", frame(b"next")])
def test_a_large_frame_grows_where_it_is(behind: bytes) -> None:
    """To join its pieces at the end would copy all of it in one step."""
    body = b"".join(index.to_bytes(4, "big") for index in range(4_000_000))
    splitter, stream = FrameSplitter(100_000_000), frame(body) + behind
    found: list[bytes | bytearray] = []
    tracemalloc.start()
    try:
        for start in range(0, len(stream), 65_536):
            found += splitter.feed(stream[start : start + 65_536])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert found == [body, b"next"][: 2 if len(behind) > 2 else 1]
    assert splitter.buffered_bytes == (2 if len(behind) == 2 else 0)
    assert peak_bytes < 1.3 * len(body)


def test_a_frame_of_some_megabytes_is_joined_once_and_not_moved_as_it_grows() -> None:
    body = bytes(range(256)) * 16_384
    splitter = FrameSplitter(100_000_000)
    (size, *pieces) = frame(body)[:4], *(body[start : start + 65_536] for start in range(0, len(body), 65_536))

    assert splitter.feed(size) == []
    for piece in pieces[:-1]:
        assert splitter.feed(piece) == []
    (whole,) = splitter.feed(pieces[-1])

    assert whole == body
    assert isinstance(whole, bytes)


def test_a_frame_in_tiny_pieces_takes_little_more_memory_than_its_bytes() -> None:
    """An object for each would take forty times as much."""
    splitter = FrameSplitter(100_000_000)
    assert splitter.feed((1_000_000).to_bytes(4, "big")) == []

    tracemalloc.start()
    try:
        for index in range(50_000):
            assert splitter.feed(index.to_bytes(2, "big")) == []
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert splitter.buffered_bytes == 100_004
    assert held_bytes < 200_000


@pytest.mark.parametrize("size", [0, -1, -(1 << 31)])
def test_a_size_below_one_is_malformed(size: int) -> None:
    with pytest.raises(Malformed, match="frame size"):
        FrameSplitter(100).feed(size.to_bytes(4, "big", signed=True) + b"rest")


def test_a_tls_hello_is_named_for_what_it_is() -> None:
    with pytest.raises(Malformed, match="TLS"):
        FrameSplitter(100_000_000).feed(bytes.fromhex("160301020001000001fc0303"))


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"])
def test_an_http_request_is_named_for_what_it_is(method: str) -> None:
    with pytest.raises(Malformed, match="HTTP"):
        FrameSplitter(2_000_000_000).feed(f"{method} / HTTP/1.1\r\n".encode())


def test_an_http_request_in_single_bytes_is_noticed_too() -> None:
    splitter = FrameSplitter(100_000_000)
    for byte in (b"G", b"E", b"T"):
        assert splitter.feed(byte) == []

    with pytest.raises(Malformed, match="HTTP"):
        splitter.feed(b" ")


def test_frames_before_bytes_of_another_protocol_are_returned_first() -> None:
    splitter = FrameSplitter(100)
    assert splitter.feed(frame(b"one") + frame(b"two") + b"GET / HTTP/1.1\r\n") == [b"one", b"two"]
    assert isinstance(splitter.error, Malformed)
    with pytest.raises(Malformed, match="HTTP"):
        splitter.feed(frame(b"three"))
