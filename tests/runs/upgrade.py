"""Real clients through the proxy while the cluster is upgraded broker by broker, from 0.10.2 over 2.8 to 3.9, message
format last, with faults on both sides of the proxy.

``python -m runs.upgrade`` is ``make upgrade``: a line of JSON for each client, and exit status 1 unless every client
came out without a duplicate, a loss, a reorder or an error, under one producer id. Proxies that are ended and killed
while they hand over, a broker that is rolled back meanwhile, and a second proxy are options of the same run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from idemproxy.demo.fault_relay import FaultPlan
from testkit.real.clients.client_runs import IDEMPOTENT_CLIENTS
from testkit.real.scenes.faulty import BREAKING_KINDS, ClientResult
from testkit.real.scenes.upgrade import STAGES, UpgradeScene

from .results import append_result

BROKERS, EVERY_NTH_PRODUCE = 3, 15
STANDS_STILL_SECONDS_MAX = 600
DELIVERY_SECONDS_MAX = 3600
"""Of each record: brokers restart a dozen times."""
RECORDS_BETWEEN = 40
"""Of each client, between two stages."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all stages, or the last ones; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="+", default=IDEMPOTENT_CLIENTS, choices=IDEMPOTENT_CLIENTS)
    parser.add_argument("--brokers", type=int, default=BROKERS)
    parser.add_argument("--skip", type=int, default=0, choices=range(len(STAGES)), help="stages that are done already")
    parser.add_argument("--seed", type=int, default=1, help="of the injected faults")
    parser.add_argument("--proxies", type=int, default=1, choices=(1, 2), help="on one Redis; clients use them in turn")
    parser.add_argument("--restart-proxies", action="store_true", help="while producers are handed over: ended, killed")
    parser.add_argument("--roll-back", action="store_true", help="a broker gets the old format again meanwhile")
    options = parser.parse_args(arguments)
    plan = FaultPlan(seed=options.seed, kinds=BREAKING_KINDS, every_nth_produce=EVERY_NTH_PRODUCE)
    start, status = time.monotonic(), 0

    def say(what: str) -> None:
        print(f"{time.monotonic() - start:7.1f} s  {what}", flush=True)

    with (
        tempfile.TemporaryDirectory(prefix="idemproxy-upgrade-") as directory,
        UpgradeScene(
            Path(directory),
            tuple(options.clients),
            brokers=options.brokers,
            plan=plan,
            starts_with=options.skip,
            proxies=options.proxies,
        ) as scene,
    ):
        _upgrade(scene, options, say)
        what = {
            "stages": len(scene.stages),
            "seed": options.seed,
            "proxies": options.proxies,
            "restarted": options.restart_proxies,
            "rolled_back": options.roll_back,
        }
        for result in scene.results(seconds_max=STANDS_STILL_SECONDS_MAX).values():
            complaints = [*result.complaints(leaders_move=options.brokers > 1), *scene.internal_errors]
            figures = _figures(result, options.brokers)
            append_result("upgrade", {**figures, **what, "complaints": complaints})
            say(", ".join(f"{key} {value}" for key, value in figures.items()))
            if complaints:
                status = 1
                print(*complaints, sep="\n", file=sys.stderr)
    return status


def _upgrade(scene: UpgradeScene, options: argparse.Namespace, say: Callable[[str], None]) -> None:
    """All that happens while clients produce."""
    scene.start_clients(seconds_max=DELIVERY_SECONDS_MAX)
    for name, version, settings in scene.stages:
        scene.wait_for_more(RECORDS_BETWEEN, STANDS_STILL_SECONDS_MAX)
        for broker in range(options.brokers):
            scene.become(broker, version, settings)
            say(f"broker {broker}: {name}")
    scene.wait_until_handed_over(STANDS_STILL_SECONDS_MAX)
    say("handed over")
    scene.wait_for_more(2 * RECORDS_BETWEEN, STANDS_STILL_SECONDS_MAX)
    if options.restart_proxies:
        for by_kill in (False, True):
            scene.restart_proxies(by_kill=by_kill, seconds_max=STANDS_STILL_SECONDS_MAX)
            scene.wait_for_more(RECORDS_BETWEEN, STANDS_STILL_SECONDS_MAX)
            say(f"proxies {'killed' if by_kill else 'ended'} and started")
    if options.roll_back:
        scene.roll_back(0, seconds_max=STANDS_STILL_SECONDS_MAX)
        say("broker 0 is rolled back, leads, and is not served")
        _, version, settings = STAGES[-1]
        scene.become(0, version, settings)
        scene.wait_for_more(RECORDS_BETWEEN, STANDS_STILL_SECONDS_MAX)
        say("broker 0 has its own format again")
    scene.wait_for_faults(STANDS_STILL_SECONDS_MAX)


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
        "offsets_known": result.outcome["offsets_known"],
        "told_in_order": result.outcome["offsets_in_order"],
        "consumer_agrees": result.consumed == result.stored,
        "producer_ids": len(result.producer_ids),
        "produce_requests": result.produce_requests,
        "faults_client_side": {kind.value: count for kind, count in result.faults.items() if count},
    }


if __name__ == "__main__":
    sys.exit(main())
