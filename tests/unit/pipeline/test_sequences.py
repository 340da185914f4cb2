"""One partition judged by producer id, epoch and sequence, compared with a judge that looks at every single record."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.header_marker import header_marker_of
from idemproxy.pipeline.audit.kinds import Finding
from idemproxy.pipeline.audit.rows import NO_KEY, Columns, Kind, columns, concatenated
from idemproxy.pipeline.audit.sequences import Partition
from idemproxy.state.sequence import SEQUENCE_MODULUS

Batch = tuple[int, int, int, int]
"""Producer id, epoch, base sequence, records."""
END = 1_000_000


def log_of(batches: list[Batch | int], first: int = 0) -> Columns:
    """Return the runs of a log that has these batches; a number is a hole of so many offsets."""
    blocks, offset = [], first
    for one in batches:
        if isinstance(one, int):
            offset += one
            continue
        producer, epoch, sequence, count = one
        who = {"producer_id": producer, "epoch": epoch, "sequence": sequence}
        blocks.append(columns(Kind.RUN, 0, 1, offset=offset, last_offset=offset + count - 1, size=count, **who))
        offset += count
    return concatenated(blocks)


def told(producer: int, epoch: int, sequence: int, count: int, offset: int) -> Columns:
    """Return a line of the journal: so many records, acknowledged with this offset."""
    who = {"producer_id": producer, "epoch": epoch, "sequence": sequence}
    return columns(Kind.ACKNOWLEDGED, 0, 1, offset=offset, last_offset=offset + count - 1, size=count, **who)


def findings(
    rows: Columns, start: int = 0, end: int | None = None, has_holes: bool | None = None
) -> list[dict[str, Any]]:
    """Return what the judge says of partition 0. ``end``: of the log; None: after the last row."""
    end = int(rows["last_offset"][rows["kind"] == Kind.RUN].max(initial=start - 1)) + 1 if end is None else end
    order = np.argsort(rows["offset"], kind="stable")
    rows = {name: column[order] for name, column in rows.items()}
    return [row for batch in Partition(0, start, end, rows, has_holes).findings() for row in batch.to_pylist()]


def short(found: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [(row["kind"], *(row[name] for name in names)) for row in found]


def test_producers_that_continue_where_they_ended_are_clean_however_they_alternate() -> None:
    batches: list[Batch | int] = [(1, 0, 0, 5), (2, 0, 0, 3), (1, 0, 5, 5), (2, 0, 3, 1), (1, 1, 0, 2), (2, 0, 4, 9)]
    assert findings(log_of(batches)) == []


def test_a_batch_that_is_there_twice_is_named_with_its_first_copy() -> None:
    found = findings(log_of([(1, 0, 0, 5), (2, 0, 0, 2), (1, 0, 0, 5), (1, 0, 5, 1)]))
    assert short(found, "offset", "last_offset", "other_offset", "sequence", "count") == [("duplicate", 7, 11, 0, 0, 5)]


def test_a_part_of_a_batch_may_be_there_twice() -> None:
    found = findings(log_of([(1, 0, 0, 5), (1, 0, 3, 4)]))
    assert short(found, "offset", "other_offset", "sequence", "count") == [("duplicate", 5, 3, 3, 2)]


def test_a_gap_that_is_filled_later_is_an_inversion() -> None:
    found = findings(log_of([(1, 0, 0, 5), (1, 0, 8, 2), (1, 0, 5, 3)]))
    assert short(found, "offset", "other_offset", "sequence", "count") == [("inversion", 7, 6, 5, 3)]


def test_a_gap_is_named_with_the_records_around_it() -> None:
    found = findings(log_of([(1, 0, 0, 5), (2, 0, 0, 1), (1, 0, 8, 2)]))
    assert short(found, "offset", "other_offset", "sequence", "count") == [("gap", 6, 4, 5, 3)]


def test_where_as_many_offsets_are_missing_it_is_compaction() -> None:
    found = findings(log_of([(1, 0, 0, 5), 3, (1, 0, 8, 2)]))
    assert short(found, "sequence", "count") == [("compacted_gap", 5, 3), ("offset_hole", -1, 3)]
    assert short(findings(log_of([(1, 0, 0, 5), 2, (1, 0, 8, 2)])), "count") == [("gap", 3), ("offset_hole", 2)]


def test_where_the_first_batches_of_a_compacted_log_are_gone_it_is_compaction() -> None:
    """The log's start stays at 0."""
    found = findings(log_of([50, (1, 0, 50, 10), (1, 0, 60, 10)]))
    assert short(found, "sequence", "count") == [("compacted_gap", 0, 50), ("offset_hole", -1, 50)]
    assert short(findings(log_of([49, (1, 0, 50, 10)])), "count") == [("gap", 50), ("offset_hole", 49)]


