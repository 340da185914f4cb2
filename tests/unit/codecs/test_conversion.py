"""A batch that unpacks to much is converted part by part: these have all its records, and little else is in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest

from idemproxy.codecs import record_batch
from idemproxy.codecs.batch_marker import content_digest
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import Conversion, HeaderPolicy, Inner, digesting_batch
from idemproxy.codecs.errors import LimitExceeded, WireError
from idemproxy.codecs.message_set import iterate_shallow
from idemproxy.codecs.record_batch import BatchHeader, Record, encode_batch, parse_single_batch
from idemproxy.codecs.steps import STEP_BYTES, at_once
from testkit.stage.either_way import either_way  # noqa: F401

MIB = 1 << 20
NO_LIMIT = 1 << 30
DROPS_ALL = HeaderPolicy(["*"])
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def batch_of(records: Sequence[Record], codec: Codec) -> tuple[memoryview, BatchHeader]:
    batch = memoryview(encode_batch(records, codec=codec))
    return batch, parse_single_batch(batch)


def conversion_of(records: Sequence[Record], codec: Codec, unpacked_bytes_max: int = NO_LIMIT) -> Conversion:
    return Conversion(*batch_of(records, codec), DROPS_ALL, unpacked_bytes_max=unpacked_bytes_max)


def parts_of(conversion: Conversion, part_bytes_max: int) -> list[Inner]:
    parts = []
    while not conversion.is_done:
        parts.append(at_once(conversion.making(part_bytes_max)))
    return parts


def kinds(count: int) -> dict[str, list[Record]]:
    """Records of each kind that is read in another way, of some MiB together."""
    value = bytes(5_000)
    return {
        "usual": [Record(index, 7 + index, b"%d" % index, value) for index in range(count)],
        "empty": [Record(index, 7, None, None) for index in range(50 * count)],
        "with headers": [Record(index, 7, b"%d" % index, value, (("h", b"v"),)) for index in range(count)],
        "some with headers": [
            Record(index, 7, None, value, () if index % 10 else (("h", b"v"),)) for index in range(count)
        ],
        "larger than a step": [Record(index, 7, None, bytes(STEP_BYTES + index)) for index in range(3)],
        "mixed": [Record(index, 7, b"k", bytes(STEP_BYTES if index % 300 == 1 else 3)) for index in range(count)],
    }


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", kinds(0))
def test_the_parts_have_all_records_in_order_and_fit(kind: str, codec: Codec) -> None:
    records = kinds(800)[kind]
    parts = parts_of(conversion_of(records, codec), MIB + MIB // 4)

    assert len(parts) > 1
    messages = [list(iterate_shallow(part.message_set)) for part in parts]
    assert [[one.offset for one in part] for part in messages] == [list(range(part.record_count)) for part in parts]
    assert [(one.timestamp, one.key, one.value) for part in messages for one in part] == [
        (record.timestamp, record.key, record.value) for record in records
    ]
    assert all(len(part.message_set) <= MIB + MIB // 4 or part.record_count == 1 for part in parts)
    for part, (first, *_) in zip(parts, messages, strict=True):
        assert part.first_content == content_digest(first.key, first.value)
        assert part.max_timestamp == max(one.timestamp for one in iterate_shallow(part.message_set))


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_are_stored_already_are_passed_over(codec: Codec) -> None:
    records = kinds(800)["mixed"]
    for skipped in (1, 301, 799):
        conversion = conversion_of(records, codec)
        at_once(conversion.skipping(skipped))
        parts = parts_of(conversion, MIB + MIB // 4)
        values = [bytes(one.value or b"") for part in parts for one in iterate_shallow(part.message_set)]
        assert values == [record.value for record in records[skipped:]]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.ZSTD])
def test_memory_does_not_depend_on_what_a_batch_unpacks_to(codec: Codec) -> None:
    conversion = conversion_of([Record(index, 7, None, bytes(MIB // 4)) for index in range(200)], codec)
    tracemalloc.start()
    try:
        records = 0
        while not conversion.is_done:
            records += at_once(conversion.making(4 * MIB)).record_count
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert records == 200
    assert peak < 16 * MIB, "of 50 MiB"


@pytest.mark.parametrize("codec", CODECS)
def test_digests_are_made_of_a_part_at_a_time(codec: Codec) -> None:
    records = kinds(800)["mixed"]
    batch = memoryview(encode_batch(records, codec=codec))
    every = [content_digest(record.key, record.value) for record in records]
    for first, count in ((0, None), (0, 3), (302, None), (302, 300), (799, 5), (800, 5)):
        steps = digesting_batch(batch, parse_single_batch(batch), NO_LIMIT, first=first, count=count)
        assert at_once(steps) == every[first : None if count is None else first + count]


@pytest.mark.parametrize("codec", CODECS)
def test_limits_hold_before_the_bytes_are_there(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record(index, 7, None, bytes(MIB)) for index in range(8)]
    with pytest.raises(LimitExceeded):
        parts_of(conversion_of(records, codec, 4 * MIB), MIB)
    monkeypatch.setattr(record_batch, "RECORDS_MAX", 7)
    with pytest.raises(LimitExceeded, match="8 records"):
        conversion_of(records, codec)
    monkeypatch.undo()
    monkeypatch.setattr(record_batch, "RECORD_BYTES_MAX", MIB // 2)
    with pytest.raises(LimitExceeded, match="record 0"):
        parts_of(conversion_of(records, codec), MIB)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 999, 1_001])
def test_a_wrong_number_of_records_is_noticed_at_the_end(codec: Codec, count: int) -> None:
    records = [Record(index, 7, None, bytes(5_000)) for index in range(1_000)]
    batch = memoryview(encode_batch(records, codec=codec))
    header = parse_single_batch(batch)._replace(record_count=count, last_offset_delta=count - 1)
    with pytest.raises(WireError):
        parts_of(Conversion(batch, header, DROPS_ALL, unpacked_bytes_max=NO_LIMIT), MIB + MIB // 4)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("per_record", [1, 500])
def test_all_headers_of_a_batch_together_are_bounded(
    codec: Codec, per_record: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_batch, "BATCH_HEADERS_MAX", 20_000)
    headers = (("h", b"v"),) * per_record
    records = [Record(index, 7, b"", bytes(300), headers) for index in range(20_000 // per_record)]

    assert sum(part.record_count for part in parts_of(conversion_of(records, codec), MIB)) == len(records)
    assert len(at_once(digesting_batch(*batch_of(records, codec), NO_LIMIT))) == len(records)
    more = [*records, Record(len(records), 7, b"", b"", headers)]
    with pytest.raises(LimitExceeded, match="20000 headers"):
        parts_of(conversion_of(more, codec), MIB)
    with pytest.raises(LimitExceeded, match="20000 headers"):
        at_once(digesting_batch(*batch_of(more, codec), NO_LIMIT))
