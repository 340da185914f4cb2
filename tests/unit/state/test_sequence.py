"""Sequence arithmetic, walked completely on small rings, and at the real wrap."""

import pytest

from idemproxy.codecs.batch_marker import Identity, encode_batch_marker, parse_batch_marker
from idemproxy.state.sequence import SEQUENCE_MODULUS, advance, distance, is_ahead, last_of
from testkit.virtual.kafka_reference import SEQUENCE_MAX, in_sequence, increment

RINGS = [2, 3, 4, 7, 8, 16, 17]


@pytest.mark.parametrize("modulus", RINGS)
def test_advance_walks_around_the_ring_one_by_one(modulus: int) -> None:
    for start in range(modulus):
        sequence = start
        for records in range(2 * modulus):
            assert advance(start, records, modulus) == sequence
            assert advance(sequence, -records, modulus) == start
            sequence = 0 if sequence == modulus - 1 else sequence + 1


@pytest.mark.parametrize("modulus", RINGS)
def test_distance_is_what_advance_has_to_go(modulus: int) -> None:
    for earlier in range(modulus):
        for later in range(modulus):
            records = distance(earlier, later, modulus)
            assert 0 <= records < modulus
            assert advance(earlier, records, modulus) == later


@pytest.mark.parametrize("modulus", RINGS)
def test_a_batch_has_its_base_its_last_and_what_lies_between(modulus: int) -> None:
    for base in range(modulus):
        for count in range(1, modulus + 1):
            inside = {advance(base, index, modulus) for index in range(count)}
            assert len(inside) == count
            assert last_of(base, count, modulus) == advance(base, count - 1, modulus)
            for sequence in range(modulus):
                assert (distance(base, sequence, modulus) < count) == (sequence in inside)


@pytest.mark.parametrize("modulus", RINGS)
def test_the_next_half_of_the_ring_is_ahead_and_never_what_is_expected(modulus: int) -> None:
    for expected in range(modulus):
        ahead = {sequence for sequence in range(modulus) if is_ahead(expected, sequence, modulus)}
        assert ahead == {advance(expected, records, modulus) for records in range(1, modulus // 2)}


@pytest.mark.parametrize("modulus", RINGS)
def test_of_two_sequences_not_both_are_ahead_of_the_other(modulus: int) -> None:
    for one in range(modulus):
        for other in range(modulus):
            assert not (is_ahead(one, other, modulus) and is_ahead(other, one, modulus))


@pytest.mark.parametrize("sequence", [0, 1, SEQUENCE_MAX // 2, SEQUENCE_MAX - 2, SEQUENCE_MAX - 1, SEQUENCE_MAX])
@pytest.mark.parametrize("records", [0, 1, 2, 3, 1000, SEQUENCE_MAX])
def test_the_real_ring_has_two_to_the_31_sequences_as_kafka_counts(sequence: int, records: int) -> None:
    assert SEQUENCE_MODULUS == SEQUENCE_MAX + 1
    assert advance(sequence, records) == increment(sequence, records)
    assert in_sequence(last_of(sequence, records + 1), advance(sequence, records + 1))
    assert distance(sequence, advance(sequence, records)) == records


def test_the_sequence_after_the_last_one_is_zero() -> None:
    assert advance(SEQUENCE_MAX, 1) == 0
    assert last_of(SEQUENCE_MAX, 1) == SEQUENCE_MAX
    assert last_of(SEQUENCE_MAX, 2) == 0
    assert is_ahead(SEQUENCE_MAX, 0)
    assert not is_ahead(0, SEQUENCE_MAX)


def test_batch_markers_end_where_sequences_do() -> None:
    assert parse_batch_marker(encode_batch_marker([Identity(1, 0, SEQUENCE_MODULUS - 1, 1)])) is not None
    with pytest.raises(AssertionError):
        encode_batch_marker([Identity(1, 0, SEQUENCE_MODULUS, 1)])
