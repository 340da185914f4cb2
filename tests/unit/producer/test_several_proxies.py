"""Several proxies on one store: nobody waits for a living proxy that does nothing, and what a dead one left open is
finished, with a client or without one (rules R1, R6, R10, R13, R15, R17)."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.flow.effects import Append, MemberAlive, Pause, Read, Unanswered
from idemproxy.proxy.flow.outcome import Outcome
from idemproxy.state.entry import NO_CONTENT, NOBODY, Intent, IntentBatch, IntentKind, pack, unpack
from idemproxy.state.store import member_key
from testkit.stage.sequencer import (
    DATA_GENERATION,
    INSTANCE_ID,
    KEY,
    NEXT_DATA_GENERATION,
    NEXT_INSTANCE_ID,
    Client,
    Stage,
)
from testkit.virtual.client import ClientSettings
from testkit.virtual.redis import ENTRY
from testkit.virtual.world import TOPIC, World, WorldSettings

TIMED_OUT, HELD_BACK, INVALID = 7, 19, 87
STRANGER = b"stranger"
LEASE_OUT_SECONDS = 20.0


def beside(first: Stage, *, first_lives: bool = True) -> Stage:
    """A second proxy on the same store and log."""
    second = Stage()
    second.values, second.log, second.now = first.values, first.log, first.now
    second.context.instance.instance_id = NEXT_INSTANCE_ID
    if first_lives:
        second.alive.add(INSTANCE_ID)
    return second


def run_both(first: Stage, second: Stage, seconds: float) -> None:
    """Time passes for both, in small steps."""
    end = first.now + seconds
    while first.now < end:
        first.run(0.05)
        second.run(0.05)


class Ours(Exception):
    """An error of the proxy's own."""


# ---------------------------------------------------------------------- a living owner
@pytest.mark.promise("stopped-working")
def test_an_intent_after_an_internal_error_is_resolved_for_a_client_elsewhere() -> None:
    first = Stage()

    def fail(_outcome: Append) -> Outcome:
        raise Ours

    first.outcomes.append(fail)
    assert first.send(Client(), 0).code == TIMED_OUT
    assert [type(error) for error in first.failures()] == [Ours]
    assert first.entry().has_open_intent
    second = beside(first)
    retry = second.send(Client(), 0)
    run_both(first, second, 10)
    assert retry.offset == 0
    assert first.stored_values() == [b"value 0"]


def test_an_append_reservation_is_asked_for_once_and_a_plain_intent_never() -> None:
    """By a swap that changes nothing but the version (rule R12). A proxy that waits for a rebuild, or for nothing, asks
    for nothing."""
    for kind, asked in ((IntentKind.APPEND_RESERVATION, 1), (IntentKind.PLAIN, 0)):
        stage = Stage()
        stage.send(Client(), 0)
        stage.run(1)
        left = replace(stage.entry(), version=7)
        intent = Intent(STRANGER, 0, (), 1, left.anchor, NO_CONTENT, 1, kind=kind)
        stage.put(replace(left, intent=intent))
        stage.alive.add(STRANGER)
        stage.sequencer = stage.new_sequencer()
        stage.swapped.clear()
        stage.send(Client(), 0, epoch=1)
        stage.run(4)
        assert stage.swapped == [replace(left, version=8, intent=intent)] * asked
        stage.put(replace(stage.entry(), version=stage.entry().version + 5))
        stage.run(4)
        assert len(stage.swapped) == 2 * asked, "it has written since, and is asked again"


def test_a_dead_owners_entry_is_claimed_and_rebuilt_from_its_bound() -> None:
    stage = Stage()
    for sequence in range(3):
        stage.send(Client(), sequence)
        stage.run(1)
    known = stage.entry()
    first = replace(known, version=9, next_sequence=1, window=known.window[:1], end_offset=1)
    stage.put(
        replace(first, intent=Intent(STRANGER, 0, (), 0, bytes(8), NO_CONTENT, 1, kind=IntentKind.APPEND_RESERVATION))
    )
    stage.sequencer = stage.new_sequencer()
    stage.swapped.clear()
    late = stage.send(Client(), 3)
    stage.run(LEASE_OUT_SECONDS)
    takeover = stage.swapped[0].intent
    assert takeover is not None
    assert (takeover.owner, takeover.batches, takeover.kind) == (INSTANCE_ID, (), IntentKind.TAKEN_OVER)
    assert (late.code, late.offset) == (0, 3)
    assert [batch.base_sequence for batch in stage.entry().window] == [0, 1, 2, 3]


