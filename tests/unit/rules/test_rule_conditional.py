"""Rule R23 in the shortest scenes in which exactly it matters: batches that say at which offset they have to be."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from mutants.scenes import dies_after, foreign, takes_no_more_than, unclean_election

from idemproxy.proxy.events import ConditionalPartitionFenced
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.producer import answers
from idemproxy.state.conditional import is_fenced
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.inspection import forgotten
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.stage.sequencer import NEXT_DATA_GENERATION, Client, Request, Stage

CONFLICT, DISPLACED, PARTITION_FENCED, TOO_LARGE, HELD_BACK = 45, 87, 17, 10, 19
SECONDS_MAX = 30.0


class ConditionalPartition(Stage):
    """A proxy process that works for the writers of one conditional partition."""

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
        return [
            (one.expected_end, one.end_offset) for one in self.events if isinstance(one, ConditionalPartitionFenced)
        ]


@pytest.fixture
def conditional_partition() -> ConditionalPartition:
    return ConditionalPartition()


def test_a_conditional_partition_begins_where_its_log_ends(conditional_partition: ConditionalPartition) -> None:
    foreign(conditional_partition, b"first", b"second")
    assert conditional_partition.outcome(0) == (CONFLICT, 2)
    assert conditional_partition.outcome(3) == (CONFLICT, 2)
    assert conditional_partition.outcome(2) == (0, 2)
    assert conditional_partition.outcome(3, b"a", b"b") == (0, 3)
    assert conditional_partition.outcome(5) == (0, 5)


def test_an_entry_that_is_lost_begins_at_the_end_of_the_log_once_more(
    conditional_partition: ConditionalPartition,
) -> None:
    assert conditional_partition.outcome(0, b"a", b"b") == (0, 0)
    conditional_partition.run(1)
    del conditional_partition.values[conditional_partition.key]
    conditional_partition.begin_lease_epoch()
    assert conditional_partition.outcome(0, b"c") == (CONFLICT, 2)
    assert conditional_partition.outcome(2) == (0, 2)
    assert conditional_partition.entry().data_generation == NEXT_DATA_GENERATION


def test_what_lies_at_the_offset_is_compared_by_its_content(conditional_partition: ConditionalPartition) -> None:
    assert [conditional_partition.outcome(expected)[0] for expected in range(8)] == [0] * 8
    assert conditional_partition.outcome(7, b"another") == (CONFLICT, 8)
    assert conditional_partition.outcome(0, b"another") == (CONFLICT, 8)
    assert conditional_partition.outcome(7, b"at 7") == (0, 7)
    assert conditional_partition.outcome(0, b"at 0") == (0, 0)
    assert conditional_partition.outcome(2, b"at 2", b"at 3") == (CONFLICT, 8), "the same records, in two batches"
    assert len(conditional_partition.stored_values()) == 8


def test_a_batch_across_the_end_of_the_log_is_not_gone_on_with(conditional_partition: ConditionalPartition) -> None:
    assert conditional_partition.outcome(0, b"a") == (0, 0)
    assert conditional_partition.outcome(0, b"a", b"b") == (CONFLICT, 1)
    assert conditional_partition.stored_values() == [b"a"]


def test_who_writes_past_the_rules_fences_the_conditional_partition(
    conditional_partition: ConditionalPartition,
) -> None:
    assert conditional_partition.outcome(0) == (0, 0)
    foreign(conditional_partition, b"foreign")
    displaced = conditional_partition.publish(1)
    assert displaced.code == DISPLACED
    assert "in the log at offset 2, and was to be at 1" in (displaced.answers[0].message or "")
    assert conditional_partition.fences() == [(2, 3)]
    assert [conditional_partition.publish(expected, b"late").code for expected in (1, 2, 3)] == [PARTITION_FENCED] * 3
    assert conditional_partition.publish(1).code == DISPLACED, "the batch that lies there itself"
    assert conditional_partition.stored_values() == [b"at 0", b"foreign", b"at 1"]


def test_a_writer_that_read_foreign_records_learns_of_the_fence(
    conditional_partition: ConditionalPartition,
) -> None:
    """Nothing is appended to find out."""
    assert conditional_partition.outcome(0) == (0, 0)
    foreign(conditional_partition, b"foreign")
    assert conditional_partition.publish(2).code == PARTITION_FENCED
    assert conditional_partition.fences() == [(1, 2)]
    assert conditional_partition.publish(1).code == PARTITION_FENCED
    assert conditional_partition.outcome(0) == (0, 0), "a batch that lies where it was to is one still"
    assert conditional_partition.stored_values() == [b"at 0", b"foreign"]


@pytest.mark.promise("conditional")
def test_a_log_that_has_lost_records_fences_the_conditional_partition(
    conditional_partition: ConditionalPartition,
) -> None:
    assert [conditional_partition.outcome(expected)[0] for expected in range(3)] == [0] * 3
    unclean_election(conditional_partition, b"another log")
    assert conditional_partition.publish(3).code == DISPLACED
    assert conditional_partition.publish(4).code == PARTITION_FENCED


def test_a_writer_that_read_a_shortened_log_learns_of_the_fence(
    conditional_partition: ConditionalPartition,
) -> None:
    assert [conditional_partition.outcome(expected)[0] for expected in range(3)] == [0] * 3
    unclean_election(conditional_partition, b"another log")
    assert conditional_partition.publish(1, b"anew").code == PARTITION_FENCED
    assert conditional_partition.fences() == [(3, 1)]
    assert conditional_partition.stored_values() == [b"another log"]


def test_a_new_data_generation_does_not_hide_that_records_are_lost(conditional_partition: ConditionalPartition) -> None:
    assert [conditional_partition.outcome(expected)[0] for expected in range(3)] == [0] * 3
    conditional_partition.run(1)
    unclean_election(conditional_partition, b"another log")
    conditional_partition.begin_lease_epoch()
    assert conditional_partition.publish(1, b"anew").code == PARTITION_FENCED
    assert conditional_partition.fences() == [(3, 1)]


def test_a_fence_is_written_before_its_answer_and_outlives_proxy_and_redis(
    conditional_partition: ConditionalPartition,
) -> None:
    assert conditional_partition.outcome(0) == (0, 0)
    foreign(conditional_partition, b"foreign")
    assert conditional_partition.publish(1).code == DISPLACED
    assert is_fenced(conditional_partition.entry())
    conditional_partition.die()
    assert conditional_partition.publish(3).code == PARTITION_FENCED
    conditional_partition.begin_lease_epoch()
    assert conditional_partition.publish(3).code == PARTITION_FENCED


def test_a_fence_that_an_operator_lifted_is_not_kept_in_memory(
    conditional_partition: ConditionalPartition,
) -> None:
    assert conditional_partition.outcome(0) == (0, 0)
    foreign(conditional_partition, b"foreign")
    assert conditional_partition.publish(1).code == DISPLACED
    conditional_partition.put(forgotten(conditional_partition.values[conditional_partition.key], now_us=0))
    assert conditional_partition.outcome(2) == (CONFLICT, 3)
    assert conditional_partition.outcome(3) == (0, 3)


@pytest.mark.promise("conditional")
def test_what_is_found_elsewhere_after_a_lost_answer_fences_the_conditional_partition(
    conditional_partition: ConditionalPartition,
) -> None:
    assert conditional_partition.outcome(0) == (0, 0)
    foreign(conditional_partition, b"foreign")
    conditional_partition.outcomes.append(conditional_partition.loses_answer)
    assert conditional_partition.publish(1).code == DISPLACED
    assert conditional_partition.fences() == [(2, 3)]


def test_what_a_dead_proxy_has_left_elsewhere_fences_the_conditional_partition(
    conditional_partition: ConditionalPartition,
) -> None:
    assert conditional_partition.outcome(0) == (0, 0)
    foreign(conditional_partition, b"foreign")

    conditional_partition.outcomes.append(dies_after(conditional_partition, conditional_partition.succeeds))
    conditional_partition.send(conditional_partition.client, 1, b"at 1")
    conditional_partition.run(1)
    conditional_partition.die()
    assert conditional_partition.publish(3).code == PARTITION_FENCED
    assert conditional_partition.fences() == [(2, 3)]


def test_what_lies_elsewhere_is_found_when_redis_has_lost_its_commit(
    conditional_partition: ConditionalPartition,
) -> None:
    assert conditional_partition.outcome(0) == (0, 0)
    conditional_partition.run(1)
    before = conditional_partition.values[conditional_partition.key]
    foreign(conditional_partition, b"foreign")
    assert conditional_partition.publish(1).code == DISPLACED
    conditional_partition.values[conditional_partition.key] = before
    conditional_partition.die()
    conditional_partition.begin_lease_epoch()
    assert conditional_partition.publish(3).code == PARTITION_FENCED
    assert conditional_partition.publish(1).code == DISPLACED, "it is in the log, elsewhere"


def test_what_lies_elsewhere_is_found_though_redis_has_lost_the_fence(
    conditional_partition: ConditionalPartition,
) -> None:
    """No proxy knows of the fence any more, so the conditional partition begins where the log ends."""
    assert conditional_partition.outcome(0) == (0, 0)
    foreign(conditional_partition, b"foreign", b"another")
    conditional_partition.outcomes.append(conditional_partition.loses_answer)
    assert conditional_partition.publish(1).code == DISPLACED
    conditional_partition.die()
    del conditional_partition.values[conditional_partition.key]
    conditional_partition.begin_lease_epoch()
    assert conditional_partition.outcome(4) == (0, 4)
    again = conditional_partition.publish(1)
    assert (again.code, again.answers[0].base_offset) == (DISPLACED, 3)
    assert [conditional_partition.outcome(at, b"of another writer") for at in (1, 2, 3, 4)] == [(CONFLICT, 5)] * 4
    assert conditional_partition.outcome(4) == (0, 4)


def test_each_batch_of_a_pipeline_stored_elsewhere_gets_its_offset(
    conditional_partition: ConditionalPartition,
) -> None:
    assert conditional_partition.outcome(0) == (0, 0)
    conditional_partition.run(1)
    before, conditional_partition.swap_seconds, writer = (
        conditional_partition.values[conditional_partition.key],
        0.01,
        Client(),
    )

    def somebody_writes(_effect: Append) -> None:
        conditional_partition.before.clear()
        foreign(conditional_partition, b"foreign")

    conditional_partition.before[Append] = somebody_writes
    conditional_partition.outcomes.append(dies_after(conditional_partition, conditional_partition.succeeds))
    conditional_partition.send(Client(), 9)  # it is worked on while the others come
    for at in (1, 2, 3):
        conditional_partition.send(writer, at, b"at %d" % at, follows=at > 1)
    conditional_partition.run(1)
    assert conditional_partition.stored_values() == [b"at 0", b"foreign", b"at 1", b"at 2", b"at 3"]
    conditional_partition.values[conditional_partition.key] = before
    conditional_partition.die()
    conditional_partition.begin_lease_epoch()
    again = [conditional_partition.publish(at, b"at %d" % at, client=writer) for at in (1, 2, 3)]
    assert [(one.code, one.answers[0].base_offset) for one in again] == [(DISPLACED, at) for at in (2, 3, 4)]
    assert conditional_partition.fences() == [(4, 5)]
    assert [conditional_partition.publish(at, b"late").code for at in (1, 2, 3, 4)] == [PARTITION_FENCED] * 4


def test_the_reading_ends_where_a_batch_lies_where_it_was_to_be(conditional_partition: ConditionalPartition) -> None:
    """However long the log is after that: two honest writers are all that a conflict mostly has."""
    for at in range(6):
        assert conditional_partition.outcome(at, Random(at).randbytes(600_000)) == (0, at)
    conditional_partition.run(1)
    conditional_partition.log_seconds = 20.0
    late = conditional_partition.send(conditional_partition.client, 0, b"late")
    conditional_partition.run(45.0, until=lambda: late.code is not None)  # one reading to find it, one to compare it
    assert late.code == CONFLICT


def test_a_long_reading_of_earlier_records_is_resumed_by_the_next_try(
    conditional_partition: ConditionalPartition,
) -> None:
    foreign(conditional_partition, *(Random(at).randbytes(600_000) for at in range(9)))
    assert conditional_partition.outcome(9) == (0, 9)
    conditional_partition.log_seconds = 20.0
    tries: list[Request] = []
    while not tries or tries[-1].code not in (None, CONFLICT):
        tries.append(conditional_partition.send(Client(), 0, b"late"))
        conditional_partition.run(200.0, until=lambda: tries[-1].code is not None)
        assert len(tries) < 9
    assert tries[-1].code == CONFLICT


def test_what_another_proxy_has_appended_is_neither_a_conflict_nor_foreign(
    conditional_partition: ConditionalPartition,
) -> None:
    """Another proxy has appended, of which this one knows nothing yet."""
    assert conditional_partition.outcome(0) == (0, 0)
    conditional_partition.run(1)
    foreign(conditional_partition, b"of another proxy")
    entry = conditional_partition.entry()
    conditional_partition.put(replace(entry, version=entry.version + 1, next_sequence=2, end_offset=2))
    assert conditional_partition.outcome(2) == (0, 2)


def test_a_batch_is_appended_as_a_whole_or_not_at_all(conditional_partition: ConditionalPartition) -> None:
    takes_no_more_than(conditional_partition, 2000)
    assert conditional_partition.publish(0, *(Random(number).randbytes(500) for number in range(9))).code == TOO_LARGE
    assert conditional_partition.stored_values() == []
    assert conditional_partition.outcome(0) == (0, 0)


def test_when_nobody_can_tell_the_log_is_asked_where_it_ends(conditional_partition: ConditionalPartition) -> None:
    """A record of the same content, without a batch marker: whose it is cannot be said. The conditional partition
    takes the next batch."""
    assert conditional_partition.outcome(0) == (0, 0)
    conditional_partition.outcomes.append(conditional_partition.loses_request)

    def somebody_writes(_effect: Append) -> None:
        conditional_partition.before.clear()
        foreign(conditional_partition, b"at 1")

    conditional_partition.before[Append] = somebody_writes
    assert conditional_partition.publish(1).code == DISPLACED, "undecidable"
    intent = conditional_partition.entry().intent
    assert intent is None or not intent.is_unrecoverable
    assert conditional_partition.outcome(2) == (0, 2)


def test_conflicts_are_returned_while_an_earlier_batch_awaits_its_retry(
    conditional_partition: ConditionalPartition,
) -> None:
    assert conditional_partition.outcome(0) == (0, 0)
    conditional_partition.client.retry_notes.note((CONDITIONAL_ID, "topic", 0), BatchIdentity(0, 1, 1), True, True, 1)
    assert conditional_partition.outcome(5) == (CONFLICT, 1)


def test_a_batch_lost_by_a_shortened_log_is_fenced_without_reading_it(
    conditional_partition: ConditionalPartition,
) -> None:
    """Its first try was committed and its answer did not arrive. The log ends before it: nothing has to be read."""
    for at in range(6):
        assert conditional_partition.outcome(at, Random(at).randbytes(600_000)) == (0, at)
    conditional_partition.run(1)
    conditional_partition.log.truncate(4, unclean=True)
    conditional_partition.log_seconds = 20.0
    tries = []
    for _ in range(4):
        tries.append(conditional_partition.send(Client(), 5, Random(5).randbytes(600_000)))
        conditional_partition.run(200.0, until=lambda: tries[-1].code is not None)
    assert [one.code for one in tries] == [PARTITION_FENCED] * 4


def test_a_late_writer_gets_its_conflict_while_another_is_always_due(
    conditional_partition: ConditionalPartition,
) -> None:
    """That one sends its next batch while one is out, as clients do that have several under way."""
    conditional_partition.swap_seconds = 0.01
    busy = Client()
    due = [1]

    def sends_the_next(_effect: Append) -> None:
        conditional_partition.send(busy, due[0])
        due[0] += 1

    assert conditional_partition.outcome(0) == (0, 0)
    conditional_partition.on_append = sends_the_next
    conditional_partition.send(busy, due[0])
    due[0] += 1
    conditional_partition.run(1)
    late = conditional_partition.send(Client(), 0, b"another")
    conditional_partition.run(20.0, until=lambda: late.code is not None)
    assert late.code == CONFLICT, due


# ---------------------------------------------------------------------- pipelines
def codes(conditional_partition: ConditionalPartition, *requests: Request) -> list[int | None]:
    """The codes of all, once they have them."""
    conditional_partition.run(SECONDS_MAX, until=lambda: all(one.code is not None for one in requests))
    return [one.code for one in requests]


@pytest.mark.parametrize("says_so", [True, False])
def test_batches_in_flight_after_a_conflict_are_refused_with_it(
    conditional_partition: ConditionalPartition, says_so: bool
) -> None:
    assert conditional_partition.outcome(0, b"of another writer") == (0, 0)
    conditional_partition.run(1)
    conditional_partition.swap_seconds, writer = 0.01, Client()
    pipeline = [conditional_partition.send(writer, expected, follows=says_so and expected > 0) for expected in range(5)]
    assert codes(conditional_partition, *pipeline) == [CONFLICT] * 5
    assert [one.answers[0].next_offset for one in pipeline] == [1] * 5
    assert conditional_partition.stored_values() == [b"of another writer"]


def test_a_batch_that_comes_after_the_conflict_of_the_one_it_follows_is_refused(
    conditional_partition: ConditionalPartition,
) -> None:
    """It was on its way when the conflict was returned."""
    assert conditional_partition.outcome(0, b"of another writer") == (0, 0)
    assert conditional_partition.outcome(0) == (CONFLICT, 1)
    assert codes(conditional_partition, conditional_partition.send(conditional_partition.client, 1, follows=True)) == [
        CONFLICT
    ]
    assert codes(conditional_partition, conditional_partition.send(conditional_partition.client, 2, follows=True)) == [
        CONFLICT
    ]
    assert conditional_partition.outcome(1, b"fresh") == (0, 1), "what its client sends for the offset that it was told"
    assert codes(
        conditional_partition, conditional_partition.send(conditional_partition.client, 2, b"behind it", follows=True)
    ) == [0]


def test_a_batch_for_the_offset_that_a_conflict_returned_begins_a_pipeline(
    conditional_partition: ConditionalPartition,
) -> None:
    """It begins where the refused batch would have ended."""
    assert conditional_partition.outcome(0, b"of another writer") == (0, 0)
    assert conditional_partition.outcome(0) == (CONFLICT, 1)
    assert conditional_partition.outcome(1, b"fresh") == (0, 1)


def test_a_pipeline_is_appended_as_it_comes(conditional_partition: ConditionalPartition) -> None:
    pipeline = [
        conditional_partition.send(conditional_partition.client, expected, follows=expected > 0)
        for expected in range(9)
    ]
    assert codes(conditional_partition, *pipeline) == [0] * 9
    assert codes(conditional_partition, conditional_partition.send(Client(), 9, follows=True)) == [0], (
        "over its next connection"
    )


def test_a_batch_is_held_back_after_one_to_be_sent_again(conditional_partition: ConditionalPartition) -> None:
    assert conditional_partition.outcome(0) == (0, 0)
    conditional_partition.run(1)
    conditional_partition.swap_seconds, writer = 0.01, Client()
    conditional_partition.outcomes.append(conditional_partition.loses_request)
    first = conditional_partition.send(writer, 1, b"first")
    conditional_partition.run(0.05)
    first.answer(answers.in_doubt("the outcome is not known yet"))
    second = conditional_partition.send(writer, 2, b"second", follows=True)
    assert codes(conditional_partition, conditional_partition.send(Client(), 1, b"of another writer"), second) == [
        0,
        HELD_BACK,
    ]
    assert (
        codes(
            conditional_partition,
            conditional_partition.send(writer, 1, b"first"),
            conditional_partition.send(writer, 2, b"second", follows=True),
        )
        == [CONFLICT] * 2
    )


def test_the_first_of_a_pipeline_is_answered_before_one_that_is_due(
    conditional_partition: ConditionalPartition,
) -> None:
    assert conditional_partition.outcome(0, b"of another writer") == (0, 0)
    conditional_partition.run(1)
    conditional_partition.swap_seconds, writer = 0.01, Client()
    early = [
        conditional_partition.send(Client(), expected) for expected in (8, 9)
    ]  # one is worked on while the others come
    pipeline = [conditional_partition.send(writer, expected, follows=expected > 0) for expected in range(2)]
    assert codes(conditional_partition, *early, *pipeline) == [CONFLICT] * 4


def test_a_batch_leaves_only_after_the_one_that_it_follows(conditional_partition: ConditionalPartition) -> None:
    """Another batch of the same connection ends where it begins."""
    assert conditional_partition.outcome(0, b"of another writer") == (0, 0)
    conditional_partition.run(1)
    conditional_partition.swap_seconds, writer = 0.01, Client()
    conditional_partition.send(Client(), 9)  # it is worked on while the others come
    failing = conditional_partition.send(writer, 0, b"a", b"b")
    behind_it = conditional_partition.send(writer, 2, b"c", follows=True)
    fresh = conditional_partition.send(writer, 1, b"fresh")
    assert codes(conditional_partition, failing, behind_it, fresh) == [CONFLICT, CONFLICT, 0]
    assert conditional_partition.stored_values() == [b"of another writer", b"fresh"]


def test_batches_that_declare_to_follow_each_other_end_as_well(conditional_partition: ConditionalPartition) -> None:
    """Record counts of half the sequences each: nobody looks at the records before their turn."""
    assert conditional_partition.outcome(0) == (0, 0)
    conditional_partition.run(1)
    conditional_partition.swap_seconds, writer = 0.01, Client()
    early = conditional_partition.send(Client(), 9)  # it is worked on while the others come
    circle = [conditional_partition.send(writer, at, b"a", count=2**30, follows=True) for at in (1, 1 + 2**30, 1)]
    assert None not in codes(conditional_partition, early, *circle)
    assert conditional_partition.failures() == []


def test_a_batch_follows_the_one_before_it_whatever_came_between(conditional_partition: ConditionalPartition) -> None:
    """The first of three batches comes once more after the second one has failed, and before the third."""
    assert conditional_partition.outcome(0) == (0, 0)
    conditional_partition.run(1)
    writer = Client()
    assert codes(conditional_partition, conditional_partition.send(writer, 1, b"first")) == [0]
    conditional_partition.swap_seconds = 0.01
    conditional_partition.send(Client(), 9)  # it is worked on while the second one comes
    second = conditional_partition.send(writer, 2, b"second", follows=True)
    second.answer(answers.in_doubt("the outcome is not known yet"))
    assert codes(conditional_partition, conditional_partition.send(writer, 1, b"first")) == [0]
    assert codes(conditional_partition, conditional_partition.send(Client(), 2, b"of another writer")) == [0]
    assert codes(conditional_partition, conditional_partition.send(writer, 3, b"third", follows=True)) == [HELD_BACK]
    assert conditional_partition.stored_values() == [b"at 0", b"first", b"of another writer"]


def test_a_predecessor_stored_over_another_connection_holds_a_batch_back_once(
    conditional_partition: ConditionalPartition,
) -> None:
    assert conditional_partition.outcome(0) == (0, 0)
    conditional_partition.run(1)
    conditional_partition.swap_seconds, writer = 0.01, Client()
    conditional_partition.send(Client(), 9)  # it is worked on while the first one comes
    first = conditional_partition.send(writer, 1, b"first")
    first.answer(answers.in_doubt("the outcome is not known yet"))
    assert codes(conditional_partition, conditional_partition.send(Client(), 1, b"first")) == [0]
    assert codes(conditional_partition, conditional_partition.send(writer, 2, b"second", follows=True)) == [HELD_BACK]
    assert codes(conditional_partition, conditional_partition.send(writer, 2, b"second", follows=True)) == [0]
