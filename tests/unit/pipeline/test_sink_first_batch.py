"""Two drivers of one checkpoint begin a query with a name: one of them was stopped for a moment, and resumes later."""

from __future__ import annotations

from pathlib import Path

import pytest

from idemproxy.client import ProducerId
from idemproxy.pipeline.sink import commit
from idemproxy.pipeline.sink.commit import Batches
from idemproxy.pipeline.sink.manifest import StageFile, unpack
from idemproxy.pipeline.sink.options import sink_options
from idemproxy.pipeline.sink.storage import LocalStorage

NOTHING_STAGED = StageFile("stage/0/nothing", 0, ())
OPTIONS = sink_options(
    {"kafka.bootstrap.servers": "localhost:1", "checkpointLocation": "/c", "topic": "t", "fencing": "name"},
    is_streaming=True,
)


class Name:
    """What the proxies keep of a name: each instance gets a higher epoch, and fences those before it (R22)."""

    def __init__(self) -> None:
        self.epoch = -1

    def __call__(self, options: object, name: object) -> ProducerId:
        self.epoch += 1
        return ProducerId(4711, self.epoch)


@pytest.mark.parametrize("batches", [1, 3])
def test_a_driver_that_is_late_for_the_first_batch_does_not_fence_the_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    name = Name()
    monkeypatch.setattr(commit, "allocate", name)

    class Late(LocalStorage):
        """Its driver stands still in the checks of its first batch; another one has begun the query meanwhile."""

        def check(self) -> None:
            for batch_id in range(batches):
                Batches(LocalStorage(tmp_path / "sink"), OPTIONS, "query").commit(batch_id, [NOTHING_STAGED])
            super().check()

    Batches(Late(tmp_path / "sink"), OPTIONS, "query").commit(0, [NOTHING_STAGED])
    storage = LocalStorage(tmp_path / "sink")
    kept = unpack(storage.read("0.json") or b"", "0.json").writer
    assert kept.epoch == name.epoch, "whoever goes on with this checkpoint is fenced, for good"
