"""Blocks of producer ids."""

import pytest

from idemproxy.state.entry import NO_PRINCIPAL
from idemproxy.state.producer_ids import BLOCK_SIZE, IdBlocks, block_of, pack_block, unpack_block


def test_without_a_claimed_block_there_is_no_id() -> None:
    blocks = IdBlocks()
    assert blocks.wants_block
    assert blocks.next_id() is None


def test_a_block_gives_all_its_ids_once_and_in_order() -> None:
    blocks = IdBlocks()
    blocks.claimed(5000)
    assert [blocks.next_id() for _ in range(BLOCK_SIZE)] == list(range(5000, 6000))
    assert blocks.next_id() is None


def test_the_next_block_is_wanted_when_nine_tenths_are_used() -> None:
    blocks = IdBlocks()
    blocks.claimed(0)
    for _ in range(899):
        blocks.next_id()
    assert not blocks.wants_block
    blocks.next_id()
    assert blocks.wants_block
    blocks.claimed(7000)
    assert not blocks.wants_block


def test_the_prefetched_block_follows_without_a_gap() -> None:
    blocks = IdBlocks()
    blocks.claimed(0)
    blocks.claimed(7000)
    given = [blocks.next_id() for _ in range(2 * BLOCK_SIZE)]
    assert given == [*range(1000), *range(7000, 8000)]


def test_a_block_that_is_claimed_twice_is_an_error_of_ours() -> None:
    blocks = IdBlocks()
    blocks.claimed(3000)
    with pytest.raises(AssertionError):
        blocks.claimed(3000)


def test_in_a_new_data_generation_no_old_ids_are_handed_out() -> None:
    blocks = IdBlocks()
    blocks.claimed(3000)
    blocks.next_id()
    blocks.claimed(9000)
    blocks.forget()
    assert blocks.next_id() is None
    assert blocks.wants_block


def test_a_proposal_needs_sixteen_random_bytes() -> None:
    with pytest.raises(AssertionError):
        IdBlocks().propose(b"short")


def test_the_highest_proposal_stays_within_62_bits() -> None:
    for tail in range(256):
        start = IdBlocks().propose(b"\xff" * 15 + bytes([tail]))
        assert start % BLOCK_SIZE == 0
        assert start >= 0
        assert start + BLOCK_SIZE <= 2**62


def test_the_block_of_an_id_is_where_it_came_from() -> None:
    assert {block_of(n) for n in range(12_000, 13_000)} == {12_000}


def test_a_block_value_carries_data_generation_and_time() -> None:
    assert unpack_block(pack_block(b"g" * 16, 1_700_000_000_123)) == (b"g" * 16, 1_700_000_000_123, NO_PRINCIPAL, "")


def test_a_block_value_has_its_ids_principal_and_is_unchanged_without_one() -> None:
    assert unpack_block(pack_block(b"g" * 16, 1, b"a person")) == (b"g" * 16, 1, b"a person", "")
    assert pack_block(b"g" * 16, 1, NO_PRINCIPAL) == pack_block(b"g" * 16, 1)
    assert len(pack_block(b"g" * 16, 1)) == 25


@pytest.mark.parametrize("value", [b"", b"\x01", pack_block(b"g" * 16, 1)[:-1], b"\x02" + pack_block(b"g" * 16, 1)[1:]])
def test_a_foreign_block_value_is_none(value: bytes) -> None:
    assert unpack_block(value) is None
