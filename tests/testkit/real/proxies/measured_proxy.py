"""The shipped proxy, whose metric of the longest step of the event loop has the CPU seconds of that step: on a machine
that others use as well, a step lasts as long as they let it. A program, with the arguments of ``idemproxy``."""

from __future__ import annotations

import sys
import time

from idemproxy.proxy.main import main
from idemproxy.proxy.telemetry.metrics import Metrics

METRIC = "idemproxy_loop_step_longest_seconds"
"""What it is called by a proxy with an admin port."""


class CpuSeconds:
    """Stands in for ``Metrics.step_took``."""

    def __init__(self) -> None:
        self._shipped = Metrics.step_took
        self._ended_at = time.thread_time()

    def step_took(self, metrics: Metrics, seconds: float) -> None:
        """A step has ended. What the thread did since the one before counts as well: that is little once it serves, and
        no more than the step itself can have taken."""
        began_at, self._ended_at = self._ended_at, time.thread_time()
        self._shipped(metrics, min(seconds, self._ended_at - began_at))


if __name__ == "__main__":
    measured = CpuSeconds()
    Metrics.step_took = lambda self, seconds: measured.step_took(self, seconds)  # type: ignore[method-assign]
    sys.exit(main())
