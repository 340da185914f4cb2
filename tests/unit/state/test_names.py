"""What is stored of a name, and which producer id and epoch its next instance gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idemproxy.state.commit import fresh
from idemproxy.state.entry import NO_DATA_GENERATION, NO_PRINCIPAL, StoredFormatError, pack, pack_named, unpack
from idemproxy.state.names import (
    EPOCH_MAX,
    FIRST_NAMED_ID,
    NEWEST_AT,
    ForeignName,
    NameRecord,
    NameVerdict,
    NewId,
    Outdated,
    Raised,
    Repeated,
    is_fenced,
    is_name,
    is_named,
    listed_name,
    newest_bytes,
    next_instance,
    pack_name,
    propose_named_id,
    unpack_name,
    with_higher_epoch,
    with_new_id,
)
from idemproxy.state.producer_ids import BLOCK_SIZE, RANDOM_BYTES, IdBlocks, block_of, pack_block, unpack_block

DATA_GENERATION, OTHER = bytes(range(16)), bytes(range(1, 17))
OWNER, SOMEBODY = b"an owner", b"somebody"
ID = FIRST_NAMED_ID + 608
RECORD = NameRecord(7, ID, 4, DATA_GENERATION, OWNER, issued_at_ms=1)
FLAGS_KNOWN_BEFORE = 7


def begin(
    record: NameRecord | None,
    *,
    principal: bytes = OWNER,
    data_generation: bytes = DATA_GENERATION,
    keeps_id: bool = True,
    given: tuple[int, int] | None = None,
) -> NameVerdict:
    return next_instance(record, principal, data_generation, 2, keeps_id=keeps_id, given=given)


def test_a_record_is_read_as_written_with_the_newest_instance_in_place() -> None:
    record = replace(RECORD, raised_from=3, last_id=ID + BLOCK_SIZE)
    packed = pack_name(record)
    assert unpack_name(packed) == record
    assert int.from_bytes(packed[1:9], "big") == record.version
    first, last = NEWEST_AT
    assert packed[first : last + 1] == newest_bytes(*record.newest)


@pytest.mark.parametrize(
    "stored", [b"", pack_name(RECORD)[:-1], pack_name(RECORD) + b"x", b"\x02" + pack_name(RECORD)[1:]]
)
def test_anything_else_cannot_be_read(stored: bytes) -> None:
    with pytest.raises(StoredFormatError):
        unpack_name(stored)


def test_named_ids_are_blocks_of_their_own_above_all_others() -> None:
    for first in (bytes(RANDOM_BYTES), b"\xff" * RANDOM_BYTES):
        named = propose_named_id(first)
        assert is_named(named)
        assert named < 2**63 - BLOCK_SIZE
        assert block_of(named) == named
        assert not is_named(IdBlocks().propose(first) + BLOCK_SIZE - 1)


def test_a_block_value_for_a_producer_name_has_the_name() -> None:
    packed = pack_block(DATA_GENERATION, 5, NO_PRINCIPAL, "ördérs")
    assert unpack_block(packed) == (DATA_GENERATION, 5, NO_PRINCIPAL, "ördérs")
    assert unpack_block(packed[:-1] + b"\xff") is None


def test_proxies_that_know_no_names_take_a_named_entry_for_damaged() -> None:
    entry = fresh(DATA_GENERATION, OWNER, 3, 9)
    packed = pack_named(entry)
    assert unpack(packed) == entry
    other = [there for before, there in zip(pack(entry), packed, strict=True) if before != there]
    assert [flags > FLAGS_KNOWN_BEFORE for flags in other] == [True]


def test_the_next_instance_gets_the_next_epoch_of_the_same_id() -> None:
    assert begin(RECORD) == Raised(replace(RECORD, version=8, producer_epoch=5, issued_at_ms=2))


def test_the_first_one_gets_a_new_id() -> None:
    assert begin(None) == NewId()
    assert with_new_id(None, ID, OWNER, DATA_GENERATION, 2) == NameRecord(
        1, ID, 0, DATA_GENERATION, OWNER, issued_at_ms=2
    )


def test_in_a_new_data_generation_the_next_instance_gets_a_new_id() -> None:
    assert begin(RECORD, data_generation=OTHER) == NewId()
    new = with_new_id(RECORD, ID + BLOCK_SIZE, OWNER, OTHER, 2)
    assert new == NameRecord(8, ID + BLOCK_SIZE, 0, OTHER, OWNER, last_id=ID, issued_at_ms=2)


def test_after_the_last_epoch_comes_a_new_id() -> None:
    last = replace(RECORD, producer_epoch=EPOCH_MAX - 1)
    verdict = begin(last)
    assert isinstance(verdict, Raised)
    assert verdict.record.producer_epoch == EPOCH_MAX
    assert begin(verdict.record) == NewId()
    assert begin(verdict.record, given=verdict.record.newest) == NewId()


def test_an_id_that_cannot_be_kept_is_replaced_unless_its_epoch_rises() -> None:
    assert begin(RECORD, keeps_id=False) == NewId()
    assert isinstance(begin(RECORD, keeps_id=False, given=RECORD.newest), Raised)


def test_a_repeated_request_for_a_higher_epoch_gets_the_same_answer() -> None:
    verdict = begin(RECORD, given=RECORD.newest)
    assert isinstance(verdict, Raised)
    assert begin(verdict.record, given=RECORD.newest) == Repeated()
    following = begin(verdict.record, given=verdict.record.newest)
    assert isinstance(following, Raised)
    assert begin(following.record, given=RECORD.newest) == Outdated()


def test_who_is_not_the_newest_gets_no_higher_epoch() -> None:
    newer = begin(RECORD)
    assert isinstance(newer, Raised)
    assert begin(newer.record, given=RECORD.newest) == Outdated()
    assert begin(None, given=RECORD.newest) == Outdated()
    assert begin(RECORD, given=(ID + BLOCK_SIZE, 4)) == Outdated()


def test_another_principal_gets_nothing() -> None:
    for given in (None, RECORD.newest):
        assert begin(RECORD, principal=SOMEBODY, given=given) == ForeignName()


def test_older_instances_are_fenced() -> None:
    assert not is_fenced(RECORD, ID, 4)
    assert not is_fenced(RECORD, ID, 5)
    assert is_fenced(RECORD, ID, 3)
    assert is_fenced(RECORD, ID + BLOCK_SIZE, 9)
    assert is_fenced(None, ID, 9)


def test_after_a_higher_epoch_was_seen_the_next_one_gets_a_new_id() -> None:
    higher = with_higher_epoch(RECORD, 6)
    assert (higher.version, higher.newest, higher.data_generation) == (8, (ID, 6), NO_DATA_GENERATION)
    assert begin(higher) == NewId()


def test_a_name_without_a_record_is_nobodys_and_all_its_instances_are_fenced() -> None:
    assert is_fenced(None, ID, EPOCH_MAX)
    for principal in (OWNER, SOMEBODY):
        assert begin(None, principal=principal) == NewId()
        assert begin(None, principal=principal, given=RECORD.newest) == Outdated()


def test_long_names_are_listed_by_a_few_bytes() -> None:
    listed = [listed_name(name) for name in ("orders-1", "orders-2", "o" * 249)]
    assert [len(one) for one in listed] == [16, 16, 16]
    assert len(set(listed)) == 3


@pytest.mark.parametrize(
    ("name", "is_one"), [("a", True), ("", False), ("ö" * 124, True), ("ö" * 125, False), ("a\n", False)]
)
def test_names_have_a_length_and_can_be_shown(name: str, is_one: bool) -> None:
    assert is_name(name) is is_one
