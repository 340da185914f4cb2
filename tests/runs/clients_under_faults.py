"""The five clients, one after the other, at full size through faults on both sides of the proxy.

``python -m runs.clients_under_faults`` is ``make clients``: a table, a line of JSON per client, and exit status 1
unless every client came out without a duplicate, a loss, a reorder or an error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from testkit.real.clients.client_runs import IDEMPOTENT_CLIENTS

from .faulty_client import FaultyClient, Ran, said
from .results import append_result

RECORDS = 20_000
EVERY_NTH_PRODUCE = 15
"""On each side. Every fault at the broker's side is an unknown outcome, and each of those takes a second to resolve."""


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
        ran = FaultyClient(client, options.records, EVERY_NTH_PRODUCE, options.seed).run()
        figures = {**ran.figures, **_of_the_proxy(ran)}
        append_result("clients", {**figures, "complaints": ran.complaints})
        print(said(figures), flush=True)
        if ran.complaints:
            status = 1
            print(*ran.complaints, sep="\n", file=sys.stderr)
    return status


def _of_the_proxy(ran: Ran) -> dict[str, object]:
    return {
        "init_producer_ids": ran.result.init_producer_id_requests,
        "producer_ids": len(ran.result.producer_ids),
        "unknown_outcomes": ran.log.count("in doubt: producer "),
        "found": ran.log.count("resolved as found"),
        "not_found": ran.log.count("resolved as not_found"),
        "duplicates_answered": ran.log.count("duplicate: producer "),
    }


if __name__ == "__main__":
    sys.exit(main())
