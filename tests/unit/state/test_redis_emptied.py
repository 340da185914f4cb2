"""Redis loses its data while it runs on, as by FLUSHALL: that is reported as what it is, and nothing else is."""

from __future__ import annotations

from copy import deepcopy

import pytest

from idemproxy.state.store import StoreEmptied
from testkit.stage.store import StoreScene


def losses_of(scene: StoreScene) -> int:
    return sum(isinstance(event, StoreEmptied) for event in scene.events)


@pytest.mark.parametrize("seconds", [0.1, 1.0, 4.5])
def test_data_that_are_deleted_under_a_running_proxy_are_reported_once(seconds: float) -> None:
    scene = StoreScene(renews=True).ready()
    scene.network.run(seconds)
    scene.redis.data.clear()
    scene.until(lambda: len(scene.data_generations) == 2, 5.0)
    scene.network.run(10.0)
    assert losses_of(scene) == 1


def test_memory_that_went_back_was_not_deleted() -> None:
    scene = StoreScene(renews=True).ready()
    scene.network.run(3.0)
    before = deepcopy(scene.redis.data)
    scene.network.run(4.0)
    scene.redis.data.clear()
    scene.redis.data.update(before)
    scene.until(lambda: len(scene.data_generations) == 2, 5.0)
    scene.network.run(10.0)
    assert losses_of(scene) == 0


def test_a_restart_is_no_deletion() -> None:
    scene = StoreScene(renews=True).ready()
    scene.network.run(1.0)
    scene.redis.restart()
    scene.until(lambda: len(scene.data_generations) == 2, 5.0)
    scene.network.run(5.0)
    assert losses_of(scene) == 0
