"""A packed entry is no second truth: reserved and committed it is, byte for byte, what the objects make of the same."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from idemproxy.state.commit import committed, released, reserved, with_append_reservation
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.entry import (
    GROUP_BATCHES_MAX,
    NO_CONTENT,
    NO_DIGEST,
    NO_OFFSET,
    NO_TIME,
    Entry,
    Intent,
    IntentBatch,
    IntentKind,
    WindowBatch,
    pack,
    unpack,
)
from idemproxy.state.packed import PackedEntry
from idemproxy.state.sequence import SEQUENCE_MODULUS

NAMES = st.binary(min_size=8, max_size=8)
OFFSETS = st.integers(0, 2**62)
TIMES = st.sampled_from((NO_TIME, NO_TIME, 0, 1_700_000_000_000))
DIGESTS = st.sampled_from((NO_DIGEST, b"digest 1", b"\xff" * 8))
COUNTS = st.sampled_from((1, 1, 2, 500, 2**31 - 1))


@dataclass(frozen=True)
class Batch:
    """As much of one as an entry takes."""

    identity: BatchIdentity
    digest: bytes
    stored_records: int = 0

    @property
    def left(self) -> BatchIdentity:
        return self.identity


@dataclass(frozen=True)
class Group:
    """Batches that are appended together, from this offset on. ``is_stored`` False: they are only about to be."""

    counts: tuple[int, ...]
    base_offset: int
    time_ms: int
    names: tuple[bytes, bytes, bytes, bytes]
    leader: int
    is_stored: bool


GROUPS = st.builds(
    Group,
    counts=st.lists(COUNTS, min_size=1, max_size=GROUP_BATCHES_MAX).map(tuple),
    base_offset=OFFSETS,
    time_ms=TIMES,
    names=st.tuples(NAMES, NAMES, NAMES, NAMES),
    leader=st.integers(-1, 2**31 - 1),
    is_stored=st.booleans(),
)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    sequences = st.integers(0, SEQUENCE_MODULUS - 1)
    window = st.lists(st.builds(WindowBatch, sequences, COUNTS, OFFSETS, TIMES, DIGESTS), max_size=5)
    return Entry(
        draw(st.integers(1, 2**63)),
        draw(st.binary(min_size=16, max_size=16)),
        draw(NAMES),
        draw(st.integers(0, 2**15 - 1)),
        draw(sequences),
        tuple(draw(window)),
        draw(st.just(NO_OFFSET) | OFFSETS),
        draw(OFFSETS),
        draw(NAMES),
        is_rebuilt=draw(st.booleans()),
    )


@given(entries(), st.lists(GROUPS, max_size=8))
def test_it_is_what_the_objects_make_of_the_same(entry: Entry, groups: list[Group]) -> None:
    packed = PackedEntry(entry)
    assert packed.entry() == entry
    for group in groups:
        batches, due = [], entry.next_sequence
        for number, count in enumerate(group.counts):
            batches.append(
                Batch(BatchIdentity(entry.producer_epoch, due, count), (due * 7 + number).to_bytes(8, "big"))
            )
            due = (due + count) % SEQUENCE_MODULUS
        owner, anchor, content, appended = group.names
        members = [IntentBatch(one.identity.base_sequence, one.identity.record_count, one.digest) for one in batches]
        bound = group.base_offset // 2
        intent = Intent(owner, entry.producer_epoch, tuple(members), bound, anchor, content, group.leader)
        value = packed.reserving(owner, bound, anchor, content, group.leader, batches)
        assert value == pack(reserved(entry, intent))
        assert packed.entry() == entry, "nothing has changed"
        if not group.is_stored:
            continue
        entry = reserved(entry, intent)
        packed.with_intent, packed.has_intent, packed.version = value, True, packed.version + 1
        assert (packed.version, packed.entry()) == (entry.version, entry)
        assert PackedEntry(entry).entry() == entry
        window, offset = [], group.base_offset
        for one in batches:
            identity = one.identity
            window.append(WindowBatch(identity.base_sequence, identity.record_count, offset, group.time_ms, one.digest))
            offset += identity.record_count
        assert packed.commit(batches, group.base_offset, group.time_ms, appended) == offset
        entry = committed(entry, window, offset, appended)
        assert packed.entry() == entry
        told = packed.version, packed.next_sequence, packed.producer_epoch, packed.end_offset, packed.anchor
        assert told == (entry.version, entry.next_sequence, entry.producer_epoch, entry.end_offset, entry.anchor)
        assert (packed.data_generation, packed.principal) == (entry.data_generation, entry.principal)


@given(entries(), st.tuples(NAMES, NAMES), OFFSETS, st.integers(-1, 2**31 - 1), st.integers(1, 9))
def test_an_append_reservation_is_what_the_objects_make_of_it(
    entry: Entry, names: tuple[bytes, bytes], bound: int, leader: int, writes: int
) -> None:
    """Each write has a version of its own, and ends where it began: without an intent it is the entry as it was."""
    owner, anchor = names
    packed, known = PackedEntry(entry), entry
    for _ in range(writes):
        value = packed.reserving_appends(owner, bound, anchor, leader)
        known = with_append_reservation(
            known,
            Intent(
                owner, entry.producer_epoch, (), bound, anchor, NO_CONTENT, leader, kind=IntentKind.APPEND_RESERVATION
            ),
        )
        assert value == pack(known)
        assert unpack(value) == known
        assert packed.version == known.version
        assert packed.entry().intent is None, "memory has none"
    assert pack(released(known))[9:] == pack(entry)[9:]
