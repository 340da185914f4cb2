"""Seven real clients produce through the proxy and read in groups while the cluster changes: leaders, brokers,
replicas, the controller, partitions.

``python -m runs.cluster_changes`` is ``make cluster-changes``: a line of JSON for each client in
benchmarks/results/cluster_changes.jsonl, and exit status 1 unless every record of every client is stored once, in
order, was read by its group at least once and in order, and no error reached the user. A topic that is deleted and
recreated under producer and reader is ``--delete-topic``: what users see of that differs from client to client, so it
is judged apart, and compared with the brokers alone (``--without-proxy``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from testkit.real.clients.client_runs import (
    AIOKAFKA,
    ALL_IDEMPOTENT_CLIENTS,
    FRANZ,
    JAVA_3,
    KAFKA_PYTHON,
    KAFKAJS,
    LIBRDKAFKA,
    SARAMA,
)
from testkit.real.scenes.changing_cluster import ChangingCluster

from .results import append_result

RESULT = "cluster_changes"
CLIENTS = (LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA, JAVA_3, FRANZ, SARAMA, KAFKAJS)
RECORDS_BETWEEN = 30
"""Of each client, after each change."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all changes, one after the other; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="+", default=CLIENTS, choices=ALL_IDEMPOTENT_CLIENTS)
    parser.add_argument("--without-proxy", action="store_true", help="for comparison: brokers alone, no idempotence")
    parser.add_argument("--delete-topic", action="store_true", help="only that: a topic is deleted and recreated")
    options = parser.parse_args(arguments)
    start = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - start:7.1f} s  {what}", flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="idemproxy-changes-") as directory,
        ChangingCluster(Path(directory), options.clients, without_proxy=options.without_proxy) as scene,
    ):
        lines = _remade(scene, say) if options.delete_topic else _followed(scene, say)
        for figures in lines:
            if scene.proxy is not None and "internal error" in (log := scene.proxy.log):
                figures["complaints"] = [*figures["complaints"], log[log.index("internal error") :][:2000]]
            through = "the brokers alone" if options.without_proxy else "the proxy"
            append_result(RESULT, {"through": through, **figures})
            say(", ".join(f"{key} {value}" for key, value in figures.items()))
    return 1 if any(figures["complaints"] for figures in lines) else 0


def _followed(scene: ChangingCluster, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """All changes but a topic that is deleted: a line for each client."""
    scene.start_clients()
    scene.wait_for_more(RECORDS_BETWEEN)
    for name, change in scene.changes().items():
        change()
        scene.wait_for_more(RECORDS_BETWEEN)
        say(name)
    lines = []
    for found in scene.followed().values():
        complaints = found.complaints()
        if scene.proxy is not None and found.init_producer_id_requests != found.producer_ids:
            complaints.append(f"{found.init_producer_id_requests} InitProducerId, {found.producer_ids} producer ids")
        lines.append({**found.figures(), "changes": len(scene.changes()), "complaints": complaints})
    return lines


def _remade(scene: ChangingCluster, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A topic that is deleted and recreated: a line for each client. What reaches its user is no complaint."""
    scene.start_clients(notes_errors=True)
    scene.wait_for_more(RECORDS_BETWEEN)
    scene.remake_topics()
    say("the topics are deleted and recreated")
    lines: list[dict[str, Any]] = []
    for found in scene.remade(RECORDS_BETWEEN).values():
        new = found.verdict
        twice = f"the new log has {new.duplicates} duplicates, {new.reordered} reordered"
        figures = {"client": found.client, "change": "topic deleted and recreated", "goes_on": found.goes_on}
        figures |= {"records": found.sent, "acknowledged": found.acknowledged, "stored_again": new.stored}
        figures |= {"duplicates": new.duplicates, "reorders": new.reordered, "errors": len(found.errors)}
        figures["first_error"] = next(iter(found.errors), None)
        figures |= {"read_recreated": found.read_recreated, "not_read": found.not_read}
        figures |= {"notices": len(found.reading), "first_notice": next(iter(found.reading), None)}
        told_off = scene.proxy is not None and (new.duplicates or new.reordered)
        lines.append({**figures, "complaints": [twice] if told_off else []})
    return lines


if __name__ == "__main__":
    sys.exit(main())
