"""Redis's memory goes back in time, while its run_id and its master_replid stay (rule R10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy

import pytest

from idemproxy.state.store import StoreAway, StoreWarning, Swapped, data_number_key, data_number_of
from testkit.stage.store import StoreScene, value
from testkit.virtual.redis_connection import RedisFault

LIFE = data_number_key("c")


def snapshot(scene: StoreScene) -> Callable[[], None]:
    """Return what puts the memory back to what it is now. Scripts and connections stay."""
    data = deepcopy(scene.redis.data)

    def put_back() -> None:
        scene.redis.data.clear()
        scene.redis.data.update(deepcopy(data))

    return put_back


def warnings_of(scene: StoreScene) -> list[str]:
    return [event.text for event in scene.events if isinstance(event, StoreWarning)]


def test_a_first_life_is_never_zero_and_is_counted_up_with_each_heartbeat() -> None:
    scene = StoreScene().ready()
    first = int(scene.redis.get(LIFE) or b"0")
    scene.network.run(4.5)
    later = int(scene.redis.get(LIFE) or b"0")
    assert data_number_of(first) == data_number_of(later) > 0
    assert later - first == 2
    assert scene.redis.data[LIFE].expires_at is None


@pytest.mark.parametrize("seconds", [1.0, 4.5, 30.0])
def test_memory_that_went_back_a_heartbeat_changes_the_data_generation_with_a_warning(seconds: float) -> None:
    scene = StoreScene(renews=True).ready()
    scene.network.run(3.0)
    put_back, before = snapshot(scene), data_number_of(scene.redis.get(LIFE))
    scene.network.run(seconds + 1.0)
    put_back()
    scene.until(lambda: len(scene.data_generations) == 2, 3.0)
    assert data_number_of(scene.redis.get(LIFE)) > before
    scene.network.run(10.0)
    assert len(scene.data_generations) == 2
    assert len(warnings_of(scene)) == 1
    assert "went back in time" in warnings_of(scene)[0]
    assert scene.store.lease.instance_id in scene.registered()


def test_a_swap_after_the_memory_went_back_is_refused_before_the_next_heartbeat() -> None:
    scene = StoreScene(renews=True).ready()
    scene.redis.put(b"k", value(1))
    put_back = snapshot(scene)
    scene.network.run(2.5)
    assert scene.ask(lambda done: scene.store.swap(b"k", 1, value(2), 0, done)) == Swapped()
    put_back()
    answer = scene.ask(lambda done: scene.store.swap(b"k", 1, value(2, b"again"), 0, done))
    assert isinstance(answer, StoreAway)
    assert scene.redis.get(b"k") == value(1)
    scene.until(lambda: len(scene.data_generations) == 2, 1.0)


def test_a_swap_after_the_heartbeat_that_shows_it_is_refused_too() -> None:
    """The renewal changes nothing in memory that went back, so what was sent after it does not either."""
    scene = StoreScene(renews=True).ready()
    scene.redis.put(b"k", value(1))
    put_back = snapshot(scene)
    scene.network.run(2.5)
    put_back()
    asked: list[bytes] = []
    answers: list[object] = []

    def behind(number: int, name: bytes, rest: Sequence[bytes]) -> RedisFault:
        if name == b"GET" and rest[0] == LIFE and not asked:
            asked.append(name)
            scene.host.post(lambda: scene.store.swap(b"k", 1, value(2), 0, answers.append))
        return RedisFault.NONE

    scene.redis.choose_fault = behind
    scene.until(lambda: bool(answers), 3.0)
    assert isinstance(answers[0], StoreAway)
    assert "NOMEMBER" in answers[0].reason
    assert scene.redis.get(b"k") == value(1)


def test_memory_that_goes_back_twice_to_the_same_state_never_has_an_earlier_life() -> None:
    scene = StoreScene(renews=True).ready()
    put_back = snapshot(scene)
    for _ in range(3):
        scene.network.run(5.0)
        before = len(scene.data_generations)
        put_back()
        scene.until(lambda before=before: len(scene.data_generations) > before, 3.0)  # type: ignore[misc]
    assert len(set(scene.data_generations)) == 4


def test_a_new_data_number_whose_write_is_lost_is_written_again() -> None:
    """One beat was undone, and that it was noticed does not get lost with the connection."""
    scene = StoreScene(renews=True).ready()
    put_back = snapshot(scene)
    scene.network.run(2.5)
    put_back()
    lost: list[bytes] = []

    def lose(number: int, name: bytes, rest: Sequence[bytes]) -> RedisFault:
        if name == b"SET" and rest[0] == LIFE and len(rest) == 2 and not lost:
            lost.append(rest[1])
            return RedisFault.LOST_COMMAND
        return RedisFault.NONE

    scene.redis.choose_fault = lose
    scene.until(lambda: len(scene.data_generations) == 2, 5.0)
    assert lost
    assert len(warnings_of(scene)) == 1


def test_memory_that_went_back_is_noticed_though_replies_are_lost() -> None:
    """One process whose connections end again and again does not count up to what it has seen before."""
    scene = StoreScene(renews=True).ready()
    put_back = snapshot(scene)
    scene.network.run(4.5)
    put_back()
    lost = 0

    def lose(number: int, name: bytes, rest: Sequence[bytes]) -> RedisFault:
        nonlocal lost
        if name == b"INCRBY" and lost < 4:
            lost += 1
            return RedisFault.LOST_REPLY
        return RedisFault.NONE

    scene.redis.choose_fault = lose
    scene.until(lambda: len(scene.data_generations) == 2, 10.0)


def test_a_restart_that_loses_writes_changes_the_data_generation_without_a_warning() -> None:
    scene = StoreScene(renews=True).ready()
    scene.network.run(5.0)
    scene.redis.restart(lose_last_writes=20)
    scene.until(lambda: len(scene.data_generations) == 2, 5.0)
    scene.network.run(5.0)
    assert len(scene.data_generations) == 2
    assert warnings_of(scene) == []


def test_all_data_deleted_is_another_life_and_no_journey_in_time() -> None:
    scene = StoreScene(renews=True).ready()
    before = data_number_of(scene.redis.get(LIFE))
    scene.redis.flush()
    scene.until(lambda: len(scene.data_generations) == 2, 5.0)
    assert data_number_of(scene.redis.get(LIFE)) > before
    assert warnings_of(scene) == []


def test_a_data_number_that_cannot_be_read_is_reported_and_not_overwritten() -> None:
    scene = StoreScene()
    scene.redis.put(LIFE, b"what somebody wrote")
    scene.network.run(3.0)
    assert scene.store.data_generation is None
    assert f"the key {LIFE.decode()} in Redis" in scene.store.why_away
    assert data_number_of(b"what somebody wrote") == 0
    scene.redis.put(LIFE, None)
    scene.ready()
