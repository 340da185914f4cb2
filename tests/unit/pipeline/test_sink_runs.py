"""A batch write's name stands for its rows: the same rows again are the same run, others end with an error. No server
is asked: the stored run is published."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.pipeline.sink import content
from idemproxy.pipeline.sink.commit import Batches
from idemproxy.pipeline.sink.manifest import StagedBatch, StageFile, Writer, numbered, pack, run_of
from idemproxy.pipeline.sink.options import SinkOptions, sink_options
from idemproxy.pipeline.sink.problems import SinkProblem
from idemproxy.pipeline.sink.rows import BatchMaker
from idemproxy.pipeline.sink.storage import LocalStorage

Row = tuple[bytes | None, bytes | None, int | None]
"""Key, value, and the partition that the row asks for."""
SERVERS = {"kafka.bootstrap.servers": "localhost:1"}
OPTIONS = sink_options({**SERVERS, "topic": "t", "stagingLocation": "/s", "producerName": "daily"}, is_streaming=False)


def digest_of(*tasks: list[Row], options: SinkOptions = OPTIONS) -> content.Digest:
    """Return the digest of a run whose tasks have these rows."""
    digests = []
    for number, rows in enumerate(tasks):
        maker = BatchMaker(options, lambda _: 3, number, lambda: 0)
        keys, values, partitions = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
        columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array(partitions, pa.int32())]
        list(maker.add(pa.RecordBatch.from_arrays(columns, names=["key", "value", "partition"])))
        digests.append(maker.digest)
    return content.together(digests)


ROW = st.tuples(st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=3), st.none() | st.integers(0, 2))


@given(st.lists(ROW, max_size=20), st.randoms(use_true_random=False), st.integers(0, 20))
def test_the_digest_of_rows_depends_on_neither_order_nor_tasks(rows: list[Row], random: object, cut: int) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert digest_of(rows) == digest_of(shuffled[:cut], shuffled[cut:])


@given(st.lists(ROW, max_size=6), st.lists(ROW, max_size=6))
def test_other_rows_have_another_digest(rows: list[Row], others: list[Row]) -> None:
    def ordered(those: list[Row]) -> list[str]:
        return sorted(map(repr, those))

    assert (digest_of(rows) == digest_of(others)) == (ordered(rows) == ordered(others))


def test_rows_for_another_topic_have_another_digest() -> None:
    rows: list[Row] = [(b"k", b"v", None)]
    other = sink_options({**SERVERS, "topic": "u", "stagingLocation": "/s", "producerName": "n"}, is_streaming=False)
    assert digest_of(rows) != digest_of(rows, options=other)


def file_of(rows: list[Row], name: str = "stage/0/one") -> StageFile:
    batches = (StagedBatch("t", 0, 0, 100, len(rows), 1),) if rows else ()
    return StageFile(name, 100, batches, digest_of(rows))


STORED: list[Row] = [(b"1", b"one", None), (b"2", b"two", None)]
MICRO_BATCH = "5b7c/7"


def stored_run(folder: Path, *, micro_batch: str | None = None, has_digest: bool = True) -> LocalStorage:
    storage = LocalStorage(folder / "sink")
    file = file_of(STORED)
    run = run_of([file], micro_batch) if has_digest else None
    assert storage.create("0.json", pack(numbered(0, [file], Writer(4711, 0, "daily"), {}, 0, None, run)))
    assert storage.create("0.published", b"")
    return storage


def test_a_run_repeated_with_the_same_rows_succeeds_and_sends_nothing(tmp_path: Path) -> None:
    storage = stored_run(tmp_path)
    Batches(storage, OPTIONS, "daily").commit(0, [file_of(STORED[1:], "x"), file_of(STORED[:1], "y")])
    assert storage.names("") == ["0.json", "0.published"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([*STORED, STORED[0]], "this write has 3"),
        ([], "this write has 0"),
        ([STORED[0], (b"2", b"TWO", None)], "this write has as many with other content"),
        ([STORED[0], STORED[0]], "this write has as many with other content"),
    ],
)
def test_other_rows_under_the_name_of_a_stored_run_are_refused(tmp_path: Path, rows: list[Row], said: str) -> None:
    sink = Batches(stored_run(tmp_path), OPTIONS, "daily")
    with pytest.raises(SinkProblem, match=f"producerName 'daily' names a run that is stored: 2 records.*{said}"):
        sink.commit(0, [file_of(rows)])


def test_equal_rows_of_another_micro_batch_are_another_run(tmp_path: Path) -> None:
    """``foreachBatch`` with one name for all batches: a source may well bring equal rows twice."""
    sink = Batches(stored_run(tmp_path, micro_batch=MICRO_BATCH), OPTIONS, "daily")
    sink.commit(0, [file_of(STORED)], MICRO_BATCH)
    for other, said in (("5b7c/8", "in the micro-batch 5b7c/8"), (None, "in none")):
        with pytest.raises(SinkProblem, match=f"this write was made {said}, and that one in the micro-batch 5b7c/7"):
            sink.commit(0, [file_of(STORED)], other)


def test_a_run_of_a_version_without_digests_is_not_taken_for_the_same(tmp_path: Path) -> None:
    sink = Batches(stored_run(tmp_path, has_digest=False), OPTIONS, "daily")
    with pytest.raises(SinkProblem, match="a version that kept no digest"):
        sink.commit(0, [file_of(STORED)])


def test_two_drivers_that_decide_one_run_with_other_rows_do_not_both_succeed(tmp_path: Path) -> None:
    class Late(LocalStorage):
        """The other driver stores its run while this one checks the storage."""

        def check(self) -> None:
            stored_run(tmp_path)

    storage = Late(tmp_path / "sink")
    with storage.writing("stage/0/one") as file:
        file.write(bytes(100))
    with pytest.raises(SinkProblem, match="as many with other content"):
        Batches(storage, OPTIONS, "daily").commit(0, [file_of([STORED[0], STORED[0]])])


@pytest.mark.parametrize("batch_id", [1, 17])
def test_a_checkpoint_whose_sink_folder_is_gone_is_refused(tmp_path: Path, batch_id: int) -> None:
    given = {**SERVERS, "checkpointLocation": str(tmp_path), "topic": "t"}
    storage = LocalStorage(tmp_path / "sink")
    with pytest.raises(SinkProblem, match=f"batch {batch_id} is to be written, and the checkpoint has no folder sink/"):
        Batches(storage, sink_options(given, is_streaming=True), "query").commit(batch_id, [StageFile("x", 0, ())])
    assert storage.names("") == []
