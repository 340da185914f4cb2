"""What failed on a connection and comes again: what follows it is no gap (rule R11), and nothing else is held back."""

from random import Random

import pytest

from idemproxy.proxy.producer.answers import is_failure
from idemproxy.proxy.producer.retry_notes import NOTES_MAX, RetryNotes
from idemproxy.state.conditional import Ahead
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.producer_ids import CONDITIONAL_ID
from idemproxy.state.sequence import SEQUENCE_MODULUS

KEY = (7, "t", 0)
RETRIABLE, DUPLICATE, FINAL = 7, 46, 87


def batch(epoch: int, sequence: int) -> BatchIdentity:
    return BatchIdentity(epoch, sequence, 1)


def after(*answers: tuple[int, int, int]) -> RetryNotes:
    """The notes after requests with these answers (epoch, base sequence, error code)."""
    behind = RetryNotes()
    for epoch, sequence, error_code in answers:
        behind.note(
            KEY, batch(epoch, sequence), is_failure(error_code), error_code == RETRIABLE, behind.request_number()
        )
    return behind


def is_behind(notes: RetryNotes, identity: BatchIdentity, key: tuple[int, str, int] = KEY) -> bool:
    """Is a batch that comes now held back by one that failed before it?"""
    return notes.has_failed_before(key, identity, notes.request_number())


def test_what_follows_a_retriable_failure_is_held_back() -> None:
    behind = after((0, 5, RETRIABLE))
    assert is_behind(behind, batch(0, 6))
    assert not is_behind(behind, batch(0, 5))
    assert not is_behind(behind, batch(0, 4))
    assert not is_behind(behind, batch(0, 6), (7, "t", 1))


def test_sequences_wrap() -> None:
    behind = after((0, SEQUENCE_MODULUS - 1, RETRIABLE))
    assert is_behind(behind, batch(0, 0))
    assert not is_behind(behind, batch(0, SEQUENCE_MODULUS - 2))


def test_an_older_epochs_failure_holds_back_a_new_epoch_except_sequence_0() -> None:
    behind = after((0, 53, RETRIABLE))
    assert is_behind(behind, batch(1, 1))
    assert not is_behind(behind, batch(1, 0))


def test_a_newer_epochs_failure_does_not_hold_back_an_older_epoch() -> None:
    assert not is_behind(after((1, 0, RETRIABLE)), batch(0, 54))


def test_a_success_says_nothing_of_other_batches() -> None:
    """The lower one may be stored meanwhile, and its client not know of it: a refusal would make it a duplicate."""
    assert is_behind(after((0, 5, RETRIABLE), (0, 7, 0)), batch(0, 8))
    assert is_behind(after((0, 5, RETRIABLE), (0, 4, 0)), batch(0, 6))
    assert not is_behind(after((0, 5, RETRIABLE), (0, 5, 0)), batch(0, 6))


def test_of_a_partition_the_latest_notes_are_kept() -> None:
    behind = after(*((0, sequence, RETRIABLE) for sequence in range(NOTES_MAX + 1)))
    assert not is_behind(behind, batch(0, 1))
    assert is_behind(after(*((0, sequence, RETRIABLE) for sequence in range(NOTES_MAX))), batch(0, 100))


def test_requests_count_in_the_order_in_which_they_came() -> None:
    """The lower batch came again before the upper one did; its answer was the later one to be known."""
    behind = RetryNotes()
    lower, upper = behind.request_number(), behind.request_number()
    behind.note(KEY, batch(0, 5), True, True, lower)
    again = behind.request_number()
    behind.note(KEY, batch(0, 5), True, True, again)
    behind.note(KEY, batch(0, 6), True, True, upper)
    assert is_behind(behind, batch(0, 6))


def test_an_epochs_first_batch_failing_for_good_ends_the_older_epochs_notes() -> None:
    assert not is_behind(after((0, 53, RETRIABLE), (1, 0, FINAL)), batch(1, 1))
    assert is_behind(after((0, 53, RETRIABLE), (1, 3, FINAL)), batch(1, 1))


def test_a_batch_that_failed_for_good_holds_nothing_back() -> None:
    assert not is_behind(after((0, 5, RETRIABLE), (0, 5, FINAL)), batch(0, 6))


@pytest.mark.parametrize("code", [0, DUPLICATE, FINAL])
def test_an_answered_retry_still_holds_back_what_came_before_it(code: int) -> None:
    """Its answer leaves first: its client does not know the other one then."""
    notes = RetryNotes()
    first, upper, again = (notes.request_number() for _ in range(3))
    notes.note(KEY, batch(0, 5), True, True, first)
    notes.note(KEY, batch(0, 5), is_failure(code), False, again)
    assert notes.has_failed_before(KEY, batch(0, 6), upper)
    assert not is_behind(notes, batch(0, 6))
    assert not notes.has_failed_before(KEY, batch(1, 0), upper)
    assert not notes.has_failed_before((7, "t", 1), batch(0, 6), upper)


