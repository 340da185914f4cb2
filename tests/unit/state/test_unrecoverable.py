"""Batches of which nobody can tell whether they are in the log: remembered, and in nobody's way."""

from idemproxy.state.commit import committed, fresh, reserved, unrecoverable
from idemproxy.state.decide import Append, BatchIdentity, Duplicate, decide, numbered_as
from idemproxy.state.entry import (
    NO_DATA_GENERATION,
    NO_PRINCIPAL,
    Entry,
    Intent,
    IntentBatch,
    WindowBatch,
    pack,
    unpack,
)

OWNER = b"incarnat"
DIGESTS = {(1, 1): b"digest 1", (2, 3): b"digest 2"}


def intent_of(*batches: IntentBatch, epoch: int = 0) -> Intent:
    return Intent(OWNER, epoch, batches, 5, b"anchored", b"contents", 0)


def open_entry() -> Entry:
    """Return an entry with sequence 0 committed and sequences 1 and 2 reserved."""
    empty = fresh(NO_DATA_GENERATION, NO_PRINCIPAL, 0, 0)
    first = committed(empty, [WindowBatch(0, 1, 4)], 5, b"anchored")
    return reserved(first, intent_of(IntentBatch(1, 1, DIGESTS[1, 1]), IntentBatch(2, 3, DIGESTS[2, 3])))


def test_what_is_unrecoverable_is_remembered_and_no_longer_open() -> None:
    entry = open_entry()
    assert entry.has_open_intent
    left = unpack(pack(unrecoverable(entry)))
    assert left.version == entry.version + 1
    assert not left.has_open_intent
    assert left.intent is not None
    assert left.intent.is_unrecoverable
    assert (left.window, left.next_sequence, left.end_offset) == (entry.window, 1, 5)


def test_a_retry_is_known_by_epoch_sequence_count_and_content() -> None:
    intent = unrecoverable(open_entry()).intent
    assert intent is not None
    for numbers in ((1, 1), (2, 3)):
        member = numbered_as(intent, BatchIdentity(0, *numbers))
        assert member is not None
        assert (member.base_sequence, member.record_count, member.digest) == (*numbers, DIGESTS[numbers])
    for identity in (BatchIdentity(0, 1, 2), BatchIdentity(0, 0, 1), BatchIdentity(1, 1, 1)):
        assert numbered_as(intent, identity) is None


def test_other_batches_are_decided_as_if_there_were_no_intent_and_take_its_place() -> None:
    left = unrecoverable(open_entry())
    assert decide(left, BatchIdentity(0, 0, 1)) == Duplicate(4)
    assert decide(left, BatchIdentity(0, 1, 1)) == Append()
    assert decide(left, BatchIdentity(1, 0, 1)) == Append()
    again = reserved(left, intent_of(IntentBatch(0, 1, b"digest-7"), epoch=1))
    assert again.has_open_intent
    assert again.next_sequence == 0


def test_an_entry_without_an_intent_has_none_that_is_open() -> None:
    assert not fresh(NO_DATA_GENERATION, NO_PRINCIPAL, 0, 0).has_open_intent
