"""Arrow columns become the same bytes as records one by one, and each row goes where it has to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.primitives import encode_varlong
from idemproxy.codecs.record_batch import Record, encode_batch, iterate_records, parse_single_batch
from idemproxy.pipeline.sink import encode
from idemproxy.pipeline.sink.encode import Columns, encoded_headers, finished_batches, varints
from idemproxy.pipeline.sink.options import SinkOptions, sink_options
from idemproxy.pipeline.sink.problems import SinkProblem
from idemproxy.pipeline.sink.rows import BatchMaker, MadeBatch, ends_of_batches

NOW_MS = 1_700_000_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Headers = tuple[tuple[str, bytes | None], ...]
Row = tuple[bytes | None, bytes | None, Headers]

names = st.text(st.characters(codec="utf-8"), max_size=3)
fields = st.none() | st.binary(max_size=300)
rows_of_all_kinds = st.lists(
    st.tuples(
        fields, fields, st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=3), fields)).map(tuple)
    ),
    min_size=1,
)


def options(**more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": "localhost:1", "checkpointLocation": "/c", **more}
    return sink_options(given, is_streaming=True)


def binary(values: Sequence[bytes | None]) -> Any:
    return pa.array(values, pa.large_binary())


def headers_column(rows: Sequence[Headers | None]) -> Any:
    lists = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(lists, HEADERS)


def record_batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def one_batch(columns: Columns, codec: Codec) -> bytes:
    (batch,) = finished_batches(columns, [len(columns)], NOW_MS, codec)
    return batch


def made(maker: BatchMaker, *batches: pa.RecordBatch) -> list[MadeBatch]:
    return [batch for rows in batches for batch in maker.add(rows)] + list(maker.rest())


def values_by_place(batches: Sequence[MadeBatch]) -> dict[tuple[str, int], list[bytes | None]]:
    values: dict[tuple[str, int], list[bytes | None]] = defaultdict(list)
    for batch in batches:
        header = parse_single_batch(memoryview(batch.data))
        assert header.record_count == batch.record_count
        records = iterate_records(memoryview(batch.data), header, 1 << 24)
        values[batch.place] += [record.value for record in records]
    return values


@given(rows_of_all_kinds, st.data())
def test_rows_are_cut_into_batches_wherever_they_are_to_end(rows: list[Row], data: st.DataObject) -> None:
    """Also more of them than are encoded at once, and of columns that begin within others."""
    rows = rows * 20
    before = data.draw(st.integers(0, len(rows) - 1))
    columns = Columns(binary([row[0] for row in rows]), binary([row[1] for row in rows]))
    count = len(rows) - before
    ends = sorted({*data.draw(st.lists(st.integers(1, count), max_size=2 * encode.BATCHES_AT_ONCE)), count})
    expected = [
        encode_batch([Record(index, NOW_MS, *row[:2]) for index, row in enumerate(rows[before:][start:end])])
        for start, end in pairwise([0, *ends])
    ]
    assert list(finished_batches(columns.slice(before, len(rows)), ends, NOW_MS, Codec.NONE)) == expected


@given(st.lists(st.integers(-(1 << 30), (1 << 30) - 1)))
def test_varints_are_those_of_records(numbers: list[int]) -> None:
    assert varints(np.array(numbers, np.int64)).to_pylist() == [encode_varlong(number) for number in numbers]


@given(rows_of_all_kinds, st.sampled_from([Codec.NONE, Codec.GZIP, Codec.ZSTD]))
def test_columns_are_encoded_as_records_are(rows: list[Row], codec: Codec) -> None:
    columns = Columns(
        binary([row[0] for row in rows]),
        binary([row[1] for row in rows]),
        encoded_headers(headers_column([row[2] for row in rows])),
    )
    records = [Record(index, NOW_MS, *row) for index, row in enumerate(rows)]
    assert one_batch(columns, codec) == encode_batch(records, codec=codec)


def test_slices_taken_rows_and_joined_parts_are_what_they_say() -> None:
    rows: list[Row] = [(b"%d" % number, None, (("h", b"%d" % number),)) for number in range(10)]
    column = headers_column([row[2] for row in rows])
    columns = Columns(binary([row[0] for row in rows]), binary([row[1] for row in rows]), encoded_headers(column))
    parts = [columns.slice(7, 9), columns.taken(np.array([3, 1]))]
    expected = [Record(index, NOW_MS, *rows[number]) for index, number in enumerate((7, 8, 3, 1))]
    assert one_batch(encode.joined(parts), Codec.NONE) == encode_batch(expected)
    assert encoded_headers(column.slice(4, 2)).to_pylist() == encoded_headers(column).to_pylist()[4:6]


def test_a_row_without_headers_has_none_and_numbers_of_three_bytes_are_written() -> None:
    columns = Columns(binary([None] * 20_000), binary([b"v" * 9000] + [b""] * 19_999), None)
    records = [Record(index, NOW_MS, None, b"v" * 9000 if index == 0 else b"") for index in range(20_000)]
    assert one_batch(columns, Codec.NONE) == encode_batch(records)
    assert encoded_headers(headers_column([None, ()])).to_pylist() == [b"\0", b"\0"]


@given(rows_of_all_kinds)
def test_no_record_is_larger_than_it_was_counted(rows: list[Row]) -> None:
    headers = encoded_headers(headers_column([row[2] for row in rows]))
    columns = Columns(binary([row[0] for row in rows]), binary([row[1] for row in rows]), headers)
    assert len(one_batch(columns, Codec.NONE)) - 61 <= columns.sizes().sum()


def test_rows_go_to_the_given_partition_or_by_their_key_and_keep_their_order() -> None:
    keys = binary([b"a", b"b", b"a", b"b", None])
    rows = record_batch(
        Key=keys, value=binary([b"%d" % number for number in range(5)]), partition=pa.array([0, None, 0, None, 1])
    )
    found = values_by_place(made(BatchMaker(options(topic="t"), lambda _: 3, 1, lambda: NOW_MS), rows))
    assert found == {("t", 0): [b"0", b"2"], ("t", 2): [b"1", b"3"], ("t", 1): [b"4"]}  # Kafka: b is in 2 of 3


def test_rows_without_a_key_fill_one_partition_at_a_time() -> None:
    batches = [record_batch(value=binary([b"%d" % at] * 3)) for at in range(4)]
    found = values_by_place(made(BatchMaker(options(topic="t"), lambda _: 3, 5, lambda: NOW_MS), *batches))
    assert found == {("t", 2): [b"0"] * 3 + [b"3"] * 3, ("t", 0): [b"1"] * 3, ("t", 1): [b"2"] * 3}


def test_a_column_tells_the_topic_and_the_option_overrules_it() -> None:
    rows = record_batch(topic=pa.array(["a", "b", "a"]), value=pa.array(["1", "2", "3"]))
    counts = {"a": 1, "b": 1}
    by_column = made(BatchMaker(options(), counts.__getitem__, 0, lambda: NOW_MS), rows)
    assert values_by_place(by_column) == {("a", 0): [b"1", b"3"], ("b", 0): [b"2"]}
    by_option = made(BatchMaker(options(topic="b"), counts.__getitem__, 0, lambda: NOW_MS), rows)
    assert values_by_place(by_option) == {("b", 0): [b"1", b"2", b"3"]}


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"topic": pa.array(["a", None])}, "a row has no topic"),
        ({}, "a row has no topic"),
        ({"topic": pa.array(["a", "a"]), "partition": pa.array([0, 3])}, "partition 3 of a, which has 3"),
        ({"topic": pa.array(["a", "a"]), "partition": pa.array([-1, 0])}, "partition -1 of a, which has 3"),
        ({"topic": pa.array(["a", "a"]), "key": binary([b"x" * 2000, b""])}, "kafka.max.request.size is 1024"),
    ],
)
def test_a_row_that_cannot_be_sent_fails_its_task(columns: dict[str, Any], sentence: str) -> None:
    maker = BatchMaker(options(**{"kafka.max.request.size": "1024"}), lambda _: 3, 0, lambda: NOW_MS)
    with pytest.raises(SinkProblem, match=sentence):
        made(maker, record_batch(value=binary([b"1", b"2"]), **columns))


def test_batches_are_as_large_as_they_may_be_and_no_larger() -> None:
    maker = BatchMaker(options(topic="t", **{"kafka.batch.size": "1024"}), lambda _: 1, 0, lambda: NOW_MS)
    full = [batch for number in range(30) for batch in maker.add(record_batch(value=binary([b"%d" % number * 40] * 9)))]
    rest = list(maker.rest())
    assert [len(batch.data) < 1024 + 61 for batch in [*full, *rest]] == [True] * len([*full, *rest])
    assert min(len(batch.data) for batch in full) > 700
    assert values_by_place([*full, *rest])["t", 0] == [b"%d" % number * 40 for number in range(30) for _ in range(9)]
    assert list(maker.rest()) == []


@given(st.lists(st.integers(1, 50)), st.integers(1, 100), st.integers(1, 7))
def test_every_batch_is_the_longest_that_fits(sizes: list[int], batch_bytes: int, records_max: int) -> None:
    ends = list(ends_of_batches(np.array(sizes, np.int64), batch_bytes, records_max))
    assert ends == sorted(set(ends))
    assert ends[-1:] == ([len(sizes)] if sizes else [])
    for start, end in zip([0, *ends], ends, strict=False):
        assert end - start <= records_max
        assert end - start == 1 or sum(sizes[start:end]) <= batch_bytes
        assert end == len(sizes) or end - start == records_max or sum(sizes[start : end + 1]) > batch_bytes
