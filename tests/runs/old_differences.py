"""Random scripts of old requests at a 3.9.1, and through the proxy in front of a 4.3.1: what differs.

``python -m runs.old_differences`` is ``make old-differences``: a line of JSON in
benchmarks/results/old_differences.jsonl, with how often each allowed difference was seen, and exit status 1 if there
was any other one. Goes on with the seed after the last one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from testkit.real.brokers.kraft_cluster import NEWEST
from testkit.real.clients.old_scripts import STEPS
from testkit.real.scenes.old_differences import SERVES_THEM, both_servers

from .results import append_result, rows_of

RESULT = "old_differences"
SEEDS = 100


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scripts; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--first", type=int, help="the first seed")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each script")
    options = parser.parse_args(arguments)
    first = options.first or 1 + max((int(row["last_seed"]) for row in rows_of(RESULT)), default=0)
    seeds = range(first, first + options.seeds)
    begun = time.monotonic()
    requests = entries = 0
    allowed, complaints = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="old-differences-") as directory, both_servers(Path(directory)) as servers:
        for seed in seeds:
            compared = servers.compare(seed, options.steps)
            requests += compared.requests
            entries += compared.entries
            allowed += compared.allowed
            complaints += [f"seed {seed}: {one}" for one in compared.complaints]
    figures = {
        "broker": NEWEST,
        "compared_with": SERVES_THEM,
        "first_seed": seeds[0],
        "last_seed": seeds[-1],
        "steps": options.steps,
        "answers": requests,
        "entries": entries,
        "allowed": dict(sorted(allowed.items())),
        "complaints": complaints,
        "seconds": round(time.monotonic() - begun),
    }
    append_result(RESULT, figures)
    print(figures)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
