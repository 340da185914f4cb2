"""Producers of versions that Kafka 4 has dropped, through the proxy to three brokers of it, with faults, leaders that
move and brokers that are killed in between. Or producers of today's versions without idempotence.

``python -m runs.old_clients_under_faults``, and again with ``--without-idempotence``, is ``make old-clients-faults``: a
line of JSON for each kind of client, and exit status 1 unless each record was stored once and in order, and no user saw
an error. rskafka is compiled; where it can not be had, its line says why (``not_run``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from testkit.real.brokers.kraft_cluster import NEWEST
from testkit.real.clients.client_runs import KAFKA_GO, KAFKAJS, OLD_JAVA, OLD_PYTHON, RSKAFKA
from testkit.real.clients.foreign_clients import rskafka_command
from testkit.real.scenes.old_producers import (
    RAW,
    RAW_BATCHES,
    RAW_BATCHES_WITHOUT_ISR,
    RAW_WITHOUT_ISR,
    OldProducersScene,
    Produced,
)

from .faulty_client import UNAVAILABLE
from .results import append_result

RESULT = "old_clients_under_faults"
RECORDS = 60_000
SHARES = {OLD_JAVA: 0.2, OLD_PYTHON: 0.2, RAW: 0.4, RAW_WITHOUT_ISR: 0.2}
SHARES_WITHOUT_IDEMPOTENCE = {
    KAFKAJS: 0.1,
    KAFKA_GO: 0.2,
    RSKAFKA: 0.2,
    RAW_BATCHES: 0.3,
    RAW_BATCHES_WITHOUT_ISR: 0.2,
}
CLIENT_IDS = ("kafkajs", "", "rskafka", "raw-*")
"""Of clients whose users choose none. kafka-go's writer then sends none."""
EVERY_NTH_PRODUCE = 10
CALM_SECONDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of them at the same time; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help="of all clients together")
    parser.add_argument("--seed", type=int, default=1, help="of the injected faults")
    parser.add_argument("--without-idempotence", action="store_true", help="clients that have none, in new versions")
    options = parser.parse_args(arguments)
    shares = SHARES_WITHOUT_IDEMPOTENCE if options.without_idempotence else SHARES
    records = {kind: int(options.records * share) for kind, share in shares.items() if _is_here(kind)}
    begun = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="idemproxy-old-clients-") as directory,
        OldProducersScene(
            Path(directory),
            every_nth_produce=EVERY_NTH_PRODUCE,
            seed=options.seed,
            upstream_idempotence=CLIENT_IDS if options.without_idempotence else (),
        ) as scene,
    ):
        ended = scene.run(records, trouble)
        faults, upstream = scene.faults, sum(relay.produce_requests for relay in scene.relays)
        log = scene.proxy.log
    common = {"faults": dict(faults), "produce_requests_at_brokers": upstream, "seed": options.seed}
    complaints = [f"in the proxy's log: {line}" for line in log.splitlines() if "Traceback" in line]
    for one in ended:
        append_result(RESULT, {"broker": NEWEST, **figures(one), **common})
        print(figures(one), flush=True)
        complaints += one.complaints()
    print(f"{dict(faults)}, {upstream} produce requests at the brokers, {time.monotonic() - begun:.0f} s")
    print(*complaints, sep="\n", file=sys.stderr)
    return 1 if complaints else 0


def _is_here(kind: str) -> bool:
    """Build what is compiled, so that it starts with the others. Keeps a line of what can not be had."""
    try:
        if kind == RSKAFKA:
            rskafka_command("producer")
    except UNAVAILABLE as error:
        append_result(RESULT, {"broker": NEWEST, "client": kind, "not_run": " ".join(str(error).split())})
        print(f"{kind}: {error}", file=sys.stderr, flush=True)
        return False
    return True


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
