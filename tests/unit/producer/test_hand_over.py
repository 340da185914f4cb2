"""Producers of the proxy at brokers that give idempotence themselves by now (rule R21): their batches go as they came,
and none that is stored in the old way, and none out of its turn."""

from dataclasses import replace

import pytest
from mutants.scenes import dies_after, foreign

from idemproxy.codecs.record_batch import parse_single_batch
from idemproxy.proxy.bridge.known_producers import AskKnownProducer, KnownProducer
from idemproxy.proxy.events import OperatorMessage
from idemproxy.proxy.flow.effects import Append, Ask, Swap, Unanswered
from idemproxy.proxy.flow.outcome import Appended, InDoubt, Outcome, Refused
from idemproxy.state.commit import fresh, handed_over, moved_on
from idemproxy.state.entry import GIVEN_UP, NO_CONTENT, NOBODY, Intent, IntentBatch
from idemproxy.state.names import FIRST_NAMED_ID, NameRecord, pack_name
from idemproxy.state.producer_ids import BLOCK_SIZE, pack_block
from idemproxy.state.sequence import SEQUENCE_MODULUS
from idemproxy.state.store import block_key, name_key
from testkit.stage.sequencer import CLUSTER, GENERATION, KEY, PRODUCER_ID, Client, Stage, batch_of

