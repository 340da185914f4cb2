"""Equal records: which are suspected duplicates, which only repeat each other, and which prove themselves otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.pipeline.audit.contents import RepeatFinder, created_of
from idemproxy.pipeline.audit.rows import IS_MARKED, Columns, Kind, columns, concatenated, taken
from idemproxy.pipeline.reading.container import LOG_APPEND_TIME

Record = dict[str, Any]
SUSPECTED, REPEATED = "suspected_duplicate", "repeated_record"


def record(offset: int, content: int = 1, time_ms: int = 5, place: int = 0, **more: int) -> Record:
    return {"offset": offset, "hash1": content, "hash2": -content, "timestamp": time_ms, "place": place, **more}


def rows_of(records: Sequence[Record]) -> Columns:
    """Return the records in the order that Spark hands them out."""
    rows = concatenated(
        columns(Kind.RECORD, one["place"], 1, **{k: v for k, v in one.items() if k != "place"}) for one in records
    )
    order = np.lexsort((rows["offset"], created_of(rows), rows["hash2"], rows["hash1"], rows["place"]))
    return taken(rows, order)


def found(records: Sequence[Record], distance: int = 100, block: int = 1000) -> list[tuple[str, int, int]]:
    """Return (kind, offset, offset of the other one) of all that is found, in blocks of so many rows."""
    rows = rows_of(records)
    finder = RepeatFinder(distance)
    blocks = [
        taken(rows, np.arange(begin, min(begin + block, len(records)))) for begin in range(0, len(records), block)
    ]
    batches = [row for one in blocks for row in finder.findings(one).to_pylist()]
    return [(row["kind"], row["offset"], row["other_offset"]) for row in batches]


def test_the_same_record_made_in_the_same_millisecond_is_suspected_at_any_distance() -> None:
    assert found([record(0), record(10_000)]) == [(SUSPECTED, 10_000, 0)]
    assert found([record(0), record(3), record(7)]) == [(SUSPECTED, 3, 0), (SUSPECTED, 7, 3)]


def test_made_at_another_time_it_only_repeats_within_the_distance() -> None:
    assert found([record(0), record(100, time_ms=6)]) == [(REPEATED, 100, 0)]
    assert found([record(0), record(101, time_ms=6)]) == []
    assert found([record(100, time_ms=6), record(0, time_ms=7)]) == [(REPEATED, 100, 0)], "the later one in the log"


def test_where_nobody_knows_when_it_was_made_the_distance_counts() -> None:
    for unknown in ({"time_ms": -1}, {"time_ms": 5, "flags": LOG_APPEND_TIME}):
        assert found([record(0, **unknown), record(100, **unknown)]) == [(SUSPECTED, 100, 0)]
        assert found([record(0, **unknown), record(101, **unknown)]) == []


def test_sequence_numbers_of_one_producer_prove_that_it_sent_two_records() -> None:
    one, other = ({"producer_id": 7, "epoch": 0, "sequence": sequence} for sequence in (1, 2))
    assert found([record(0, **one), record(1, **other)]) == [(REPEATED, 1, 0)]
    assert found([record(0, **one), record(1, **one)]) == [], "the judge of sequences has it"
    assert found([record(0, **one), record(1, **{**other, "producer_id": 8})]) == [(SUSPECTED, 1, 0)]
    assert found([record(0, **one), record(1)]) == [(SUSPECTED, 1, 0)]


def test_a_batch_with_a_marker_in_its_header_is_of_one_producer() -> None:
    marked = {"flags": IS_MARKED}
    assert found([record(0, last_offset=1, **marked), record(1, last_offset=1, **marked)]) == [(REPEATED, 1, 0)]
    assert found([record(0, last_offset=0, **marked), record(1, last_offset=1, **marked)]) == [(SUSPECTED, 1, 0)]


@pytest.mark.parametrize("change", [{"content": 2}, {"place": 1}])
def test_another_content_or_partition_is_another_record(change: dict[str, int]) -> None:
    assert found([record(0), record(1, **change)]) == []


def test_one_hash_alone_says_nothing() -> None:
    assert found([record(0), {**record(1), "hash2": 77}]) == []


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2)), max_size=12), st.integers(1, 4))
def test_wherever_the_blocks_end_the_same_is_found(drawn: list[tuple[int, int]], block: int) -> None:
    records = [record(offset, content, time_ms) for offset, (content, time_ms) in enumerate(drawn)]
    whole = found(records)
    assert found(records, block=block) == whole
    suspected = sum(drawn.count(one) - 1 for one in set(drawn))
    assert sum(kind == SUSPECTED for kind, _, _ in whole) == suspected
