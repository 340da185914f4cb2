"""Batches of a log as message sets of format v0 and v1: compiled and in Python the same bytes, the records that are in
them, as other implementations read them, and hostile bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.errors import WireError
from idemproxy.codecs.old_formats.lowering import AbortedTransaction, Lowered, lowering
from idemproxy.codecs.record_batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from idemproxy.codecs.steps import at_once
from testkit.real.machine import kernel_build
from testkit.stage.stored_batches import (
    Entry,
    Read,
    StoredRecord,
    aiokafka_reads,
    entries,
    header,
    kafka_python_reads,
    signed,
    stored_batch,
    with_lower,
)

NO_LIMIT = 1 << 30
fields = st.none() | st.binary(max_size=12) | st.binary(min_size=60, max_size=300)
headers = st.lists(st.builds(header, st.binary(max_size=3), fields), max_size=2).map(tuple)
records = st.builds(StoredRecord, st.integers(0, 3), st.integers(0, 2**62), fields, fields, headers)


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, list[Read], bool]:
    """A batch with gaps, what is to be read of it in format v1, and whether it is compressed; its offsets count from
    0."""
    gaps = draw(st.lists(records, max_size=8))
    rows, delta = [], -1
    for one in gaps:
        delta += 1 + one.offset_delta
        rows.append(one._replace(offset_delta=delta))
    last = max(delta, 0) + draw(st.integers(0, 3))
    append_time = draw(st.none() | st.integers(0, 2**62))
    codec = draw(st.sampled_from(Codec))
    kind = draw(st.sampled_from((0, 0, TRANSACTIONAL_FLAG, TRANSACTIONAL_FLAG | CONTROL_FLAG)))
    data = stored_batch(
        rows,
        last_offset_delta=last,
        codec=codec if rows else Codec.NONE,
        append_time=append_time,
        attributes=kind,
        producer_id=draw(st.integers(-1, 2)),
    )
    read = [
        (one.offset_delta, one.timestamp if append_time is None else append_time, one.key, one.value) for one in rows
    ]
    return data, [] if kind & CONTROL_FLAG else read, bool(codec) and bool(rows)


logs = st.lists(batches(), max_size=5)
magics = st.sampled_from((0, 1))
aborted_lists = st.lists(st.builds(AbortedTransaction, st.integers(0, 40), st.integers(0, 2)), max_size=3)


def placed(log: Sequence[tuple[bytes, list[Read], bool]]) -> tuple[bytes, list[tuple[list[Read], bool, int]]]:
    """The batches one after the other in a log, and what is in each, with the offset after it."""
    data, content, base_offset = b"", [], 0
    for batch, read, is_compressed in log:
        data += base_offset.to_bytes(8, "big") + batch[8:]
        after = base_offset + 1 + int.from_bytes(batch[23:27], "big")
        content.append(([(base_offset + one[0], *one[1:]) for one in read], is_compressed, after))
        base_offset = after
    return data, content


def lowered_both_ways(data: bytes, offset: int, **options: Any) -> tuple[Lowered, bytes] | type[WireError]:
    """What is made of it, in Python and compiled."""
    made: list[tuple[Lowered, bytes] | type[WireError]] = []
    for library in (None, kernel_build.current_lower()):
        out = bytearray()
        with with_lower(library):
            try:
                made.append((at_once(lowering(data, offset, out, **options)), bytes(out)))
            except WireError as error:
                made.append(type(error))
                assert not out
    assert made[0] == made[1]
    return made[0]


@settings(deadline=None)
@given(logs, st.integers(0, 30), magics)
def test_all_records_from_an_offset_on_come_in_order_with_each_fetch_from_after_the_last(
    log: list[tuple[bytes, list[Read], bool]], offset: int, magic: int
) -> None:
    data, content = placed(log)
    expected = [one for read, _, _ in content for one in read if one[0] >= offset]
    found: list[Read] = []
    end = content[-1][2] if content else 0
    due = offset
    while due < end:
        made = lowered_both_ways(data, due, magic=magic, bytes_max=NO_LIMIT)
        assert not isinstance(made, type)
        lowered, message_set = made
        read = kafka_python_reads(message_set)
        assert aiokafka_reads(message_set) == read
        found += [one for one in read if one[0] >= due]
        assert (lowered.last_offset < 0) is (not read)
        assert due < lowered.next_offset <= end
        due = lowered.next_offset
    assert found == [one if magic else (one[0], -1, *one[2:]) for one in expected]


@settings(deadline=None)
@given(logs, st.integers(0, 30), magics, st.integers(0, 600), aborted_lists)
def test_a_set_has_one_message_or_fits_into_its_limit_and_no_wrapper_after_plain_ones(
    log: list[tuple[bytes, list[Read], bool]],
    offset: int,
    magic: int,
    limit: int,
    aborted: list[AbortedTransaction],
) -> None:
    data, _ = placed(log)
    made = lowered_both_ways(data, offset, magic=magic, bytes_max=limit, aborted=aborted)
    assert not isinstance(made, type)
    lowered, message_set = made
    found = entries(message_set)
    plain = [not one.inner for one in found]
    assert plain == sorted(plain)
    assert [one.offset for one in found] == sorted({one.offset for one in found})
    if found:
        assert offset <= lowered.last_offset == found[-1].offset < lowered.next_offset
    if len(found) > 1 and all(plain):
        assert len(message_set) <= limit
    assert not message_set or sum(size_of(one) for one in found if not one.inner) <= len(message_set)


def size_of(entry: Entry) -> int:
    return 26 + 8 * entry.magic + len(entry.key or b"") + len(entry.value or b"")


@settings(deadline=None)
@given(st.data(), logs.filter(bool), magics, st.booleans())
def test_damaged_batches_are_lowered_alike_or_are_the_same_wire_error(
    data: st.DataObject, log: list[tuple[bytes, list[Read], bool]], magic: int, is_signed: bool
) -> None:
    whole, _ = placed(log)
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(changed[: data.draw(st.integers(1, len(changed)))])
    if is_signed and len(log) == 1 and len(damaged) == len(whole):
        damaged = signed(damaged)
    lowered_both_ways(damaged, 0, magic=magic, bytes_max=NO_LIMIT, unpacked_bytes_max=1 << 20)
