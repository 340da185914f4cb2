"""``decide`` against the reference model of Kafka's broker, and stored entries: round trip, and bytes from anywhere."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from idemproxy.state.commit import committed, fresh, released, reserved
from idemproxy.state.decide import (
    Append,
    BatchIdentity,
    Duplicate,
    Fenced,
    OutOfOrder,
    Overlap,
    decide,
    numbered_as,
)
from idemproxy.state.entry import (
    FORMAT,
    GROUP_BATCHES_MAX,
    WINDOW_BATCHES_MAX,
    Entry,
    Intent,
    IntentBatch,
    IntentKind,
    StoredFormatError,
    WindowBatch,
    pack,
    unpack,
)
from idemproxy.state.sequence import SEQUENCE_MODULUS, advance, distance
from testkit.virtual.kafka_reference import Appended, Failed, ReferenceProducer

HALF = SEQUENCE_MODULUS // 2
DATA_GENERATION, OWNER, ANCHOR, CONTENT = b"g" * 16, b"o" * 8, b"a" * 8, b"c" * 8


def intent_of(batch: BatchIdentity) -> Intent:
    member = IntentBatch(batch.base_sequence, batch.record_count, b"digest-0")
    return Intent(OWNER, batch.producer_epoch, (member,), 0, ANCHOR, CONTENT, 0)


class Stored:
    """The proxy's state of one producer, changed only in the ways that the proxy changes it."""

    def __init__(self, any_start: bool) -> None:
        self.entry: Entry | None = None
        self.any_start = any_start

    def batch(self, start: int, epochs_ahead: int, records_ahead: int, record_count: int) -> BatchIdentity:
        entry = self.entry
        epoch, due = (entry.producer_epoch, entry.next_sequence) if entry else (0, start)
        due = 0 if epochs_ahead > 0 else due
        return BatchIdentity(max(0, epoch + epochs_ahead), advance(due, records_ahead), record_count)

    def append(self, batch: BatchIdentity, offset: int) -> None:
        entry = self.entry or fresh(DATA_GENERATION, b"p" * 8, batch.producer_epoch, batch.base_sequence)
        entry = reserved(entry, intent_of(batch))
        assert entry.intent is not None
        assert numbered_as(entry.intent, batch) is entry.intent.batches[0]
        window = [WindowBatch(batch.base_sequence, batch.record_count, offset)]
        entry = committed(entry, window, offset + batch.record_count, ANCHOR)
        self.entry = unpack(pack(entry))


# (epochs ahead, records ahead of what is due, records) of a new batch, or which of the earlier ones comes again. Most
# are near what is due, so that every border is met.
counts = st.integers(1, 6)
in_order = st.tuples(st.just(0), st.just(0), counts)
new_epoch = st.tuples(st.sampled_from([1, 1, 5, -1]), st.sampled_from([0, 0, 0, 1, -1]), counts)
out_of_order = st.tuples(
    st.just(0),
    st.integers(-40, 40) | st.integers(-(2**31), 2**31) | st.sampled_from([HALF - 1, HALF, HALF + 1]),
    counts,
)
retry = st.integers(1, 8)
moves = st.one_of(in_order, in_order, in_order, retry, retry, out_of_order, new_epoch)


@settings(max_examples=600, deadline=None)
@given(
    start=st.one_of(st.just(0), st.integers(SEQUENCE_MODULUS - 20, SEQUENCE_MODULUS - 1), st.integers(0, 2**31 - 1)),
    plan=st.lists(moves, min_size=5, max_size=40),
)
@example(start=0, plan=[(0, 0, 1)] * 4 + [(0, -5, 2)])
def test_decide_says_what_kafka_says(start: int, plan: list[tuple[int, int, int] | int]) -> None:
    stored, reference = Stored(any_start=True), ReferenceProducer()
    offset = 0
    past = [BatchIdentity(0, start, 1)]
    for move in plan:
        batch = past[-min(move, len(past))] if isinstance(move, int) else stored.batch(start, *move)
        verdict = decide(stored.entry, batch, stored.any_start)
        answer = reference.append(batch.producer_epoch, batch.base_sequence, batch.record_count, offset)
        if isinstance(verdict, Append):
            assert answer == Appended(offset, False)
            stored.append(batch, offset)
            offset += batch.record_count
            past.append(batch)
        elif isinstance(verdict, Duplicate):
            assert answer == Appended(verdict.base_offset, True)
        elif isinstance(verdict, Fenced):
            assert answer == Failed(47)
        else:
            assert answer == Failed(45)
            if isinstance(verdict, Overlap):
                assert_begins_before(stored.entry, batch, verdict.record_count)


def assert_begins_before(entry: Entry | None, batch: BatchIdentity, record_count: int) -> None:
    """Difference 2: what begins before the sequence that is due is looked for in the log, up to that sequence."""
    assert entry is not None
    assert entry.window
    assert batch.producer_epoch == entry.producer_epoch
    stored = distance(batch.base_sequence, entry.next_sequence)
    assert 0 < stored < HALF
    assert record_count == min(stored, batch.record_count)


@given(st.builds(BatchIdentity, st.integers(0, 32767), st.integers(0, 2**31 - 1), st.integers(1, 1000)))
def test_nothing_known_and_not_expired_means_sequence_zero(batch: BatchIdentity) -> None:
    wanted = Append if batch.base_sequence == 0 else OutOfOrder
    assert isinstance(decide(None, batch), wanted), "difference 1"
    assert isinstance(decide(None, batch, any_start=True), Append)


