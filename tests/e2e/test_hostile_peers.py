"""A small crowd of peers that behave badly next to a producer that behaves. A large one: make hostile."""

from __future__ import annotations

from pathlib import Path

import pytest

from idemproxy.proxy import limits
from runs.hostile import run_hostile
from runs.hostile_peers import KINDS

IDLE, SLOW = 500, 50
SECONDS = 2 * limits.UNFINISHED_SECONDS + 4
"""Long enough for those that begin a request and do not continue it to be hung up on."""
GROWTH_BYTES_MAX = 30_000_000
DELAY_MS_MAX = 1_000.0
"""As every machine keeps it; the p99 of a quiet machine is in benchmarks/results/hostile.jsonl."""


@pytest.mark.promise("compared-9")
@pytest.mark.timeout(240)
def test_hundreds_of_idle_and_dozens_of_stalled_connections_affect_no_producer(tmp_path: Path) -> None:
    figures = run_hostile(tmp_path, idle=IDLE, slow=SLOW, seconds=SECONDS, quiet_seconds=3)
    assert figures.is_complete, "every record is in the log, once and in order"
    assert figures.opened["refused"] == 0
    assert sum(figures.opened["open"].values()) == IDLE + SLOW
    ended = figures.at_the_end["ended"]
    assert set(ended) == {"half_header", "dripping", "stalled"}, "who begins and does not go on, and nobody else"
    assert all(number >= SLOW // len(KINDS) for number in ended.values())
    assert figures.beside_bytes < figures.quiet_bytes + GROWTH_BYTES_MAX
    assert figures.beside.p50_ms < DELAY_MS_MAX
