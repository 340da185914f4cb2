"""The clients' own suites, directly at a real 0.10.2.2 and through the proxy in front of one.

``python -m runs.suites [NAME ...]`` is ``make suites``: each suite is fetched by its package's name into .cache/suites
and run without a person. A line of JSON in benchmarks/results/suites.jsonl for each way to run it takes the place of
the one before; compatibility.md shows them. Exit status 1 where a test fails through the proxy and suite_reasons
does not know why, 2 where a suite cannot be made here. Fetching and building needs the package indexes, Go, npm and a C
compiler, and takes minutes, once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.proxies.proxy_process import ProxyProcess

from .results import RESULTS, append_result, rows_of
from .suite_kinds import FAILED, PASSED, SKIPPED, SUITES, Outcomes, Place, Route, Suite
from .suite_reasons import reason_of
from .suite_tools import SuiteUnavailable

RESULT = "suites"
_BROKER_SETTINGS: Mapping[str, str | int] = {
    "num.partitions": 4,
    "delete.topic.enable": "true",
    "group.min.session.timeout.ms": 1_000,  # kafka-python's test_group has sessions of 3 s
}
"""What the suites expect of a broker in addition to automatic topics."""
_SESSION_TIMEOUT_MS = 20_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites; return the exit status."""
    names = [suite.name for suite in SUITES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="NAME", help=", ".join(names))
    chosen = parser.parse_args(arguments).suites or names
    if unknown := sorted(set(chosen) - set(names)):
        parser.error(f"no such suite: {', '.join(unknown)}; there are {', '.join(names)}")
    status = 0
    for suite in SUITES:
        for way in suite.ways if suite.name in chosen else ():
            try:
                unexplained = _run(suite, way)
            except SuiteUnavailable as error:
                print(f"{suite.name}: {error}", file=sys.stderr)
                status = 2
                break
            if unexplained:
                status = status or 1
                print(f"{suite.name}: not known why they fail {way.name}:", *unexplained, sep="\n", file=sys.stderr)
    return status


def _run(suite: Suite, way: Route) -> list[str]:
    """Run one suite in one way and keep what came out; return the tests that fail and should not."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="idemproxy-suite-") as directory:
        outcomes = _outcomes(Path(directory), suite, way)
    keep(suite.name, suite.release, way, outcomes, time.monotonic() - begun)
    failed = [name for name, outcome in outcomes.items() if outcome == FAILED]
    return [name for name in failed if way.through_proxy and reason_of(suite.name, name) is None]


def _outcomes(directory: Path, suite: Suite, way: Route) -> Outcomes:
    with ExitStack() as stack:
        cluster = stack.enter_context(
            LegacyCluster(
                directory / "cluster", broker_settings=_BROKER_SETTINGS, session_timeout_ms=_SESSION_TIMEOUT_MS
            )
        )
        address = cluster.address(0)
        if way.through_proxy:
            address = stack.enter_context(ProxyProcess(directory / "proxy", address, options=way.proxy_options)).address
        folder = directory / "suite"
        folder.mkdir()
        return suite.run(Place(address, cluster.zookeeper_address, folder), way)


def keep(suite: str, release: str, way: Route, outcomes: Outcomes, seconds: float) -> None:
    """Let a line of the results file be what came out, in place of the one before."""
    kept = [line for line in rows_of(RESULT) if (line["suite"], line["way"]) != (suite, way.name)]
    (RESULTS / f"{RESULT}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    by_outcome = {
        kind: sorted(name for name, outcome in outcomes.items() if outcome == kind)
        for kind in (PASSED, SKIPPED, FAILED)
    }
    figures = {"suite": suite, "suite_release": release, "way": way.name, "through_proxy": way.through_proxy}
    figures |= {"told": way.told, "seconds": round(seconds, 1), PASSED: len(by_outcome[PASSED])}
    failed = {name: reason_of(suite, name) or "" for name in by_outcome[FAILED]} if way.through_proxy else {}
    append_result(RESULT, {**figures, SKIPPED: by_outcome[SKIPPED], FAILED: failed or by_outcome[FAILED]})
    print(f"{suite} {release} {way.name}: " + ", ".join(f"{len(by_outcome[kind])} {kind}" for kind in by_outcome))


if __name__ == "__main__":
    sys.exit(main())
