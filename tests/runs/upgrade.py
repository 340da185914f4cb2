"""Real clients through the proxy while the cluster is upgraded broker by broker, from 0.10.2 over 2.8 to 3.9, message
format last, with faults on both sides of the proxy.

``python -m runs.upgrade`` is ``make upgrade``: a line of JSON for each client, and exit status 1 unless every client
came out without a duplicate, a loss, a reorder or an error, under one producer id.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from idemproxy.demo.fault_relay import FaultPlan
from testkit.real.client_runs import IDEMPOTENT_CLIENTS
from testkit.real.faulty_scene import BREAKING_KINDS, ClientResult
from testkit.real.upgrade_scene import HANDED_OVER, STAGES, UpgradeScene

from .results import append_result

BROKERS, EVERY_NTH_PRODUCE = 3, 15
STANDS_STILL_SECONDS_MAX = 600
RECORDS_BETWEEN = 40
"""Of each client, between two stages."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all stages, or the last ones; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="+", default=IDEMPOTENT_CLIENTS, choices=IDEMPOTENT_CLIENTS)
    parser.add_argument("--brokers", type=int, default=BROKERS)
    parser.add_argument("--skip", type=int, default=0, choices=range(len(STAGES)), help="stages that are done already")
    parser.add_argument("--seed", type=int, default=1, help="of the injected faults")
    options = parser.parse_args(arguments)
    plan = FaultPlan(seed=options.seed, kinds=BREAKING_KINDS, every_nth_produce=EVERY_NTH_PRODUCE)
    start, status = time.monotonic(), 0

    def say(what: str) -> None:
        print(f"{time.monotonic() - start:7.1f} s  {what}", flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="idemproxy-upgrade-") as directory,
        UpgradeScene(
            Path(directory), tuple(options.clients), brokers=options.brokers, plan=plan, starts_with=options.skip
        ) as scene,
    ):
        scene.start_clients(seconds_max=STANDS_STILL_SECONDS_MAX)
        for name, version, settings in scene.stages:
            scene.wait_for_more(RECORDS_BETWEEN, STANDS_STILL_SECONDS_MAX)
            for broker in range(options.brokers):
                scene.become(broker, version, settings)
                say(f"broker {broker}: {name}")
        scene.proxy.wait_for_log(HANDED_OVER, STANDS_STILL_SECONDS_MAX)
        say("handed over")
        scene.wait_for_more(2 * RECORDS_BETWEEN, STANDS_STILL_SECONDS_MAX)
        scene.wait_for_faults(STANDS_STILL_SECONDS_MAX)
        for result in scene.results(seconds_max=STANDS_STILL_SECONDS_MAX).values():
            complaints = result.complaints()
            if "internal error" in (log := scene.proxy.log):
                complaints.append(log[log.index("internal error") :][:2000])
            figures = _figures(result, options.brokers)
            stages = len(scene.stages)
            append_result("upgrade", {**figures, "stages": stages, "seed": options.seed, "complaints": complaints})
            say(", ".join(f"{key} {value}" for key, value in figures.items()))
            if complaints:
                status = 1
                print(*complaints, sep="\n", file=sys.stderr)
    return status


def _figures(result: ClientResult, brokers: int) -> dict[str, object]:
    return {
        "client": result.client,
        "brokers": brokers,
        "records": result.records,
        "acknowledged": result.acknowledged,
        "duplicates": result.verdict.duplicates,
        "losses": result.verdict.lost,
        "reorders": result.verdict.reordered,
        "errors": len(result.outcome["errors"]),
        "consumer_agrees": result.consumed == result.stored,
        "producer_ids": len(result.producer_ids),
        "produce_requests": result.produce_requests,
        "faults_client_side": {kind.value: count for kind, count in result.faults.items() if count},
    }


if __name__ == "__main__":
    sys.exit(main())
