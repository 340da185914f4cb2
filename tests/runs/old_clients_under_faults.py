"""Producers of versions that Kafka 4 has dropped, through the proxy to three brokers of it, with faults, leaders that
move and brokers that are killed in between.

``python -m runs.old_clients_under_faults`` is ``make old-clients-faults``: a line of JSON for each kind of client, and
exit status 1 unless each record was stored once and in order, and no user saw an error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from testkit.real.brokers.kraft_cluster import NEWEST
from testkit.real.clients.client_runs import OLD_JAVA, OLD_PYTHON
from testkit.real.scenes.old_producers import RAW, RAW_WITHOUT_ISR, OldProducersScene, Produced

from .results import append_result

RECORDS = 60_000
SHARES = {OLD_JAVA: 0.2, OLD_PYTHON: 0.2, RAW: 0.4, RAW_WITHOUT_ISR: 0.2}
EVERY_NTH_PRODUCE = 10
CALM_SECONDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of them at the same time; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help="of all clients together")
    parser.add_argument("--seed", type=int, default=1, help="of the injected faults")
    options = parser.parse_args(arguments)
    records = {kind: int(options.records * share) for kind, share in SHARES.items()}
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="idemproxy-old-clients-") as directory,
        OldProducersScene(Path(directory), every_nth_produce=EVERY_NTH_PRODUCE, seed=options.seed) as scene,
    ):
        ended = scene.run(records, trouble)
        faults, upstream = scene.faults, sum(relay.produce_requests for relay in scene.relays)
        log = scene.proxy.log
    common = {"faults": dict(faults), "produce_requests_at_brokers": upstream, "seed": options.seed}
    complaints = [f"in the proxy's log: {line}" for line in log.splitlines() if "Traceback" in line]
    for one in ended:
        append_result("old_clients_under_faults", {"broker": NEWEST, **figures(one), **common})
        print(figures(one), flush=True)
        complaints += one.complaints()
    print(f"{dict(faults)}, {upstream} produce requests at the brokers, {time.monotonic() - begun:.0f} s")
    print(*complaints, sep="\n", file=sys.stderr)
    return 1 if complaints else 0


def trouble(scene: OldProducersScene) -> None:
    """Leaders move, one broker after the other is killed and comes back."""
    for broker in (1, 2):
        time.sleep(CALM_SECONDS)
        scene.move_leaders()
        time.sleep(CALM_SECONDS)
        scene.kill_and_restart(broker)


def figures(one: Produced) -> dict[str, object]:
    """Return what a results file has of one kind of client."""
    assert one.verdict is not None
    return {
        "client": one.kind,
        "records": one.records,
        "acknowledged": one.acknowledged,
        "stored": one.verdict.stored,
        "duplicates": one.verdict.duplicates,
        "lost": one.verdict.lost,
        "reordered": one.verdict.reordered,
        "misplaced": one.verdict.misplaced,
        "errors": len(one.errors),
        "codes": {str(code): count for code, count in sorted(one.codes.items())},
        "resets": one.resets,
        "seconds": round(one.seconds),
    }


if __name__ == "__main__":
    sys.exit(main())
