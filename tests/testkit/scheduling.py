"""Which process runs which test file: most tests wait for brokers and timeouts, the others keep a core busy.

Every third process takes files that compute, the others files that wait, and whoever has none left takes what there is.
So a core is seldom idle, and tests on real sockets never share it with more than a few that compute.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

WAITING_FOLDERS = ("tests/e2e/", "tests/integration/")
LONGEST = tuple(
    f"tests/{name}.py"
    for name in (
        "integration/test_audit",
        "integration/test_sink_crashes",
        "e2e/test_admin_traces",
        "e2e/test_docs_walkthrough",
        "integration/test_several_proxies",
        "integration/test_redis_trouble",
        "integration/test_config_start",
        "integration/test_rolling_restart",
        "integration/test_client",
        "integration/test_resolver",
        "integration/test_sasl_upstream",
        "integration/test_sasl_faults",
        "e2e/test_docs",
        "simulation/test_exhaustive",
        "simulation/test_random_worlds",
        "simulation/test_mutants",
    )
)
"""They begin first, so that in the end nobody waits for one of them."""
ON_SPARK = tuple(f"tests/integration/test_{name}.py" for name in ("audit", "spark_source", "spark_sink"))
"""They share one Spark, which takes ten seconds of a core to start: one process runs them, as if they were one file."""


class WaitingBesideComputing(LoadFileScheduling):  # type: ignore[misc]
    """Hands out whole files, each kind in the order of the collection behind the longest ones."""

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
        return min(fitting or files, key=lambda file: LONGEST.index(file) if file in LONGEST else len(LONGEST))
