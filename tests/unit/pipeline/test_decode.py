"""Bytes of a log become containers, in every format; what is damaged or hostile is named and costs no memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec, compress, store_gzip
from idemproxy.codecs.errors import WireError
from idemproxy.codecs.message_set import encode_message
from idemproxy.codecs.record_batch import BATCH_OVERHEAD_BYTES, CONTROL_FLAG, Record, encode_batch
from idemproxy.pipeline.reading import new_format, old_format
from idemproxy.pipeline.reading.container import Broken, Container, Piece
from idemproxy.pipeline.reading.decode import containers, first_size
from testkit.stage.logs import BEGUN_MS, Entry, modern, numbered, plain, wrapper

WHO = Identity(7, 1, 40, 3)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_wrapper_has_the_offsets_the_times_and_the_batches_of_its_batch_marker(codec: Codec) -> None:
    other = Identity(9, 0, 0, 2)
    (one,) = containers(wrapper(numbered(0, 5), 100, WHO, other, codec=codec))
    assert (one.first, one.last, one.offsets.tolist()) == (100, 104, [100, 101, 102, 103, 104])
    assert one.timestamps.tolist() == [BEGUN_MS + index for index in range(5)]
    assert one.pieces == (Piece(WHO, 100), Piece(other, 103))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_has_the_producer_of_its_header(codec: Codec) -> None:
    (one,) = containers(modern(numbered(0, 3), 50, WHO, codec))
    assert (one.first, one.last, one.offsets.tolist()) == (50, 52, [50, 51, 52])
    assert one.timestamps.tolist() == [BEGUN_MS, BEGUN_MS + 1, BEGUN_MS + 2]
    assert one.pieces == (Piece(WHO, 50),)


def test_a_record_has_the_same_content_in_every_format() -> None:
    entries = [(None, b"a", 1), (b"k", None, 2), (b"", b"", 3), (b"k", b"v" * 1000, 4)]
    forms = [plain(entries), plain(entries, magic=0), wrapper(entries), wrapper(entries, magic=0), modern(entries)]
    first, *others = [[bytes(content) for one in containers(form) for content in one.contents] for form in forms]
    assert len(set(first)) == len(entries)
    assert all(other == first for other in others)


def test_headers_are_a_part_of_the_content() -> None:
    def content(*headers: tuple[str, bytes | None]) -> bytes:
        (one,) = containers(encode_batch([Record(0, 1, b"k", b"v", headers)]))
        return bytes(one.contents[0])

    assert len({content(), content(("a", b"1")), content(("a", None)), content(("b", b"1"))}) == 4


def test_old_messages_have_no_time_and_absolute_offsets() -> None:
    one, other = containers(plain(numbered(0, 2), 5, magic=0) + wrapper(numbered(2, 3), 7, magic=0))
    assert (one.offsets.tolist(), one.timestamps.tolist()) == ([5, 6], [-1, -1])
    assert (other.first, other.last, other.timestamps.tolist()) == (7, 9, [-1, -1, -1])


def test_log_append_time_is_the_time_of_all_in_a_wrapper() -> None:
    (one,) = containers(wrapper(numbered(0, 2), 0, log_append_time_ms=123))
    assert (one.timestamps.tolist(), one.flags) == ([123, 123], 1)


def test_formats_may_follow_each_other_and_a_part_at_the_end_is_left() -> None:
    data = plain(numbered(0, 2)) + wrapper(numbered(2, 2), 2) + plain(numbered(4, 2), 4) + modern(numbered(6, 2), 6)
    assert [(one.first, one.last) for one in containers(data)] == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert [(one.first, one.last) for one in containers(data[:-1])] == [(0, 1), (2, 3), (4, 5)]
    assert list(containers(b"")) == list(containers(data[:11])) == []


def test_control_batches_are_covered_and_have_no_records() -> None:
    marks = encode_batch([Record(0, 1, b"\0\0\0\1", b"\0" * 6)], attributes=CONTROL_FLAG, base_offset=3)
    (one,) = containers(marks)
    assert (one.first, one.last, one.is_control, len(one.contents)) == (3, 3, True, 0)


@pytest.mark.parametrize("make", [plain, wrapper, modern])
def test_one_flipped_bit_is_named_and_what_follows_is_read(make: Callable[[list[Entry], int], bytes]) -> None:
    damaged = bytearray(make(numbered(0, 1), 0))
    damaged[-1] ^= 1
    bad, good = containers(bytes(damaged) + make(numbered(1, 1), 1))
    assert (bad.first, bad.last, len(bad.offsets)) == (0, 0, 0)
    assert "CRC" in bad.unreadable or "checksum" in bad.unreadable
    assert (good.unreadable, good.offsets.tolist()) == ("", [1])


@pytest.mark.parametrize("position", [8, 16])
def test_nothing_is_guessed_after_an_impossible_size_or_magic(position: int) -> None:
    whole = plain(numbered(0, 2))
    damaged = bytearray(plain(numbered(2, 1), 2))
    damaged[position] = 0x80 if position == 8 else 9
    reading = containers(whole + bytes(damaged))
    one = next(reading)
    assert (one.first, one.last) == (0, 1)
    with pytest.raises(Broken) as broken:
        next(reading)
    assert broken.value.position == len(whole)


def test_what_unpacks_to_more_than_the_limit_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (old_format, new_format):
        monkeypatch.setattr(module, "UNPACKED_BYTES_MAX", 1 << 20)
    bombs = wrapper([(None, bytes(1 << 26), 1)]) + modern([(None, bytes(1 << 26), 1)], 1, codec=Codec.GZIP)
    tracemalloc.start()
    try:
        found = list(containers(bombs))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert all("more than 1048576 bytes" in one.unreadable for one in found)
    assert peak < 8 << 20


@pytest.mark.parametrize(
    "inner",
    [wrapper(numbered(0, 1)), plain(numbered(0, 1), 5) + plain(numbered(1, 1), 4), plain(numbered(0, 1))[:20], b""],
    ids=["a wrapper", "offsets that go back", "a part of a message", "nothing"],
)
def test_a_wrapper_with_something_else_inside_is_not_read(inner: bytes) -> None:
    (one,) = containers(encode_message(None, compress(Codec.GZIP, inner), magic=1, offset=9, codec=Codec.GZIP))
    assert one.unreadable
    assert (one.first, one.last, len(one.contents)) == (9, 9, 0)


def holding(inner: bytes, entries: list[Entry], offset: int) -> bytes:
    """Return a wrapper with these bytes in it and a checksum that fits."""
    value, last = compress(Codec.GZIP, inner, magic=1), offset + len(entries) - 1
    return encode_message(None, value, magic=1, offset=last, timestamp=BEGUN_MS, codec=Codec.GZIP)


FORMS: dict[str, Callable[[list[Entry], int], bytes]] = {
    "marked": lambda entries, offset: wrapper(entries, offset, Identity(7, 0, offset, len(entries))),
    "stored": lambda entries, offset: encode_message(
        None, store_gzip(plain(entries)), magic=1, offset=offset + len(entries) - 1, timestamp=0, codec=Codec.GZIP
    ),
    "unmarked": lambda entries, offset: wrapper(entries, offset, codec=Codec.LZ4),
    "stamped": lambda entries, offset: wrapper(entries, offset, log_append_time_ms=BEGUN_MS + offset),
    "oldest": lambda entries, offset: wrapper(entries, offset, magic=0),
    "plain": plain,
    "batch": modern,
    "cut": lambda entries, offset: holding(plain(entries)[:-1], entries, offset),
    "more": lambda entries, offset: holding(plain(entries) + bytes(13), entries, offset),
    "empty": lambda entries, offset: holding(b"", entries, offset),
    "mixed": lambda entries, offset: holding(
        plain(entries) + plain(entries[:1], len(entries), magic=0), entries, offset
    ),
    "backwards": lambda entries, offset: holding(plain(entries[:1], 1) + plain(entries[:1]), entries, offset),
    "nested": lambda entries, offset: holding(wrapper(entries), entries, offset),
    "below zero": lambda entries, offset: wrapper(entries, -1 - len(entries)),
    "overlong": lambda entries, offset: holding(plain(entries)[:26] + b"\x7f" + plain(entries)[27:], entries, offset),
}
CONTENTS = st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=200), st.integers(0, 1 << 40))


def shown(container: Container) -> tuple[object, ...]:
    """Return all that a container says."""
    arrays = (container.offsets.tolist(), container.timestamps.tolist(), [bytes(one) for one in container.contents])
    kinds = (container.flags, container.unreadable, container.is_control, container.is_plain)
    return (container.first, container.last, *arrays, container.pieces, *kinds)


def records_of(read: Iterable[Container]) -> list[tuple[int, int, int, bytes]]:
    return [
        (offset, time_ms, one.flags, bytes(content))
        for one in read
        for offset, time_ms, content in zip(one.offsets.tolist(), one.timestamps.tolist(), one.contents, strict=True)
    ]


@example([("plain", [(None, bytes(2), 0)] * 4), ("backwards", [(None, None, 0)])], (266164, b"\1"))
@given(
    st.lists(st.tuples(st.sampled_from(sorted(FORMS)), st.lists(CONTENTS, min_size=1, max_size=5)), max_size=12),
    st.none() | st.tuples(st.integers(0), st.binary(min_size=1, max_size=3)),
)
def test_what_is_taken_apart_together_is_the_same_as_one_by_one(
    blocks: list[tuple[str, list[Entry]]], damage: tuple[int, bytes] | None
) -> None:
    entries_of_log, offset = [], 0
    for form, contents in blocks:
        entries_of_log.append(FORMS[form](contents, offset))
        offset += len(contents)
    if damage is not None and entries_of_log:
        at, change = damage
        hit = at % len(entries_of_log)
        entry = bytearray(entries_of_log[hit])
        end = first_size(entry)  # of the first message only: the sizes of those after it have to stay, and its own
        begin = 12 + at // len(entries_of_log) % (end - 12)
        entry[begin : min(begin + len(change), end)] = change[: end - begin]
        entries_of_log[hit] = bytes(entry)
    try:
        alone = [shown(one) for entry in entries_of_log for one in containers(entry) if not one.is_plain]
        together = [shown(one) for one in containers(b"".join(entries_of_log)) if not one.is_plain]
    except Broken:
        return  # a magic that there is none of
    assert together == alone
    log = b"".join(entries_of_log)
    assert records_of(containers(log, joins_wrappers=True)) == records_of(containers(log))


HEADERS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)
RECORDS = st.lists(st.tuples(CONTENTS, HEADERS), min_size=1, max_size=6)


@given(RECORDS, st.none() | st.tuples(st.integers(0), st.binary(min_size=1, max_size=3)), st.integers(-1, 1))
def test_records_of_a_batch_read_together_equal_those_read_one_by_one(
    records: list[tuple[Entry, tuple[tuple[str, bytes | None], ...]]], damage: tuple[int, bytes] | None, more: int
) -> None:
    made = [
        Record(index, time_ms, key, value, headers) for index, ((key, value, time_ms), headers) in enumerate(records)
    ]
    payload = bytearray(encode_batch(made)[BATCH_OVERHEAD_BYTES:])
    if damage is not None:
        at = damage[0] % len(payload)
        payload[at : at + len(damage[1])] = damage[1]
    count = max(1, len(records) + more * (damage is not None))
    together = new_format.together(bytes(payload), count)
    try:
        wanted = new_format.one_by_one(bytes(payload), count)
    except WireError:
        assert together is None
        return
    if damage is None:
        assert together is not None
    if together is not None:
        for name in ("deltas", "timestamp_deltas"):
            assert getattr(together, name).tolist() == getattr(wanted, name).tolist()
        assert [bytes(one) for one in together.contents] == [bytes(one) for one in wanted.contents]
        assert together.contents.sizes.tolist() == wanted.contents.sizes.tolist()
        assert bytes(together.contents[-1]) == bytes(wanted.contents[-1])
        assert [bytes(one) for one in together.contents[1:]] == [bytes(one) for one in wanted.contents][1:]