@given(
    start=st.integers(0, 2**31 - 1),
    parts=st.lists(st.integers(1, 50), min_size=2, max_size=9),
    before=st.lists(st.integers(1, 50), max_size=3),
    lost=st.sets(st.integers(0, 7), max_size=1),
)
def test_a_batch_that_was_stored_in_parts_is_one_duplicate(
    start: int, parts: list[int], before: list[int], lost: set[int]
) -> None:
    """Its proxy commits a part, or one that takes an intent over and does not know the whole batch."""
    entry = fresh(DATA_GENERATION, b"p" * 8, 3, start)
    offset = 100
    for count in before:
        entry = committed(entry, [WindowBatch(entry.next_sequence, count, offset)], offset + count, ANCHOR)
        offset += count + 7  # other producers write in between
    whole, base_offset, stored = BatchIdentity(3, entry.next_sequence, sum(parts)), offset, 0
    for index, count in enumerate(parts):
        assert decide(entry, whole) == (Overlap(stored) if stored else Append())
        first = WindowBatch(whole.base_sequence, stored + count, base_offset)
        alone = WindowBatch(entry.next_sequence, count, offset)
        is_last = index == len(parts) - 1
        entry = committed(entry, [alone if index in lost and not is_last else first], offset + count, ANCHOR)
        stored += count
        offset += count + 7
    assert decide(entry, whole) == Duplicate(base_offset)
    assert [one.record_count for one in entry.window] == [*before, stored]
    assert decide(entry, replace(whole, record_count=stored + 1)) == Overlap(stored)
    assert not isinstance(decide(entry, replace(whole, producer_epoch=4)), Duplicate)


@given(st.integers(0, 32766), st.integers(0, 2**31 - 1), st.integers(1, 10))
def test_a_reserved_epoch_fences_the_old_one_even_if_its_batch_was_refused(epoch: int, due: int, count: int) -> None:
    entry = fresh(DATA_GENERATION, b"p" * 8, epoch, due)
    entry = released(reserved(entry, intent_of(BatchIdentity(epoch + 1, 0, 1))))
    assert decide(entry, BatchIdentity(epoch, due, count)) == Fenced(epoch + 1), "difference 3"
    assert decide(entry, BatchIdentity(epoch + 1, 0, count)) == Append()


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(1, 10))
def test_nothing_lies_below_a_window_that_is_empty(due: int, sequence: int, count: int) -> None:
    verdict = decide(fresh(DATA_GENERATION, b"p" * 8, 0, due), BatchIdentity(0, sequence, count))
    assert isinstance(verdict, Append if sequence == due else OutOfOrder)


# ---------------------------------------------------------------------- the packed form
int16, int32 = st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1)
offsets = st.integers(-1, 2**63 - 1)


def intent_of_kind(kind: IntentKind, batches: tuple[IntentBatch, ...], attempts: int, **fields: Any) -> Intent:
    """Return an intent as it is stored: only a plain one has attempts, and one for appends names no batches."""
    if kind is IntentKind.PLAIN:
        return Intent(batches=batches, attempts=attempts, **fields)
    return Intent(batches=batches if kind is IntentKind.UNRECOVERABLE else (), kind=kind, **fields)


entries = st.builds(
    Entry,
    version=st.integers(1, 2**64 - 1),
    data_generation=st.binary(min_size=16, max_size=16),
    principal=st.binary(min_size=8, max_size=8),
    producer_epoch=int16,
    next_sequence=int32,
    window=st.lists(
        st.builds(WindowBatch, int32, int32, offsets, offsets, st.binary(min_size=8, max_size=8)),
        max_size=WINDOW_BATCHES_MAX,
    ).map(tuple),
    first_base_offset=offsets,
    end_offset=offsets,
    anchor=st.binary(min_size=8, max_size=8),
    intent=st.none()
    | st.builds(
        intent_of_kind,
        st.sampled_from(IntentKind),
        owner=st.binary(min_size=8, max_size=8),
        producer_epoch=int16,
        batches=st.lists(
            st.builds(IntentBatch, int32, int32, st.binary(min_size=8, max_size=8)), max_size=GROUP_BATCHES_MAX
        ).map(tuple),
        lower_bound=offsets,
        anchor=st.binary(min_size=8, max_size=8),
        content=st.binary(min_size=8, max_size=8),
        leader=st.integers(-(2**31), 2**31 - 1),
        attempts=st.integers(0, 252),
    ),
)


@given(entries)
def test_an_entry_unpacks_as_packed_with_its_version_where_the_store_looks(entry: Entry) -> None:
    value = pack(entry)
    assert unpack(value) == entry
    assert int.from_bytes(value[1:9], "big") == entry.version


@given(st.binary(max_size=400))
def test_bytes_from_anywhere_are_an_entry_or_a_format_error(value: bytes) -> None:
    assert_read_or_refused(value)
    assert_read_or_refused(bytes([FORMAT]) + value)


@given(entries, st.data())
def test_a_damaged_entry_is_another_entry_or_a_format_error(entry: Entry, data: st.DataObject) -> None:
    value = bytearray(pack(entry))
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] = data.draw(st.integers(0, 255))
    assert_read_or_refused(bytes(value))
    with pytest.raises(StoredFormatError):
        unpack(bytes(value[: data.draw(st.integers(0, len(value) - 1))]))
    with pytest.raises(StoredFormatError):
        unpack(pack(entry) + b"\0")


def assert_read_or_refused(value: bytes) -> None:
    try:
        entry = unpack(value)
    except StoredFormatError:
        return
    assert unpack(pack(entry)) == entry
