"""What the process does to all that it holds, as its default limits allow it, is done in steps."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.proxy.producer.sequencer import Sequencer
from testkit.virtual.world import TOPIC, World, WorldSettings

STEP_MAX = 10_000
"""Of the hundred thousand producers that there may be."""


def test_a_drain_looks_at_all_producers_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1, WorldSettings(brokers=1))
    world.start()
    engine = world.proxies[0].engine
    sequencer = Sequencer(engine.context, engine.runner, 1, TOPIC, 0)
    for number in range(3 * STEP_MAX):
        engine._sequencers.get((number, TOPIC, 0), lambda: sequencer)  # idle ones are alike
    looked_at, most = 0, 0

    def is_idle(_self: Any) -> bool:
        nonlocal looked_at, most
        looked_at += 1
        most = max(most, looked_at)
        return True

    monkeypatch.setattr(Sequencer, "is_idle", property(is_idle))
    later = engine.reactor.later

    def next_pass(seconds: float, callback: Any) -> Any:
        def call() -> None:
            nonlocal looked_at
            looked_at = 0
            callback()

        return later(seconds, call)

    monkeypatch.setattr(engine.reactor, "later", next_pass, raising=False)
    drained: list[bool] = []
    engine.drain(lambda: drained.append(True))
    world.network.run(1)
    assert drained
    assert most <= STEP_MAX
