from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable

import aiokafka.codec as other
import cramjam
import pytest

from idemproxy.codecs import compression
from idemproxy.codecs.compression import Codec, codec_of, compress, decompress, store_gzip
from idemproxy.codecs.errors import LimitExceeded, Malformed, Truncated, WireError
from testkit.stage import compressed_shapes

COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
SAMPLES = [
    b"",
    b"x",
    b"records " * 50,
    bytes(range(256)) * 300,
    b"\0" * 200_000,
    # Nothing in it repeats, so lz4 stores its blocks.
    b"".join(i.to_bytes(3, "big")[::-1] for i in range(0, 1 << 24, 257))[:150_000],
]
NO_LIMIT = 10_000_000


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("codec", Codec)
def test_what_is_compressed_comes_back(codec: Codec, sample: bytes) -> None:
    assert decompress(codec, compress(codec, sample, magic=2), NO_LIMIT) == sample


@pytest.mark.parametrize("view", [memoryview, bytearray])
@pytest.mark.parametrize("codec", Codec)
def test_every_kind_of_buffer_is_taken(codec: Codec, view: Callable[[bytes], bytearray | memoryview]) -> None:
    packed = compress(codec, view(SAMPLES[2]), magic=2)

    assert decompress(codec, view(packed), NO_LIMIT) == SAMPLES[2]


@pytest.mark.parametrize("sample", SAMPLES)
def test_another_library_reads_what_we_compress(sample: bytes) -> None:
    assert gzip.decompress(compress(Codec.GZIP, sample)) == sample
    if sample:  # it takes xerial's header alone for a raw block
        assert other.snappy_decode(compress(Codec.SNAPPY, sample)) == sample
    assert other.lz4_decode(compress(Codec.LZ4, sample)) == sample
    assert other.zstd_decode(compress(Codec.ZSTD, sample, magic=2)) == sample


@pytest.mark.parametrize("sample", SAMPLES)
def test_we_read_what_another_library_compresses(sample: bytes) -> None:
    assert decompress(Codec.GZIP, gzip.compress(sample), NO_LIMIT) == sample
    assert decompress(Codec.SNAPPY, other.snappy_encode(sample), NO_LIMIT) == sample
    assert decompress(Codec.SNAPPY, other.snappy_encode(sample, xerial_compatible=False), NO_LIMIT) == sample
    # This library sends block checksums, which are passed over.
    assert decompress(Codec.LZ4, other.lz4_encode(sample), NO_LIMIT) == sample
    assert decompress(Codec.ZSTD, other.zstd_encode(sample), NO_LIMIT) == sample


