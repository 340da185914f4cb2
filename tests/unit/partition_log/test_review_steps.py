"""Trial: no step of an audit is long, however many batches of one producer it looks for (rule R14, 50 ms)."""

from __future__ import annotations

import time

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.bridge.asks import FetchAnswer
from idemproxy.proxy.partition_log.log_chunk import taking_apart
from testkit.stage.logs import numbered, wrapper


def test_an_audit_of_some_batches_of_a_busy_producer_takes_short_steps() -> None:
    data, offset = bytearray(), 0
    while len(data) < 1 << 20:
        data += wrapper(numbered(offset, 1), offset, Identity(7, 0, offset, 1))
        offset += 1
    chunk = at_once(taking_apart(0, FetchAnswer(0, offset, memoryview(bytes(data)))))
    steps, worst = chunk.copies_from([Identity(7, 0, number, 1) for number in range(25)], 0), 0.0
    is_over = False
    while not is_over:
        began = time.perf_counter()
        is_over = next(steps, steps) is steps
        worst = max(worst, time.perf_counter() - began)
    assert worst < 0.05, f"{offset} wrappers, 25 names: {worst:.3f} s in one step"
