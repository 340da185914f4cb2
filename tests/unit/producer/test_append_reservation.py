"""What may be appended without a swap for each group: one test for each condition of tests/model/README.md (l) that
the object decides about. That the flows keep the others is shown in ``test_owned.py``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.producer.append_reservation import AppendReservation, WriteResult
from idemproxy.state.commit import fresh, with_append_reservation
from idemproxy.state.entry import NO_CONTENT, NO_PRINCIPAL, Entry, Intent, IntentBatch, IntentKind, pack, unpack
from idemproxy.state.store import Conflict, StoreAway, Swapped

OWNER, OTHER = b"an owner", b"another1"
LEADER, ANCHOR, LATER_ANCHOR = 1, b"a record", b"a later1"
NOW = 1000.0
APPEND_RESERVATION = Intent(OWNER, 0, (), 5, ANCHOR, NO_CONTENT, LEADER, kind=IntentKind.APPEND_RESERVATION)


def stored(version: int, intent: Intent | None = APPEND_RESERVATION) -> bytes:
    """An entry with this version and intent."""
    return pack(replace(fresh(bytes(16), NO_PRINCIPAL, 0, 7), version=version, intent=intent))


def taken(version: int = 4) -> AppendReservation:
    """Confirmed just now."""
    append_reservation = AppendReservation(OWNER, LEADER, 5, ANCHOR, version - 1)
    append_reservation.writes(version, NOW)
    assert append_reservation.answered(version, Swapped()) is WriteResult.KEPT
    return append_reservation


def test_nothing_is_appended_before_it_is_confirmed() -> None:
    append_reservation = AppendReservation(OWNER, LEADER, 5, ANCHOR, 3)
    assert not append_reservation.may_append(NOW, LEADER)
    append_reservation.writes(4, NOW)
    assert not append_reservation.may_append(NOW, LEADER)
    assert append_reservation.answered(4, StoreAway("no reply")) is WriteResult.KEPT
    assert not append_reservation.may_append(NOW, LEADER)
    assert not append_reservation.is_confirmed
    assert not append_reservation.is_due(NOW + 1, 9)
    assert taken().may_append(NOW, LEADER)


def test_it_is_for_one_leader_as_a_takeover_waits_for_one_broker() -> None:
    assert not taken().may_append(NOW, LEADER + 1)


def test_it_is_not_used_while_the_store_says_nothing() -> None:
    append_reservation = taken()
    assert append_reservation.may_append(NOW + limits.APPEND_RESERVATION_SECONDS_MAX, LEADER)
    assert not append_reservation.may_append(NOW + limits.APPEND_RESERVATION_SECONDS_MAX + 0.001, LEADER)
    append_reservation.writes(5, NOW + 0.9)
    assert not append_reservation.may_append(NOW + 1.5, LEADER), "a write that is on its way confirms nothing"
    append_reservation.answered(5, StoreAway("no reply"))
    assert not append_reservation.may_append(NOW + 1.5, LEADER)
    append_reservation.writes(6, NOW + 1.0)
    append_reservation.answered(6, Swapped())
    assert append_reservation.may_append(NOW + 1.5, LEADER)
    assert not append_reservation.may_append(NOW + 2.1, LEADER), "it counts from when the write was sent"


def test_a_search_would_not_have_to_read_too_much() -> None:
    append_reservation = taken()
    append_reservation.unwritten_bytes += limits.APPEND_RESERVATION_BYTES_MAX - 1
    assert append_reservation.may_append(NOW, LEADER)
    append_reservation.unwritten_bytes += 1
    assert not append_reservation.may_append(NOW, LEADER)
    append_reservation.writes(5, NOW)
    append_reservation.unwritten_bytes += 10
    assert not append_reservation.may_append(NOW, LEADER), "not before it is confirmed"
    append_reservation.answered(5, Swapped())
    assert append_reservation.unwritten_bytes == 10
    assert append_reservation.may_append(NOW, LEADER)


def test_what_is_written_moves_the_bound_to_the_last_commit_and_never_back() -> None:
    append_reservation = taken()
    append_reservation.move_to(9, LATER_ANCHOR)
    assert (append_reservation.lower_bound, append_reservation.anchor) == (9, LATER_ANCHOR)
    append_reservation.move_to(8, ANCHOR)
    assert (append_reservation.lower_bound, append_reservation.anchor) == (9, LATER_ANCHOR)


def test_it_is_written_when_something_was_appended_and_not_too_often() -> None:
    append_reservation = taken(4)
    later = NOW + limits.APPEND_RESERVATION_WRITE_SECONDS + 0.001
    assert not append_reservation.is_due(later, 4), "nothing was appended"
    assert not append_reservation.is_due(later - 0.002, 5)
    assert append_reservation.is_due(later, 5)
    append_reservation.writes(6, later)
    assert not append_reservation.is_due(later + 1, 7), "one at a time"
    append_reservation.answered(6, StoreAway("no reply"))
    assert not append_reservation.is_due(later + 1, 6), "nothing was appended since"
    assert append_reservation.is_due(later + 1, 7)


@pytest.mark.parametrize("raised", [1, 5])
def test_a_write_that_is_refused_by_its_own_name_means_that_somebody_asks(raised: int) -> None:
    append_reservation = taken(4)
    append_reservation.writes(6, NOW)
    assert append_reservation.answered(6, Conflict(stored(4 + raised))) is WriteResult.ASKED_FOR
    assert append_reservation.stored_version == 4 + raised, "its version is taken along"
    assert not append_reservation.may_append(NOW, LEADER)
    assert not append_reservation.is_due(NOW + 1, 99)


def test_nothing_begins_under_it_once_its_end_was_sent() -> None:
    append_reservation = taken(4)
    append_reservation.is_ending = True
    assert not append_reservation.may_append(NOW, LEADER)
    assert not append_reservation.is_due(NOW + 1, 9)


def test_a_swap_that_was_to_take_it_may_be_refused_the_same_way() -> None:
    append_reservation = AppendReservation(OWNER, LEADER, 5, ANCHOR, 3)
    append_reservation.writes(4, NOW)
    assert append_reservation.answered(4, Conflict(stored(5))) is WriteResult.ASKED_FOR
    assert not append_reservation.may_append(NOW, LEADER)


PLAIN = replace(APPEND_RESERVATION, batches=(IntentBatch(7, 1, b"digest-1"),), kind=IntentKind.PLAIN)


@pytest.mark.parametrize(
    "value",
    [
        None,
        stored(9, None),
        stored(9, replace(APPEND_RESERVATION, owner=OTHER)),
        stored(9, PLAIN),
        stored(9, replace(APPEND_RESERVATION, kind=IntentKind.PLAIN)),
        stored(3),
        stored(4),
        b"damaged",
    ],
    ids=["nothing", "handed over", "another's", "a batch's", "a claim", "less", "the same version", "damaged"],
)
def test_what_else_is_found_there_is_not_its_own_any_more(value: bytes | None) -> None:
    append_reservation = taken(4)
    append_reservation.writes(6, NOW)
    assert append_reservation.answered(6, Conflict(value)) is WriteResult.LOST


def test_a_value_is_an_append_reservation_only_without_batches() -> None:
    assert APPEND_RESERVATION.is_append_reservation
    assert not APPEND_RESERVATION.is_unrecoverable
    entry = fresh(bytes(16), NO_PRINCIPAL, 0, 7)
    with_batches = replace(entry, intent=replace(PLAIN, attempts=IntentKind.APPEND_RESERVATION.value))
    assert unpack(pack(with_batches)) == with_batches, "a plain intent that was sent often"
    assert with_append_reservation(entry, APPEND_RESERVATION).has_open_intent


@pytest.mark.parametrize(
    ("entry", "intent"),
    [
        (fresh(bytes(16), NO_PRINCIPAL, 0, 7), replace(APPEND_RESERVATION, kind=IntentKind.PLAIN)),
        (fresh(bytes(16), NO_PRINCIPAL, 1, 7), APPEND_RESERVATION),
        (replace(fresh(bytes(16), NO_PRINCIPAL, 0, 7), intent=PLAIN), APPEND_RESERVATION),
    ],
    ids=["no append reservation", "another epoch", "over an intent"],
)
def test_an_append_reservation_begins_no_epoch_and_takes_the_place_of_nothing(entry: Entry, intent: Intent) -> None:
    with pytest.raises(AssertionError):
        with_append_reservation(entry, intent)
