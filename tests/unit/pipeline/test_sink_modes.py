"""Spark does not tell a sink that its query is continuous: by what is noted in the checkpoint it is recognised."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from idemproxy.pipeline.sink.modes import refuse_continuous
from idemproxy.pipeline.sink.options import sink_options
from idemproxy.pipeline.sink.problems import SinkProblem


@pytest.mark.parametrize(
    ("offsets", "commits", "is_refused"),
    [
        ([], [], True),  # a continuous query notes nothing before it asks for its writer
        (["0"], [], False),
        (["9", "10"], ["9"], False),
        (["9", "10"], ["9", "10"], True),  # one that continues after a micro-batch query, and would write nothing
        (["10", ".11.crc"], ["10"], True),
    ],
)
def test_a_query_without_a_batch_under_way_is_continuous(
    tmp_path: Path, offsets: list[str], commits: list[str], is_refused: bool
) -> None:
    for folder, names in (("offsets", offsets), ("commits", commits)):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / name).touch()
    given = {"kafka.bootstrap.servers": "localhost:1", "checkpointLocation": str(tmp_path), "topic": "t"}
    refused = pytest.raises(SinkProblem, match="continuous processing has no batches")
    with refused if is_refused else nullcontext():
        refuse_continuous(sink_options(given, is_streaming=True))
