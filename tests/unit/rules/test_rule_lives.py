"""Rules R10, R11, R12, each in the shortest scene in which exactly it matters: data generations of Redis, what clients
get while something is in doubt, epochs of a producer."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from idemproxy.proxy.flow.effects import Append, Read, Swap, Wait
from idemproxy.proxy.flow.outcome import InDoubt, Outcome
from idemproxy.state.decide import BatchIdentity, OutOfOrder, decide
from idemproxy.state.entry import Entry, principal_of
from idemproxy.state.producer_ids import pack_block
from idemproxy.state.redis_facts import data_generation_of, script_sha, swap_script
from testkit.stage.sequencer import BLOCK_KEY, DATA_GENERATION, NEXT_INSTANCE_ID, Client, Stage
from testkit.virtual.redis import RedisFaultRates
from testkit.virtual.redis_connection import RedisFault
from testkit.virtual.world import TOPIC, World, WorldSettings

TIMED_OUT, HELD_BACK, OUT_OF_ORDER, FENCED, FOREIGN = 7, 19, 45, 47, 49
GRACE_SECONDS = 7.0


def once(stage: Stage, kind: type, act: Callable[[Any], Any]) -> None:
    """Do something in the step of the next effect of this type."""

    def watch(effect: Any) -> None:
        del stage.before[kind]
        act(effect)

    stage.before[kind] = watch


def beside(first: Stage) -> Stage:
    """A second proxy on the same store and log; the first one lives."""
    second = Stage()
    second.values, second.log, second.now = first.values, first.log, first.now
    second.context.instance.instance_id = NEXT_INSTANCE_ID
    second.alive.add(first.context.instance.instance_id)
    return second


def with_batches(count: int) -> tuple[Stage, Client]:
    stage, client = Stage(), Client()
    for sequence in range(count):
        stage.send(client, sequence)
        stage.run(1)
    return stage, client


# ---------------------------------------------------------------------- R10
def test_an_entry_of_an_earlier_data_generation_may_lack_its_last_writes() -> None:
    stage, client = with_batches(1)
    before = dict(stage.values)
    stage.send(client, 1)
    stage.run(1)
    stage.values = before
    stage.begin_lease_epoch()
    retry = stage.send(Client(), 1)
    stage.run(30)
    assert stage.stored_values() == [b"value 0", b"value 1"]
    assert retry.offset == 1


def test_within_one_data_generation_too_an_outdated_value_is_unverified() -> None:
    stage, client = with_batches(1)
    before = dict(stage.values)
    stage.send(client, 1)
    stage.run(1)
    stage.values = before
    stage.stream.held.forget()
    retry = stage.send(Client(), 1)
    stage.run(30)
    assert stage.stored_values() == [b"value 0", b"value 1"]
    assert retry.offset == 1


def test_an_absent_entry_is_unverified_unless_its_producer_id_is_of_this_life() -> None:
    stage, _ = with_batches(1)
    stage.values.clear()
    stage.die()
    stage.begin_lease_epoch()
    retry = stage.send(Client(), 0)
    stage.run(30)
    assert stage.stored_values() == [b"value 0"]
    assert retry.offset == 0


def test_a_rebuild_takes_everything_that_the_log_has_of_a_producer() -> None:
    stage, _ = with_batches(3)
    stage.values.clear()
    stage.die()
    stage.begin_lease_epoch()
    retries = [stage.send(Client(), sequence) for sequence in (0, 2)]
    stage.run(30)
    assert stage.stored_values() == [b"value 0", b"value 1", b"value 2"]
    assert [retry.offset for retry in retries] == [0, 2]


def test_no_unverified_entry_is_touched_before_the_lost_leases_end() -> None:
    stage, client = with_batches(1)
    before = dict(stage.values)
    held: list[Append] = []

    def on_its_way(effect: Append) -> Outcome:
        held.append(effect)
        return stage.never_answers(effect)

    stage.outcomes.append(on_its_way)  # reserved and sent in time by a proxy that lives
    stage.send(client, 1)
    stage.values = before  # its reserve is lost
    second = beside(stage)
    second.begin_lease_epoch()
    retry = second.send(Client(), 1)
    second.run(GRACE_SECONDS - 1)
    stage.take(held[0])
    second.run(30)
    assert second.stored_values() == [b"value 0", b"value 1"]
    assert retry.offset == 1


def test_an_unverified_entry_is_not_touched_while_our_own_registration_is_lost() -> None:
    second, client = with_batches(1)
    first = beside(second)
    held: list[Append] = []

    def on_its_way(effect: Append) -> Outcome:
        held.append(effect)
        return first.never_answers(effect)

    first.outcomes.append(on_its_way)
    first.send(Client(), 1)
    second.values.clear()  # FLUSHALL, registrations and all: the next heartbeat will notice it
    second.alive.clear()
    second.is_registered = False
    second.stream.held.forget()
    retry = second.send(client, 1)
    second.run(2)
    second.begin_lease_epoch()
    second.is_registered = True
    second.run(2)
    first.take(held[0])
    second.run(30)
    assert second.stored_values() == [b"value 0", b"value 1"]
    assert retry.offset == 1


def test_what_was_learned_before_a_new_data_generation_is_not_written() -> None:
    stage, client = with_batches(1)
    stage.send(client, 1)
    stage.run(0.01)  # its commit waits for something to ride on
    before = dict(stage.values)
    stage.begin_lease_epoch()
    stage.run(GRACE_SECONDS - 1)
    assert stage.values == before


def test_each_data_generation_has_a_swap_script_of_its_own() -> None:
    one = {"run_id": "a" * 40, "master_replid": "b" * 40}
    lives = [data_generation_of(one | {name: "c" * 40}, 1) for name in ("run_id", "master_replid")]
    lives += [data_generation_of(one, 1), data_generation_of(one, 2)]
    assert len({script_sha(swap_script(instance)) for instance in lives if instance is not None}) == 4


def test_a_registration_that_is_gone_is_the_end_of_the_instance_id() -> None:
    world = World(1, WorldSettings())
    world.start()
    (proxy,) = world.proxies
    before = proxy.engine.statistics().instance_id
    world.redis.end_leases()
    world.network.run(5)
    assert proxy.engine.statistics().instance_id != before, "others may have taken over what it reserved"


@pytest.mark.promise("redis-late-command")
def test_a_reserve_executed_after_a_flush_brings_no_old_state_back() -> None:
    """The first reserve's connection breaks; it is executed when ten batches are stored, everything was deleted, and
    the proxy that might remember them is another one."""
    world = World(1, WorldSettings(redis_faults=RedisFaultRates(late_seconds=(5.0, 5.0))))
    world.start()
    waiting = [RedisFault.LATE]

    def choose(number: int, name: bytes, rest: Sequence[bytes]) -> RedisFault:
        return waiting.pop() if waiting and name == b"EVALSHA" else RedisFault.NONE

    world.redis.choose_fault = choose
    (client,) = world.clients
    batches = []
    for _ in range(10):
        batches.append(client.send(TOPIC, 0, 1))
        assert world.network.run(4.0, lambda: client.is_done)
    assert world.redis.faults_done[RedisFault.LATE] == 1
    world.redis.flush()
    world.proxies[0].crash()
    world.network.run(6.0)
    for _ in range(3):
        batches.append(client.send(TOPIC, 0, 1))
    assert world.network.run(40.0, lambda: client.is_done)
    told = {answer.error_code for batch in batches for answer in batch.answers}
    assert OUT_OF_ORDER not in told
    assert not any(batch.was_renumbered or batch.failed for batch in batches)


def test_connections_of_idempotent_clients_are_closed_in_a_new_data_generation() -> None:
    world = World(1, WorldSettings())
    world.start()
    (client,) = world.clients
    client.send(TOPIC, 0, 1)
    assert world.network.run(10, lambda: client.is_done)
    (proxy,) = world.proxies
    sessions = set(proxy.engine.sessions)
    assert sessions
    world.redis.restart(lose_last_writes=0)
    world.network.run(5)
    assert not sessions & set(proxy.engine.sessions)


# ---------------------------------------------------------------------- R11
def test_a_batch_in_doubt_never_gets_out_of_order() -> None:
    stage = Stage()
    stage.store_away = True
    request = stage.send(Client(), 0)
    stage.run(30)
    assert request.code == TIMED_OUT


def test_a_batch_after_one_that_must_be_sent_again_is_no_gap() -> None:
    stage, client = with_batches(1)
    stage.outcomes.append(stage.refuses(HELD_BACK))
    stage.send(client, 1)
    successor = stage.send(client, 2)
    stage.run(1)
    assert successor.code == HELD_BACK


@pytest.mark.parametrize(("epoch", "sequence"), [(0, 2), (1, 1)])
def test_what_is_known_is_confirmed_before_a_refusal(epoch: int, sequence: int) -> None:
    stage, client = with_batches(1)
    second = beside(stage)
    for known in range(sequence):
        if (epoch, known) != (0, 0):
            second.send(client, known, b"epoch %d sequence %d" % (epoch, known), epoch=epoch)
            second.run(1)
    request = stage.send(client, sequence, epoch=epoch)
    stage.run(5)
    assert request.code == 0, "another proxy has appended what is missing"


@pytest.mark.parametrize(("epoch", "sequence"), [(0, 2), (1, 1)])
def test_what_a_replica_tells_is_no_reason_for_a_refusal(epoch: int, sequence: int) -> None:
    stage, client = with_batches(1)
    stage.replica = dict(stage.values)  # it was the master, and the others know already that it is no longer
    second = beside(stage)
    for known in range(sequence):
        if (epoch, known) != (0, 0):
            second.send(client, known, b"epoch %d sequence %d" % (epoch, known), epoch=epoch)
            second.run(1)
    refused = stage.send(client, sequence, epoch=epoch)
    stage.run(30)
    assert refused.code == TIMED_OUT
    stage.replica = None
    request = stage.send(client, sequence, epoch=epoch)
    stage.run(5)
    assert request.code == 0


def test_a_read_sent_before_the_batch_came_is_no_reason_to_refuse() -> None:
    stage, owner = Stage(), Client("owner")
    stage.send(owner, 0)
    stage.run(1)
    second = beside(stage)
    requests = []

    def while_it_is_read(_effect: Read) -> None:
        second.replica = dict(second.values)
        stage.send(owner, 1)
        stage.run(1)
        requests.append(second.send(owner, 2))
        once(second, Swap, lambda _effect: setattr(second, "replica", None))

    once(second, Read, while_it_is_read)
    second.send(Client("thief"), 1)
    second.run(5)
    assert [request.code for request in requests] == [0]


def test_a_producer_of_which_nothing_is_stored_is_refused_by_a_write_too() -> None:
    stage = Stage()
    stage.context.instance.wall_clock_ms = lambda: 1000
    stage.values[BLOCK_KEY] = pack_block(DATA_GENERATION, 0, principal_of("owner"))
    stage.replica = dict(stage.values)
    unanswered = stage.send(Client("owner"), 1)
    stage.run(30)
    stage.replica = None
    refused = stage.send(Client("owner"), 1)
    stage.run(5)
    assert (unanswered.code, refused.code, stage.swapped[-1].window) == (TIMED_OUT, OUT_OF_ORDER, ())
    assert stage.key not in stage.values
    other = beside(stage)
    requests = [other.send(Client("thief"), 0), other.send(Client("owner"), 0)]
    other.run(5)
    assert [request.code for request in requests] == [FOREIGN, 0]


def test_a_batch_queued_after_its_successor_is_taken_first() -> None:
    stage, client = with_batches(1)
    once(stage, Append, lambda _effect: [stage.send(client, 3), stage.send(client, 2)])
    stage.send(client, 1)
    stage.run(5)
    assert stage.stored_values() == [b"value 0", b"value 1", b"value 2", b"value 3"]


def test_a_producer_that_is_known_to_nobody_begins_with_its_first_sequence() -> None:
    stage, client = Stage(), Client()
    stage.context.instance.wall_clock_ms = lambda: 1000
    for _ in range(2):
        request = stage.send(client, 1)
        stage.run(5)
    assert stage.stored_values() == [], "sequence 0 may still be on its way"
    assert request.code == OUT_OF_ORDER


# ---------------------------------------------------------------------- R12
def test_an_older_epochs_open_intent_is_resolved_before_anything_newer() -> None:
    stage = Stage()
    held: list[Append] = []

    def slow_broker(effect: Append) -> Outcome:
        held.append(effect)
        return stage.never_answers(effect)

    stage.outcomes.append(slow_broker)
    stage.send(Client(), 0, b"old")
    stage.die()
    stage.send(Client(), 0, b"new", epoch=1)
    stage.run(0.5)
    stage.take(held[0])
    stage.run(10)
    assert stage.stored_values() == [b"old", b"new"]


def test_an_old_batch_not_in_the_log_is_dropped_for_newer_epochs() -> None:
    stage, client = Stage(), Client()
    stage.outcomes.append(lambda effect: InDoubt("the request is lost", effect.broker_id))
    once(stage, Wait, lambda _effect: stage.send(client, 0, b"the same records", epoch=1))
    stage.send(client, 0, b"the same records")
    stage.run(30)
    assert stage.stored_values() == [b"the same records"]


def test_a_new_epoch_begins_at_sequence_0() -> None:
    entry = Entry(1, DATA_GENERATION, bytes(8), 3, 7)
    assert isinstance(decide(entry, BatchIdentity(4, 7, 1)), OutOfOrder)


def test_a_new_epoch_has_a_window_of_its_own() -> None:
    stage, client = with_batches(1)
    stage.outcomes.append(stage.refuses(HELD_BACK))
    stage.send(client, 0, b"of the new epoch", epoch=1)
    stage.run(1)
    retry = stage.send(client, 0, b"of the new epoch", epoch=1)
    stage.run(1)
    assert stage.stored_values() == [b"value 0", b"of the new epoch"]
    assert retry.offset == 1


def test_the_end_of_the_last_commit_stays_a_bound_for_the_next_epoch() -> None:
    stage, client = with_batches(2)
    stage.outcomes.append(stage.refuses(HELD_BACK))
    stage.send(client, 0, epoch=1)
    stage.run(1)
    entry = stage.entry()
    assert (entry.producer_epoch, entry.end_offset) == (1, 2)


def test_a_lower_epoch_is_fenced_by_what_is_reserved() -> None:
    stage, client = with_batches(1)
    stage.outcomes.append(stage.refuses(HELD_BACK))
    stage.send(client, 0, b"new", epoch=1)
    stage.run(1)
    late = stage.send(Client(), 1, b"late")
    stage.run(1)
    assert late.code == FENCED
    assert stage.stored_values() == [b"value 0"]