@pytest.mark.parametrize("size", [0, 1, 65_534, 65_535, 65_536, 131_070, 131_071, 200_000])
def test_stored_gzip_is_gzip_at_every_border_of_its_blocks(size: int) -> None:
    data = bytes(i % 251 for i in range(size))

    packed = store_gzip(data)

    assert gzip.decompress(packed) == data
    assert decompress(Codec.GZIP, memoryview(packed), size) == data
    assert len(packed) == size + 18 + 5 * max(1, -(-size // 65_535))


def test_members_of_gzip_are_read_one_after_the_other() -> None:
    packed = gzip.compress(b"one") + store_gzip(b"two") + gzip.compress(b"")

    assert decompress(Codec.GZIP, packed, 6) == b"onetwo"
    with pytest.raises(LimitExceeded):
        decompress(Codec.GZIP, packed, 5)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_as_many_members_as_the_limit_allows_are_read(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MEMBERS_MAX", 300)
    one = compress(codec, b"one", magic=2)

    assert decompress(codec, one * 300, NO_LIMIT) == b"one" * 300
    with pytest.raises(LimitExceeded, match="300 members"):
        decompress(codec, one * 301, NO_LIMIT)


@pytest.mark.parametrize(
    ("codec", "start", "block", "end"),
    [
        (Codec.SNAPPY, b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01", b"\0\0\0\x03\x01\0A", b""),
        (Codec.SNAPPY, b"", b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01", b""),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x60\x40\x82", b"\1\0\0\x80A", b"\0\0\0\0"),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x60\x40\x82", b"\2\0\0\0\x10A", b"\0\0\0\0"),
    ],
)
def test_blocks_with_next_to_nothing_in_them_are_as_few_as_members(
    codec: Codec, start: bytes, block: bytes, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compression, "MEMBERS_MAX", 300)

    decompress(codec, start + block * 299 + end, NO_LIMIT)
    with pytest.raises(LimitExceeded, match="300 members or small blocks"):
        decompress(codec, start + block * 301 + end, NO_LIMIT)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4])
def test_blocks_that_hold_something_may_be_as_many_as_there_are(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MEMBERS_MAX", 3)
    data = bytes(8 << 20)

    assert decompress(codec, compress(codec, data), NO_LIMIT) == data


def test_lz4_for_format_v0_has_the_header_checksum_that_old_readers_want() -> None:
    assert compress(Codec.LZ4, b"x", magic=1)[:7].hex() == "04224d18604082"
    assert compress(Codec.LZ4, b"x", magic=0)[:7].hex() == "04224d1860401a"
    assert decompress(Codec.LZ4, compress(Codec.LZ4, SAMPLES[2], magic=0), NO_LIMIT, magic=0) == SAMPLES[2]


def test_lz4_with_a_content_size_and_checksums_is_read() -> None:
    plain = compress(Codec.LZ4, b"abc")
    with_size = plain[:4] + b"\x6c\x40" + (3).to_bytes(8, "little") + b"\0" + plain[7:] + b"\1\2\3\4"

    assert decompress(Codec.LZ4, with_size, NO_LIMIT) == b"abc"


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("codec", Codec)
def test_the_limit_holds_to_the_byte(codec: Codec, sample: bytes) -> None:
    packed = compress(codec, sample, magic=2)

    assert decompress(codec, packed, len(sample)) == sample
    if sample:
        with pytest.raises(LimitExceeded, match=f"{len(sample) - 1} bytes"):
            decompress(codec, packed, len(sample) - 1)


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_allocates_hardly_more_than_the_limit(codec: Codec) -> None:
    packed = compress(codec, bytes(100_000_000), magic=2)
    limit = 1_000_000

    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded):
            decompress(codec, packed, limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # The output, its copy while it grows, and one block.
    assert peak < 3.2 * limit


@pytest.mark.parametrize("codec", COMPRESSED)
def test_data_that_ends_early_is_refused_at_every_byte(codec: Codec) -> None:
    packed = compress(codec, SAMPLES[2], magic=2)

    for cut in range(len(packed)):
        if codec is Codec.SNAPPY and 16 <= cut < 20:
            continue  # xerial's header and no block: nothing, and valid; bytes that are no whole size are passed over
        with pytest.raises(WireError):
            decompress(codec, packed[:cut], NO_LIMIT)


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("garbage", [b"", b"\0", b"\xff" * 40, b"not compressed at all, but long enough", bytes(64)])
def test_garbage_is_refused(codec: Codec, garbage: bytes) -> None:
    if codec is Codec.SNAPPY and garbage == b"\0":
        assert decompress(codec, garbage, NO_LIMIT) == b""  # a block of no bytes
        return
    with pytest.raises(WireError):
        decompress(codec, garbage, NO_LIMIT)


def test_snappy_data_with_an_impossible_size_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(Malformed, match="can not hold"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\x03" + b"\0" * 10, NO_LIMIT)
    with pytest.raises(LimitExceeded):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 10, NO_LIMIT)


@pytest.mark.parametrize("size", [0, -1, 5, 2**31 - 1])
def test_a_snappy_block_of_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(Truncated, match=f"size {size}"):
        decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"")[:16] + size.to_bytes(4, "big", signed=True) + b"1234", 100)


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("04224d18 2040 00", "version 0"),
        ("04224d18 4040 00", "depend"),
        ("04224d18 6140 00", "dictionary"),
        ("04224d18 6030 00", "block size"),
        ("184d2204 6040 00", "not a frame"),
    ],
)
def test_lz4_frames_that_kafka_does_not_allow_are_refused(start: str, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        decompress(Codec.LZ4, bytes.fromhex(start) + bytes(8), NO_LIMIT)


# What is in a row was sent to brokers of 0.10.2.2 (as a wrapper) and 3.9.1 (as a batch): both took it and stored all
# records, or (REFUSED_BY_BROKERS) neither did. tests/integration/brokers/test_decoders.py sends them again.
@pytest.mark.promise("compressed-as-brokers")
@pytest.mark.parametrize("sample", SAMPLES[2:])
@pytest.mark.parametrize("shape", compressed_shapes.TAKEN_BY_BROKERS)
def test_what_brokers_take_is_read(shape: str, sample: bytes) -> None:
    codec, make = compressed_shapes.TAKEN_BY_BROKERS[shape]
    assert decompress(codec, make(sample), NO_LIMIT) == sample


@pytest.mark.parametrize("shape", compressed_shapes.REFUSED_BY_BROKERS)
def test_what_brokers_refuse_is_refused(shape: str) -> None:
    codec, make = compressed_shapes.REFUSED_BY_BROKERS[shape]
    with pytest.raises(WireError):
        decompress(codec, make(SAMPLES[2]), NO_LIMIT)


@pytest.mark.parametrize("shape", compressed_shapes.OTHER_RECORDS)
def test_what_brokers_read_otherwise_is_read_as_they_do(shape: str) -> None:
    codec, make, read = compressed_shapes.OTHER_RECORDS[shape]
    assert decompress(codec, make(SAMPLES[2]), NO_LIMIT) == read(SAMPLES[2])


def test_lz4_of_linked_blocks_is_refused_as_kafka_does() -> None:
    with pytest.raises(Malformed, match="depend"):
        decompress(Codec.LZ4, bytes(cramjam.lz4.compress(b"x" * 1000)), NO_LIMIT)


def test_a_wrong_checksum_of_gzip_is_noticed() -> None:
    packed = bytearray(compress(Codec.GZIP, SAMPLES[2]))
    packed[-8] ^= 1

    with pytest.raises(Malformed):
        decompress(Codec.GZIP, packed, NO_LIMIT)


def test_message_format_v1_has_no_zstd() -> None:
    with pytest.raises(Malformed, match="zstd in a message of magic 1"):
        decompress(Codec.ZSTD, compress(Codec.ZSTD, b"x", magic=2), NO_LIMIT, magic=1)
    with pytest.raises(AssertionError):
        compress(Codec.ZSTD, b"x", magic=1)


def test_numbers_become_codecs() -> None:
    assert [codec_of(number) for number in range(5)] == list(Codec)
    for number in (-1, 5, 6, 7):
        with pytest.raises(Malformed, match=f"codec {number}"):
            codec_of(number)
