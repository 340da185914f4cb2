"""``producers.expiry_seconds`` is raised by SIGHUP: what was written before that expires as it was written."""

from __future__ import annotations

import pytest

from idemproxy.state.producer_ids import pack_block
from testkit.stage.sequencer import BLOCK_KEY, DATA_GENERATION, KEY, NEXT_INSTANCE_ID, Client, Stage

HELD_BACK, OUT_OF_ORDER = 19, 45
HOUR = 3600.0


def stage_at(now: float, expiry_seconds: float) -> Stage:
    stage = Stage()
    stage.now = stage.context.time.now = now
    stage.context.instance.expiry_ms = round(expiry_seconds * 1000)
    stage.context.instance.wall_clock_ms = lambda: round(stage.now * 1000)
    return stage


@pytest.mark.parametrize("raised", [False, True])
def test_a_producer_that_expired_under_the_shorter_setting_is_no_gap(raised: bool) -> None:
    first = stage_at(1000.0, HOUR)
    first.values[BLOCK_KEY] = pack_block(DATA_GENERATION, 999_000)
    second = stage_at(1000.0, HOUR)
    second.values, second.log = first.values, first.log
    second.context.instance.instance_id = NEXT_INSTANCE_ID
    for sequence in range(3):
        assert first.send(Client(), sequence).code == 0
        first.run(1)
    first.run(1)
    if raised:  # SIGHUP at both, what Server._take_over does
        for stage in (first, second):
            stage.context.instance.expiry_ms = round(24 * HOUR * 1000)
    first.run(1.5 * HOUR)
    del first.values[KEY]  # an hour after it was written, as it was written with that time to live
    second.now = second.context.time.now = first.now
    client = Client()  # the producer has moved to the other proxy meanwhile
    codes = []
    for _ in range(2):
        answer = second.send(client, 3)
        second.run(30)
        codes.append(answer.code)
    assert OUT_OF_ORDER not in codes
    assert codes[-1] == 0