def test_of_several_that_came_again_the_last_request_counts() -> None:
    notes = RetryNotes()
    numbers = [notes.request_number() for _ in range(5)]
    for sequence in (5, 6):
        notes.note(KEY, batch(0, sequence), True, True, numbers[sequence - 5])
    notes.note(KEY, batch(0, 6), False, False, numbers[4])
    notes.note(KEY, batch(0, 5), False, False, numbers[3])
    assert notes.has_failed_before(KEY, batch(0, 7), numbers[3])


def test_a_batch_that_gets_through_later_leaves_nothing_of_one_that_came_again() -> None:
    notes = after((0, 5, RETRIABLE), (0, 5, 0))
    assert not notes.is_empty
    notes.note(KEY, batch(0, 6), False, False, notes.request_number())
    assert notes.is_empty


def test_what_came_again_is_forgotten_when_nothing_is_unanswered() -> None:
    """A note that is about requests without an answer, of a partition that has gone quiet."""
    notes = after((0, 5, RETRIABLE), (0, 6, RETRIABLE), (0, 5, 0))
    assert notes.count == 2
    notes.all_answered()
    assert (notes.count, notes.is_empty) == (1, False)
    assert is_behind(notes, batch(0, 7)), "6 comes yet"
    notes = after((0, 5, RETRIABLE), (0, 5, 0))
    notes.all_answered()
    assert (notes.count, notes.is_empty) == (0, True)


@pytest.mark.parametrize("seed", range(20))
def test_notes_are_counted_as_they_come_and_go(seed: int) -> None:
    random, notes = Random(seed), RetryNotes()
    for _ in range(400):
        key = (7, "t", random.randrange(3))
        code = random.choice([0, RETRIABLE, RETRIABLE, DUPLICATE, FINAL])
        notes.note(
            key,
            batch(random.randrange(3), random.randrange(20)),
            is_failure(code),
            code == RETRIABLE,
            notes.request_number() - random.randrange(3),
        )
        if not random.randrange(20):
            notes.all_answered()
        kept = sum(map(len, notes._failed.values())) + len(notes._ended) + len(notes._last)
        assert notes.count == kept
        assert notes.is_empty == (kept == 0)


def test_with_a_connection_its_notes_end_and_none_comes_later() -> None:
    notes = after((0, 5, RETRIABLE), (0, 6, FINAL))
    notes.hold(KEY, batch(0, 9))
    notes.end()
    notes.note(KEY, batch(0, 7), True, True, notes.request_number())
    assert (notes.count, notes.is_empty, notes._failed, notes._ended) == (0, True, {}, {})
    notes.let_go(KEY, batch(0, 9))
    assert not is_behind(notes, batch(0, 10))


def test_an_epoch_ends_with_a_failure_for_good() -> None:
    behind = after((3, 5, FINAL))
    assert behind.has_ended_older(KEY, 4)
    assert not behind.has_ended_older(KEY, 3)
    assert not after((3, 5, RETRIABLE)).has_ended_older(KEY, 4)


def test_a_batch_answered_with_duplicate_sequence_number_ends_nothing() -> None:
    behind = after((3, 5, DUPLICATE))
    assert behind.is_empty
    assert not behind.has_ended(KEY, 3)
    assert not is_behind(after((3, 5, RETRIABLE), (3, 5, DUPLICATE)), batch(3, 6))


def test_batches_ahead_of_a_new_epochs_first_one_are_held_back() -> None:
    """Its client has numbered again what a failure for good left unfinished; the first of it comes yet."""
    behind = after((0, 5, FINAL), (0, 6, FINAL))
    assert is_behind(behind, batch(1, 4))
    assert not is_behind(behind, batch(1, 0))
    assert not is_behind(behind, batch(0, 7))
    assert not is_behind(after((0, 5, FINAL), (1, 0, 0)), batch(1, 4))


def test_an_epoch_of_which_something_was_answered_may_have_been_sent_before() -> None:
    assert not after((3, 5, FINAL), (4, 0, RETRIABLE)).has_ended_older(KEY, 4)
    assert not after((3, 5, FINAL), (4, 0, 0)).has_ended_older(KEY, 4)
    assert after((3, 5, FINAL), (4, 2, RETRIABLE)).has_ended_older(KEY, 4)


