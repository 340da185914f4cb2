"""Whatever a log has in it, its reader says what it is and continues, or says that it cannot."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import assume, example, given
from hypothesis import strategies as st

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec
from idemproxy.pipeline.audit.fingerprints import RangeTaker
from idemproxy.pipeline.audit.rows import Kind
from idemproxy.pipeline.reading.container import Broken
from idemproxy.pipeline.reading.decode import containers
from testkit.stage.logs import modern, numbered, plain, wrapper

LOG = (
    wrapper(numbered(0, 4), 0, Identity(7, 0, 0, 4))
    + plain(numbered(4, 3), 4)
    + wrapper(numbered(7, 3), 7, codec=Codec.SNAPPY)
    + modern(numbered(10, 4), 10, Identity(7, 0, 4, 4), Codec.LZ4)
    + modern(numbered(14, 2), 14)
)
END = 16


def read(data: bytes) -> None:
    """Take everything apart. Raises what is not foreseen."""
    try:
        for container in containers(data):
            assert container.first <= container.last
            assert len(container.contents) == len(container.offsets) == len(container.timestamps)
            if len(container.offsets) and not container.pieces:
                assert container.first <= container.offsets[0] <= container.offsets[-1] <= container.last
    except Broken as error:
        broken_at = error.position
    else:
        broken_at = 0
    assert 0 <= broken_at <= len(data)


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    read(data)


@given(st.integers(0, len(LOG) - 1), st.binary(min_size=1, max_size=12), st.integers(0, len(LOG)))
def test_a_log_with_other_bytes_somewhere(position: int, change: bytes, end: int) -> None:
    damaged = bytearray(LOG)
    damaged[position : position + len(change)] = change
    read(bytes(damaged[:end]))


def offset_fields() -> set[int]:
    """Where the offsets of messages and batches are."""
    found: set[int] = set()
    start = 0
    while start < len(LOG):
        found |= set(range(start, start + 8))
        start += 12 + int.from_bytes(LOG[start + 8 : start + 12], "big")
    return found


OFFSET_FIELDS = offset_fields()


@example([], 7, 7)
@given(st.lists(st.integers(0, END), max_size=4), st.integers(0, len(LOG) - 1), st.integers(0, 255))
def test_no_record_is_taken_twice_in_however_many_ranges(borders: list[int], position: int, byte: int) -> None:
    """But where an offset itself is damaged, which no checksum covers: then one range cannot know of another's."""
    assume(not borders or position not in OFFSET_FIELDS)
    damaged = bytearray(LOG)
    damaged[position] = byte
    edges = [0, *sorted(borders), END]
    found: list[int] = []
    for start, end in pairwise(edges):
        rows = RangeTaker(0, start, end).take(bytes(damaged)).to_pylist()
        found += [row["offset"] for row in rows if row["kind"] == Kind.RECORD]
    assert len(found) == len(set(found))
