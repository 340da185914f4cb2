"""Real clients through the proxy to brokers of Kafka >= 0.11, with faults on both sides of the proxy.

``python -m runs.native`` is ``make native``: a table, a line of JSON for each broker and client, and exit status 1
unless every client came out without a duplicate, a loss, a reorder or an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from testkit.real.brokers.kraft_cluster import NEWEST
from testkit.real.clients.client_runs import IDEMPOTENT_CLIENTS

from .faulty_client import FaultyClient, said
from .results import append_result

VERSIONS = ("0.11.0.3", "1.1.1", "2.8.2", "3.9.1", NEWEST)
RECORDS = 5_000
EVERY_NTH_PRODUCE = 6
"""On each side."""


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
            one_in_flight = options.in_flight == 1 or (options.in_flight is None and has_one_batch_in_mind(version))
            run = FaultyClient(
                client,
                options.records,
                EVERY_NTH_PRODUCE,
                options.seed,
                broker=version,
                ids_are_ours=False,
                one_in_flight=one_in_flight,
                without_proxy=options.without_proxy,
            )
            if complaints := _go(run):
                status = 1
                print(*complaints, sep="\n", file=sys.stderr)
    return status


def has_one_batch_in_mind(version: str) -> bool:
    """Does a broker recognise only the last batch of a producer? Then clients may have one in flight."""
    return version.startswith("0.11")


def not_native(log: str) -> list[str]:
    """What the log of a proxy has to say that serves natively."""
    return [] if "upstream.idempotence: native" in log else ["the proxy did not serve natively"]


def _go(run: FaultyClient) -> list[str]:
    ran = run.run()
    complaints = ran.complaints + ([] if run.without_proxy else not_native(ran.log))
    how = {
        "through": "relays alone" if run.without_proxy else "the proxy",
        "in_flight": 1 if run.one_in_flight else 5,
    }
    figures = {**ran.figures, **how}
    append_result("native", {**figures, "complaints": complaints})
    print(said(figures), flush=True)
    return complaints


if __name__ == "__main__":
    sys.exit(main())