def test_an_error_that_comes_again_and_again_is_not_met_in_a_loop() -> None:
    stage = Stage()

    def fail(_effect: Any) -> None:
        raise Ours

    stage.before[Append] = fail
    stage.before[MemberAlive] = fail
    stage.send(Client(), 0)
    stage.reply = lambda _broker_id, _question: 1 / 0
    stage.run(20)
    assert 5 < len(stage.failures()) < 25
    del stage.before[Append], stage.before[MemberAlive]
    stage.reply = lambda _broker_id, _question: None
    stage.run(20)
    assert not stage.entry().has_open_intent
    assert stage.sequencer.is_idle


def cut_off(stage: Stage) -> None:
    """No broker answers this proxy any more."""
    stage.reply = lambda _broker_id, _question: Unanswered("cut off")


def test_a_rebuild_that_one_proxy_cannot_finish_is_left_to_others() -> None:
    first = Stage()
    client = Client()
    first.send(client, 0)
    first.run(1)
    first.begin_lease_epoch()
    cut_off(first)
    first.send(client, 1)
    first.run(limits.LEASE_SECONDS + limits.LEASE_MARGIN_SECONDS + 1)
    client.is_closed = True
    first.run(2 * limits.SCAN_SECONDS_MAX)
    intent = first.entry().intent
    assert intent is not None
    assert (intent.owner, intent.batches) == (NOBODY, ())


@pytest.mark.promise("stopped-working")
@pytest.mark.parametrize("taken_over", [False, True])
def test_an_outcome_that_one_proxy_cannot_recover_is_left_to_the_next(
    taken_over: bool,
) -> None:
    first = Stage()
    client = Client()
    first.send(client, 0)
    first.run(1)
    first.outcomes.append(first.never_answers if taken_over else first.loses_answer)
    cut_off(first)
    first.send(client, 1)
    if taken_over:
        first.die()
        first.send(client, 1)
    first.run(1)
    client.is_closed = True
    second = beside(first)
    second.alive.add(NEXT_INSTANCE_ID)
    second.context.instance.instance_id = b"the.next"
    retry = second.send(Client(), 1)
    run_both(first, second, 2 * limits.SCAN_SECONDS_MAX)
    assert retry.offset == 1
    assert len(first.stored_values()) == 2
    assert first.sequencer.is_idle


def test_an_unknown_outcome_that_somebody_waits_for_is_not_left_to_others() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.outcomes.append(stage.loses_answer)
    cut_off(stage)
    request = stage.send(client, 1)
    stage.run(3 * limits.SCAN_SECONDS_MAX)
    intent = stage.entry().intent
    assert intent is not None
    assert intent.owner == INSTANCE_ID
    stage.reply = lambda _broker_id, _question: None
    stage.run(limits.SCAN_SECONDS_MAX)
    assert request.offset == 1


# ---------------------------------------------------------------------- a living owner that cannot recover an outcome
def gives_up(first: Stage) -> None:
    """Nobody can tell whether its second batch is in the log."""
    first.log.keeps_wrapper_keys = False
    client = Client()
    first.send(client, 0)
    first.run(1)
    first.outcomes.append(first.loses_answer)
    request = first.send(client, 1)
    first.run(10)
    client.is_closed = True
    first.run(50)
    assert request.code == INVALID


def blurs(first: Stage) -> None:
    """After a loss in the store a gap in the log hides its second batch."""
    client = Client()
    for sequence in range(2):
        first.send(client, sequence)
        first.run(1)
    del first.log.messages[1]
    first.values.clear()
    first.begin_lease_epoch(DATA_GENERATION)
    first.sequencer = first.new_sequencer()
    request = first.send(client, 1)
    first.run(30)
    assert request.code == INVALID


@pytest.mark.parametrize("leaves", [gives_up, blurs])
def test_a_living_owners_unrecoverable_batch_delays_nobody_in_a_new_data_generation(
    leaves: Callable[[Stage], None],
) -> None:
    first = Stage()
    leaves(first)
    left = first.entry().intent
    assert left is not None
    assert left.is_unrecoverable
    second = beside(first)
    second.alive.add(left.owner)
    second.begin_lease_epoch()
    second.context.instance.instance_id = b"the.next"
    client = Client()
    retry = second.send(client, 1)
    second.run(30)
    assert retry.code == INVALID
    newer = second.send(client, 0, b"of a newer epoch", epoch=1)
    second.run(30)
    assert newer.offset == 2
    assert second.stored_values()[-1] == b"of a newer epoch"
    assert second.entry().data_generation == NEXT_DATA_GENERATION


# ---------------------------------------------------------------------- waiting for a living proxy
def left_open(first: Stage) -> None:
    """The proxy reserves, sends, and hears nothing more."""
    first.outcomes.append(lambda effect: (first.take(effect), first.never_answers(effect))[1])
    first.send(Client(), 0)


def test_who_waits_for_a_living_proxy_looks_soon_and_then_more_seldom() -> None:
    first = Stage()
    left_open(first)
    second = beside(first)
    read: list[float] = []
    second.before[Read] = lambda effect: read.append(second.now) if effect.key == KEY else None
    second.send(Client(), 0)
    second.run(20)
    waits = [later - sooner for sooner, later in itertools.pairwise(read)]
    assert waits[0] <= 0.1 + 1e-6
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(limits.RESOLVE_WAIT_SECONDS_MAX)


