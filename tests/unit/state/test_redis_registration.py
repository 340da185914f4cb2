"""The registration of a proxy instance: only while it is there do its swaps count, and once gone it never comes
back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from idemproxy.state.store import StoreAway, Swapped, member_key
from testkit.stage.store import FIRST, StoreScene, value
from testkit.virtual.redis import RedisFaultRates
from testkit.virtual.redis_connection import RedisFault


def strikes(scene: StoreScene, fault: RedisFault, wanted: Callable[[bytes, Sequence[bytes]], bool]) -> None:
    """The next command that is wanted meets the fault, and no other does."""
    waiting = [fault]

    def choose(number: int, name: bytes, rest: Sequence[bytes]) -> RedisFault:
        return waiting.pop() if waiting and wanted(name, rest) else RedisFault.NONE

    scene.redis.choose_fault = choose


def is_registration(name: bytes, rest: Sequence[bytes]) -> bool:
    """Whether the command writes one, for the first time or again."""
    return member_key("c", FIRST) == (rest[0] if name == b"SET" else rest[2] if name == b"EVALSHA" else b"")


@pytest.mark.parametrize("expected", [0, 1])
def test_a_swap_of_before_a_flush_that_is_executed_afterwards_stores_nothing(expected: int) -> None:
    """Its connection breaks, it lies in a buffer; meanwhile everything is deleted and begun again."""
    scene = StoreScene(renews=True, rates=RedisFaultRates(late_seconds=(3.0, 3.0))).ready()
    strikes(scene, RedisFault.LATE, lambda name, rest: name == b"EVALSHA")
    if expected:
        scene.redis.put(b"k", value(expected, b"long ago"))
    assert isinstance(scene.ask(lambda done: scene.store.swap(b"k", expected, value(2, b"late"), 0, done)), StoreAway)
    scene.redis.flush()
    if expected:
        scene.redis.put(b"k", value(expected, b"anew"))
    scene.network.run(5.0)
    assert scene.redis.faults_done[RedisFault.LATE] == 1
    assert scene.redis.get(b"k") == (value(1, b"anew") if expected else None)
    assert FIRST not in scene.registered()
    assert scene.ask(lambda done: scene.store.swap(b"k", expected, value(2), 0, done)) == Swapped()


def test_a_swap_that_is_executed_after_a_graceful_end_stores_nothing() -> None:
    scene = StoreScene(rates=RedisFaultRates(late_seconds=(3.0, 3.0))).ready()
    strikes(scene, RedisFault.LATE, lambda name, rest: name == b"EVALSHA")
    assert isinstance(scene.ask(lambda done: scene.store.swap(b"k", 0, value(1), 0, done)), StoreAway)
    scene.ready()
    scene.host.post(lambda: scene.store.stop(lambda: None))
    scene.network.run(5.0)
    assert scene.registered() == set()
    assert scene.redis.get(b"k") is None


@pytest.mark.parametrize("is_late", [False, True])
def test_a_renewal_never_brings_back_a_registration_that_was_gone(is_late: bool) -> None:
    scene = StoreScene(renews=True, rates=RedisFaultRates(late_seconds=(1.5, 1.5))).ready()
    if is_late:
        strikes(scene, RedisFault.LATE, is_registration)
        scene.until(lambda: scene.redis.faults_done[RedisFault.LATE] == 1)
    scene.redis.flush()
    for _ in range(600):
        scene.network.run(0.01)
        assert FIRST not in scene.registered()
    assert len(scene.losses) == 1
    assert scene.store.lease.instance_id in scene.registered()
    assert scene.may_send()


def test_who_is_refused_as_not_registered_begins_again_before_the_next_heartbeat() -> None:
    scene = StoreScene(renews=True).ready()
    scene.network.run(0.1)
    scene.redis.flush()
    flushed_at = scene.host.now()
    answer = scene.ask(lambda done: scene.store.swap(b"k", 7, value(8), 0, done))
    assert isinstance(answer, StoreAway)
    assert "NOMEMBER" in answer.reason
    scene.until(lambda: scene.store.data_generation is not None and scene.may_send())
    assert scene.host.now() - flushed_at < 0.5
    assert len(scene.losses) == 1
    assert FIRST not in scene.registered()


def test_a_registration_whose_first_reply_was_lost_is_ours_and_counts_from_its_renewal() -> None:
    scene = StoreScene(renews=True)
    strikes(scene, RedisFault.LOST_REPLY, is_registration)
    scene.ready()
    assert scene.redis.faults_done[RedisFault.LOST_REPLY] == 1
    assert scene.registered() == {FIRST}
    expires_at = scene.redis.data[member_key("c", FIRST)].expires_at
    assert expires_at is not None
    assert expires_at >= scene.store.lease.ends_at
    scene.network.run(30.0)
    assert scene.may_send()
    assert scene.losses == []


@pytest.mark.parametrize("fault", [RedisFault.LOST_COMMAND, RedisFault.LATE], ids=lambda fault: fault.name)
def test_an_instance_id_whose_first_registration_may_be_executed_yet_is_not_used(fault: RedisFault) -> None:
    """It could bring the registration back after a FLUSHALL."""
    scene = StoreScene(renews=True, rates=RedisFaultRates(late_seconds=(5.0, 5.0)))
    strikes(scene, fault, is_registration)
    scene.ready()
    scene.until(scene.may_send)
    assert scene.redis.faults_done[fault] == 1
    scene.redis.flush()
    scene.network.run(6.0)
    assert (FIRST in scene.registered()) is (fault is RedisFault.LATE)
    assert scene.instance_ids[:2] == [FIRST, b"number01"]
    assert scene.store.lease.instance_id == scene.instance_ids[-1]
    assert scene.may_send()
    assert len(scene.data_generations) == 2, "all data are gone, and with them the life of the memory"


def test_a_refused_registration_is_tried_again_under_the_same_instance_id() -> None:
    scene = StoreScene(renews=True)
    strikes(scene, RedisFault.REFUSED, is_registration)
    scene.ready()
    assert scene.redis.faults_done[RedisFault.REFUSED] == 1
    assert scene.registered() == {FIRST}
    assert scene.losses == []


def test_a_first_registration_that_expires_between_two_tries_ends_the_instance_id() -> None:
    """The second try finds it, and it expires before it is renewed on the same connection."""
    scene = StoreScene(renews=True)
    strikes(scene, RedisFault.LOST_REPLY, is_registration)
    scene.until(lambda: scene.redis.faults_done[RedisFault.LOST_REPLY] == 1)
    seen: list[bytes] = []

    def expire(number: int, name: bytes, rest: Sequence[bytes]) -> RedisFault:
        if is_registration(name, rest):
            seen.extend(rest[2:3])
            if rest[2] == b"XX":
                scene.redis.put(rest[0], None)
        return RedisFault.NONE

    scene.redis.choose_fault = expire
    scene.until(scene.may_send)
    assert seen == [b"NX", b"XX"]
    assert len(scene.losses) == 1
    assert scene.registered() == {b"number01"}


def test_registrations_that_are_deleted_all_the_time_make_no_busy_loop() -> None:
    scene = StoreScene(renews=True).ready()
    attempts, connect = 0, scene.network.connect

    def counting(*arguments: Any) -> None:
        nonlocal attempts
        attempts += 1
        connect(*arguments)

    def delete() -> None:
        scene.redis.end_leases()
        scene.network.schedule(0.001, delete)

    def keep_asking() -> None:
        scene.store.swap(b"k", 0, value(1), 0, lambda answer: None)
        scene.host.later(0.001, keep_asking)

    scene.network.connect = counting  # type: ignore[assignment, method-assign]
    delete()
    scene.host.post(keep_asking)
    scene.network.run(30.0)
    assert 30 < attempts < 30 * 25
    assert scene.redis.get(b"k") is None


def test_while_redis_does_not_answer_a_new_lease_is_not_given_as_the_reason() -> None:
    scene = StoreScene(renews=True).ready()
    scene.redis.host.pause(30)
    scene.until(lambda: bool(scene.losses))
    assert scene.registrations == [], "the next proxy instance waits for Redis"
    assert scene.store.why_away == "Redis is away: no answer within 2 s"
