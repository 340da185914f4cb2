"""Five real clients produce through two proxies, under faults, while three brokers become 2.8.2 and then 3.9.1.

``python -m runs.upgrade`` is ``make upgrade``: a line of JSON for each client in benchmarks/results/upgrade.jsonl, and
exit status 1 unless every record of every client is stored once, in order, at the offset of its response, was read by
its group, and no error reached the user. Each round has all brokers restarted, one by one; in each a proxy is killed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from testkit.real.clients.client_runs import ALL_IDEMPOTENT_CLIENTS, IDEMPOTENT_CLIENTS
from testkit.real.scenes.upgraded_cluster import MIDDLE, NEW, OLD, UPGRADES, Faults, UpgradedCluster

from .faulty_client import said
from .results import append_result

RESULT = "upgrade"
RECORDS_BETWEEN = 30
"""Of each client, after each broker."""
EVERY_NTH_AT_CLIENTS, EVERY_NTH_AT_BROKERS = 20, 60
"""Every fault at the brokers' side is an unknown outcome of all that is in the request, and takes a second to
resolve; five clients share that side."""

OURS = ("internal error", "DUPLICATE:")
"""In a line of a proxy's log: an error of the proxy's own, or a batch that it has found twice in the log. That it has
answered DUPLICATE_SEQUENCE_NUMBER is neither: the batch is stored."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Upgrade once; return the exit status. ``--keep`` leaves logs and segments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", nargs="+", default=IDEMPOTENT_CLIENTS, choices=ALL_IDEMPOTENT_CLIENTS)
    parser.add_argument("--format", default=next(iter(UPGRADES)), choices=UPGRADES, help="when it is raised")
    parser.add_argument("--seed", type=int, default=1, help="of the injected faults")
    parser.add_argument("--without-faults", action="store_true", help="the upgrade alone")
    parser.add_argument("--keep", type=Path, help="a directory that does not exist yet")
    options = parser.parse_args(arguments)
    start = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - start:7.1f} s  {what}", flush=True)

    faults = Faults()
    if not options.without_faults:
        faults = Faults(EVERY_NTH_AT_CLIENTS, EVERY_NTH_AT_BROKERS, options.seed, kills=True)
    with ExitStack() as stack:
        directory = options.keep
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="idemproxy-upgrade-")))
        directory.mkdir(exist_ok=True)
        scene = stack.enter_context(UpgradedCluster(directory, options.clients, faults))
        never = _upgrade(scene, options.format, say)
        status = 0
        for client, found in scene.followed().items():
            complaints = never + found.complaints() + scene.proxies.errors_of_ours(OURS)
            if not (found.init_producer_id_requests == found.producer_ids == 1):
                complaints.append(f"{found.init_producer_id_requests} InitProducerId, {found.producer_ids} ids")
            if not (agrees := scene.read_whole(client)):
                complaints.append("a plain consumer reads something else than what is in the segment files")
            figures = {
                **found.figures(),
                "consumer_agrees": agrees,
                "broker": f"{OLD}, {MIDDLE}, {NEW}",
                "format": options.format,
                "broker_starts": scene.starts,
                "broker_kills": scene.broker_kills,
                "waits_for_a_broker": scene.stalls,
                "proxy_kills": scene.proxy_kills,
                "faults_client_side": scene.faults_of(client),
                "faults_broker_side": scene.faults_at_brokers,
                "seconds": round(time.monotonic() - start),
                "seed": options.seed,
            }
            append_result(RESULT, {**figures, "complaints": complaints})
            say(said(figures))
            for complaint in complaints:
                print(complaint, file=sys.stderr)
            status |= bool(complaints)
    return status


def _upgrade(scene: UpgradedCluster, name: str, say: Callable[[str], None]) -> list[str]:
    """All rounds. Return what never came, after which there are no more."""
    scene.start_clients()
    try:
        scene.wait_for_more(RECORDS_BETWEEN)
        say("all clients produce")
        for number, chosen in enumerate(UPGRADES[name]):
            scene.upgrade(number, chosen, RECORDS_BETWEEN, say)
    except AssertionError as error:
        say(str(error))
        return [str(error)]
    return []


if __name__ == "__main__":
    sys.exit(main())
