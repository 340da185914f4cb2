"""Properties of the id allocator and of the keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idemproxy.state.producer_ids import BLOCK_SIZE, Block, IdBlocks, block_of, pack_block, unpack_block
from idemproxy.state.store import block_key, cluster_key, entry_key, is_cluster_name, member_key

clusters = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)
ids = st.integers(0, 2**62 - 1)


@pytest.mark.promise("producer-ids-unique")
@given(st.lists(st.tuples(st.binary(min_size=16, max_size=16), st.integers(1, 2500), st.booleans()), max_size=12))
def test_no_id_is_handed_out_twice_and_each_is_of_a_claimed_block(
    steps: list[tuple[bytes, int, bool]],
) -> None:
    blocks, claimed, given_out = IdBlocks(), set[int](), list[int]()
    for random_bytes, calls, forget in steps:
        start = blocks.propose(random_bytes)
        if start not in claimed and blocks.wants_block:
            claimed.add(start)
            blocks.claimed(start)
        given_out += [n for n in (blocks.next_id() for _ in range(calls)) if n is not None]
        if forget:
            blocks.forget()
    assert len(set(given_out)) == len(given_out)
    assert {block_of(n) for n in given_out} <= claimed


@given(st.binary(min_size=16, max_size=16))
def test_proposals_are_aligned_and_fit_into_62_bits(random_bytes: bytes) -> None:
    start = IdBlocks().propose(random_bytes)
    assert start % BLOCK_SIZE == 0
    assert 0 <= start <= 2**62 - BLOCK_SIZE
    assert block_of(start) == block_of(start + BLOCK_SIZE - 1) == start


@given(st.binary(min_size=16, max_size=16), st.integers(0, 2**63), st.binary(min_size=8, max_size=8), st.text())
def test_block_values_come_back(data_generation: bytes, claimed_at_ms: int, principal: bytes, name: str) -> None:
    block = Block(data_generation, claimed_at_ms, principal, name)
    assert unpack_block(pack_block(*block)) == block


@given(st.binary(max_size=40))
def test_any_bytes_are_a_block_value_or_none(value: bytes) -> None:
    found = unpack_block(value)
    assert found is None or pack_block(*found) == value


entry_names = st.tuples(clusters, ids, st.text(max_size=20), st.integers(0, 2**31 - 1))


@given(entry_names, entry_names)
def test_different_entries_have_different_keys_whatever_the_topic_is_called(
    first: tuple[str, int, str, int], second: tuple[str, int, str, int]
) -> None:
    assert (entry_key(*first) == entry_key(*second)) == (first == second)


@given(clusters, clusters, ids, st.text(max_size=30), st.integers(0, 1000), st.binary(min_size=8, max_size=8))
def test_keys_of_different_kinds_never_meet(
    cluster: str, other: str, number: int, topic: str, partition: int, instance_id: bytes
) -> None:
    keys = {
        entry_key(cluster, number, topic, partition),
        block_key(other, number),
        member_key(other, instance_id),
        cluster_key(other),
    }
    assert len(keys) == 4


@given(st.text(max_size=80))
def test_a_cluster_name_has_no_character_that_means_something_in_a_key(name: str) -> None:
    if is_cluster_name(name):
        assert 0 < len(name) <= 64
        assert not set(name) & set(":{}/ \r\n")
