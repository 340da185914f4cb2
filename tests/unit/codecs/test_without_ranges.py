"""Records that are left out of batches of format v2, as a compacted log has them."""

from __future__ import annotations

import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.logged import LoggedBatch, iterate_logged
from idemproxy.codecs.record_batch import verify_crc
from idemproxy.codecs.without_ranges import Ranges, without_ranges
from idemproxy.pipeline.reading.decode import containers
from testkit.stage.logs import marked, numbered

IDENTITY = Identity(7, 0, 0, 4)
UNPACKED_MAX = 1 << 20


def log(codec: Codec = Codec.NONE) -> bytes:
    return b"".join(marked(numbered(first, 4), first, IDENTITY, codec) for first in (0, 4, 8))


def ranges(data: bytes, *spans: tuple[int, int]) -> Ranges:
    """These spans, noted with what the log has there."""
    found = [one for one in iterate_logged(data) if isinstance(one, LoggedBatch)]
    meet = [one for one in found if any(first <= one.offset and one.first < end for first, end in spans)]
    return Ranges(spans, {one.offset: (one.header.crc, one.first) for one in meet}, meet[-1].offset)


def offsets(pieces: tuple[object, ...]) -> list[int]:
    data = b"".join(bytes(piece) for piece in pieces)  # type: ignore[call-overload]
    assert not any(one.unreadable for one in containers(data))
    return [offset for one in containers(data) for offset in one.offsets.tolist()]


@pytest.mark.parametrize("codec", list(Codec))
def test_of_a_batch_of_format_v2_a_part_is_left_out_and_the_rest_keeps_its_offsets(codec: Codec) -> None:
    data = log(codec)
    left = without_ranges(memoryview(data), ranges(data, (4, 8), (9, 11)), UNPACKED_MAX)
    assert offsets(left.records) == [0, 1, 2, 3, 8, 11]
    *_, last = iterate_logged(b"".join(left.records))
    assert isinstance(last, LoggedBatch)
    verify_crc(last.records, last.header)
    assert (last.first, last.offset, last.marker is not None, last.header.record_count) == (8, 11, True, 2)


def test_nothing_is_left_out_of_another_batch_at_the_same_offsets() -> None:
    data = log()
    other = ranges(log(Codec.GZIP), (4, 8))
    assert without_ranges(memoryview(data), other, UNPACKED_MAX).records == (memoryview(data),)


def test_where_no_batch_is_left_the_next_offset_is_after_them() -> None:
    data = log()
    assert without_ranges(memoryview(data), ranges(data, (0, 12)), UNPACKED_MAX) == ((), 12)
    cut = data[: len(data) - 70]  # in the middle of a header
    assert without_ranges(memoryview(cut), ranges(data, (0, 12)), UNPACKED_MAX) == ((), 8)
