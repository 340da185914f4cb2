"""Seven real clients produce through the proxy and read in groups while the cluster changes: leaders, brokers,
replicas, the controller, partitions.

``python -m runs.cluster_changes`` is ``make cluster-changes``: a line of JSON for each client in
benchmarks/results/cluster_changes.jsonl, and exit status 1 unless every record of every client is stored once, in
order, was read by its group at least once and in order, and no error reached the user. A topic that is deleted and
made anew is ``--delete-topic``: what users see of that differs from client to client, so it is judged apart, and beside
the brokers alone (``--without-proxy``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from testkit.real.changing_cluster import ChangingCluster, Followed
from testkit.real.client_runs import (
    AIOKAFKA,
    ALL_IDEMPOTENT_CLIENTS,
    FRANZ,
    JAVA_3,
    KAFKA_PYTHON,
    KAFKAJS,
    LIBRDKAFKA,
    SARAMA,
)

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
    options = parser.parse_args(arguments)
    start = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - start:7.1f} s  {what}", flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="idemproxy-changes-") as directory,
        ChangingCluster(Path(directory), options.clients, without_proxy=options.without_proxy) as scene,
    ):
        scene.start_clients()
        scene.wait_for_more(RECORDS_BETWEEN)
        for name, change in scene.changes().items():
            change()
            scene.wait_for_more(RECORDS_BETWEEN)
            say(name)
        status = 0
        for client, found in scene.followed().items():
            complaints = found.complaints()
            if scene.proxy is not None:
                log = scene.proxy.log
                complaints += [log[log.index("internal error") :][:2000]] if "internal error" in log else []
                if found.init_producer_id_requests != found.producer_ids:
                    ids = f"{found.producer_ids} producer ids"
                    complaints.append(f"{found.init_producer_id_requests} InitProducerId, {ids}")
            figures = _figures(found, len(scene.changes()), "brokers alone" if options.without_proxy else "the proxy")
            append_result(RESULT, {**figures, "complaints": complaints})
            say(", ".join(f"{key} {value}" for key, value in {"client": client, **figures}.items()))
            if complaints:
                status = 1
                print(*complaints, sep="\n", file=sys.stderr)
    return status


def _figures(found: Followed, changes: int, through: str) -> dict[str, object]:
    return {
        "client": found.client,
        "through": through,
        "changes": changes,
        "records": found.sent,
        "acknowledged": found.acknowledged,
        "duplicates": found.verdict.duplicates,
        "losses": found.verdict.lost,
        "reorders": found.verdict.reordered,
        "wrong_offsets": found.verdict.misplaced,
        "errors": len(found.errors),
        "producer_ids": found.producer_ids,
        "read_in_group": found.read,
        "read_again": found.read_again,
        "notices": len(found.notices),
        "first_notice": next(iter(found.notices), None),
    }


if __name__ == "__main__":
    sys.exit(main())