@pytest.mark.promise("living-proxy")
def test_who_waits_for_a_living_stranger_is_answered_in_time_and_takes_nothing_over() -> None:
    timeout_seconds = 8.0
    world = World(1, WorldSettings(brokers=1, client=ClientSettings(request_timeout=timeout_seconds)))
    world.start()
    (client,), cluster = world.clients, world.proxies[0].engine.statistics().cluster
    client.send(TOPIC, 0)
    assert world.network.run(10, lambda: client.is_done)
    world.network.run(1)
    (key,) = (key for key in world.redis.data if ENTRY in key)
    before = unpack(world.redis.data[key].value)
    due = (IntentBatch(before.next_sequence, 1, b"digest-0"),)
    intent = Intent(STRANGER, 0, due, before.end_offset, before.anchor, bytes(8), 0)
    world.redis.put(key, pack(replace(before, version=before.version + 1, intent=intent)))
    world.redis.put(member_key(cluster, STRANGER), b"1", 60_000)
    begun = world.network.now
    batch = client.send(TOPIC, 0)
    world.network.run(2 * timeout_seconds)
    assert {answer.error_code for answer in batch.answers} == {TIMED_OUT}
    assert 0 <= batch.answers[0].at - begun - 0.75 * timeout_seconds < 0.2
    value = world.redis.get(key)
    assert value is not None
    assert unpack(value).intent == intent
    assert world.cluster.produce_count == 1


@pytest.mark.promise("intent-without-client")
def test_a_dead_proxys_intent_is_resolved_though_the_client_left_early() -> None:
    first = Stage()
    left_open(first)
    second = beside(first)
    client = Client()
    second.send(client, 0)
    second.run(1)
    client.is_closed = True
    second.run(1)
    second.alive.clear()
    second.run(10)
    assert second.entry().intent is None
    assert second.entry().next_sequence == 1
    assert second.stored_values() == [b"value 0"]
    assert second.sequencer.is_idle


def test_a_living_proxy_is_not_watched_for_ever_for_nobody() -> None:
    first = Stage()
    left_open(first)
    second = beside(first)
    client = Client()
    second.send(client, 0)
    client.is_closed = True
    second.run(limits.LEASE_SECONDS + 3)
    assert second.sequencer.is_idle


def test_a_proxy_that_drains_sends_away_who_waits_for_another_one() -> None:
    first = Stage()
    left_open(first)
    second = beside(first)
    second.context.instance.is_draining = True
    assert second.send(Client(), 0).code == HELD_BACK
    second.run(1.5)
    assert second.sequencer.is_idle


def test_a_proxy_that_drains_sends_away_who_waits_for_the_store() -> None:
    stage = Stage()
    stage.store_away = True
    stage.context.instance.is_draining = True
    assert stage.send(Client(), 0).code == TIMED_OUT


# ---------------------------------------------------------------------- a store that was emptied
def test_a_proxy_whose_own_registration_is_gone_touches_nothing_before_the_new_lease_epoch() -> None:
    first = Stage()
    first.send(Client(), 0)
    first.run(1)
    second = beside(first)
    second.values.clear()
    second.is_registered = False
    retry = second.send(Client(), 0)
    second.run(1.9)
    assert second.values == {}
    second.is_registered = True
    second.begin_lease_epoch(second.context.instance.data_generation)
    grace_ends = second.context.instance.grace_until
    second.run(grace_ends - second.now - 0.1)
    assert second.values == {}, "what the others had may still be on its way"
    second.run(10)
    assert retry.offset == 0
    assert second.stored_values() == [b"value 0"]


def test_a_producer_id_counts_as_new_only_while_redis_has_its_block() -> None:
    stage = Stage()
    stage.send(Client(), 0)  # it has met the id
    stage.run(1)
    stage.values.clear()
    elsewhere = beside(stage)
    elsewhere.context = stage.context
    elsewhere.sequencer = elsewhere.new_sequencer()
    retry = elsewhere.send(Client(), 0)
    elsewhere.run(30)
    assert retry.offset == 0
    assert elsewhere.stored_values() == [b"value 0"]


def test_a_pause_of_a_sequencer_ends_with_the_next_batch() -> None:
    stage = Stage()
    pauses: list[float] = []
    stage.before[Pause] = lambda effect: pauses.append(effect.seconds)
    stage.outcomes.append(lambda _effect: 1 // 0)  # type: ignore[arg-type, return-value]
    stage.send(Client(), 0)
    again = stage.send(Client(), 0)
    assert pauses[0] == limits.FAILED_PAUSE_SECONDS
    stage.run(5)
    assert again.offset == 0