def test_offsets_after_the_last_record_and_of_an_empty_log_are_reported() -> None:
    assert short(findings(log_of([(1, 0, 0, 5)]), end=9), "count") == [("offset_hole", 4)]
    assert short(findings(log_of([]), start=2, end=9), "count") == [("offset_hole", 7)]
    line = told(1, 0, 5, 2, 6)
    found = findings(concatenated([log_of([(1, 0, 0, 5)]), line]), end=9)
    assert short(found, "count") == [("acknowledged_unknown", 2), ("offset_hole", 4)]


def test_offsets_that_are_missing_in_a_topic_that_is_not_compacted_are_a_loss() -> None:
    log = log_of([(1, 0, 0, 5), 3, (1, 0, 8, 2), 1, (2, 0, 0, 1)])
    line = told(1, 0, 6, 1, 6)
    found = findings(concatenated([log, line]), has_holes=False, end=15)
    assert short(found, "offset", "count") == [
        ("gap", 8, 3),
        ("acknowledged_absent", 6, 1),
        ("missing_offsets", 5, 3),
        ("missing_offsets", 10, 1),
        ("missing_offsets", 12, 3),
    ]
    assert short(findings(log, has_holes=True), "count") == [("compacted_gap", 3), ("offset_hole", 4)]


@pytest.mark.parametrize(("keyless", "kind"), [(0, "missing_offsets"), (1, "offset_hole")])
def test_a_keyless_record_before_a_hole_rules_out_compaction_up_to_it(keyless: int, kind: str) -> None:
    log = log_of([(1, 0, 0, 5), 3, (1, 0, 5, 2)])
    log["flags"] = np.array([NO_KEY if number == keyless else 0 for number in range(2)], np.int8)
    assert short(findings(log), "count") == [(kind, 3)]


def test_a_producer_begins_at_zero_unless_the_log_was_cut_off() -> None:
    batches: list[Batch | int] = [(1, 0, 4, 2)]
    assert short(findings(log_of(batches)), "sequence", "count") == [("gap", 0, 4)]
    assert findings(log_of(batches, 100), start=100) == []


@pytest.mark.parametrize("count", [1, 4, 9])
def test_sequences_wrap(count: int) -> None:
    base = SEQUENCE_MODULUS - 4
    going_on = (base + count) % SEQUENCE_MODULUS
    assert findings(log_of([(1, 0, base, count), (1, 0, going_on, 3)], 9), start=9) == []
    found = findings(log_of([(1, 0, base, count), (1, 0, (going_on + 5) % SEQUENCE_MODULUS, 3)], 9), start=9)
    assert short(found, "sequence", "count") == [("gap", going_on, 5)]


def test_an_epoch_after_a_later_one_is_reported_and_each_judged_separately() -> None:
    found = findings(log_of([(1, 0, 0, 2), (1, 1, 0, 2), (1, 0, 2, 2), (2, 0, 0, 1)]))
    assert short(found, "offset", "other_offset", "epoch", "count") == [("epoch_regression", 4, 2, 0, 2)]


def test_records_without_a_producer_are_foreign_only_among_others() -> None:
    alone: Batch = (-1, -1, -1, 3)
    assert findings(log_of([alone])) == []
    found = findings(log_of([(1, 0, 0, 2), alone]))
    assert short(found, "offset", "last_offset", "count") == [("foreign_writer", 2, 4, 3)]


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        (told(1, 0, 2, 3, 2), []),
        (told(1, 0, 4, 3, 4), ["acknowledged_absent"]),  # two of them are not there
        (told(1, 1, 0, 1, 3), ["acknowledged_absent"]),
        (told(1, 0, 90, 1, 7), ["acknowledged_unknown"]),  # something without a batch marker is there
        (told(1, 0, 90, 1, 9), ["acknowledged_unknown"]),  # compacted
        (told(1, 0, 90, 1, END), ["acknowledged_unknown"]),  # later
    ],
)
def test_an_acknowledged_batch_is_looked_for(line: Columns, kinds: list[str]) -> None:
    log = log_of([(1, 0, 0, 6), (-1, -1, -1, 2), 2, (3, 0, 0, 1)])
    found = [row["kind"] for row in findings(concatenated([log, line])) if row["kind"].startswith("ack")]
    assert found == kinds


