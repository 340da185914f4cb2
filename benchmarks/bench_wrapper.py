"""What the form of the wrapper costs in which the proxy stores a batch that is not compressed: gzip's stored blocks, as
shipped, lz4's, and snappy's literals. CPU of proxy and broker on a real 0.10.2.2, alternately, next to the same records
sent directly and plain.

``make bench``. Adds a line to ``results/wrapper.jsonl``. All share the same cores: only ratios within a round count."""

from __future__ import annotations

import argparse
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench_proxy import CASES, PARTITIONS, real_broker
from common import ROOT, save, spread
from loads import measure
from sides import Side, proxy

FORMS = ("gzip", "lz4", "snappy")
LOADS = ("c50", "16k", "64kx5", "1m")
_PROGRAM = str(Path(__file__).with_name("wrapper_form.py"))
_COSTS = ("cpu_us_per_request", "broker_cpu_us_per_request", "chain_cpu_us_per_request")
Figures = dict[str, float]


def main() -> None:
    """Start a broker and a proxy for each form, run every load alternately on all, print and save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--case", action="append", choices=LOADS, help="only these")
    parser.add_argument("--dry", action="store_true", help="save nothing")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(real_broker(directory))
        sides = [Side("direct", broker.address, broker.process_id, False)]
        for form in FORMS:
            program = (_PROGRAM, form)
            sides.append(stack.enter_context(proxy(form, ROOT, broker.address, directory, program=program)))
        rows = []
        for name in options.case or LOADS:
            found: dict[str, list[Figures]] = {side.name: [] for side in sides}
            for number in range(options.rounds):
                turn = number % len(sides)
                for side in (*sides[turn:], *sides[:turn]):
                    others = {"broker": broker.process_id}
                    figures = measure(CASES[name], side, options.seconds, partitions=PARTITIONS, others=others)
                    if not side.is_proxied:
                        figures["cpu_us_per_request"] = 0.0
                    figures["chain_cpu_us_per_request"] = figures[_COSTS[0]] + figures[_COSTS[1]]
                    found[side.name].append(figures)
            for side_name, of_side in found.items():
                row: dict[str, object] = {"case": name, "form": side_name}
                for key in (*_COSTS, "requests_per_second"):
                    row[key] = spread([one[key] for one in of_side])
                    of_gzip = zip(of_side, found["gzip"], strict=True)
                    row[f"{key}_over_gzip"] = spread([one[key] / other[key] for one, other in of_gzip])
                rows.append(row)
                print(row, flush=True)
    if not options.dry:
        save("wrapper", {"rounds": options.rounds, "rows": rows})


if __name__ == "__main__":
    main()
