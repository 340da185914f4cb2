"""Which process runs which test file: most tests wait for brokers and timeouts, the others keep a core busy.

Every third process takes files that compute, the others files that wait, and one that has none left takes any file.
So a core is seldom idle, and tests on real sockets never share it with more than a few that compute. Of its kind a
process takes the longest file first, so that in the end nobody waits for a long one.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

WAITING_FOLDERS = ("tests/e2e/", "tests/integration/")
SECONDS = Path(__file__).with_name("file_seconds.json")
"""How long files took, those of some seconds; written by ``runs.file_seconds`` from a report of pytest."""
ON_SPARK = tuple(f"tests/integration/pipeline/test_{name}.py" for name in ("audit", "spark_source", "spark_sink"))
"""They share one Spark, which takes ten seconds of a core to start: one process runs them, as if they were one file."""


@cache
def file_seconds() -> dict[str, float]:
    """Return file -> seconds; those on Spark count as one."""
    found: dict[str, float] = json.loads(SECONDS.read_text())
    return {**found, ON_SPARK[0]: sum(found.get(file, 0.0) for file in ON_SPARK)}


class WaitingBesideComputing(LoadFileScheduling):  # type: ignore[misc]
    """Hands out whole files, each kind from the longest to the shortest."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return ON_SPARK[0] if file in ON_SPARK else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(self._next_file(node), last=False)
        super()._assign_work_unit(node)

    def _next_file(self, node: WorkerController) -> str:
        computes = int(node.gateway.id.removeprefix("gw")) % 3 == 0
        files: list[str] = list(self.workqueue)
        fitting = [file for file in files if file.startswith(WAITING_FOLDERS) != computes]
        return max(fitting or files, key=lambda file: file_seconds().get(file, 0.0))
