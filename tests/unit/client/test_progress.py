"""How far a copying program is, as the text of a committed offset: it reads what it writes, and nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.client import CommittedOffset, PlannedBatch, ProducerId, Progress, Record, finish
from idemproxy.client.limits import METADATA_BYTES_MAX
from idemproxy.codecs.record_batch import parse_single_batch

OFFSETS = st.integers(0, 2**63 - 1)
BATCHES = st.builds(PlannedBatch, OFFSETS, st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1))
IDS = st.builds(ProducerId, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
PROGRESS = st.builds(
    Progress,
    OFFSETS,
    IDS,
    st.integers(0, 2**31 - 1),
    st.lists(BATCHES, max_size=5).map(tuple),
    st.text(max_size=100),
)


@given(PROGRESS)
def test_what_was_committed_is_read_as_it_was(progress: Progress) -> None:
    saved = progress.to_commit()
    assert saved.metadata.isascii()
    assert Progress.committed(saved) == progress


def test_the_format_is_that_of_the_page() -> None:
    progress = Progress(1200, ProducerId(4711, 2), 700, (PlannedBatch(1700, 500, 3170123), PlannedBatch(1710)), "x")
    assert progress.to_commit() == CommittedOffset(
        1200, '{"format":1,"id":"4711","epoch":2,"next":700,"batches":[[1700,500,3170123],[1710,0,0]],"note":"x"}'
    )


def test_the_next_sequence_follows_planned_batches_once_they_are_in_the_log() -> None:
    planned = PlannedBatch(20, 10), PlannedBatch(25), PlannedBatch(30, 3)
    begun = Progress(7, ProducerId(1), 2**31 - 5, planned, "before")
    assert begun.after_batches("behind") == Progress(30, ProducerId(1), 8, (), "behind")
    assert Progress(7, ProducerId(1), 3).after_batches("?") == Progress(7, ProducerId(1), 3)


def test_a_planned_batch_tells_one_content_from_another() -> None:
    one, other = (finish([Record(value, timestamp_ms=5)]) for value in (b"one", b"two"))
    assert PlannedBatch.of(9, one) == PlannedBatch(9, 1, parse_single_batch(memoryview(one)).crc)
    assert PlannedBatch.of(9, one) != PlannedBatch.of(9, other)
    assert PlannedBatch.of(9, None) == PlannedBatch(9, 0, 0)


@pytest.mark.parametrize(
    "metadata",
    ["", "somebody's", "[]", "7", "{}", json.dumps({"format": 2, "id": 1, "epoch": 0, "next": 0}),
     json.dumps({"format": 1, "id": -1, "epoch": 0, "next": 0}), json.dumps({"format": 1, "id": 1, "next": 0}),
     json.dumps({"format": 1, "id": 1, "epoch": 0, "next": 0, "batches": [[1, 2, 3, 4]]})],
)  # fmt: skip
def test_what_somebody_else_has_committed_is_refused(metadata: str) -> None:
    with pytest.raises(ValueError, match="is not ours"):
        Progress.committed(CommittedOffset(5, metadata))


def test_more_than_brokers_take_is_refused_before_it_is_sent() -> None:
    room = METADATA_BYTES_MAX - len(Progress(0, ProducerId(1), note="?").to_commit().metadata) + 1
    assert len(Progress(0, ProducerId(1), note="n" * room).to_commit().metadata) == METADATA_BYTES_MAX
    with pytest.raises(ValueError, match="brokers take 4096"):
        Progress(0, ProducerId(1), note="n" * (room + 1)).to_commit()
