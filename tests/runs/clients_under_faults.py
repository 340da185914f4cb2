"""The five clients, one after the other, at full size through faults on both sides of the proxy.

``python -m runs.clients_under_faults`` is ``make clients``: a table, a line of JSON per client, and exit status 1
unless every client came out without a duplicate, a loss, a reorder or an error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from idemproxy.demo.fault_relay import FaultPlan
from testkit.real.client_runs import IDEMPOTENT_CLIENTS
from testkit.real.faulty_scene import BREAKING_KINDS, ClientResult, FaultyScene

from .results import append_result

RECORDS, PARTITIONS = 20_000, 3
EVERY_NTH_PRODUCE = 15
"""On each side. Every fault at the broker's side is a doubt, and each of those takes a second to settle."""
RUN_SECONDS_MAX = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the clients that are named, or all; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"of {', '.join(IDEMPOTENT_CLIENTS)}; all")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--seed", type=int, default=1, help="of the injected faults")
    options = parser.parse_args(arguments)
    if unknown := set(options.clients) - set(IDEMPOTENT_CLIENTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    status = 0
    for client in options.clients or IDEMPOTENT_CLIENTS:
        if complaints := _run(client, options.records, options.seed):
            status = 1
            print(*complaints, sep="\n", file=sys.stderr)
    return status


def _run(client: str, records: int, seed: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="idemproxy-clients-") as directory:
        plan = FaultPlan(seed=seed, kinds=BREAKING_KINDS, every_nth_produce=EVERY_NTH_PRODUCE)
        with FaultyScene(Path(directory), plan) as scene:
            result = scene.run(
                (client,), partitions=PARTITIONS, records=records, plan=plan, seconds_max=RUN_SECONDS_MAX
            )[client]
            complaints = result.complaints()
            if "internal error" in (log := scene.proxy.log):
                complaints.append(log[log.index("internal error") :][:2000])
            figures = _figures(result, scene, log)
    append_result("clients", {**figures, "seed": seed, "complaints": complaints})
    print(", ".join(f"{name} {value}" for name, value in figures.items()), flush=True)
    return complaints


def _figures(result: ClientResult, scene: FaultyScene, log: str) -> dict[str, object]:
    return {
        "client": result.client,
        "records": result.records,
        "partitions": PARTITIONS,
        "acknowledged": result.acknowledged,
        "duplicates": result.verdict.duplicates,
        "losses": result.verdict.lost,
        "reorders": result.verdict.reordered,
        "wrong_offsets": result.verdict.misplaced,
        "errors": len(result.outcome["errors"]),
        "consumer_agrees": result.consumed == result.stored,
        "init_producer_ids": result.init_producer_id_requests,
        "producer_ids": len(result.producer_ids),
        "produce_requests": result.produce_requests,
        "faults_client_side": {kind.value: count for kind, count in result.faults.items() if count},
        "faults_broker_side": {kind.value: count for kind, count in scene.broker_relay.counts.items() if count},
        "doubts": log.count("in doubt: producer "),
        "found": log.count("resolved as found"),
        "not_found": log.count("resolved as not_found"),
        "duplicates_answered": log.count("duplicate: producer "),
        "seconds": round(result.seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
