"""A rebuild that begins while the client of what was in doubt is away: the takeover says what to look for."""

from dataclasses import replace
from random import Random

import pytest
from mutants.scenes import SleepingBroker, a_stage_with_one_batch, foreign

from idemproxy.codecs.compression import Codec
from idemproxy.proxy.flow.effects import Append, Swap, Unanswered
from idemproxy.proxy.flow.outcome import Outcome
from idemproxy.state.entry import NOBODY, Entry, Intent, IntentBatch, IntentKind, unpack
from testkit.stage.sequencer import INSTANCE_ID, Client, Stage

UNDECIDABLE = 87


@pytest.mark.promise("log-cannot-tell")
@pytest.mark.parametrize("changes", ["keys", "codec"])
@pytest.mark.parametrize("leaves", [False, True])
def test_a_rebuild_without_its_client_does_not_append_the_batch_again(changes: str, leaves: bool) -> None:
    """It lies in the log without a batch marker; who looks for it knows its content from the intent alone (rule
    R10)."""
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    if changes == "keys":
        stage.log.keeps_wrapper_keys = False
    else:
        stage.topic_codec = Codec.NONE

    def dies(effect: Append) -> Outcome:
        stage.take(effect)
        return stage.never_answers(effect)

    stage.outcomes.append(dies)
    stage.send(client, 1)
    stage.run(1)
    assert stage.entry().has_open_intent
    client.is_closed = True
    stage.die()
    stage.begin_lease_epoch()  # a new data generation, in which nothing is lost
    comes_again = Client()
    stage.send(comes_again, 1)
    tries: list[Swap] = []

    def watch(effect: Swap) -> None:
        tries.append(effect)
        if leaves and len(tries) == 1:  # the takeover's reply is lost once, and the client has gone
            stage.store_away = True
            comes_again.is_closed = True
        else:
            stage.store_away = False

    stage.before[Swap] = watch
    stage.run(60)
    stage.store_away = False
    retry = stage.send(Client(), 1)
    stage.run(60)
    assert stage.stored_values() == [b"value 0", b"value 1"]
    assert retry.code == UNDECIDABLE


def rebuilt_with_unrecoverable() -> Stage:
    """Three batches; of the fourth, which was meant for broker 1, a rebuild could not tell."""
    stage = Stage()
    for sequence in range(3):
        stage.send(Client(), sequence)
        stage.run(1)
    known = stage.entry()
    left = Intent(
        NOBODY,
        0,
        (IntentBatch(3, 1, b"digest-5"),),
        known.end_offset,
        known.anchor,
        b"content!",
        1,
        kind=IntentKind.UNRECOVERABLE,
    )
    stage.put(replace(known, version=known.version + 1, intent=left, is_rebuilt=True))
    return stage


def test_a_gap_elsewhere_does_not_void_a_rebuild_with_an_unrecoverable_batch() -> None:
    """A proxy reads the log for what comes next, and lives. What comes after that waits for it."""
    stage = rebuilt_with_unrecoverable()
    foreign(stage, *(Random(number).randbytes(900_000) for number in range(3)))
    stage.die()
    stage.context.instance.instance_id = INSTANCE_ID
    stage.log_seconds = 2.6
    stage.send(Client(), 3, b"other content")
    stage.run(3)
    version = stage.entry().version
    stage.die()
    stage.alive.add(INSTANCE_ID)
    request = stage.send(Client(), 4)
    stage.run(3)
    assert (stage.entry().version, request.code) == (version, None)


@pytest.mark.parametrize("leader", [1, 2])
def test_a_rebuild_takes_over_at_once_though_others_raise_the_version(leader: int) -> None:
    """What was unrecoverable was meant for broker 1, which has to pass the quiescence check."""
    stage = rebuilt_with_unrecoverable()
    stage.sequencer = stage.new_sequencer()
    stage.leader = leader

    def raises() -> None:
        entry = stage.entry()
        if entry.intent is None or entry.intent.owner == NOBODY:
            stage.put(replace(entry, version=entry.version + 2))
        stage.later(1.0, raises)

    stage.later(1.0, raises)
    request = stage.send(Client(), 3, b"other content")
    stage.run(60, until=lambda: request.is_done)
    assert request.code == 0


def test_a_resumed_rebuild_waits_for_the_broker_that_led_at_its_start() -> None:
    """Redis has lost the newer intent: of what was sent to that broker it knows nothing (rules R6, R10)."""
    stage, client = a_stage_with_one_batch()
    written: list[Entry] = []
    stage.before[Swap] = lambda swap: written.append(unpack(swap.value))
    stage.send(client, 1)
    stage.run(1)
    del stage.before[Swap]
    older = next(one for one in written if one.intent is not None and one.intent.batches)
    stage.leader = 2
    broker = SleepingBroker(stage, is_heard_of=False)
    stage.reply = lambda broker_id, _question: Unanswered("it sleeps") if broker_id == 2 else None
    stage.send(client, 2)
    stage.run(0.3)
    client.is_closed = True
    stage.die()
    stage.begin_lease_epoch()
    stage.put(older)
    stage.send(Client(), 2)
    stage.run(9)
    data_generation = stage.context.instance.data_generation
    stage.die()
    stage.context.instance.data_generation, stage.context.instance.instance_id = data_generation, b"the.next"
    stage.leader = 3
    stage.send(Client(), 2)
    stage.run(8)
    broker.wake()
    stage.leader, stage.reply = 2, lambda _broker_id, _question: None
    stage.run(60)
    assert stage.stored_values().count(b"value 2") == 1


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_resumed_rebuild_waits_for_the_broker_that_got_the_batch(is_interrupted: bool) -> None:
    """Another one leads meanwhile, and it leads again when it wakes and carries out what it was sent (rule R6)."""
    stage, client = a_stage_with_one_batch()
    broker = SleepingBroker(stage, is_heard_of=False)
    stage.reply = lambda broker_id, _question: Unanswered("it sleeps") if broker_id == 1 else None
    stage.send(client, 1)
    stage.run(0.1)
    client.is_closed = True
    stage.die()
    stage.begin_lease_epoch()
    stage.leader = 2
    if is_interrupted:
        stage.send(Client(), 1)
        stage.run(7.5)
        data_generation = stage.context.instance.data_generation
        stage.die()
        stage.context.instance.data_generation, stage.context.instance.instance_id = data_generation, b"the.next"
    retry = stage.send(Client(), 1)
    stage.run(5 if is_interrupted else 12)
    broker.wake()
    stage.leader, stage.reply = 1, lambda _broker_id, _question: None
    stage.run(30)
    assert retry.offset == 1
    assert stage.stored_values() == [b"value 0", b"value 1"]
