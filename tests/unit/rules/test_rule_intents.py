"""Rules R1, R2, R7, R13, R17, each in the shortest scene in which exactly it matters: who may work on an intent, and
what he owes. Two proxies are two stages on the same store and the same log."""

from collections.abc import Callable
from typing import Any

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.flow.effects import Append, Swap, Unanswered, Wait
from idemproxy.proxy.flow.outcome import InDoubt, Outcome
from testkit.stage.sequencer import DATA_GENERATION, KEY, NEXT_INSTANCE_ID, TOPIC, Client, Stage

NOT_LEADER, TIMED_OUT, INVALID = 6, 7, 87


def once(stage: Stage, kind: type, act: Callable[[Any], Any]) -> None:
    """Do something in the step of the next effect of this type."""

    def watch(effect: Any) -> None:
        del stage.before[kind]
        act(effect)

    stage.before[kind] = watch


def beside(first: Stage, *, first_lives: bool = True) -> Stage:
    """A second proxy; as far as the store tells, the first one lives or its lease is over."""
    second = Stage()
    second.values, second.log, second.now = first.values, first.log, first.now
    second.context.instance.instance_id = NEXT_INSTANCE_ID
    if first_lives:
        second.alive.add(first.context.instance.instance_id)
    return second


class SlowBroker:
    """Holds the next append until the test has it carried out. The proxy that sent it hears nothing more of it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._held: Append | None = None
        stage.outcomes.append(self._hold)

    def _hold(self, effect: Append) -> Outcome:
        self._held = effect
        return self._stage.never_answers(effect)

    def append(self) -> None:
        assert self._held is not None
        self._stage.take(self._held)


def appends_and_dies(stage: Stage) -> Callable[[Append], Outcome]:
    def outcome(effect: Append) -> Outcome:
        stage.take(effect)
        return stage.never_answers(effect)

    return outcome


# ---------------------------------------------------------------------- R1
@pytest.mark.promise("living-proxy")
def test_an_intent_is_not_taken_over_while_its_owners_lease_lives() -> None:
    first = Stage()
    broker = SlowBroker(first)
    first.send(Client(), 0)
    second = beside(first)
    retry = second.send(Client(), 0)
    second.run(5)
    broker.append()
    second.alive.clear()
    second.run(10)
    assert second.stored_values() == [b"value 0"]
    assert retry.offset == 0


def test_an_intent_that_is_taken_over_is_looked_for_in_the_log() -> None:
    stage = Stage()
    stage.outcomes.append(appends_and_dies(stage))
    stage.send(Client(), 0)
    stage.die()
    retry = stage.send(Client(), 0)
    stage.run(10)
    assert stage.stored_values() == [b"value 0"]
    assert retry.offset == 0


def test_what_an_ended_proxy_instance_reserved_is_not_sent_by_the_next() -> None:
    first, client = Stage(), Client()

    def the_lease_ends(_effect: Any) -> None:
        second = beside(first, first_lives=False)
        second.send(Client(), 0)
        second.run(10)
        first.begin_lease_epoch(DATA_GENERATION)

    once(first, Append, the_lease_ends)
    request = first.send(client, 0)
    first.run(30)
    assert first.stored_values() == [b"value 0"]
    assert request.offset == 0


def test_a_dead_proxys_intent_is_resolved_though_its_only_client_left() -> None:
    first = Stage()
    first.outcomes.append(appends_and_dies(first))
    first.send(Client(), 0)
    second, client = beside(first), Client()
    second.send(client, 0)
    second.run(2)
    client.is_closed = True
    second.run(1)
    second.alive.clear()
    second.run(10)
    assert not second.entry().has_open_intent
    assert [batch.base_offset for batch in second.entry().window] == [0]


# ---------------------------------------------------------------------- R2
def test_the_intent_is_in_the_store_before_a_byte_goes_to_the_broker() -> None:
    stage = Stage()
    stage.outcomes.append(appends_and_dies(stage))
    stage.send(Client(), 0)
    assert len(stage.sent) == 1
    assert KEY in stage.values, "a proxy that dies now leaves no trace of what it sent"
    stage.die()
    stage.send(Client(), 0)
    stage.run(10)
    assert stage.stored_values() == [b"value 0"]


def test_nothing_is_sent_without_an_answer_from_the_store() -> None:
    stage = Stage()
    once(stage, Swap, lambda _effect: setattr(stage, "store_away", True))
    request = stage.send(Client(), 0)
    stage.run(3)
    assert stage.sent == []
    stage.store_away = False
    stage.run(1)
    assert request.offset == 0


def test_an_entry_with_an_open_intent_does_not_expire_with_those_at_rest() -> None:
    """But a month later, when nobody comes back to it: every key has an end."""
    stage, client = Stage(), Client()
    times_to_live: list[int] = []
    stage.before[Swap] = lambda effect: times_to_live.append(effect.ttl_ms)
    stage.send(client, 0)
    stage.run(1)
    reserve, commit = times_to_live
    assert reserve > limits.NAME_EXPIRY_SECONDS * 1000 > commit > 0


def test_a_request_waits_for_redis_for_a_quarter_of_its_timeout() -> None:
    stage = Stage()
    stage.store_away = True
    request = stage.send(Client(), 0)
    stage.run(7)
    assert request.code is None
    stage.run(2)
    assert request.code == TIMED_OUT


# ---------------------------------------------------------------------- R7
def test_what_never_came_to_the_broker_was_not_committed() -> None:
    stage = Stage()
    stage.outcomes.append(stage.never_answers)
    stage.send(Client(), 0)
    stage.die()
    retry = stage.send(Client(), 0)
    stage.run(10)
    assert (retry.code, retry.offset) == (0, 0)
    assert stage.stored_values() == [b"value 0"]


def test_a_commit_does_not_overwrite_what_another_proxy_wrote_meanwhile() -> None:
    first = Stage()
    client = Client()

    def the_proxy_sleeps_over_the_answer(effect: Append) -> Outcome:
        outcome = first.succeeds(effect)
        second = beside(first, first_lives=False)
        for sequence in (0, 1):
            assert second.send(client, sequence).code in (None, 0)
            second.run(10)
        return outcome

    first.outcomes.append(the_proxy_sleeps_over_the_answer)
    first.send(client, 0)
    retry = first.send(client, 1)
    first.run(10)
    assert first.stored_values() == [b"value 0", b"value 1"]
    assert retry.offset == 1


# ---------------------------------------------------------------------- R13
def test_every_retry_of_a_batch_in_doubt_gets_its_answer_however_many_there_are() -> None:
    stage = Stage()
    stage.outcomes.append(stage.loses_answer)
    stage.send(Client(), 0)
    retries = [stage.send(Client(), 0) for _ in range(40)]
    stage.run(10)
    assert [retry.code for retry in retries] == [0] * 40
    assert stage.stored_values() == [b"value 0"]


def test_a_retry_does_not_take_the_place_of_another_that_waits() -> None:
    stage = Stage()
    stage.outcomes.append(stage.loses_answer)
    requests = [stage.send(Client(), 0) for _ in range(2)]
    stage.run(10)
    assert [request.offset for request in requests] == [0, 0]


def test_who_waits_for_another_proxys_intent_reads_again_until_it_is_committed() -> None:
    """He has written the value himself a moment ago, so he believes what he remembers of it."""
    first = Stage()
    second = beside(first)
    second.send(Client(), 0)
    second.run(1)
    retries = []

    def meanwhile(effect: Append) -> Outcome:
        retries.append(second.send(Client(), 1))
        second.run(3)
        return first.succeeds(effect)

    first.outcomes.append(meanwhile)
    first.send(Client(), 1)
    first.run(1)
    assert retries[0].code is None
    second.run(1)
    assert retries[0].offset == 1


# ---------------------------------------------------------------------- R17
@pytest.mark.promise("client-gone")
def test_nothing_is_sent_for_a_client_that_has_gone() -> None:
    stage, client = Stage(), Client()
    once(stage, Append, lambda _effect: setattr(client, "is_closed", True))
    stage.send(client, 0, b"the same records")
    stage.run(1)
    stage.send(Client(), 0, b"the same records", epoch=1)
    stage.run(5)
    assert stage.stored_values() == [b"the same records"]


def test_every_batch_of_a_group_needs_its_client() -> None:
    stage, old, new = Stage(), Client(), Client()

    def the_client_moves(_effect: Any) -> None:
        stage.send(new, 0, b"first")
        old.is_closed = True

    stage.store_away = True
    stage.send(old, 0, b"first")
    stage.send(old, 1, b"second")
    once(stage, Append, the_client_moves)
    stage.store_away = False
    stage.run(5)
    assert stage.stored_values() == [b"first"], "nobody wants the second one any more"


def test_who_reserved_and_sends_nothing_releases_what_he_holds() -> None:
    stage, client = Stage(), Client()
    once(stage, Append, lambda _effect: setattr(client, "is_closed", True))
    stage.send(client, 0)
    stage.run(1)
    assert not stage.entry().has_open_intent
    second = beside(stage)
    request = second.send(Client(), 0)
    second.run(1)
    assert request.offset == 0, "a living proxy that does nothing is waited for"


def test_who_may_have_reserved_writes_until_a_reply_confirms_it() -> None:
    stage, client = Stage(), Client()

    def the_reply_is_lost(effect: Swap) -> None:
        stage.values[effect.key] = effect.value
        stage.store_away = True
        client.is_closed = True

    once(stage, Swap, the_reply_is_lost)
    stage.send(client, 0)
    stage.run(1)
    stage.store_away = False
    stage.run(2)
    second = beside(stage)
    request = second.send(Client(), 0)
    second.run(2)
    assert request.offset == 0, "it waits for a living proxy that knows nothing of its intent"


def test_who_cannot_decide_in_time_leaves_the_intent_to_everybody() -> None:
    stage, client = Stage(), Client()
    stage.outcomes.append(stage.loses_answer)
    stage.send(client, 0)
    stage.reply = lambda _broker_id, _question: Unanswered("it is away")
    client.is_closed = True
    stage.run(100)
    second = beside(stage)
    retry = second.send(Client(), 0)
    second.run(10)
    assert retry.offset == 0, "a living proxy that works on nothing is waited for"


def test_a_release_raises_the_version_so_swaps_of_older_values_fail() -> None:
    stage, client = Stage(), Client()
    once(stage, Append, lambda _effect: setattr(client, "is_closed", True))
    stage.send(client, 0)
    stage.run(1)
    reserved, released = stage.swapped
    assert reserved.has_open_intent
    assert not released.has_open_intent
    assert released.version > reserved.version, "a take-over of the intent that is on its way would succeed"


def test_what_cannot_be_decided_is_remembered_and_never_sent_again() -> None:
    stage, client = Stage(keeps_batch_markers=False), Client()
    stage.outcomes.append(stage.loses_answer)
    request = stage.send(client, 0)
    stage.run(60)
    assert request.code == INVALID
    retry = stage.send(Client(), 0)
    stage.run(60)
    assert retry.code == INVALID
    assert stage.stored_values() == [b"value 0"]


def test_what_a_dead_proxy_left_undecidable_is_remembered_too() -> None:
    stage = Stage(keeps_batch_markers=False)
    stage.outcomes.append(appends_and_dies(stage))
    stage.send(Client(), 0)
    stage.die()
    for _ in range(2):
        retry = stage.send(Client(), 0)
        stage.run(60)
        assert retry.code == INVALID
    assert stage.stored_values() == [b"value 0"]


def test_a_batch_resumes_where_its_rest_was_refused() -> None:
    stage = Stage()
    values = [b"record %d of a batch in parts" % number for number in range(8)]
    stage.context.topics.note_too_large(TOPIC, 200)
    stage.outcomes.extend([stage.succeeds, stage.refuses(NOT_LEADER)])
    request = stage.send(Client(), 0, *values)
    stage.run(5)
    assert request.code == NOT_LEADER
    retry = stage.send(Client(), 0, *values)
    stage.run(20)
    assert stage.stored_values() == values
    assert retry.offset == 0


def test_an_unknown_outcome_is_resolved_though_its_client_has_gone() -> None:
    stage, client = Stage(), Client()
    stage.outcomes.append(lambda effect: InDoubt("no answer in time", effect.broker_id))
    once(stage, Wait, lambda _effect: setattr(client, "is_closed", True))
    stage.send(client, 0, b"the same records")
    stage.run(10)
    assert not stage.entry().has_open_intent
    assert stage.stored_values() == [], "nobody waits for it: it is dropped"
