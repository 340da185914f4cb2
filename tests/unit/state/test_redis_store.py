"""The store on a virtual network and clock: lease and absence, new proxy instances, back-off, faults of every kind."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.state.lease import LEASE_SECONDS, MARGIN_SECONDS
from idemproxy.state.store import (
    Conflict,
    StoreAway,
    StoreLost,
    StoreRefused,
    Swapped,
    member_key,
)
from testkit.stage.store import FIRST, StoreScene, value
from testkit.virtual.redis import RedisFaultRates


@pytest.mark.promise("redis-unsuitable")
def test_a_server_that_is_too_old_is_refused_with_a_sentence() -> None:
    scene = StoreScene()
    scene.redis.server.version = "6.2.14"
    scene.until(lambda: bool(scene.events))
    assert scene.events == [StoreRefused("Redis 6.2.14 is too old: 7.0 or newer is needed")]
    assert scene.data_generations == []


# ---------------------------------------------------------------------- the lease
def test_the_lease_is_held_while_the_server_answers() -> None:
    scene = StoreScene().ready()
    for _ in range(600):
        scene.network.run(0.1)
        assert scene.may_send()
        assert scene.registered() == {FIRST}
    assert scene.losses == []
    assert len(scene.data_generations) == 1


def test_a_short_absence_costs_no_lease() -> None:
    scene = StoreScene().ready()
    scene.network.run(1.0)
    scene.redis.restart(down_seconds=1.0)
    scene.until(lambda: len(scene.data_generations) == 2)
    scene.network.run(10.0)
    assert scene.losses == []


def test_with_redis_away_the_end_of_the_lease_is_reported_on_time() -> None:
    scene = StoreScene(renews=True).ready()
    scene.redis.restart(down_seconds=20.0)
    end = scene.store.lease.ends_at
    scene.until(lambda: not scene.may_send())
    assert abs(scene.host.now() - (end - MARGIN_SECONDS)) < 1.0
    scene.until(lambda: bool(scene.losses))
    assert end <= scene.losses[0] < end + 0.01
    scene.until(scene.may_send)
    scene.network.run(5.0)
    assert len(scene.losses) == 1


def test_our_deadline_always_comes_before_the_servers_expiry() -> None:
    for seed in range(20):
        scene = StoreScene(seed).ready()
        scene.network.run(scene.network.random.random() * 10)
        scene.store.stop(lambda: None) if seed % 2 else scene.host.crash()
        end = scene.store.lease.ends_at
        stored = scene.redis.data[member_key("c", FIRST)]
        assert stored.expires_at is not None
        assert end <= stored.expires_at


def test_a_paused_process_learns_of_the_loss_before_it_may_send_again() -> None:
    scene = StoreScene(renews=True).ready()
    scene.host.pause(LEASE_SECONDS + 3.0)
    scene.network.run(LEASE_SECONDS + 2.9)
    assert scene.registered() == set()
    assert scene.losses == []
    scene.until(lambda: bool(scene.losses))
    scene.until(scene.may_send)
    assert len(scene.losses) == 1


@pytest.mark.parametrize("pause", [4.5, 5.5, 9.0])
def test_a_renewal_whose_reply_waited_while_the_process_slept_is_one_loss(pause: float) -> None:
    """The reply lies in the socket when the process wakes, and is read before the timer of the lease runs."""
    scene = StoreScene(renews=True).ready()
    beats = scene.redis.key_commands
    scene.until(lambda: scene.redis.key_commands > beats)
    scene.host.pause(pause)
    scene.network.run(pause + 0.5)
    assert len(scene.losses) == 1
    scene.until(scene.may_send, 5.0)
    scene.network.run(10.0)
    assert len(scene.losses) == 1


# ---------------------------------------------------------------------- proxy instances
def test_a_new_instance_id_is_registered_before_it_may_send() -> None:
    scene = StoreScene().ready()
    registered: list[float] = []
    scene.host.post(lambda: scene.store.begin_instance(b"second--", lambda: registered.append(scene.network.now)))
    scene.instance_ids.append(b"second--")
    scene.until(lambda: scene.store.lease.instance_id == b"second--")
    assert not scene.may_send()
    assert scene.store.data_generation is None
    assert registered == []
    scene.until(scene.may_send)
    assert b"second--" in scene.registered()
    assert len(registered) == 1
    scene.network.run(LEASE_SECONDS + 1)
    assert scene.registered() == {b"second--"}
    assert len(scene.data_generations) == 1
    assert scene.losses == []


def test_a_new_instance_id_begun_when_the_data_generation_changes_gets_ready() -> None:
    scene = StoreScene(renews=True).ready()
    scene.redis.restart()
    scene.until(lambda: len(scene.data_generations) == 2)
    scene.until(lambda: scene.store.data_generation is not None and scene.may_send())
    scene.network.run(10.0)
    assert scene.registered() == {b"number01"}
    assert len(scene.data_generations) == 2


def test_losing_registration_and_data_gives_one_new_instance_id_and_data_generation() -> None:
    scene = StoreScene(renews=True).ready()
    scene.network.run(1.0)
    scene.redis.restart(lose_last_writes=100)
    answers: list[Any] = []

    def keep_asking() -> None:
        scene.store.swap(b"k%d" % len(answers), 0, value(1), 0, lambda answer: answers.append(answer))
        scene.host.later(0.003, keep_asking)

    scene.host.post(keep_asking)
    scene.network.run(3.0)
    assert len(scene.data_generations) == 2
    assert scene.store.data_generation == scene.data_generations[-1]
    assert scene.may_send()
    assert answers[-1] == Swapped()
    scene.network.run(LEASE_SECONDS)
    assert scene.registered() == {scene.instance_ids[-1]}


# ---------------------------------------------------------------------- absence and refusal
def test_a_server_that_stays_away_is_asked_about_once_a_second_and_reported_once() -> None:
    scene = StoreScene().ready()
    attempts = 0
    connect = scene.network.connect

    def counting(*arguments: Any) -> None:
        nonlocal attempts
        attempts += 1
        connect(*arguments)

    scene.network.connect = counting  # type: ignore[assignment, method-assign]
    scene.redis.restart(down_seconds=100.0)
    scene.network.run(60.0)
    assert 60 <= attempts <= 68
    assert len([event for event in scene.events if isinstance(event, StoreLost)]) <= 2


def test_a_policy_that_begins_to_evict_is_noticed_within_half_a_minute() -> None:
    scene = StoreScene().ready()
    scene.redis.maxmemory_policy = "allkeys-lru"
    scene.until(lambda: any(isinstance(event, StoreRefused) for event in scene.events), 31.0)
    assert scene.store.data_generation is None
    scene.redis.maxmemory_policy = "noeviction"
    scene.ready()
    assert len(scene.data_generations) == 1


def test_an_away_answer_comes_in_a_later_step_than_the_call() -> None:
    scene = StoreScene()
    got: list[Any] = []
    scene.store.read(b"k", got.append)
    assert got == []
    scene.until(lambda: bool(got))
    assert isinstance(got[0], StoreAway)


@pytest.mark.parametrize("after", [0.0, 0.001, 0.002, 0.003, 0.005, 0.01, 1.0, 2.0, 2.001])
@pytest.mark.parametrize("is_there", [True, False])
def test_stopping_ends_in_whatever_state_it_comes(after: float, is_there: bool) -> None:
    scene = StoreScene()
    if not is_there:
        scene.redis.restart(down_seconds=100.0)
    scene.network.run(after)
    stopped: list[bool] = []
    scene.host.post(lambda: scene.store.stop(lambda: stopped.append(True)))
    scene.until(lambda: bool(stopped), 3.0)
    scene.network.run(30.0)
    assert stopped == [True]
    assert not scene.may_send()
    assert scene.registered() == set()
    assert scene.losses == []
    assert not scene.network.open_connections(scene.host)


def test_stopping_while_the_server_hangs_ends_by_the_links_patience() -> None:
    scene = StoreScene().ready()
    scene.redis.host.pause(100.0)
    stopped: list[bool] = []
    scene.host.post(lambda: scene.store.stop(lambda: stopped.append(True)))
    scene.until(lambda: bool(stopped), 2.5)


# ---------------------------------------------------------------------- faults
RATES = RedisFaultRates(lost_reply=0.03, lost_command=0.02, late=0.03, slow=0.05, refused=0.03)


@pytest.mark.parametrize("seed", range(30))
def test_under_faults_every_call_is_answered_once_and_confirmed_swaps_were_made(seed: int) -> None:
    """Two keys, calls without pause, a server that loses, delays, refuses and restarts, an owner that begins again."""
    scene = StoreScene(seed, renews=True, rates=RATES)
    random = scene.network.random
    versions = {b"a": 0, b"b": 0}
    calls = answers = confirmed = 0
    written: set[tuple[bytes, bytes]] = set()

    def swap(key: bytes) -> None:
        nonlocal calls
        calls += 1
        number, expected = calls, versions[key]
        wanted = value(expected + 1, b"%d" % number)
        seen: list[Any] = []

        def done(result: Any) -> None:
            nonlocal answers, confirmed
            answers += 1
            seen.append(result)
            assert len(seen) == 1
            match result:
                case Swapped():
                    confirmed += 1
                    assert (key, wanted) in written, "confirmed, but never stored"
                    versions[key] = expected + 1
                case Conflict(None):
                    versions[key] = 0
                case Conflict(bytes(stored)):
                    versions[key] = int.from_bytes(stored[1:9], "big")
                case _:
                    assert isinstance(result, StoreAway)
            if calls < 300:
                scene.host.later(random.random() * 0.05, lambda: swap(key))

        scene.store.swap(key, expected, wanted, 0, done)

    put = scene.redis.put

    def recording(key: bytes, stored: bytes | None, ttl_ms: int = 0) -> None:
        if stored is not None:
            written.add((key, stored))
        put(key, stored, ttl_ms)

    scene.redis.put = recording  # type: ignore[assignment, method-assign]
    for key in versions:
        scene.host.post(lambda key=key: swap(key))  # type: ignore[misc]
    for _ in range(2):
        scene.network.schedule(random.random() * 6, lambda: scene.redis.restart(lose_last_writes=random.randrange(4)))
    scene.until(lambda: calls >= 300 and answers == calls, 600.0)
    scene.network.run(10.0)
    scene.ready()
    assert confirmed > 10
    assert scene.redis.lives in (2, 3)
    assert len(scene.data_generations) == len(set(scene.data_generations)) <= scene.redis.lives
    assert scene.data_generations[-1] == scene.store.data_generation
