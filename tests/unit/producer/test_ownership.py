"""What may be appended without a swap for each group: one test for each condition of tests/model/README.md (l) that
the object decides about. That the flows keep the others is shown in ``test_owned.py``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.producer.ownership import Ownership, Told
from idemproxy.state.commit import fresh, owned
from idemproxy.state.entry import NO_CONTENT, NO_PRINCIPAL, Entry, Intent, IntentBatch, IntentKind, pack, unpack
from idemproxy.state.store import Conflict, StoreAway, Swapped

OWNER, OTHER = b"an owner", b"another1"
LEADER, ANCHOR, LATER_ANCHOR = 1, b"a record", b"a later1"
NOW = 1000.0
OWNERSHIP = Intent(OWNER, 0, (), 5, ANCHOR, NO_CONTENT, LEADER, kind=IntentKind.APPEND_RESERVATION)


def stored(version: int, intent: Intent | None = OWNERSHIP) -> bytes:
    """An entry with this version and intent."""
    return pack(replace(fresh(bytes(16), NO_PRINCIPAL, 0, 7), version=version, intent=intent))


def taken(version: int = 4) -> Ownership:
    """Confirmed just now."""
    ownership = Ownership(OWNER, LEADER, 5, ANCHOR, version - 1)
    ownership.writes(version, NOW)
    assert ownership.answered(version, Swapped()) is Told.KEPT
    return ownership


def test_nothing_is_appended_before_it_is_confirmed() -> None:
    ownership = Ownership(OWNER, LEADER, 5, ANCHOR, 3)
    assert not ownership.may_append(NOW, LEADER)
    ownership.writes(4, NOW)
    assert not ownership.may_append(NOW, LEADER)
    assert ownership.answered(4, StoreAway("no reply")) is Told.KEPT
    assert not ownership.may_append(NOW, LEADER)
    assert not ownership.is_confirmed
    assert not ownership.is_due(NOW + 1, 9)
    assert taken().may_append(NOW, LEADER)


def test_whoever_takes_it_over_waits_for_one_broker() -> None:
    assert not taken().may_append(NOW, LEADER + 1)


def test_it_is_not_used_while_the_store_says_nothing() -> None:
    ownership = taken()
    assert ownership.may_append(NOW + limits.OWNED_SECONDS_MAX, LEADER)
    assert not ownership.may_append(NOW + limits.OWNED_SECONDS_MAX + 0.001, LEADER)
    ownership.writes(5, NOW + 0.9)
    assert not ownership.may_append(NOW + 1.5, LEADER), "a write that is on its way confirms nothing"
    ownership.answered(5, StoreAway("no reply"))
    assert not ownership.may_append(NOW + 1.5, LEADER)
    ownership.writes(6, NOW + 1.0)
    ownership.answered(6, Swapped())
    assert ownership.may_append(NOW + 1.5, LEADER)
    assert not ownership.may_append(NOW + 2.1, LEADER), "it counts from when the write was sent"


def test_a_search_would_not_have_to_read_too_much() -> None:
    ownership = taken()
    ownership.unwritten_bytes += limits.OWNED_BYTES_MAX - 1
    assert ownership.may_append(NOW, LEADER)
    ownership.unwritten_bytes += 1
    assert not ownership.may_append(NOW, LEADER)
    ownership.writes(5, NOW)
    ownership.unwritten_bytes += 10
    assert not ownership.may_append(NOW, LEADER), "not before it is confirmed"
    ownership.answered(5, Swapped())
    assert ownership.unwritten_bytes == 10
    assert ownership.may_append(NOW, LEADER)


def test_what_is_written_moves_the_bound_to_the_last_commit_and_never_back() -> None:
    ownership = taken()
    ownership.move_to(9, LATER_ANCHOR)
    assert (ownership.lower_bound, ownership.anchor) == (9, LATER_ANCHOR)
    ownership.move_to(8, ANCHOR)
    assert (ownership.lower_bound, ownership.anchor) == (9, LATER_ANCHOR)


def test_it_is_written_when_something_was_appended_and_not_too_often() -> None:
    ownership = taken(4)
    later = NOW + limits.OWNED_WRITE_SECONDS + 0.001
    assert not ownership.is_due(later, 4), "nothing was appended"
    assert not ownership.is_due(later - 0.002, 5)
    assert ownership.is_due(later, 5)
    ownership.writes(6, later)
    assert not ownership.is_due(later + 1, 7), "one at a time"
    ownership.answered(6, StoreAway("no reply"))
    assert not ownership.is_due(later + 1, 6), "nothing was appended since"
    assert ownership.is_due(later + 1, 7)


@pytest.mark.parametrize("raised", [1, 5])
def test_a_write_that_is_refused_by_its_own_name_means_that_somebody_asks(raised: int) -> None:
    ownership = taken(4)
    ownership.writes(6, NOW)
    assert ownership.answered(6, Conflict(stored(4 + raised))) is Told.ASKED_FOR
    assert ownership.stored_version == 4 + raised, "its version is taken along"
    assert not ownership.may_append(NOW, LEADER)
    assert not ownership.is_due(NOW + 1, 99)


def test_nothing_begins_under_it_once_its_end_was_sent() -> None:
    ownership = taken(4)
    ownership.is_ending = True
    assert not ownership.may_append(NOW, LEADER)
    assert not ownership.is_due(NOW + 1, 9)


def test_a_swap_that_was_to_take_it_may_be_refused_the_same_way() -> None:
    ownership = Ownership(OWNER, LEADER, 5, ANCHOR, 3)
    ownership.writes(4, NOW)
    assert ownership.answered(4, Conflict(stored(5))) is Told.ASKED_FOR
    assert not ownership.may_append(NOW, LEADER)


PLAIN = replace(OWNERSHIP, batches=(IntentBatch(7, 1, b"digest-1"),), kind=IntentKind.PLAIN)


@pytest.mark.parametrize(
    "value",
    [
        None,
        stored(9, None),
        stored(9, replace(OWNERSHIP, owner=OTHER)),
        stored(9, PLAIN),
        stored(9, replace(OWNERSHIP, kind=IntentKind.PLAIN)),
        stored(3),
        stored(4),
        b"damaged",
    ],
    ids=["nothing", "handed over", "another's", "a batch's", "a claim", "less", "the same version", "damaged"],
)
def test_what_else_is_found_there_is_not_its_own_any_more(value: bytes | None) -> None:
    ownership = taken(4)
    ownership.writes(6, NOW)
    assert ownership.answered(6, Conflict(value)) is Told.LOST


def test_a_value_is_an_ownership_only_without_batches() -> None:
    assert OWNERSHIP.is_ownership
    assert not OWNERSHIP.is_given_up
    entry = fresh(bytes(16), NO_PRINCIPAL, 0, 7)
    with_batches = replace(entry, intent=replace(PLAIN, attempts=IntentKind.APPEND_RESERVATION.value))
    assert unpack(pack(with_batches)) == with_batches, "a plain intent that was sent often"
    assert owned(entry, OWNERSHIP).has_open_intent


@pytest.mark.parametrize(
    ("entry", "intent"),
    [
        (fresh(bytes(16), NO_PRINCIPAL, 0, 7), replace(OWNERSHIP, kind=IntentKind.PLAIN)),
        (fresh(bytes(16), NO_PRINCIPAL, 1, 7), OWNERSHIP),
        (replace(fresh(bytes(16), NO_PRINCIPAL, 0, 7), intent=PLAIN), OWNERSHIP),
    ],
    ids=["no ownership", "another epoch", "over an intent"],
)
def test_an_ownership_begins_no_epoch_and_takes_the_place_of_nothing(entry: Entry, intent: Intent) -> None:
    with pytest.raises(AssertionError):
        owned(entry, intent)
