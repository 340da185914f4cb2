"""Records out of fetched bytes of every message format."""

import pytest

from idemproxy.client.errors import UnreadableLog
from idemproxy.client.reading import records_from
from idemproxy.client.records import StoredRecord
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.record_batch import CONTROL_FLAG, LOG_APPEND_TIME_FLAG, Record, encode_batch

HEADERS = (("name", b"value"),)
ROWS = [Record(0, 100, b"k", b"v", HEADERS), Record(1, 101, None, b"w"), Record(2, 102, b"", None)]


def wrapper(magic: int, last_offset: int) -> bytes:
    inner = encode_set([(b"k", b"v", 7), (None, b"w", 8)], magic=magic, first_offset=0 if magic else last_offset - 1)
    data = compress(Codec.GZIP, inner, magic=magic)
    return encode_message(None, data, magic=magic, offset=last_offset, timestamp=8, codec=Codec.GZIP)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_batch_is_read_from_the_offset_on(codec: Codec) -> None:
    data = encode_batch(ROWS, base_offset=40, codec=codec)
    found, offset = records_from(data, 41)
    assert found == [StoredRecord(41, 101, None, b"w"), StoredRecord(42, 102, b"", None)]
    assert offset == 43
    assert records_from(data, 0)[0][0] == StoredRecord(40, 100, b"k", b"v", HEADERS)


@pytest.mark.parametrize(("magic", "times"), [(0, (-1, -1)), (1, (7, 8))])
def test_message_formats_v0_and_v1_are_read_plain_and_in_wrappers(magic: int, times: tuple[int, int]) -> None:
    data = encode_set([(b"a", None, 7)], magic=magic, first_offset=9) + wrapper(magic, 11)
    found, offset = records_from(data, 0)
    assert found == [
        StoredRecord(9, times[0], b"a", None),
        StoredRecord(10, times[0], b"k", b"v"),
        StoredRecord(11, times[1], None, b"w"),
    ]
    assert offset == 12
    assert [one.offset for one in records_from(data, 11)[0]] == [11]


def test_a_log_may_change_its_format_and_end_in_the_middle_of_a_message() -> None:
    first = wrapper(1, 1) + encode_batch(ROWS, base_offset=2)
    last = wrapper(1, 6)
    for cut in range(len(last)):
        found, offset = records_from(first + last[:cut], 0)
        assert ([one.offset for one in found], offset) == ([0, 1, 2, 3, 4], 5)
    assert records_from(first + last, 0)[1] == 7
    assert records_from(b"", 5) == ([], 5)


def test_batch_markers_of_transactions_are_passed_over() -> None:
    data = encode_batch(ROWS[:1], base_offset=4, attributes=CONTROL_FLAG) + encode_batch(ROWS[:1], base_offset=5)
    found, offset = records_from(data, 4)
    assert ([one.offset for one in found], offset) == ([5], 6)


def test_the_brokers_time_counts_where_the_topic_says_so() -> None:
    found, _ = records_from(encode_batch(ROWS, attributes=LOG_APPEND_TIME_FLAG), 0)
    assert [one.timestamp_ms for one in found] == [102, 102, 102]


@pytest.mark.parametrize("data", [encode_batch(ROWS), wrapper(1, 1), encode_set([(b"a", b"b", 7)], magic=0)])
def test_what_is_damaged_is_no_record(data: bytes) -> None:
    damaged = data[:-1] + bytes((data[-1] ^ 1,))
    with pytest.raises(UnreadableLog, match="offset 0"):
        records_from(damaged, 0)
