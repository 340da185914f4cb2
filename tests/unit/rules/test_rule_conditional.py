"""Rule R23 in the shortest scenes in which exactly it matters: batches that say at which offset they have to be."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from mutants.scenes import dies_after, foreign, takes_no_more_than, unclean_election

from idemproxy.proxy.events import ShardFenced
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.producer import answers
from idemproxy.state.conditional import is_fenced
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.inspection import forgotten
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.stage.sequencer import NEXT_GENERATION, Client, Request, Stage

CONFLICT, DISPLACED, SHARD_FENCED, TOO_LARGE, HELD_BACK = 45, 87, 17, 10, 19
SECONDS_MAX = 30.0


class Shard(Stage):
    """A proxy process that works for the writers of one shard."""

    def __init__(self) -> None:
        super().__init__(producer_id=CONDITIONAL_ID)
        self.client = Client()

    def publish(self, expected: int, *values: bytes, client: Client | None = None) -> Request:
        """One batch, until it has its answer."""
        request = self.send(client or self.client, expected, *(values or (b"at %d" % expected,)))
        self.run(SECONDS_MAX, until=lambda: request.code is not None)
        assert request.code is not None, "no answer"
        return request

    def outcome(self, expected: int, *values: bytes) -> tuple[int | None, int]:
        """The code, and the offset: where it lies, or which one is next."""
        answer = self.publish(expected, *values).answers[0]
        return answer.error_code, answer.base_offset if answer.error_code == 0 else answer.next_offset

    def fences(self) -> list[tuple[int, int]]:
        return [(one.expected_end, one.end_offset) for one in self.events if isinstance(one, ShardFenced)]


@pytest.fixture
def shard() -> Shard:
    return Shard()


def test_a_shard_begins_where_its_log_ends(shard: Shard) -> None:
    foreign(shard, b"first", b"second")
    assert shard.outcome(0) == (CONFLICT, 2)
    assert shard.outcome(3) == (CONFLICT, 2)
    assert shard.outcome(2) == (0, 2)
    assert shard.outcome(3, b"a", b"b") == (0, 3)
    assert shard.outcome(5) == (0, 5)


def test_an_entry_that_is_lost_begins_at_the_end_of_the_log_once_more(shard: Shard) -> None:
    assert shard.outcome(0, b"a", b"b") == (0, 0)
    shard.run(1)
    del shard.values[shard.key]
    shard.begin_era()
    assert shard.outcome(0, b"c") == (CONFLICT, 2)
    assert shard.outcome(2) == (0, 2)
    assert shard.entry().generation == NEXT_GENERATION


def test_what_lies_at_the_offset_is_compared_by_its_content(shard: Shard) -> None:
    assert [shard.outcome(expected)[0] for expected in range(8)] == [0] * 8
    assert shard.outcome(7, b"another") == (CONFLICT, 8)
    assert shard.outcome(0, b"another") == (CONFLICT, 8)
    assert shard.outcome(7, b"at 7") == (0, 7)
    assert shard.outcome(0, b"at 0") == (0, 0)
    assert shard.outcome(2, b"at 2", b"at 3") == (CONFLICT, 8), "the same records, in two batches"
    assert len(shard.stored_values()) == 8


def test_a_batch_across_the_end_of_the_log_is_not_gone_on_with(shard: Shard) -> None:
    assert shard.outcome(0, b"a") == (0, 0)
    assert shard.outcome(0, b"a", b"b") == (CONFLICT, 1)
    assert shard.stored_values() == [b"a"]


def test_who_writes_past_the_rules_fences_the_shard(shard: Shard) -> None:
    assert shard.outcome(0) == (0, 0)
    foreign(shard, b"foreign")
    displaced = shard.publish(1)
    assert displaced.code == DISPLACED
    assert "in the log at offset 2, and was to be at 1" in (displaced.answers[0].message or "")
    assert shard.fences() == [(2, 3)]
    assert [shard.publish(expected, b"late").code for expected in (1, 2, 3)] == [SHARD_FENCED] * 3
    assert shard.publish(1).code == DISPLACED, "the batch that lies there itself"
    assert shard.stored_values() == [b"at 0", b"foreign", b"at 1"]


def test_who_has_read_what_was_written_past_the_rules_learns_that_the_shard_is_fenced(shard: Shard) -> None:
    """Nothing is appended to find out."""
    assert shard.outcome(0) == (0, 0)
    foreign(shard, b"foreign")
    assert shard.publish(2).code == SHARD_FENCED
    assert shard.fences() == [(1, 2)]
    assert shard.publish(1).code == SHARD_FENCED
    assert shard.outcome(0) == (0, 0), "a batch that lies where it was to is one still"
    assert shard.stored_values() == [b"at 0", b"foreign"]


@pytest.mark.promise("conditional")
def test_a_log_that_has_lost_records_fences_the_shard(shard: Shard) -> None:
    assert [shard.outcome(expected)[0] for expected in range(3)] == [0] * 3
    unclean_election(shard, b"another log")
    assert shard.publish(3).code == DISPLACED
    assert shard.publish(4).code == SHARD_FENCED


def test_who_has_read_where_a_log_that_has_lost_records_ends_learns_that_the_shard_is_fenced(shard: Shard) -> None:
    assert [shard.outcome(expected)[0] for expected in range(3)] == [0] * 3
    unclean_election(shard, b"another log")
    assert shard.publish(1, b"anew").code == SHARD_FENCED
    assert shard.fences() == [(3, 1)]
    assert shard.stored_values() == [b"another log"]


def test_a_new_life_of_redis_does_not_hide_that_records_are_lost(shard: Shard) -> None:
    assert [shard.outcome(expected)[0] for expected in range(3)] == [0] * 3
    shard.run(1)
    unclean_election(shard, b"another log")
    shard.begin_era()
    assert shard.publish(1, b"anew").code == SHARD_FENCED
    assert shard.fences() == [(3, 1)]


def test_a_fence_is_written_before_it_is_told_and_outlives_the_proxy_and_redis(shard: Shard) -> None:
    assert shard.outcome(0) == (0, 0)
    foreign(shard, b"foreign")
    assert shard.publish(1).code == DISPLACED
    assert is_fenced(shard.entry())
    shard.die()
    assert shard.publish(3).code == SHARD_FENCED
    shard.begin_era()
    assert shard.publish(3).code == SHARD_FENCED


def test_a_fence_that_an_operator_has_lifted_is_not_told_from_memory(shard: Shard) -> None:
    assert shard.outcome(0) == (0, 0)
    foreign(shard, b"foreign")
    assert shard.publish(1).code == DISPLACED
    shard.put(forgotten(shard.values[shard.key], now_us=0))
    assert shard.outcome(2) == (CONFLICT, 3)
    assert shard.outcome(3) == (0, 3)


@pytest.mark.promise("conditional")
def test_what_is_found_elsewhere_after_a_lost_answer_fences_the_shard(shard: Shard) -> None:
    assert shard.outcome(0) == (0, 0)
    foreign(shard, b"foreign")
    shard.outcomes.append(shard.loses_answer)
    assert shard.publish(1).code == DISPLACED
    assert shard.fences() == [(2, 3)]


def test_what_a_dead_proxy_has_left_elsewhere_fences_the_shard(shard: Shard) -> None:
    assert shard.outcome(0) == (0, 0)
    foreign(shard, b"foreign")

    shard.outcomes.append(dies_after(shard, shard.succeeds))
    shard.send(shard.client, 1, b"at 1")
    shard.run(1)
    shard.die()
    assert shard.publish(3).code == SHARD_FENCED
    assert shard.fences() == [(2, 3)]


def test_what_lies_elsewhere_is_found_when_redis_has_lost_its_commit(shard: Shard) -> None:
    assert shard.outcome(0) == (0, 0)
    shard.run(1)
    before = shard.values[shard.key]
    foreign(shard, b"foreign")
    assert shard.publish(1).code == DISPLACED
    shard.values[shard.key] = before
    shard.die()
    shard.begin_era()
    assert shard.publish(3).code == SHARD_FENCED
    assert shard.publish(1).code == DISPLACED, "it is in the log, elsewhere"


def test_what_lies_elsewhere_is_found_though_redis_has_lost_the_fence(shard: Shard) -> None:
    """No proxy knows of the fence any more, so the shard begins where the log ends."""
    assert shard.outcome(0) == (0, 0)
    foreign(shard, b"foreign", b"another")
    shard.outcomes.append(shard.loses_answer)
    assert shard.publish(1).code == DISPLACED
    shard.die()
    del shard.values[shard.key]
    shard.begin_era()
    assert shard.outcome(4) == (0, 4)
    again = shard.publish(1)
    assert (again.code, again.answers[0].base_offset) == (DISPLACED, 3)
    assert [shard.outcome(at, b"of another writer") for at in (1, 2, 3, 4)] == [(CONFLICT, 5)] * 4
    assert shard.outcome(4) == (0, 4)


def test_each_batch_of_a_pipeline_that_lies_elsewhere_is_told_where(shard: Shard) -> None:
    assert shard.outcome(0) == (0, 0)
    shard.run(1)
    before, shard.swap_seconds, writer = shard.values[shard.key], 0.01, Client()

    def somebody_writes(_effect: Append) -> None:
        shard.before.clear()
        foreign(shard, b"foreign")

    shard.before[Append] = somebody_writes
    shard.outcomes.append(dies_after(shard, shard.succeeds))
    shard.send(Client(), 9)  # it is worked on while the others come
    for at in (1, 2, 3):
        shard.send(writer, at, b"at %d" % at, follows=at > 1)
    shard.run(1)
    assert shard.stored_values() == [b"at 0", b"foreign", b"at 1", b"at 2", b"at 3"]
    shard.values[shard.key] = before
    shard.die()
    shard.begin_era()
    again = [shard.publish(at, b"at %d" % at, client=writer) for at in (1, 2, 3)]
    assert [(one.code, one.answers[0].base_offset) for one in again] == [(DISPLACED, at) for at in (2, 3, 4)]
    assert shard.fences() == [(4, 5)]
    assert [shard.publish(at, b"late").code for at in (1, 2, 3, 4)] == [SHARD_FENCED] * 4


def test_the_reading_ends_where_a_batch_lies_where_it_was_to_be(shard: Shard) -> None:
    """However long the log is behind that: two honest writers are all that a conflict mostly has."""
    for at in range(6):
        assert shard.outcome(at, Random(at).randbytes(600_000)) == (0, at)
    shard.run(1)
    shard.log_seconds = 20.0
    late = shard.send(shard.client, 0, b"late")
    shard.run(45.0, until=lambda: late.code is not None)  # one reading to find it, one to compare it
    assert late.code == CONFLICT


def test_a_long_reading_of_what_was_there_before_the_shard_is_gone_on_with(shard: Shard) -> None:
    foreign(shard, *(Random(at).randbytes(600_000) for at in range(9)))
    assert shard.outcome(9) == (0, 9)
    shard.log_seconds = 20.0
    tries: list[Request] = []
    while not tries or tries[-1].code not in (None, CONFLICT):
        tries.append(shard.send(Client(), 0, b"late"))
        shard.run(200.0, until=lambda: tries[-1].code is not None)
        assert len(tries) < 9
    assert tries[-1].code == CONFLICT


def test_what_another_proxy_has_appended_is_neither_a_conflict_nor_foreign(shard: Shard) -> None:
    """Another proxy has appended, of which this one knows nothing yet."""
    assert shard.outcome(0) == (0, 0)
    shard.run(1)
    foreign(shard, b"of another proxy")
    entry = shard.entry()
    shard.put(replace(entry, version=entry.version + 1, next_sequence=2, end_offset=2))
    assert shard.outcome(2) == (0, 2)


def test_a_batch_is_appended_as_a_whole_or_not_at_all(shard: Shard) -> None:
    takes_no_more_than(shard, 2000)
    assert shard.publish(0, *(Random(number).randbytes(500) for number in range(9))).code == TOO_LARGE
    assert shard.stored_values() == []
    assert shard.outcome(0) == (0, 0)


def test_when_nobody_can_tell_the_log_is_asked_where_it_ends(shard: Shard) -> None:
    """A record of the same content, without a marker: whose it is cannot be said. The shard goes on."""
    assert shard.outcome(0) == (0, 0)
    shard.outcomes.append(shard.loses_request)

    def somebody_writes(_effect: Append) -> None:
        shard.before.clear()
        foreign(shard, b"at 1")

    shard.before[Append] = somebody_writes
    assert shard.publish(1).code == DISPLACED, "undecidable"
    intent = shard.entry().intent
    assert intent is None or not intent.is_given_up
    assert shard.outcome(2) == (0, 2)


def test_refusals_are_told_while_an_earlier_batch_is_to_be_sent_again(shard: Shard) -> None:
    assert shard.outcome(0) == (0, 0)
    shard.client.retry_notes.note((CONDITIONAL_ID, "topic", 0), BatchIdentity(0, 1, 1), True, True, 1)
    assert shard.outcome(5) == (CONFLICT, 1)


def test_a_batch_that_a_shorter_log_has_lost_is_told_so_however_long_the_log_is(shard: Shard) -> None:
    """Its first try was committed and its answer did not arrive. The log ends before it: nothing has to be read."""
    for at in range(6):
        assert shard.outcome(at, Random(at).randbytes(600_000)) == (0, at)
    shard.run(1)
    shard.log.truncate(4, unclean=True)
    shard.log_seconds = 20.0
    tries = []
    for _ in range(4):
        tries.append(shard.send(Client(), 5, Random(5).randbytes(600_000)))
        shard.run(200.0, until=lambda: tries[-1].code is not None)
    assert [one.code for one in tries] == [SHARD_FENCED] * 4


def test_who_is_late_is_told_while_another_writer_always_has_a_batch_that_is_due(shard: Shard) -> None:
    """That one sends its next batch while one is out, as clients do that have several under way."""
    shard.swap_seconds = 0.01
    busy = Client()
    due = [1]

    def sends_the_next(_effect: Append) -> None:
        shard.send(busy, due[0])
        due[0] += 1

    assert shard.outcome(0) == (0, 0)
    shard.on_append = sends_the_next
    shard.send(busy, due[0])
    due[0] += 1
    shard.run(1)
    late = shard.send(Client(), 0, b"another")
    shard.run(20.0, until=lambda: late.code is not None)
    assert late.code == CONFLICT, due


# ---------------------------------------------------------------------- pipelines
def codes(shard: Shard, *requests: Request) -> list[int | None]:
    """The codes of all, once they have them."""
    shard.run(SECONDS_MAX, until=lambda: all(one.code is not None for one in requests))
    return [one.code for one in requests]


@pytest.mark.parametrize("says_so", [True, False])
def test_what_a_writer_has_in_flight_behind_a_conflict_is_refused_with_it(shard: Shard, says_so: bool) -> None:
    assert shard.outcome(0, b"of another writer") == (0, 0)
    shard.run(1)
    shard.swap_seconds, writer = 0.01, Client()
    pipeline = [shard.send(writer, expected, follows=says_so and expected > 0) for expected in range(5)]
    assert codes(shard, *pipeline) == [CONFLICT] * 5
    assert [one.answers[0].next_offset for one in pipeline] == [1] * 5
    assert shard.stored_values() == [b"of another writer"]


def test_a_batch_that_comes_after_the_conflict_of_the_one_it_follows_is_refused(shard: Shard) -> None:
    """It was on its way when the conflict was told."""
    assert shard.outcome(0, b"of another writer") == (0, 0)
    assert shard.outcome(0) == (CONFLICT, 1)
    assert codes(shard, shard.send(shard.client, 1, follows=True)) == [CONFLICT]
    assert codes(shard, shard.send(shard.client, 2, follows=True)) == [CONFLICT]
    assert shard.outcome(1, b"fresh") == (0, 1), "what its client sends for the offset that it was told"
    assert codes(shard, shard.send(shard.client, 2, b"behind it", follows=True)) == [0]


def test_what_a_writer_sends_for_the_offset_that_a_conflict_told_begins_a_pipeline(shard: Shard) -> None:
    """It begins where the refused batch would have ended."""
    assert shard.outcome(0, b"of another writer") == (0, 0)
    assert shard.outcome(0) == (CONFLICT, 1)
    assert shard.outcome(1, b"fresh") == (0, 1)


def test_a_pipeline_is_appended_as_it_comes(shard: Shard) -> None:
    pipeline = [shard.send(shard.client, expected, follows=expected > 0) for expected in range(9)]
    assert codes(shard, *pipeline) == [0] * 9
    assert codes(shard, shard.send(Client(), 9, follows=True)) == [0], "over its next connection"


def test_a_batch_is_held_back_behind_one_that_is_to_be_sent_again(shard: Shard) -> None:
    assert shard.outcome(0) == (0, 0)
    shard.run(1)
    shard.swap_seconds, writer = 0.01, Client()
    shard.outcomes.append(shard.loses_request)
    first = shard.send(writer, 1, b"first")
    shard.run(0.05)
    first.answer(answers.in_doubt("the outcome is not known yet"))
    second = shard.send(writer, 2, b"second", follows=True)
    assert codes(shard, shard.send(Client(), 1, b"of another writer"), second) == [0, HELD_BACK]
    assert (
        codes(shard, shard.send(writer, 1, b"first"), shard.send(writer, 2, b"second", follows=True)) == [CONFLICT] * 2
    )


def test_the_first_of_a_pipeline_is_answered_before_one_that_is_due(shard: Shard) -> None:
    assert shard.outcome(0, b"of another writer") == (0, 0)
    shard.run(1)
    shard.swap_seconds, writer = 0.01, Client()
    early = [shard.send(Client(), expected) for expected in (8, 9)]  # one is worked on while the others come
    pipeline = [shard.send(writer, expected, follows=expected > 0) for expected in range(2)]
    assert codes(shard, *early, *pipeline) == [CONFLICT] * 4


def test_a_batch_leaves_only_behind_the_one_that_it_follows(shard: Shard) -> None:
    """Another batch of the same connection ends where it begins."""
    assert shard.outcome(0, b"of another writer") == (0, 0)
    shard.run(1)
    shard.swap_seconds, writer = 0.01, Client()
    shard.send(Client(), 9)  # it is worked on while the others come
    failing = shard.send(writer, 0, b"a", b"b")
    behind_it = shard.send(writer, 2, b"c", follows=True)
    fresh = shard.send(writer, 1, b"fresh")
    assert codes(shard, failing, behind_it, fresh) == [CONFLICT, CONFLICT, 0]
    assert shard.stored_values() == [b"of another writer", b"fresh"]


def test_batches_that_say_to_be_behind_each_other_end_as_well(shard: Shard) -> None:
    """Record counts of half the sequences each: nobody looks at the records before their turn."""
    assert shard.outcome(0) == (0, 0)
    shard.run(1)
    shard.swap_seconds, writer = 0.01, Client()
    early = shard.send(Client(), 9)  # it is worked on while the others come
    circle = [shard.send(writer, at, b"a", count=2**30, follows=True) for at in (1, 1 + 2**30, 1)]
    assert None not in codes(shard, early, *circle)
    assert shard.failures() == []


def test_a_batch_follows_the_one_before_it_whatever_came_between(shard: Shard) -> None:
    """The first of three batches comes once more after the second one has failed, and before the third."""
    assert shard.outcome(0) == (0, 0)
    shard.run(1)
    writer = Client()
    assert codes(shard, shard.send(writer, 1, b"first")) == [0]
    shard.swap_seconds = 0.01
    shard.send(Client(), 9)  # it is worked on while the second one comes
    second = shard.send(writer, 2, b"second", follows=True)
    second.answer(answers.in_doubt("the outcome is not known yet"))
    assert codes(shard, shard.send(writer, 1, b"first")) == [0]
    assert codes(shard, shard.send(Client(), 2, b"of another writer")) == [0]
    assert codes(shard, shard.send(writer, 3, b"third", follows=True)) == [HELD_BACK]
    assert shard.stored_values() == [b"at 0", b"first", b"of another writer"]


def test_a_batch_is_held_back_once_behind_one_that_got_through_over_another_connection(shard: Shard) -> None:
    assert shard.outcome(0) == (0, 0)
    shard.run(1)
    shard.swap_seconds, writer = 0.01, Client()
    shard.send(Client(), 9)  # it is worked on while the first one comes
    first = shard.send(writer, 1, b"first")
    first.answer(answers.in_doubt("the outcome is not known yet"))
    assert codes(shard, shard.send(Client(), 1, b"first")) == [0]
    assert codes(shard, shard.send(writer, 2, b"second", follows=True)) == [HELD_BACK]
    assert codes(shard, shard.send(writer, 2, b"second", follows=True)) == [0]
