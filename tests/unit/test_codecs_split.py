from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import split
from idemproxy.codecs.errors import WireError
from idemproxy.codecs.record_batch import (
    TRANSACTIONAL_FLAG,
    Record,
    encode_batch,
    iterate_records,
    parse_single_batch,
    verify_crc,
)

NO_LIMIT = 100_000_000
RECORDS = [Record(i, 1, b"k" * i, b"v" * 100) for i in range(4)]


def batch(records: Sequence[Record] = RECORDS, **fields: Any) -> memoryview:
    return memoryview(encode_batch(records, **fields))


def sequences(parts: Sequence[memoryview]) -> list[tuple[int, int]]:
    headers = [parse_single_batch(part) for part in parts]
    return [(header.base_sequence, header.record_count) for header in headers]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, 50])
def test_parts_of_a_batch_are_batches_that_follow_each_other(count: int, codec: Codec) -> None:
    records = [Record(i, 1000 - i, b"%d" % i, b"v" * (i * 37 % 11), (("h", b"x"),)) for i in range(10)]
    identity = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 2**31 - 4}
    whole = batch(records, codec=codec, attributes=TRANSACTIONAL_FLAG, **identity)

    parts = split(whole, count, output_bytes_max=NO_LIMIT)

    assert len(parts) == min(count, 10)
    read: list[Record] = []
    sequence = 2**31 - 4
    for part in parts:
        header = parse_single_batch(part)
        verify_crc(part, header)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, sequence)
        assert header.codec == codec
        assert header.attributes & TRANSACTIONAL_FLAG
        sequence = (sequence + header.record_count) % 2**31
        read += [r._replace(offset_delta=len(read) + r.offset_delta) for r in iterate_records(part, header, NO_LIMIT)]
    assert read == records


def test_parts_are_about_equal_in_bytes() -> None:
    records = [Record(i, 1, None, b"v" * size) for i, size in enumerate([10_000, 10, 10, 10, 10, 5_000, 5_000])]

    parts = split(batch(records, base_sequence=5, producer_id=1), 2, output_bytes_max=NO_LIMIT)

    assert sequences(parts) == [(5, 3), (8, 4)]
    assert max(map(len, parts)) < 10_500


def test_one_large_record_stays_a_part_of_its_own() -> None:
    records = [Record(i, 1, None, b"v" * size) for i, size in enumerate([10, 10, 50_000, 10])]

    assert sequences(split(batch(records, base_sequence=0, producer_id=1), 4, output_bytes_max=NO_LIMIT)) == [
        (0, 1),
        (1, 1),
        (2, 1),
        (3, 1),
    ]


def test_a_single_record_can_not_be_split() -> None:
    whole = batch([Record(0, 5, b"k", b"v")], base_sequence=3, producer_id=1, producer_epoch=0)

    assert [bytes(part) for part in split(whole, 5, output_bytes_max=NO_LIMIT)] == [bytes(whole)]


def test_a_batch_without_sequences_stays_without() -> None:
    assert sequences(split(batch(), 2, output_bytes_max=NO_LIMIT)) == [(-1, 2), (-1, 2)]


def test_a_batch_that_can_not_be_read_can_not_be_split() -> None:
    damaged = bytearray(batch())
    damaged[61] ^= 0x7F

    with pytest.raises(WireError):
        split(memoryview(damaged), 2, output_bytes_max=NO_LIMIT)
