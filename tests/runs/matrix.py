"""Every client at every broker through the proxy: produce under faults, then read in a group. A cell for each pair.

``python -m runs.matrix`` is ``make matrix``: a line of JSON in benchmarks/results/matrix.jsonl for each cell as soon as
it is run, and exit status 1 unless all of them came out without a duplicate, a loss, a reorder or an error. A run that
was interrupted resumes where it was: a cell that is in the file without a complaint, with as many records and for the
product as it is, is not run again, and those that never were come first. A client that can not be had here has a line
that says why (``not_run``), and fails nothing. docs/reference/compatibility.md has a table of that file.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from testkit.real.clients.client_runs import ALL_IDEMPOTENT_CLIENTS
from testkit.real.clients.java_clients import JavaClientError

from .faulty_client import UNAVAILABLE, FaultyClient, said
from .matrix_brokers import BROKERS, BrokerKind
from .native import has_one_batch_in_mind, not_native
from .results import PRODUCT, RESULTS, append_result, rows_of

_ROOT = RESULTS.parents[1]
Line = dict[str, object]
RESULT = "matrix"
RECORDS = 5_000
EVERY_NTH_PRODUCE = 6
"""On each side."""
AT_ONCE = 2
"""Most of a cell is waiting, until unknown outcomes may be resolved."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cells that are missing; return the exit status."""
    names = [broker.name for broker in BROKERS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", nargs="+", default=names, choices=names, metavar="BROKER")
    parser.add_argument("--clients", nargs="+", default=ALL_IDEMPOTENT_CLIENTS, choices=ALL_IDEMPOTENT_CLIENTS)
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--seed", type=int, default=1, help="of the injected faults")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="cells, each in a process of its own")
    parser.add_argument("--again", action="store_true", help="run also what is in the results file")
    options = parser.parse_args(arguments)
    known = rows_of(RESULT)
    done = set() if options.again else _done(known, options.records, options.seed)
    tried = {(line["broker"], line["client"]) for line in known}
    chosen = [broker for broker in BROKERS if broker.name in options.brokers]
    cells = [(broker, client) for broker in chosen for client in options.clients if (broker.name, client) not in done]
    ordered = sorted(cells, key=lambda cell: (cell[0].name, cell[1]) in tried)
    status = 0
    pool = ProcessPoolExecutor(options.at_once, mp_context=multiprocessing.get_context("spawn"))
    try:
        running = [pool.submit(run_cell, broker, client, options.records, options.seed) for broker, client in ordered]
        for one in as_completed(running):
            figures, complaints = one.result()
            append_result(RESULT, {**figures, "complaints": complaints})
            print(said(figures), flush=True)
            if complaints:
                status = 1
                print(
                    f"{figures['client']} at {figures['broker']}:", *complaints, sep="\n", file=sys.stderr, flush=True
                )
    finally:
        pool.shutdown(cancel_futures=True)
    return status


def run_cell(broker: BrokerKind, client: str, records: int, seed: int) -> tuple[Line, list[str]]:
    """Return the line of a cell, and what is not as it should be."""
    one_in_flight = has_one_batch_in_mind(broker.version)
    cell = FaultyClient(
        client,
        records,
        EVERY_NTH_PRODUCE,
        seed,
        broker=broker.version,
        broker_settings=broker.settings,
        settings=broker.proxy_settings,
        ids_are_ours=not broker.is_native,
        one_in_flight=one_in_flight,
        in_group=True,
    )
    try:
        ran = cell.run()
    except UNAVAILABLE as error:
        why = " ".join(str(error).split())
        return {"client": client, "broker": broker.name, "not_run": why}, []
    except (AssertionError, JavaClientError) as error:  # a program that ended without its last line, or never
        return _cut_short(client, broker, records, seed), _without_places([f"{type(error).__name__}: {error}"])
    complaints = ran.complaints + (not_native(ran.log) if broker.is_native else [])
    how = {"broker": broker.name, "serves": "native" if broker.is_native else "proxy", "one_in_flight": one_in_flight}
    return {**ran.figures, **how}, _without_places(complaints)


def _without_places(complaints: Sequence[str]) -> list[str]:
    """What programs say names files of this machine; the results are for everybody."""
    return [one.replace(f"{_ROOT}/", "") for one in complaints]


def _cut_short(client: str, broker: BrokerKind, records: int, seed: int) -> Line:
    """A line of a cell that has no figures."""
    return {"client": client, "broker": broker.name, "records": records, "seed": seed, "cut_short": True}


def _done(known: Sequence[Mapping[str, Any]], records: int, seed: int) -> set[tuple[str, str]]:
    """The cells that need not be run again."""
    return {
        (line["broker"], line["client"])
        for line in known
        if not line["complaints"] and "not_run" not in line and line["records"] >= records and line["seed"] == seed
        if _is_of_this_product(line)
    }


def _is_of_this_product(line: Mapping[str, Any]) -> bool:
    """Is all that is shipped as it was in that run? Not known of a commit that is not here."""
    compared = ["git", "diff", "--quiet", str(line["commit"]), "--", *PRODUCT]
    return not line["changed_since"] and subprocess.run(compared, cwd=RESULTS, capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
