"""The batch marker in the header of format v2: written into a client's batch, and read from a log."""

import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.errors import WireError
from idemproxy.codecs.header_marker import header_marker_of, marking_batch, read_header_marker
from idemproxy.codecs.logged import LoggedBatch, anchor_of, anchor_of_header_marker, iterate_logged
from idemproxy.codecs.message_set import ShallowMessage, encode_set
from idemproxy.codecs.record_batch import (
    BATCH_OVERHEAD_BYTES,
    Record,
    encode_batch,
    iterate_records,
    parse_single_batch,
    verify_crc,
)
from idemproxy.codecs.steps import STEP_BYTES
from testkit.real.machine.kernel_build import current
from testkit.stage.either_way import WAYS
from testkit.stage.kernel_cases import with_kernel
from testkit.stage.logs import marked_batch

IDENTITY = Identity(4_000_000_000, 3, 2**31 - 2, 3)
HASHED_TO_PLAIN = (38945, 58637)
"""Base sequences with which the hash of this identity begins with the epochs -1 and 0."""
RECORDS = [Record(at, 1_700_000_000_000 + at, b"k", b"v%d" % at, (("h", b"1"),)) for at in range(3)]


def batch(codec: Codec = Codec.NONE, base_offset: int = 0, producer: tuple[int, int, int] = (7, 3, 5)) -> bytes:
    names = dict(zip(("producer_id", "producer_epoch", "base_sequence"), producer, strict=True))
    return encode_batch(RECORDS, codec=codec, base_offset=base_offset, **names)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_a_marked_batch_is_the_clients_but_for_its_producer(codec: Codec) -> None:
    sent = batch(codec)
    marked = memoryview(marked_batch(memoryview(sent), IDENTITY))
    header = parse_single_batch(marked)
    verify_crc(marked, header)
    assert header.producer_id == -1
    assert read_header_marker(header) == header_marker_of(IDENTITY)
    assert list(iterate_records(marked, header, 1 << 20)) == RECORDS
    assert bytes(marked[BATCH_OVERHEAD_BYTES:]) == sent[BATCH_OVERHEAD_BYTES:]
    before = parse_single_batch(memoryview(sent))
    assert header[2:6] == before[2:6]
    assert header.record_count == before.record_count


@pytest.mark.parametrize("way", WAYS)
def test_a_large_batch_is_marked_in_steps(way: str) -> None:
    value = bytes(range(256)) * (STEP_BYTES // 64)  # four steps, and one of what is left
    sent = memoryview(encode_batch([Record(0, 5, None, value)], producer_id=7, producer_epoch=3, base_sequence=5))
    with with_kernel(current() if way == "kernel" else None):
        assert len(list(marking_batch(sent, header_marker_of(IDENTITY)))) == 4
        marked = memoryview(marked_batch(sent, IDENTITY))
    header = parse_single_batch(marked)
    verify_crc(marked, header)
    assert read_header_marker(header) == header_marker_of(IDENTITY)
    assert marked[BATCH_OVERHEAD_BYTES:] == sent[BATCH_OVERHEAD_BYTES:]


def test_every_part_of_an_identity_changes_the_marker() -> None:
    others = [IDENTITY._replace(**{name: IDENTITY[at] - 1}) for at, name in enumerate(IDENTITY._fields)]
    assert len({header_marker_of(one) for one in (IDENTITY, *others)}) == 5


def test_neither_a_producers_own_numbers_nor_those_without_an_id_are_a_marker() -> None:
    for producer in ((7, 3, 5), (-1, -1, -1), (-1, -1, 0), (-1, 0, 0), (-1, 0, 5)):
        assert read_header_marker(parse_single_batch(memoryview(batch(producer=producer)))) is None
    assert read_header_marker(parse_single_batch(memoryview(batch(producer=(-1, 1, 0))))) is not None


@pytest.mark.parametrize("sequence", HASHED_TO_PLAIN)
def test_a_marker_never_has_an_epoch_of_those_without_an_id(sequence: int) -> None:
    marked = memoryview(marked_batch(memoryview(batch()), IDENTITY._replace(base_sequence=sequence)))
    header = parse_single_batch(marked)
    assert header.producer_epoch not in (-1, 0)
    assert read_header_marker(header) is not None


def test_messages_and_batches_are_read_where_one_follows_the_other() -> None:
    old = encode_set([(b"k", b"v", 5)], magic=1, first_offset=10)
    new = marked_batch(memoryview(batch(base_offset=0)), IDENTITY)
    new[:8] = (11).to_bytes(8, "big")
    data = old + bytes(new) + encode_set([(None, b"w", 5)], magic=1, first_offset=14)
    first, second, third = iterate_logged(data + bytes(new)[:70])
    assert isinstance(first, ShallowMessage)
    assert isinstance(second, LoggedBatch)
    assert isinstance(third, ShallowMessage)
    assert [one.offset for one in (first, second, third)] == [10, 13, 14]
    assert (second.first, second.record_count, second.start) == (11, 3, len(old))
    assert second.marker == header_marker_of(IDENTITY)
    assert anchor_of(second) == anchor_of_header_marker(header_marker_of(IDENTITY), 3)
    assert bytes(second.records) == bytes(new)


def test_the_anchor_of_a_batch_does_not_depend_on_its_place_and_that_of_another_differs() -> None:
    here, there = (next(iterate_logged(batch(base_offset=at))) for at in (5, 9))
    other = next(iterate_logged(batch(producer=(7, 3, 8))))
    assert anchor_of(here) == anchor_of(there) != anchor_of(other)


@pytest.mark.parametrize("size", [0, 20, 48])
def test_a_batch_whose_length_cannot_be_is_refused(size: int) -> None:
    data = bytearray(batch())
    data[8:12] = size.to_bytes(4, "big")
    with pytest.raises(WireError):
        list(iterate_logged(data))
