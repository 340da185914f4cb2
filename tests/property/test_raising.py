"""Message sets of producers as batches: compiled and in Python the same bytes, all records in order, and hostile
bytes."""

from __future__ import annotations

from importlib import import_module
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.codecs import messages  # noqa: F401  (imports the library without warnings)
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.old_formats.raising import RefusedSet, splitting
from idemproxy.codecs.primitives import wrap_int64
from idemproxy.codecs.record_batch import parse_single_batch
from idemproxy.codecs.steps import at_once
from testkit.real.machine import kernel_build
from testkit.stage.sent_sets import UNPACKED_BYTES_MAX, SentRecord, raised_both_ways, random_set

default_records = import_module("kafka.record.default_records")

seeds = st.integers(0, 2**32)
limits = st.sampled_from((1, 100, 300, 2_000, 1_000_012))


def kafka_python_reads(batches: list[bytes]) -> list[SentRecord]:
    """The records of all batches, by another implementation, whose numbers do not wrap as those of Java."""
    found: list[SentRecord] = []
    for batch in batches:
        parsed = default_records.DefaultRecordBatch(batch)
        assert parsed.validate_crc()
        found += [(one.key, one.value, wrap_int64(one.timestamp)) for one in parsed]
    return found


@settings(deadline=None)
@given(seeds, limits)
def test_all_records_are_in_the_batches_in_order_and_each_batch_is_within_the_limit(seed: int, limit: int) -> None:
    message_set, records = random_set(Random(seed))
    batches = raised_both_ways(message_set, limit, kernel_build.current_raise_set())
    assert not isinstance(batches, RefusedSet), batches
    assert kafka_python_reads(batches) == records
    for batch in batches:
        header = parse_single_batch(memoryview(batch))
        assert len(batch) <= limit or header.record_count == 1
        assert header.max_timestamp >= header.base_timestamp


@settings(deadline=None)
@given(seeds, st.integers(1, 3_000))
def test_what_is_split_again_and_again_has_the_same_records(seed: int, limit: int) -> None:
    message_set, records = random_set(Random(seed))
    batches = raised_both_ways(message_set, 1_000_012, kernel_build.current_raise_set())
    assert not isinstance(batches, RefusedSet)
    while any(len(one) > limit and parse_single_batch(memoryview(one)).record_count > 1 for one in batches):
        batches = [
            bytes(piece)
            for one in batches
            for piece in (at_once(splitting(one, limit, UNPACKED_BYTES_MAX)) if len(one) > limit else [one])
        ]
    assert kafka_python_reads(batches) == records


@settings(deadline=None)
@given(st.data(), seeds, limits)
def test_damaged_sets_are_raised_alike_or_refused_with_a_code_that_kafka_0_8_has(
    data: st.DataObject, seed: int, limit: int
) -> None:
    changed = bytearray(random_set(Random(seed))[0])
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(changed[: data.draw(st.integers(1, len(changed)))])
    made = raised_both_ways(damaged, limit, kernel_build.current_raise_set(), unpacked_bytes_max=1 << 16)
    if isinstance(made, RefusedSet):
        assert made.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_REQUEST)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_raised_or_refused(data: bytes) -> None:
    raised_both_ways(data, 1_000, kernel_build.current_raise_set(), unpacked_bytes_max=1 << 16)
