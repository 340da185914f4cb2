"""Bytes of a log become rows of Spark: records in every format, and batches from their headers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from idemproxy.codecs.batch_marker import Identity, encode_batch_marker
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.errors import WireError
from idemproxy.codecs.header_marker import header_marker_of
from idemproxy.codecs.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, Record, encode_batch
from idemproxy.pipeline.reading.container import ENTRY_BYTES_MIN, Broken
from idemproxy.pipeline.reading.contents import StoredContents
from idemproxy.pipeline.reading.decode import containers
from idemproxy.pipeline.source import batch_runs, records
from idemproxy.pipeline.source.batches import BatchRow, rows_of_entry, table
from idemproxy.pipeline.source.columns import BATCHES, RECORDS_WITH_HEADERS, check_schema, columns_for
from idemproxy.pipeline.source.problems import WrongOption
from idemproxy.pipeline.source.records import part_of, record_rows
from testkit.stage import logs
from testkit.stage.logs import BEGUN_MS, Entry, modern, numbered, plain, wrapper

ENTRIES: list[Entry] = [
    (None, b"no key", BEGUN_MS),
    (b"", b"", BEGUN_MS + 1),
    (b"no value", None, BEGUN_MS + 2),
    (None, None, BEGUN_MS + 3),
    (b"key", b"v" * 300, BEGUN_MS + 4),
]
HEADERS = (("trace", b"1"), ("empty", b""), ("trace", None))


def rows(data: bytes, start: int = 0, end: int = 1 << 40, *, headers: bool = False) -> list[dict[str, Any]]:
    """Return the rows of the records at these offsets."""
    parts = [part for one in containers(data) if (part := part_of(one, start, end)) is not None]
    return [row for batch in record_rows("orders", 3, parts, headers) for row in batch.to_pylist()]


def batch_rows(data: memoryview) -> Iterator[BatchRow]:
    """Yield the rows of what is whole in the data, one entry after the other. Raises Broken."""
    position, end = 0, len(data)
    while position + 12 <= end:
        size = 12 + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if size < 12 + ENTRY_BYTES_MIN or (position + size <= end and data[position + 16] > 2):
            raise Broken(position, "nothing can be found any more")
        if position + size > end:
            return
        yield from rows_of_entry(data[position : position + size])
        position += size


def simple(row: Mapping[str, Any]) -> Entry:
    return row["key"], row["value"], round(row["timestamp"].timestamp() * 1000)


@pytest.mark.parametrize(
    "data",
    [
        plain(ENTRIES, 7),
        wrapper(ENTRIES, 7),
        wrapper(ENTRIES, 7, Identity(5, 0, 0, 5), codec=Codec.LZ4),
        modern(ENTRIES, 7),
        modern(ENTRIES, 7, Identity(5, 0, 0, 5), Codec.ZSTD),
    ],
)
def test_records_of_every_format_have_the_same_rows(data: bytes) -> None:
    found = rows(data)
    assert [simple(row) for row in found] == ENTRIES
    assert [row["offset"] for row in found] == [7, 8, 9, 10, 11]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in found} == {("orders", 3, 0)}


def test_times_before_1970_are_shown_and_only_no_time_is_null() -> None:
    found = records.times(np.array([-1, -2, -315_619_200_000, 0]))
    assert found.cast(pa.int64()).to_pylist() == [None, -2_000, -315_619_200_000_000, 0]


def test_a_format_without_times_has_none() -> None:
    found = rows(plain(ENTRIES[:2], 7, magic=0))
    assert [(row["timestamp"], row["timestampType"]) for row in found] == [(None, -1)] * 2


def test_log_append_time_is_the_wrappers() -> None:
    found = rows(wrapper(ENTRIES, 7, log_append_time_ms=BEGUN_MS + 99))
    assert {(simple(row)[2], row["timestampType"]) for row in found} == {(BEGUN_MS + 99, 1)}


def test_only_records_of_the_range_are_rows() -> None:
    data = wrapper(ENTRIES, 0) + modern(ENTRIES, 5) + plain(ENTRIES, 10)
    assert [row["offset"] for row in rows(data, 3, 12)] == list(range(3, 12))
    assert rows(data, 15, 20) == []


def test_headers_are_a_column_if_they_are_asked_for() -> None:
    data = encode_batch([Record(0, BEGUN_MS, b"k", b"v", HEADERS), Record(1, BEGUN_MS, b"k", b"v")], base_offset=4)
    data += plain(ENTRIES[:1], 6)
    wanted = [{"key": name, "value": value} for name, value in HEADERS]
    assert [row["headers"] for row in rows(data, headers=True)] == [wanted, None, None]
    assert "headers" not in rows(data)[0]


def test_damaged_headers_are_an_error() -> None:
    data = encode_batch([Record(0, BEGUN_MS, b"k", b"v", (("name", b"value"),))])
    (container,) = containers(data)
    content = bytes(container.contents[0])
    damaged = content.replace(b"\x0avalue", b"\x0cvalue")  # a byte more than is there
    part = part_of(replace(container, contents=StoredContents.of([damaged])), 0, 1)
    assert part is not None
    with pytest.raises(WireError):
        list(record_rows("orders", 0, [part], True))


@given(st.lists(st.tuples(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=40)), min_size=1))
def test_any_keys_and_values(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    entries = [(key, value, BEGUN_MS) for key, value in pairs]
    for data in (plain(entries), modern(entries), wrapper(entries)):
        assert [(row["key"], row["value"]) for row in rows(data)] == pairs


def test_many_bytes_become_several_arrow_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "CONTENT_BYTES_AT_ONCE", 5_000)
    data = b"".join(wrapper(numbered(first, 100), first) for first in range(0, 1000, 100))
    parts = [part for one in containers(data) if (part := part_of(one, 0, 1000)) is not None]
    found = list(record_rows("orders", 0, parts, False))
    assert len(found) == 4
    assert sum(one.num_rows for one in found) == 1000


def test_a_batch_is_a_row_from_its_header() -> None:
    data = modern(numbered(0, 4), 10, Identity(77, 3, 40, 4), Codec.LZ4)
    (row,) = batch_rows(memoryview(data))
    assert (row.base_offset, row.last_offset, row.record_count) == (10, 13, 4)
    assert (row.producer_id, row.producer_epoch, row.base_sequence, row.batch_marker) == (77, 3, 40, None)
    assert (row.magic, row.codec, row.crc_is_valid, row.size_bytes) == (2, "lz4", True, len(data))
    assert (row.timestamp, row.timestamp_type) == (BEGUN_MS + 3, 0)


def test_a_batch_without_a_producer_and_one_of_a_transaction() -> None:
    (row,) = batch_rows(memoryview(modern(numbered(0, 4))))
    assert (row.producer_id, row.producer_epoch, row.base_sequence) == (None, None, None)
    data = encode_batch(
        [Record(0, BEGUN_MS, b"k", b"v")],
        producer_id=1,
        producer_epoch=0,
        base_sequence=-1,
        attributes=TRANSACTIONAL_FLAG | CONTROL_FLAG,
    )
    (row,) = batch_rows(memoryview(data))
    assert (row.is_transactional, row.is_control, row.producer_id, row.base_sequence) == (True, True, 1, None)


def test_a_batch_with_a_marker_in_its_header_shows_that_and_no_producer() -> None:
    identity = Identity(7, 3, 40, 4)
    (row,) = batch_rows(memoryview(logs.marked(numbered(0, 4), 10, identity)))
    assert (row.producer_id, row.producer_epoch, row.base_sequence) == (None, None, None)
    assert row.batch_marker == header_marker_of(identity).to_bytes(6, "big")
    assert (row.base_offset, row.last_offset, row.crc_is_valid) == (10, 13, True)


def test_a_batch_marker_is_a_row_for_each_batch_that_it_names() -> None:
    identities = (Identity(5, 0, 10, 4), Identity(6, 1, 0, 2))
    first, other = batch_rows(memoryview(wrapper(numbered(0, 6), 20, *identities)))
    assert (first.base_offset, first.last_offset, other.base_offset, other.last_offset) == (20, 23, 24, 25)
    assert (first.producer_id, first.producer_epoch, first.base_sequence, first.record_count) == (5, 0, 10, 4)
    assert (other.producer_id, other.producer_epoch, other.base_sequence, other.record_count) == (6, 1, 0, 2)
    assert first.batch_marker == other.batch_marker == encode_batch_marker(identities)
    assert first.entry_offset == other.entry_offset == first.entry_end == 25
    assert first.crc == other.crc


@pytest.mark.parametrize("magic", [0, 1])
def test_wrappers_without_a_batch_marker_are_counted_and_plain_messages_are_rows(magic: int) -> None:
    data = wrapper(numbered(0, 6), 20, magic=magic) + plain(numbered(6, 2), 26, magic=magic)
    found = list(batch_rows(memoryview(data)))
    assert [(row.base_offset, row.last_offset) for row in found] == [(20, 25), (26, 26), (27, 27)]
    assert [row.record_count for row in found] == [6, 1, 1]
    assert {(row.producer_id, row.batch_marker) for row in found} == {(None, None)}
    assert [row.codec for row in found] == ["gzip", "none", "none"]
    assert found[0].timestamp_type == (0 if magic else -1)


@pytest.mark.parametrize("data", [plain(numbered(0, 1), 5), wrapper(numbered(0, 3), 5), modern(numbered(0, 3), 5)])
def test_a_damaged_entry_is_a_row_that_says_so(data: bytes) -> None:
    damaged = data[:-1] + bytes([data[-1] ^ 1])
    (row,) = batch_rows(memoryview(damaged))
    (whole,) = batch_rows(memoryview(data))
    assert (row.crc_is_valid, row.record_count, row.producer_id) == (False, None, None)
    assert (row.crc, row.size_bytes) == (whole.crc, len(data))


def test_entries_before_the_place_where_none_can_be_found_are_rows() -> None:
    found: list[BatchRow] = []
    with pytest.raises(Broken):
        found.extend(batch_rows(memoryview(plain(numbered(0, 2)) + bytes(30))))
    assert [row.base_offset for row in found] == [0, 1]


def spark_type(name: str) -> Any:
    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    return {
        "binary": BinaryType(),
        "string": StringType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "timestamp": TimestampType(),
    }.get(name) or ArrayType(header)


def test_arrow_columns_are_those_that_spark_asks_for() -> None:
    wanted = StructType([StructField(name, spark_type(kind)) for name, kind in RECORDS_WITH_HEADERS])
    (found,) = record_rows("orders", 0, [p for one in containers(plain(ENTRIES)) if (p := part_of(one, 0, 9))], True)
    assert to_arrow_schema(wanted, timezone="UTC").equals(found.schema)
    check_schema(wanted, {"includeHeaders": "true"})
    with pytest.raises(WrongOption, match="schema: the columns are given, leave it out: key binary, value binary"):
        check_schema(wanted, {})


def test_columns_of_batches() -> None:
    data = memoryview(wrapper(numbered(0, 6), 20, Identity(5, 0, 10, 6)) + plain(ENTRIES, 26))
    found = table("orders", 3, list(batch_rows(data)))
    assert found.num_rows == 6
    assert found.schema.names == [name for name, _ in BATCHES]
    assert columns_for({"rows": "batches"}).startswith("topic string, partition int, baseOffset bigint, ")
    assert found.column("timestamp").type == pa.timestamp("us", tz="UTC")
    assert found.to_pylist()[0]["producerId"] == 5


def marked(entries: list[Entry], offset: int) -> bytes:
    return wrapper(entries, offset, Identity(5, 0, offset, len(entries)), codec=Codec.LZ4)


FORMS: dict[str, Callable[[list[Entry], int], bytes]] = {
    "plain": plain,
    "marked": marked,
    "of two": lambda entries, offset: wrapper(
        entries, offset, Identity(5, 0, 0, 1), *[Identity(6, 0, 0, len(entries) - 1)] * (len(entries) > 1)
    ),
    "too many": lambda entries, offset: wrapper(entries, offset, Identity(5, 0, 0, offset + len(entries) + 1)),
    "unmarked": wrapper,
    "stamped": lambda entries, offset: wrapper(entries, offset, log_append_time_ms=BEGUN_MS),
    "oldest": lambda entries, offset: plain(entries, offset, magic=0),
    "batch": modern,
    "again": lambda entries, offset: marked(entries, 0),
}


@pytest.mark.parametrize("run_entries_min", [1, 3])
@given(
    blocks=st.lists(st.tuples(st.sampled_from(sorted(FORMS)), st.integers(1, 4)), max_size=16),
    damage=st.none() | st.tuples(st.integers(0), st.binary(min_size=1, max_size=3)),
    edges=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_batches_that_are_read_together_are_the_same_rows_as_one_by_one(
    run_entries_min: int,
    blocks: list[tuple[str, int]],
    damage: tuple[int, bytes] | None,
    edges: tuple[int, int],
) -> None:
    log, offset = bytearray(), 0
    for form, count in blocks:
        log += FORMS[form](ENTRIES[:count], offset)
        offset += count
    if damage is not None and log:
        at = damage[0] % len(log)
        log[at : at + len(damage[1])] = damage[1]
    data, found, one_by_one = memoryview(bytes(log)), [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_runs, "RUN_ENTRIES_MIN", run_entries_min)
        try:
            for one in batch_runs.batch_runs(data):
                whole = (
                    table("orders", 3, [one]) if isinstance(one, BatchRow) else batch_runs.run_table("orders", 3, one)
                )
                found += whole.to_pylist()
                if not isinstance(one, BatchRow):
                    inside = batch_runs.run_table("orders", 3, one.between(*edges)).to_pylist()
                    assert inside == [row for row in whole.to_pylist() if edges[0] <= row["entryOffset"] < edges[1]]
        except Broken as broken:
            found.append({"broken": broken.position})
    try:
        for row in batch_rows(data):
            one_by_one += table("orders", 3, [row]).to_pylist()
    except Broken as broken:
        one_by_one.append({"broken": broken.position})
    assert found == one_by_one


def test_a_part_of_an_entry_is_no_row_yet() -> None:
    assert list(batch_runs.batch_runs(memoryview(wrapper(ENTRIES)[:-1]))) == []
