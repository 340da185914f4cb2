"""What the produce connections alone let through, as a share of direct: no sockets, a virtual clock, so that a busy
machine changes nothing. Run by ``bench_produce_connections.py`` with the code of a commit; prints one line of JSON for
each case.

Direct is one request of each producer out at a time. The proxy needs ``WORK_SECONDS`` for each batch, one after the
other; a case that this alone keeps from reaching direct says so in ``possible``."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from testkit.virtual.slow_broker import ADDRESS, BROKER, Producers, SlowBroker

ANSWERS_MS = (5, 20, 50, 100)
PRODUCERS = (1, 10, 40, 200)
BATCH_BYTES = 100_000
WORK_SECONDS = 0.0003
"""About what the conversion of 100 KB takes."""


def main() -> None:
    """All cases."""
    try:
        produce_connections = importlib.import_module("idemproxy.proxy.broker.produce_connection_pool")
    except ModuleNotFoundError:  # up to commit b7e5200
        produce_connections = importlib.import_module("idemproxy.proxy.broker.produce_connection")
    for answer_ms in ANSWERS_MS:
        for count in PRODUCERS:
            broker = SlowBroker(answer_ms / 1000)
            takes_address = (
                "address" in inspect.signature(produce_connections.ProduceConnectionPool).parameters
            )  # up to commit 6a6fc52
            opens = ADDRESS if takes_address else partial(broker.connect, ADDRESS)
            pool = produce_connections.ProduceConnectionPool(
                broker, BROKER, opens, may_send=lambda: True, report=lambda _event: None
            )
            pool.set_usable(True)
            producers = Producers(broker, pool, count, BATCH_BYTES, WORK_SECONDS)
            seconds = broker.answer_seconds
            possible = min(count * seconds / (seconds + WORK_SECONDS), seconds / WORK_SECONDS)
            row = {
                "answer_ms": answer_ms,
                "producers": count,
                "of_direct": round(producers.per_answer() / count, 3),
                "possible": round(possible / count, 3),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