def test_a_batch_that_comes_again_waits_only_for_what_failed_after_it() -> None:
    """What is sent again comes in its order: what has not come before it was unrecoverable."""
    assert not is_behind(after((0, 5, RETRIABLE), (0, 6, RETRIABLE)), batch(0, 6))
    assert is_behind(after((0, 5, RETRIABLE), (0, 6, RETRIABLE), (0, 5, RETRIABLE)), batch(0, 6))
    assert is_behind(after((0, 5, RETRIABLE), (0, 6, RETRIABLE)), batch(0, 7))
    assert not is_behind(after((0, 5, FINAL), (1, 4, RETRIABLE)), batch(1, 4))


def test_a_batch_for_a_name_that_no_topic_can_have_leaves_no_note() -> None:
    """All that follows it is refused like it, and clients choose such names, at any length."""
    behind = RetryNotes()
    for name in ("x" * 250, "x" * 32_000, "a/b", "..", ""):
        for has_failed, will_be_retried in ((True, True), (True, False)):
            behind.note((7, name, 0), batch(0, 5), has_failed, will_be_retried, behind.request_number())
    assert behind.is_empty
    behind.note((7, "x" * 249, 0), batch(0, 5), True, True, behind.request_number())
    assert is_behind(behind, batch(0, 6), (7, "x" * 249, 0))


# ---------------------------------------------------------------------- pipelines of conditional batches
CONDITIONAL_PARTITION = (CONDITIONAL_ID, "wal", 0)


def batch_at(sequence: int, count: int = 1) -> BatchIdentity:
    return BatchIdentity(0, sequence, count)


def test_a_conditional_batch_follows_the_last_if_declared_or_still_open() -> None:
    notes = RetryNotes()
    first = notes.link(CONDITIONAL_PARTITION, batch_at(5, 2), says_it_follows=False)
    assert first.ahead is Ahead.NOTHING
    second = notes.link(CONDITIONAL_PARTITION, batch_at(7), says_it_follows=False)
    assert second.ahead is Ahead.OPEN
    notes.end_link(CONDITIONAL_PARTITION, first, has_failed=True, will_be_retried=False)
    assert (first.fate, second.before) == (Ahead.REFUSED, first)
    notes.end_link(CONDITIONAL_PARTITION, second, has_failed=True, will_be_retried=True)
    assert notes.link(CONDITIONAL_PARTITION, batch_at(8), says_it_follows=True).ahead is Ahead.AGAIN
    assert notes.link(CONDITIONAL_PARTITION, batch_at(9), says_it_follows=False).ahead is Ahead.OPEN
    assert notes.link(CONDITIONAL_PARTITION, batch_at(12), says_it_follows=True).ahead is Ahead.NOTHING, (
        "it follows no batch"
    )


def test_after_a_conflict_a_batch_that_declares_no_predecessor_begins_a_pipeline() -> None:
    notes = RetryNotes()
    refused = notes.link(CONDITIONAL_PARTITION, batch_at(5), says_it_follows=False)
    notes.end_link(CONDITIONAL_PARTITION, refused, has_failed=True, will_be_retried=False)
    assert notes.link(CONDITIONAL_PARTITION, batch_at(6), says_it_follows=False).ahead is Ahead.NOTHING


def test_a_batch_follows_its_predecessor_despite_another_writers_batch_between() -> None:
    notes = RetryNotes()
    refused = notes.link(CONDITIONAL_PARTITION, batch_at(5), says_it_follows=False)
    others = notes.link(CONDITIONAL_PARTITION, batch_at(300), says_it_follows=False)
    behind = notes.link(CONDITIONAL_PARTITION, batch_at(6), says_it_follows=True)
    assert behind.before is refused
    assert others.before is None


def test_a_pipeline_that_is_in_the_log_leaves_nothing_and_the_others_are_counted() -> None:
    notes = RetryNotes()
    links = [
        notes.link(CONDITIONAL_PARTITION, batch_at(sequence), says_it_follows=sequence > 0) for sequence in range(9)
    ]
    for link in links:
        notes.end_link(CONDITIONAL_PARTITION, link, has_failed=False, will_be_retried=False)
        assert link.before is None
    assert (notes._links, notes.count) == ({}, 0)
    for partition in range(3):
        notes.link((CONDITIONAL_ID, "wal", partition), batch_at(0), says_it_follows=False)
    assert notes.count == 3
    for sequence in range(NOTES_MAX + 1):
        notes.link((CONDITIONAL_ID, "wal", 0), batch_at(10 * sequence), says_it_follows=False)
    assert notes.count == NOTES_MAX + 2
    notes.link((CONDITIONAL_ID, "no/topic", 0), batch_at(0), says_it_follows=False)
    assert len(notes._links) == 3
