"""What Spark does with the sink, without Spark: batch after batch is staged by some tasks and committed, and a batch
whose end was not noted comes again.

``python -m testkit.real.spark.sink_committer PLAN.json``: a driver that starts in a second, to be killed at every
step."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from idemproxy.pipeline.sink.commit import Batches, stage_folder
from idemproxy.pipeline.sink.manifest import StageFile
from idemproxy.pipeline.sink.options import sink_options
from idemproxy.pipeline.sink.stage import stage
from idemproxy.pipeline.sink.storage import storage_at

from .sink_steps import MISHAP, arm, reached

_TESTS = Path(__file__).resolve().parents[3]
VALUE_BYTES = 100


@dataclass(frozen=True)
class CommitterPlan:
    """One run. ``tasks``: into so many files a batch goes, in an order of this run's own. ``mishap``: ``kill`` or
    ``stop``, and the step."""

    bootstrap: str
    topic: str
    folder: str
    batches: int
    rows: int
    tasks: int = 2
    mishap: tuple[str, str] | None = None


def value_of(number: int) -> bytes:
    """Return the value of a row."""
    return (b"%d " % number).ljust(VALUE_BYTES, b".")


def number_of(value: bytes) -> int:
    """Return the number of the row with this value."""
    return int(value.split(b" ", 1)[0])


def staged(plan: CommitterPlan, batch_id: int, options: Any, storage: Any) -> Iterator[StageFile]:
    """Stage the rows of a batch, and what failed attempts of its tasks have left."""
    numbers = list(range(batch_id * plan.rows, (batch_id + 1) * plan.rows))
    random.shuffle(numbers)
    for task in range(plan.tasks):
        mine = numbers[task :: plan.tasks]
        for attempt in (mine[: len(mine) // 2], mine):  # the first one has failed, or continues as a zombie
            columns = [pa.array([b"%d" % one for one in attempt]), pa.array([value_of(one) for one in attempt])]
            rows = pa.record_batch(columns, names=["key", "value"])
            file = stage([rows], stage_folder(batch_id), task, storage, options)
        yield file


def main(plan_file: str) -> None:
    """Run it once."""
    content = json.loads(Path(plan_file).read_text())
    plan = CommitterPlan(**content)
    pids = Path(f"{plan_file}.pids")
    pids.touch()
    os.environ[MISHAP] = json.dumps({"mishap": plan.mishap, "pids": str(pids), "folder": plan.folder})
    checkpoint = Path(plan.folder, "checkpoint")
    commits = checkpoint / "commits"
    commits.mkdir(parents=True, exist_ok=True)
    given = {
        "kafka.bootstrap.servers": plan.bootstrap,
        "topic": plan.topic,
        "checkpointLocation": str(checkpoint),
        "kafka.batch.size": "4096",
    }
    options = sink_options(given, is_streaming=True)
    storage = storage_at(options.location)
    for batch_id in range(plan.batches):
        if (commits / str(batch_id)).exists():
            continue
        files = list(staged(plan, batch_id, options, storage))
        if batch_id:
            arm()
        Batches(storage, options, "query").commit(batch_id, files)
        reached("behind the commit")
        (commits / str(batch_id)).touch()
    print("done")


class Committer:
    """A run as a child process. A context manager: leaving it ends what is left."""

    def __init__(self, plan: CommitterPlan) -> None:
        folder = Path(plan.folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._plan = folder / f"plan-{random.getrandbits(64):x}.json"
        self._plan.write_text(json.dumps(asdict(plan)))

    def __enter__(self) -> Committer:
        command = [sys.executable, "-m", "testkit.real.spark.sink_committer", str(self._plan)]
        environment = {**os.environ, "PYTHONPATH": str(_TESTS)}
        self._output = self._plan.with_suffix(".out")
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def resume(self) -> None:
        """Resume it where it stands still."""
        self._process.send_signal(signal.SIGCONT)

    def wait(self, seconds_max: float = 240) -> str:
        """Return ``killed``, or the last line that it has printed."""
        code = self._process.wait(seconds_max)
        lines = self._output.read_text(errors="replace").splitlines()
        return "killed" if code == -signal.SIGKILL else lines[-1] if lines else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
