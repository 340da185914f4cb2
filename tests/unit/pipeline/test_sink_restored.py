"""Spark's part of a checkpoint (offsets/, commits/) was put back to an earlier copy, and sink/ was not: Spark plans the
batches after the copy again, with whatever the source has by now, under ids that are decided and published already."""

from __future__ import annotations

from pathlib import Path

import pytest

from idemproxy.pipeline.sink.commit import Batches
from idemproxy.pipeline.sink.manifest import StagedBatch, StageFile, Writer, numbered, pack
from idemproxy.pipeline.sink.options import sink_options
from idemproxy.pipeline.sink.problems import SinkProblem
from idemproxy.pipeline.sink.storage import LocalStorage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    """The query has published its batches 0 to 20."""
    made = LocalStorage(tmp_path / "checkpoint/sink")
    for batch_id in range(21):
        file = StageFile(f"stage/{batch_id}/one", 100, (StagedBatch("t", 0, 0, 100, 10, 1),))
        manifest = numbered(batch_id, [file], Writer(4711, 0, "query"), {("t", 0): 10 * batch_id}, 0)
        assert made.create(f"{batch_id}.json", pack(manifest))
        assert made.create(f"{batch_id}.published", b"")
    return made


@pytest.mark.parametrize("batch_id", [11, 19])
def test_rows_of_a_batch_that_is_planned_again_are_not_thrown_away(storage: LocalStorage, batch_id: int) -> None:
    """Nor reported as written: batch 11 of now has what 11 to 20 had, and what has come since, and that is nowhere."""
    given = {"kafka.bootstrap.servers": "localhost:1", "checkpointLocation": "/c", "topic": "t"}
    sink = Batches(storage, sink_options(given, is_streaming=True), "query")
    with storage.writing(f"stage/{batch_id}/of now") as file:
        file.write(bytes(500))
    staged = StageFile(f"stage/{batch_id}/of now", 500, (StagedBatch("t", 0, 0, 500, 130, 1),))
    with pytest.raises(SinkProblem, match="batch 20 is decided already"):
        sink.commit(batch_id, [staged])
