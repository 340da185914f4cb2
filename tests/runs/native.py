"""Real clients through the proxy to brokers that have producer ids, with faults on both sides of the proxy.

``python -m runs.native`` is ``make native``: a table, a line of JSON for each broker and client, and exit status 1
unless every client came out without a duplicate, a loss, a reorder or an error. A pair that is in the results file of
this commit already is not run again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from idemproxy.demo.fault_relay import FaultPlan
from testkit.real.client_runs import IDEMPOTENT_CLIENTS
from testkit.real.faulty_scene import BREAKING_KINDS, ClientResult, FaultyScene
from testkit.real.kraft_cluster import NEWEST

from .results import append_result

VERSIONS = ("0.11.0.3", "1.1.1", "2.8.2", "3.9.1", NEWEST)
RECORDS, PARTITIONS = 5_000, 3
EVERY_NTH_PRODUCE = 6
"""On each side."""
RUN_SECONDS_MAX = 600


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the versions that are named, or all; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"of {', '.join(VERSIONS)}; all")
    parser.add_argument("--clients", nargs="+", default=IDEMPOTENT_CLIENTS, choices=IDEMPOTENT_CLIENTS)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--without-proxy", action="store_true", help="for comparison: the broker alone")
    parser.add_argument("--in-flight", type=int, choices=(1, 5), help="requests; 1 for 0.11, else 5")
    parser.add_argument("--seed", type=int, default=1, help="of the injected faults")
    options = parser.parse_args(arguments)
    status = 0
    for version in options.versions or VERSIONS:
        for client in options.clients:
            one_in_flight = options.in_flight == 1 or (options.in_flight is None and version.startswith("0.11"))
            run = Run(version, client, options.records, options.seed, one_in_flight, options.without_proxy)
            if complaints := run.go():
                status = 1
                print(*complaints, sep="\n", file=sys.stderr)
    return status


@dataclass(frozen=True, slots=True)
class Run:
    """One client at one broker. ``without_proxy``: the broker alone, through the relays."""

    version: str
    client: str
    records: int
    seed: int
    one_in_flight: bool
    without_proxy: bool

    def go(self) -> list[str]:
        """Run it, record its figures, return what is not as it should be."""
        with tempfile.TemporaryDirectory(prefix="idemproxy-native-") as directory:
            plan = FaultPlan(seed=self.seed, kinds=BREAKING_KINDS, every_nth_produce=EVERY_NTH_PRODUCE)
            with FaultyScene(Path(directory), plan, self.version, without_proxy=self.without_proxy) as scene:
                result = scene.run(
                    (self.client,),
                    partitions=PARTITIONS,
                    records=self.records,
                    plan=plan,
                    seconds_max=RUN_SECONDS_MAX,
                    one_in_flight=self.one_in_flight,
                )[self.client]
                complaints = result.complaints(ids_are_ours=False)
                if not self.without_proxy:
                    complaints += _complaints_about(scene.proxy.log)
                figures = self._figures(result, scene)
        append_result("native", {**figures, "seed": self.seed, "complaints": complaints})
        print(", ".join(f"{name} {value}" for name, value in figures.items()), flush=True)
        return complaints

    def _figures(self, result: ClientResult, scene: FaultyScene) -> dict[str, object]:
        return {
            "broker": self.version,
            "client": result.client,
            "through": "relays alone" if self.without_proxy else "the proxy",
            "in_flight": 1 if self.one_in_flight else 5,
            "records": result.records,
            "partitions": PARTITIONS,
            "acknowledged": result.acknowledged,
            "duplicates": result.verdict.duplicates,
            "losses": result.verdict.lost,
            "reorders": result.verdict.reordered,
            "wrong_offsets": result.verdict.misplaced,
            "errors": len(result.outcome["errors"]),
            "consumer_agrees": result.consumed == result.stored,
            "produce_requests": result.produce_requests,
            "faults_client_side": {kind.value: count for kind, count in result.faults.items() if count},
            "faults_broker_side": {kind.value: count for kind, count in scene.broker_relay.counts.items() if count},
            "seconds": round(result.seconds, 1),
        }


def _complaints_about(log: str) -> list[str]:
    found = []
    if "upstream.idempotence: native" not in log:
        found.append("the proxy did not serve natively")
    if "internal error" in log:
        found.append(log[log.index("internal error") :][:2000])
    return found


if __name__ == "__main__":
    sys.exit(main())
