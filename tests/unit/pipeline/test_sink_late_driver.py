"""A driver stands still for a day while it publishes a batch, and then resumes: another one has finished the batch, and
the server has forgotten the producer since."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

import pytest

from idemproxy.client import ProducerId, Receipt
from idemproxy.codecs import record_batch
from idemproxy.pipeline.sink import commit
from idemproxy.pipeline.sink.commit import Batches
from idemproxy.pipeline.sink.manifest import StagedBatch, StageFile
from idemproxy.pipeline.sink.options import Connection, sink_options
from idemproxy.pipeline.sink.problems import SinkProblem
from idemproxy.pipeline.sink.publish import crc_of
from idemproxy.pipeline.sink.storage import LocalStorage
from testkit.stage.logs import modern, numbered

OPTIONS = sink_options(
    {"kafka.bootstrap.servers": "localhost:1", "checkpointLocation": "/c", "topic": "t"}, is_streaming=True
)
DAY_SECONDS = 86_400


class Server:
    """Client and producer at once. It takes whatever comes, as one that does not know the producer (any more) does."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def producer(self, *_: object, **__: object) -> Self:
        return self

    def init_producer_id(self, name: str | None) -> ProducerId:
        return ProducerId(4711, 0)

    def send(self, topic: str, partition: int, data: bytes) -> Future[Receipt]:
        self.sent.append(data)
        told: Future[Receipt] = Future()
        told.set_result(Receipt(topic, partition, 0, 1, len(self.sent), False))
        return told


class Stalled(LocalStorage):
    """Its file system hangs, or the machine sleeps, before the second batch is read."""

    def __init__(self, root: Path, clock: dict[str, float]) -> None:
        super().__init__(root)
        self._clock = clock

    def read_range(self, name: str, position: int, size: int) -> bytes:
        if position:
            self._clock["seconds"] += DAY_SECONDS + 1
            self.create("0.published", b"")  # by the other driver, long ago
        return super().read_range(name, position, size)


def test_what_is_too_old_is_not_sent_by_who_has_begun_it_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, server = {"seconds": time.time()}, Server()
    monkeypatch.setattr(commit, "_now_ms", lambda: int(clock["seconds"] * 1000))
    monkeypatch.setattr(Connection, "client", lambda _: server)
    storage = Stalled(tmp_path / "sink", clock)
    made: list[Any] = [modern(numbered(number, 1)) for number in range(2)]
    with storage.writing("stage/0/one") as file:
        for one in made:
            file.write(one)
    staged = tuple(
        StagedBatch("t", 0, len(made[0]) * number, len(one), 1, crc_of(one)) for number, one in enumerate(made)
    )
    assert len(made[0]) > record_batch.BATCH_OVERHEAD_BYTES
    with pytest.raises(SinkProblem, match="was begun more than"):
        Batches(storage, OPTIONS, "query").commit(0, [StageFile("stage/0/one", sum(map(len, made)), staged)])
    assert server.sent == made[:1], "the second one is in the log already, and nobody knows"