def test_an_old_duplicate_acknowledged_without_offset_is_looked_for_by_sequence() -> None:
    for sequence, kinds in ((4, []), (6, ["acknowledged_absent"])):
        rows = concatenated([log_of([(1, 0, 0, 6)]), told(1, 0, sequence, 1, -1)])
        assert [row["kind"] for row in findings(rows)] == kinds


def marked_log(*names: Identity) -> Columns:
    """Return the runs of a log that has these batches with a marker in their header."""
    blocks, offset = [], 0
    for name in names:
        last = offset + name.record_count - 1
        more = {"size": name.record_count, "hash1": header_marker_of(name)}
        blocks.append(columns(Kind.RUN, 0, 1, offset=offset, last_offset=last, **more))
        offset = last + 1
    return concatenated(blocks)


FIRST, SECOND, OTHER = Identity(1, 0, 0, 3), Identity(1, 0, 3, 2), Identity(2, 0, 0, 3)


def test_the_same_batch_marker_again_is_a_duplicate_of_the_first_batch_with_it() -> None:
    found = findings(marked_log(FIRST, OTHER, FIRST, SECOND, FIRST))
    assert short(found, "offset", "other_offset", "count", "producer_id") == [
        ("duplicate", 6, 0, 3, -1),
        ("duplicate", 11, 0, 3, -1),
    ]


def test_batches_with_a_marker_are_no_foreign_writers_and_plain_ones_among_them_are() -> None:
    plain = columns(Kind.RUN, 0, 1, offset=3, last_offset=4, size=2)
    assert short(findings(concatenated([marked_log(FIRST), plain])), "offset", "count") == [("foreign_writer", 3, 2)]


@pytest.mark.parametrize(
    ("acknowledged", "at", "kinds"),
    [
        (FIRST, 0, []),
        (SECOND, 6, []),
        (SECOND, -1, []),
        (SECOND, 40, []),
        (SECOND._replace(record_count=1), 6, []),
        (SECOND._replace(base_sequence=5), 6, ["acknowledged_absent"]),
        (FIRST._replace(producer_epoch=1), 0, ["acknowledged_absent"]),
    ],
)
def test_what_was_acknowledged_is_found_by_its_batch_marker(acknowledged: Identity, at: int, kinds: list[str]) -> None:
    """As a rule where it was acknowledged; a journal of an old format does not say how many records it has."""
    rows = concatenated([marked_log(FIRST, OTHER, SECOND), told(*acknowledged, at)])
    assert [row["kind"] for row in findings(rows)] == kinds


def test_what_retention_has_deleted_is_not_called_absent() -> None:
    rows = concatenated([log_of([(1, 0, 50, 2)], 50), told(1, 0, 7, 1, 7), told(1, 0, 8, 1, -1)])
    assert [row["kind"] for row in findings(rows, start=50)] == ["acknowledged_unknown"] * 2


batches = st.lists(
    st.tuples(st.integers(1, 2), st.integers(0, 1), st.integers(0, 12), st.integers(1, 4)), min_size=1, max_size=12
)


@given(batches)
def test_every_record_is_judged_as_by_looking_at_each(batches: list[Batch]) -> None:
    counted: Counter[str] = Counter()
    for row in findings(log_of(list(batches))):
        counted[row["kind"]] += row["count"]
    seen: dict[tuple[int, int], list[int]] = {}
    expected: Counter[str] = Counter()
    epochs: dict[int, int] = {}
    for producer, epoch, sequence, count in batches:
        before = seen.setdefault((producer, epoch), [])
        highest = max(before, default=-1)
        expected["epoch_regression"] += count * (epoch < epochs.get(producer, 0))
        epochs[producer] = max(epoch, epochs.get(producer, 0))
        for one in range(sequence, sequence + count):
            expected["duplicate"] += one in before
            expected["inversion"] += one not in before and one < highest
        before += range(sequence, sequence + count)
    expected["gap"] = sum(max(one) + 1 - len(set(one)) for one in seen.values())
    kinds = (Finding.DUPLICATE, Finding.INVERSION, Finding.GAP, Finding.EPOCH_REGRESSION)
    assert {kind: counted[kind] for kind in kinds} == {kind: expected[kind] for kind in kinds}
    assert set(counted) <= set(kinds)
