"""Kafka's own command line tools, 3.9 and 4.x, through the proxy to a real 0.10.2.2.

``python -m runs.kafka_tools`` prints what each subcommand did and replaces benchmarks/results/kafka_tools.jsonl, from
which docs/COMPATIBILITY.md is made. ``tests/integration/test_kafka_tools.py`` holds that it is still so.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.java_clients import LAST_3X_CLIENT, MODERN_CLIENT
from testkit.real.kafka_tools import Said, run_tools
from testkit.real.proxy_process import ProxyProcess

from . import compatibility_page
from .results import RESULTS, append_result

RESULT = "kafka_tools"
VERSIONS = (LAST_3X_CLIENT, MODERN_CLIENT)


def through_the_proxy(directory: Path, version: str) -> list[Said]:
    """Run the tools of this release, in front of a cluster of their own."""
    with (
        LegacyCluster(directory / "cluster", auto_create_topics=False, session_timeout_ms=8000) as cluster,
        ProxyProcess(directory / "proxy", cluster.address(0)) as proxy,
    ):
        return run_tools(directory, version, "{}:{}".format(*proxy.address))


def main() -> int:
    """Run both releases; return the exit status."""
    (RESULTS / f"{RESULT}.jsonl").unlink(missing_ok=True)
    for version in VERSIONS:
        with tempfile.TemporaryDirectory(prefix="idemproxy-tools-") as directory:
            for said in through_the_proxy(Path(directory), version):
                print(f"{version}: {said.command}: {'works' if said.works else said.sentence}", flush=True)
                figures = {"tools": version, "command": said.command, "works": said.works, "sentence": said.sentence}
                append_result(RESULT, figures)
    compatibility_page.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
