"""Kafka's own command line tools, 3.9 and 4.x, through the proxy to a real 0.10.2.2.

``python -m runs.kafka_tools [VERSION ...]`` is ``make tools``: it prints what each subcommand did, and replaces the
lines of these versions in benchmarks/results/kafka_tools.jsonl.
``tests/integration/foreign_clients/test_kafka_tools.py`` holds that it is still so.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.clients.java_clients import LAST_3X_CLIENT, MODERN_CLIENT
from testkit.real.clients.kafka_tools import Said, run_tools
from testkit.real.proxies.proxy_process import ProxyProcess

from .results import RESULTS, append_result, rows_of

RESULT = "kafka_tools"
VERSIONS = (LAST_3X_CLIENT, MODERN_CLIENT)


def through_the_proxy(directory: Path, version: str) -> list[Said]:
    """Run the tools of this release, in front of a cluster of their own."""
    with (
        LegacyCluster(directory / "cluster", auto_create_topics=False, session_timeout_ms=8000) as cluster,
        ProxyProcess(directory / "proxy", cluster.address(0)) as proxy,
    ):
        return run_tools(directory, version, "{}:{}".format(*proxy.address))


def main(versions: Sequence[str]) -> int:
    """Run these releases; return the exit status."""
    for version in versions:
        with tempfile.TemporaryDirectory(prefix="idemproxy-tools-") as directory:
            all_said = through_the_proxy(Path(directory), version)
            _forget(version)
            for said in all_said:
                print(f"{version}: {said.command}: {'works' if said.works else said.sentence}", flush=True)
                figures = {"tools": version, "command": said.command, "works": said.works, "sentence": said.sentence}
                append_result(RESULT, figures)
    return 0


def _forget(version: str) -> None:
    kept = [json.dumps(line) + "\n" for line in rows_of(RESULT) if line["tools"] != version]
    (RESULTS / f"{RESULT}.jsonl").write_text("".join(kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or VERSIONS))