NAMED_ID = -(-FIRST_NAMED_ID // BLOCK_SIZE) * BLOCK_SIZE
OUT_OF_ORDER, HELD_BACK, TIMED_OUT, FENCED, OTHER_FORMAT, INVALID_RECORD = 45, 19, 7, 47, 43, 87


class ModernLeader:
    """Checks sequences as brokers do since 2.5: of a producer that it does not know it takes any batch. ``taken``: what
    it has stored, by base sequence; each batch has one record."""

    def __init__(self, stage: Stage, producer_id: int = PRODUCER_ID) -> None:
        self._producer_id = producer_id
        self.taken: list[int] = []
        self.trouble: list[Outcome] = []
        """Ends the next appends."""
        self.loses_answers = 0
        self._stage = stage
        stage.context.life.hands_over = True
        stage.reply = self._reply
        stage.outcomes.append(self._take)

    def _reply(self, _broker_id: int, question: object) -> object:
        if not isinstance(question, AskKnownProducer):
            return None
        assert question.producer_id == self._producer_id
        return KnownProducer(0, self.taken[-1] if self.taken else None)

    def _take(self, effect: Append) -> Outcome:
        self._stage.outcomes.append(self._take)
        refusal = effect.may_send()
        assert refusal is None, refusal
        if self.trouble:
            return self.trouble.pop()
        (identity,) = effect.identities
        sequence = identity.base_sequence
        own = batch_of([b"value %d" % sequence], sequence, identity.producer_epoch, producer_id=self._producer_id)
        assert effect.message_set == own
        if sequence not in self.taken:
            if self.taken and sequence != self.taken[-1] + 1:
                return Refused(OUT_OF_ORDER)
            self.taken.append(sequence)
        if self.loses_answers:
            self.loses_answers -= 1
            return InDoubt("lost", effect.broker_id)
        return Appended(100 + sequence, lane=self._stage.lane)


def a_producer_that_has_sent(batches: int) -> tuple[Stage, Client]:
    stage, client = Stage(), Client()
    for sequence in range(batches):
        stage.send(client, sequence)
    stage.run(1)
    assert len(stage.stored_values()) == batches
    return stage, client


def test_a_producer_goes_on_where_it_was_and_nothing_is_reserved_any_more() -> None:
    stage, client = a_producer_that_has_sent(3)
    leader = ModernLeader(stage)
    first = stage.send(client, 3)
    stage.run(1)
    assert first.offset == 103
    assert stage.entry().is_handed_over
    assert stage.entry().next_sequence == 3
    stage.swapped.clear()
    requests = [stage.send(client, sequence) for sequence in (4, 5, 6)]
    stage.run(1)
    assert [request.offset for request in requests] == [104, 105, 106]
    assert leader.taken == [3, 4, 5, 6]
    assert stage.swapped == []
    assert len(stage.stored_values()) == 3
    assert sum(isinstance(question, AskKnownProducer) for _, question in stage.asked) == 1
    assert stage.failures() == []


@pytest.mark.parametrize("is_known", [False, True])
def test_what_is_stored_in_the_old_way_is_answered_and_not_sent_again(is_known: bool) -> None:
    stage, client = a_producer_that_has_sent(3)
    leader = ModernLeader(stage)
    if is_known:
        stage.send(client, 3)
        stage.run(1)
    retry = stage.send(Client(), 2)
    stage.run(5)
    assert (retry.code, retry.offset) == (0, 2)
    assert leader.taken == ([3] if is_known else [])


def test_of_a_producer_that_the_leader_does_not_know_only_what_is_due_is_sent() -> None:
    stage, _ = a_producer_that_has_sent(1)
    leader = ModernLeader(stage)
    client = Client()
    ahead = stage.send(client, 2)
    stage.run(1)
    assert ahead.code == HELD_BACK
    assert leader.taken == []
    due, again = stage.send(client, 1), stage.send(client, 2)
    stage.run(1)
    assert (due.offset, again.offset) == (101, 102)
    assert leader.taken == [1, 2]


def test_the_lowest_that_waits_goes_first_in_whatever_order_they_came() -> None:
    stage, client = a_producer_that_has_sent(1)
    leader = ModernLeader(stage)
    stage.leader = None
    later, due = stage.send(client, 2), stage.send(client, 1)
    stage.run(1)
    stage.leader = 1
    stage.run(1)
    assert (due.offset, later.offset) == (101, 102)
    assert leader.taken == [1, 2]


def test_a_lost_answer_is_found_by_sending_again_and_the_one_behind_it_is_no_gap() -> None:
    stage, client = a_producer_that_has_sent(1)
    leader = ModernLeader(stage)
    leader.loses_answers = 1
    lost, behind = stage.send(client, 1), stage.send(client, 2)
    stage.run(1)
    assert (lost.code, behind.code) == (TIMED_OUT, HELD_BACK)
    retry, next_one = stage.send(client, 1), stage.send(client, 2)
    stage.run(1)
    assert (retry.offset, next_one.offset) == (101, 102)
    assert leader.taken == [1, 2]


def test_a_gap_that_the_leader_sees_is_not_told_while_the_lower_batch_is_to_come_again() -> None:
    stage, client = a_producer_that_has_sent(1)
    leader = ModernLeader(stage)
    stage.send(client, 1)
    stage.run(1)
    leader.trouble = [Refused(6)]
    refused = stage.send(client, 2)
    stage.run(1)
    behind = stage.send(client, 3)
    stage.run(1)
    assert (refused.code, behind.code) == (6, HELD_BACK)
    real_gap = stage.send(Client(), 7)
    stage.run(1)
    assert real_gap.code == OUT_OF_ORDER
    assert leader.taken == [1]


def test_what_was_appended_and_may_vanish_is_not_told_as_stored() -> None:
    stage, client = a_producer_that_has_sent(1)
    leader = ModernLeader(stage)
    leader.trouble = [Appended(101, 7)]
    request = stage.send(client, 1)
    stage.run(1)
    assert request.code == TIMED_OUT


def test_an_open_intent_is_resolved_before_anything_goes_as_it_came() -> None:
    stage, client = a_producer_that_has_sent(1)
    stage.outcomes.append(stage.loses_answer)
    lost = stage.send(client, 1)
    stage.run(0.2)
    leader = ModernLeader(stage)
    stage.run(10)
    assert (lost.code, lost.offset) == (0, 1)
    assert leader.taken == []
    behind = stage.send(client, 2)
    stage.run(1)
    assert behind.offset == 102
    assert leader.taken == [2]


@pytest.mark.parametrize("is_stored", [True, False])
def test_an_intent_that_another_proxy_left_open_is_resolved_first(is_stored: bool) -> None:
    stage, client = a_producer_that_has_sent(1)
    stage.outcomes.append(dies_after(stage, stage.take if is_stored else lambda _effect: None))
    stage.send(client, 1)
    stage.die()
    leader = ModernLeader(stage)
    retry = stage.send(Client(), 1)
    stage.run(30)
    assert (retry.code, retry.offset) == (0, 1 if is_stored else 101)
    assert leader.taken == ([] if is_stored else [1])
    assert stage.failures() == []


def test_a_doubt_whose_batch_is_not_in_the_log_is_not_sent_again_in_the_old_way() -> None:
    stage, client = a_producer_that_has_sent(1)
    stage.outcomes.append(lambda effect: InDoubt("lost", effect.broker_id))
    request = stage.send(client, 1)
    stage.run(0.2)
    leader = ModernLeader(stage)
    stage.run(10)
    assert request.offset == 101
    assert leader.taken == [1]
    assert len(stage.stored_values()) == 1


def test_what_was_reserved_when_producers_are_handed_over_is_released_and_goes_as_it_came() -> None:
    stage, client = a_producer_that_has_sent(1)
    leaders: list[ModernLeader] = []

    def upgraded(_effect: Append) -> None:
        if not leaders:
            leaders.append(ModernLeader(stage))

    stage.before[Append] = upgraded
    request = stage.send(client, 1)
    stage.outcomes.append(stage.succeeds)
    stage.run(5)
    assert request.offset == 101
    assert len(stage.stored_values()) == 1


@pytest.mark.parametrize("has_fast_path", [False, True])
def test_a_proxy_that_does_not_know_of_it_appends_nothing_and_tells_no_gap(has_fast_path: bool) -> None:
    """It was paused, or a broker was rolled back: what it remembers of the entry is out of date."""
    stage, client = Stage(has_fast_path=has_fast_path), Client()
    for sequence in range(2):
        stage.send(client, sequence)
        stage.run(1)
    stage.put(handed_over(stage.entry()))
    due = stage.send(client, 2)
    stage.run(5)
    again, ahead = stage.send(client, 2), stage.send(Client(), 5)
    stage.run(5)
    assert again.code == HELD_BACK
    assert (due.code, ahead.code) == (HELD_BACK, HELD_BACK)
    retry = stage.send(Client(), 1)
    stage.run(5)
    assert (retry.code, retry.offset) == (0, 1)
    assert len(stage.stored_values()) == 2


def test_what_another_proxy_has_appended_meanwhile_is_read_before_a_leader_is_believed() -> None:
    stage, _ = a_producer_that_has_sent(2)
    entry = stage.entry()
    leader = ModernLeader(stage)
    other = replace(entry, version=entry.version + 1, next_sequence=5)
    stage.put(handed_over(other))
    leader.taken = [5, 6]
    client = Client()
    stage.send(client, 7)
    stage.run(1)
    assert leader.taken == [5, 6, 7]
    known = stage.stream.held.entry
    assert known is not None
    assert known.next_sequence == 5


def test_a_handed_over_entry_has_lost_nothing_when_the_store_begins_a_new_life() -> None:
    stage, client = a_producer_that_has_sent(2)
    leader = ModernLeader(stage)
    stage.send(client, 2)
    stage.run(1)
    stage.begin_era()
    stage.asked.clear()
    request = stage.send(Client(), 3)
    stage.run(20)
    assert request.offset == 103
    assert leader.taken == [2, 3]
    assert [question for _, question in stage.asked if not isinstance(question, AskKnownProducer)] == []


def test_a_new_producer_begins_at_0_and_a_new_epoch_is_the_leaders_to_judge() -> None:
    stage = Stage()
    leader = ModernLeader(stage)
    client = Client()
    middle = stage.send(client, 4)
    stage.run(1)
    assert middle.code == HELD_BACK
    first = stage.send(Client(), 0)
    stage.run(1)
    assert first.offset == 100
    assert leader.taken == [0]
    assert stage.entry().is_handed_over


def test_an_older_epoch_is_fenced() -> None:
    stage = Stage()
    leader = ModernLeader(stage)
    stage.put(fresh(GENERATION, bytes(8), 3, 0))
    request = stage.send(Client(), 0, epoch=2)
    stage.run(1)
    assert request.code == FENCED
    assert leader.taken == []


def test_a_topic_with_an_old_format_of_its_own_waits_and_is_named() -> None:
    stage, client = a_producer_that_has_sent(1)
    leader = ModernLeader(stage)
    leader.trouble = [Refused(OTHER_FORMAT)]
    request = stage.send(client, 1)
    stage.run(1)
    assert request.code == HELD_BACK
    said = [str(event) for event in stage.events if isinstance(event, OperatorMessage)]
    assert any("message.format.version" in text for text in said)


def test_redis_is_away_while_it_is_written_that_a_producer_is_handed_over() -> None:
    stage, client = a_producer_that_has_sent(1)
    leader = ModernLeader(stage)

    def goes_away(_effect: object) -> None:
        del stage.before[Swap]
        stage.store_away = True
        stage.later(20.0, lambda: setattr(stage, "store_away", False))

    stage.before[Swap] = goes_away
    request = stage.send(client, 1)
    stage.run(60)
    assert (request.code, leader.taken) == (TIMED_OUT, [])
    assert stage.failures() == []
    again = stage.send(client, 1)
    stage.run(5)
    assert (again.code, leader.taken) == (0, [1])


def test_a_leader_that_does_not_tell_what_it_knows_is_sent_nothing() -> None:
    stage, client = a_producer_that_has_sent(1)
    leader = ModernLeader(stage)
    stage.reply = lambda _broker_id, question: KnownProducer(29) if isinstance(question, AskKnownProducer) else None
    request = stage.send(client, 1)
    stage.run(1)
    assert request.code == TIMED_OUT
    assert leader.taken == []
    assert not stage.entry().is_handed_over


@pytest.mark.parametrize("other_proxy", [False, True])
def test_when_its_sequences_come_round_nothing_is_taken_for_what_was_stored_before(other_proxy: bool) -> None:
    """Rule R9. It sends on for two rounds and a half, until it is handed over for good."""
    stage, client = a_producer_that_has_sent(3)
    leader = ModernLeader(stage)
    stage.send(client, 3)
    stage.run(1)
    step = SEQUENCE_MODULUS // 8
    for number in range(1, 20):
        for near in range(-2, 3):
            sequence = (number * step + near) % SEQUENCE_MODULUS
            if other_proxy and near == 0:
                stage.sequencer = stage.new_sequencer()
            leader.taken[:] = [(sequence - 1) % SEQUENCE_MODULUS]
            stage.outcomes.clear()
            stage.outcomes.append(lambda _effect: Appended(7_000, lane=stage.lane))
            request = stage.send(Client(), sequence, b"new")
            stage.run(15)
            assert (request.code, request.offset) == (0, 7_000), (number, near)
    assert stage.entry().is_handed_over


def test_what_others_have_handed_over_since_the_store_lost_a_write_of_ours_stays_so() -> None:
    stage, client = a_producer_that_has_sent(2)
    before = stage.values[KEY]
    stage.send(client, 2)
    stage.run(1)
    stage.values[KEY] = before
    stage.reply = lambda _broker_id, _question: Unanswered("it is away")
    stage.send(client, 3)
    stage.run(20)
    client.is_closed = True
    stage.run(60)
    others = replace(stage.entry(), version=stage.entry().version + 5, generation=GENERATION, intent=None)
    stage.put(handed_over(others))
    stage.reply = lambda _broker_id, _question: None
    sent = len(stage.sent)
    stage.send(Client(), 3)
    stage.run(60)
    assert stage.entry().is_handed_over
    assert len(stage.sent) == sent


@pytest.mark.parametrize("is_away", [False, True])
def test_a_retry_that_comes_while_old_batches_are_forgotten_joins_nothing_that_is_answered(is_away: bool) -> None:
    stage, client = a_producer_that_has_sent(2)
    leader = ModernLeader(stage)
    stage.send(client, 2)
    stage.run(1)
    far = 2 + SEQUENCE_MODULUS // 4 + 5
    leader.taken.append(far - 1)
    retries = []

    def comes_again(_swap: object) -> None:
        del stage.before[Swap]
        retries.append(stage.send(Client(), far))
        stage.store_away = is_away
        stage.later(20.0, lambda: setattr(stage, "store_away", False))

    stage.before[Swap] = comes_again
    assert stage.send(client, far).code == 0
    stage.run(30)
    assert retries[0].code == (TIMED_OUT if is_away else 0)
    again = stage.send(Client(), far)
    stage.run(5)
    assert (again.code, leader.taken.count(far)) == (0, 1)


def test_what_was_blurred_is_no_matter_in_the_next_epoch_of_what_is_handed_over() -> None:
    stage, client = a_producer_that_has_sent(1)
    blurred = Intent(NOBODY, 0, (), 0, bytes(8), NO_CONTENT, 1, GIVEN_UP)
    stage.put(replace(stage.entry(), version=stage.entry().version + 1, intent=blurred))
    stage.sequencer = stage.new_sequencer()
    ModernLeader(stage)
    codes = []
    for epoch, sequence in ((0, 1), (1, 0), (1, 1), (1, 2)):
        request = stage.send(client, sequence, epoch=epoch)
        stage.run(1)
        codes.append(request.code)
    assert codes == [87, 0, 0, 0]


@pytest.mark.parametrize("is_deposed", [False, True])
def test_other_records_under_old_numbers_are_told_45_only_by_a_swap(is_deposed: bool) -> None:
    """What was read may come from a server that is no master any more (rule R11)."""
    stage, client = a_producer_that_has_sent(8)
    ModernLeader(stage)
    if is_deposed:
        stage.replica = dict(stage.values)
        entry = stage.entry()
        stage.put(replace(entry, version=entry.version + 3, producer_epoch=1, next_sequence=0, window=()))
    stage.swapped.clear()
    request = stage.send(client, 2, b"another")
    stage.run(20, until=lambda: request.is_done)
    if is_deposed:
        assert request.code != OUT_OF_ORDER
    else:
        assert request.code == OUT_OF_ORDER
        assert stage.swapped


def test_a_late_retry_of_what_was_stored_in_the_old_way_is_still_known() -> None:
    """The leader has taken a little less than what lets the entry forget it."""
    stage, client = a_producer_that_has_sent(3)
    leader = ModernLeader(stage)
    stage.send(client, 3)
    stage.run(1)
    sequence = SEQUENCE_MODULUS // 4
    leader.taken[:] = [sequence - 1]
    assert stage.send(client, sequence).code == 0
    retry = stage.send(Client(), 2)
    stage.run(15)
    assert (retry.code, retry.offset) == (0, 2)


@pytest.mark.parametrize("ahead", [SEQUENCE_MODULUS // 2 + 1000, SEQUENCE_MODULUS - 100, SEQUENCE_MODULUS - 2])
@pytest.mark.parametrize("handed_over_by", ["this proxy", "another one"])
def test_what_another_proxy_has_forgotten_is_forgotten_here(handed_over_by: str, ahead: int) -> None:
    """It has sent a quarter of a round and more since, and its client comes back here once that many more have come."""
    stage, client = a_producer_that_has_sent(3)
    leader = ModernLeader(stage)
    if handed_over_by == "this proxy":
        stage.send(client, 3)
        stage.run(1)
    forgotten = moved_on(handed_over(stage.entry()), 3 + SEQUENCE_MODULUS // 4 + 5)
    assert forgotten is not None
    stage.put(forgotten)
    stage.earliest = 3
    sequence = (3 + ahead) % SEQUENCE_MODULUS
    leader.taken[:] = [(sequence - 1) % SEQUENCE_MODULUS]
    request = stage.send(Client(), sequence)
    stage.run(60)
    assert (request.code, leader.taken[-1]) == (0, sequence)


def with_two_given_up() -> tuple[Stage, Client]:
    """One batch is stored; a group of two behind it was given up, and its client has used the first number anew."""
    stage, client = a_producer_that_has_sent(1)
    headers = [parse_single_batch(batch_of([b"old %d" % sequence], sequence)) for sequence in (1, 2)]
    batches = tuple(IntentBatch(sequence, 1, header.crc) for sequence, header in enumerate(headers, 1))
    intent = Intent(NOBODY, 0, batches, 0, bytes(8), b"another1", 1, GIVEN_UP)
    stage.put(replace(stage.entry(), version=stage.entry().version + 1, intent=intent))
    stage.sequencer = stage.new_sequencer()
    return stage, client


@pytest.mark.parametrize("hands_over", [False, True])
def test_what_takes_the_place_of_what_was_given_up_ends_that_in_the_new_way_as_in_the_old(hands_over: bool) -> None:
    """R17: the batch behind is a new one, too."""
    stage, client = with_two_given_up()
    if hands_over:
        ModernLeader(stage)
    codes = []
    for sequence in (1, 2, 3):
        request = stage.send(client, sequence)
        stage.run(5)
        codes.append(request.code)
    assert codes == [0, 0, 0]


@pytest.mark.parametrize("what", ["another proxy raises the version", "Redis is away, and the proxy dies"])
def test_that_is_written_before_it_leaves(what: str) -> None:
    """Nobody would do it later."""
    stage, client = with_two_given_up()
    leader = ModernLeader(stage)

    def meanwhile(_effect: Append) -> None:
        stage.on_append = lambda _effect: None
        if what.startswith("another"):
            stage.put(replace(stage.entry(), version=stage.entry().version + 1))
        else:
            stage.store_away = True

    stage.on_append = meanwhile
    anew = stage.send(client, 1)
    stage.run(5)
    assert (anew.code, leader.taken) == (0, [1])
    if stage.store_away:
        stage.die()
        stage.store_away, stage.leader = False, 1
        ModernLeader(stage).taken += leader.taken
        client = Client()
    behind = stage.send(client, 2)
    stage.run(5)
    assert behind.code == 0, behind.message


def test_what_another_proxy_has_released_since_is_not_told_from_memory() -> None:
    """A group of two was given up here; its client went to another proxy, used the first number anew there, and comes
    back with the next one."""
    stage, client = a_producer_that_has_sent(1)

    def lost_and_like_another(effect: Append) -> Outcome:
        foreign(stage, b"old 2")
        return InDoubt("lost", effect.broker_id)

    stage.swap_seconds = 0.01  # so that two wait, and are one group
    stage.outcomes += [stage.succeeds, lost_and_like_another]
    stage.send(client, 1)
    lost = [stage.send(client, sequence, b"old %d" % sequence) for sequence in (2, 3)]
    stage.run(60)
    assert [request.code for request in lost] == [INVALID_RECORD] * 2
    assert stage.entry().intent is not None
    leader = ModernLeader(stage)
    here, stage.sequencer = stage.sequencer, stage.new_sequencer()
    anew = stage.send(Client(), 2)
    stage.run(5)
    assert (anew.code, stage.entry().intent, leader.taken) == (0, None, [2])
    stage.sequencer = here
    back = stage.send(Client(), 3)
    stage.run(5)
    assert (back.code, leader.taken) == (0, [2, 3]), back.message


@pytest.mark.parametrize("moves", ["before it comes", "while the leader is asked"])
@pytest.mark.parametrize("has_new_id", [False, True])
def test_the_newest_instance_of_a_name_is_looked_up_right_before_a_batch_leaves(has_new_id: bool, moves: str) -> None:
    """R22: nothing is reserved here that compares it."""
    stage, client = Stage(producer_id=NAMED_ID), Client()
    key = name_key(CLUSTER, "orders-1")
    stage.values[block_key(CLUSTER, NAMED_ID)] = pack_block(GENERATION, 0, client.principal, "orders-1")
    stage.values[key] = pack_name(NameRecord(1, NAMED_ID, 5, GENERATION, client.principal))
    leader = ModernLeader(stage, NAMED_ID)
    first = stage.send(client, 0, epoch=5)
    stage.run(1)
    assert (first.code, leader.taken) == (0, [0])
    newest = (NAMED_ID + 1000, 0) if has_new_id else (NAMED_ID, 6)
    newer = pack_name(NameRecord(2, *newest, GENERATION, client.principal, last_id=NAMED_ID))
    if moves == "before it comes":
        stage.values[key] = newer
    else:
        stage.sequencer = stage.new_sequencer()
        stage.before[Ask] = lambda _effect: stage.values.update({key: newer})
    late = stage.send(client, 1, epoch=5)
    stage.run(5)
    assert (late.code, leader.taken) == (FENCED, [0])
