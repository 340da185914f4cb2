"""Segment files written by hand: what the raw reader makes of messages, wrappers, batch markers and unfinished
tails."""

from pathlib import Path

import pytest
from crc32c import crc32c

from idemproxy.codecs.batch_marker import Identity, encode_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.errors import ChecksumMismatch, Malformed
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.record_batch import CONTROL_FLAG, Record, encode_batch
from idemproxy.demo.segments import StoredRecord, read_partition, stored_partitions

IDENTITIES = (Identity(7, 0, 0, 2), Identity(7, 0, 2, 1))


def write(directory: Path, base_offset: int, data: bytes, partition: int = 0) -> None:
    folder = directory / f"orders-{partition}"
    folder.mkdir(exist_ok=True)
    (folder / f"{base_offset:020}.log").write_bytes(data)


def wrapper(last_offset: int, key: bytes | None) -> bytes:
    inner = encode_set([(None, b"a", 10), (b"k", b"b", 11), (None, None, 12)], magic=1)
    value = compress(Codec.GZIP, inner)
    return encode_message(key, value, magic=1, offset=last_offset, timestamp=12, codec=Codec.GZIP)


def test_plain_messages_of_both_formats_are_read_in_order(tmp_path: Path) -> None:
    old = encode_set([(None, b"x", 5)], magic=0, first_offset=3)
    new = encode_set([(b"k", b"y", 6)], magic=1, first_offset=4)
    write(tmp_path, 3, old + new)
    assert list(read_partition(tmp_path, "orders", 0)) == [
        StoredRecord(3, -1, None, b"x", None, 0, 3),
        StoredRecord(4, 6, b"k", b"y", None, 0, 4),
    ]


def test_records_in_a_wrapper_have_its_batch_marker_and_their_own_offsets(tmp_path: Path) -> None:
    write(tmp_path, 5, wrapper(7, encode_batch_marker(IDENTITIES)))
    assert list(read_partition(tmp_path, "orders", 0)) == [
        StoredRecord(5, 10, None, b"a", IDENTITIES, 1, 7),
        StoredRecord(6, 11, b"k", b"b", IDENTITIES, 1, 7),
        StoredRecord(7, 12, None, None, IDENTITIES, 1, 7),
    ]


def test_a_key_that_is_no_batch_marker_is_none(tmp_path: Path) -> None:
    write(tmp_path, 0, wrapper(2, encode_batch_marker(IDENTITIES)[:-1]))
    assert {record.batch_marker for record in read_partition(tmp_path, "orders", 0)} == {None}


def test_segments_are_read_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    write(tmp_path, 100, encode_set([(None, b"late", 1)], magic=1, first_offset=100))
    write(tmp_path, 9, encode_set([(None, b"early", 1)], magic=1, first_offset=9))
    assert [record.value for record in read_partition(tmp_path, "orders", 0)] == [b"early", b"late"]


@pytest.mark.parametrize("left_out", [1, 20, 33])
def test_an_unfinished_message_at_the_end_of_the_newest_segment_is_not_there_yet(tmp_path: Path, left_out: int) -> None:
    data = encode_set([(None, b"whole", 1), (None, b"partly", 1)], magic=1)
    write(tmp_path, 0, data[:-left_out])
    assert [record.value for record in read_partition(tmp_path, "orders", 0)] == [b"whole"]


def test_an_unfinished_message_in_an_older_segment_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, 0, encode_set([(None, b"partly", 1)], magic=1)[:-1])
    write(tmp_path, 1, encode_set([(None, b"whole", 1)], magic=1, first_offset=1))
    with pytest.raises(Malformed):
        list(read_partition(tmp_path, "orders", 0))


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    data = bytearray(encode_set([(None, b"value", 1)], magic=1))
    data[-1] ^= 1
    write(tmp_path, 0, bytes(data))
    with pytest.raises(ChecksumMismatch):
        list(read_partition(tmp_path, "orders", 0))


def test_a_missing_partition_is_an_error_and_an_empty_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_partition(tmp_path, "orders", 0))
    write(tmp_path, 0, b"")
    assert list(read_partition(tmp_path, "orders", 0)) == []


def test_partitions_are_distinguished_from_those_of_topics_with_a_longer_name(tmp_path: Path) -> None:
    for partition in (0, 2, 10):
        write(tmp_path, 0, b"", partition)
    (tmp_path / "orders-old-3").mkdir()
    (tmp_path / "orders-1.deleted").mkdir()
    assert stored_partitions(tmp_path, "orders") == [0, 2, 10]


def test_format_v2_is_read_with_its_offsets_and_without_control_records(tmp_path: Path) -> None:
    def stored(base_offset: int, batch: bytes) -> bytes:
        return base_offset.to_bytes(8, "big") + batch[8:]

    records = [Record(0, 1000, b"key", b"one"), Record(1, 1001, None, b"two")]
    plain = encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0, codec=Codec.NONE)
    zipped = encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=2, codec=Codec.GZIP)
    control = bytearray(encode_batch(records[:1], producer_id=7, producer_epoch=0, base_sequence=-1, codec=Codec.NONE))
    control[22] |= CONTROL_FLAG
    control[17:21] = crc32c(bytes(control[21:])).to_bytes(4, "big")
    cut_off = stored(15, plain)[:-1]
    write(tmp_path, 10, stored(10, plain) + stored(12, bytes(control)) + stored(13, zipped) + cut_off)
    assert list(read_partition(tmp_path, "orders", 0)) == [
        StoredRecord(10, 1000, b"key", b"one", None, 0, 11),
        StoredRecord(11, 1001, None, b"two", None, 0, 11),
        StoredRecord(13, 1000, b"key", b"one", None, 1, 14),
        StoredRecord(14, 1001, None, b"two", None, 1, 14),
    ]
