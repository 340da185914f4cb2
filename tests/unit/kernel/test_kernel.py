"""The compiled kernel makes the bytes that the Python makes, and leaves to it what is unusual or wrong."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest
from crc32c import crc32c

from idemproxy.codecs import batch_marker, kernel
from idemproxy.codecs.batch_digest import digesting_messages
from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import HeaderPolicy, HeaderRefused, Inner, converting, digesting_whole, wrapping
from idemproxy.codecs.errors import ChecksumMismatch, WireError
from idemproxy.codecs.header_marker import header_marker_of
from idemproxy.codecs.kernel import Kernel
from idemproxy.codecs.logged import anchor_of_header_marker, anchor_of_own_ids
from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.record_batch import Record, encode_batch, parse_single_batch, verify_crc
from idemproxy.codecs.steps import at_once
from testkit.real.machine import kernel_build
from testkit.stage.kernel_cases import (
    OUTPUT_BYTES_MAX,
    damaged,
    in_kernel,
    in_python,
    random_batch,
    unsnappied,
    with_kernel,
    wrapper_in_python,
)
from testkit.stage.logs import marked_batch
from testkit.stage.wrappers import to_inner

BATCHES = 3_000
CALL_SECONDS_MAX = 0.05
POLICY = HeaderPolicy()


def kernels(folder: Path) -> dict[str, Any]:
    """Those that this machine can try: its own build, and what is installed."""
    found = {"installed": kernel.KERNEL} if kernel.KERNEL else {}
    return found | ({"built": kernel_build.load(kernel_build.build(folder))} if kernel_build.COMPILER else {})


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> list[Kernel]:
    return list(kernels(tmp_path_factory.mktemp("kernel")).values())


def numbered(records: list[Record], identity: Identity, codec: Codec = Codec.NONE) -> bytes:
    producer_id, epoch, base_sequence, _ = identity
    numbers = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": base_sequence}
    return encode_batch(records, codec=codec, **numbers)


def test_a_marked_batch_is_the_same_with_its_anchor_and_digest(compiled: list[Kernel]) -> None:
    random, headers = Random(2), (("h", b"1"), ("h", None))
    plain = [(Identity(4_000_000_000, 3, sequence, 3), 3) for sequence in (38945, 58637)]
    # Their hash begins with the epochs -1 and 0.
    counts = (1, 3, 40, *(random.randrange(1, 300) for _ in range(50)))
    for given, count in (*plain, *((None, count) for count in counts)):
        sizes = [random.choice((0, 3, 5_000)) for _ in range(count)]
        records = [Record(at, 9 + at, None if at % 2 else b"k", b"v" * size, headers) for at, size in enumerate(sizes)]
        numbers = random.randrange(1 << 62), random.randrange(1 << 15), random.randrange(1 << 31)
        identity = given or Identity(*numbers, count)
        sent = numbered(records, identity)
        header, marker = parse_single_batch(memoryview(sent)), header_marker_of(identity)
        digest = at_once(digesting_whole(memoryview(sent), header, 1 << 30))
        content = batch_marker.content_digest(records[0].key, records[0].value)
        expected = (
            bytes(marked_batch(memoryview(sent), identity)),
            anchor_of_header_marker(marker, count),
            content,
            digest,
        )
        for one in compiled:
            assert one.mark_batch(sent) == expected
            assert one.digest_batch(sent) == (anchor_of_own_ids(header), digest)
            for wrong in (sent[:-1], sent + b"x", sent[:61] + b"\xff" * 9 + sent[70:], sent[:60]):
                assert one.mark_batch(wrong) is None
                assert one.digest_batch(wrong) is None
            assert one.mark_batch(numbered(records, identity, Codec.GZIP)) is None


def test_random_batches_become_the_same_bytes(compiled: list[Kernel]) -> None:
    random = Random(1)
    for number in range(BATCHES):
        batches = [random_batch(random) for _ in range(random.choice((1, 1, 1, 2, 5)))]
        magic = random.choice((0, 1, 1))
        expected = in_python(batches, magic)
        assert expected is not None
        for one in compiled:
            assert in_kernel(one, batches, magic) == expected, number


def test_random_batches_become_the_same_wrapper_in_one_call(compiled: list[Kernel]) -> None:
    random = Random(5)
    for number in range(BATCHES):
        batches = [random_batch(random) for _ in range(random.choice((1, 1, 1, 2, 5)))]
        expected = wrapper_in_python(batches)
        assert expected is not None
        for one in compiled:
            assert one.wrap_batches(OUTPUT_BYTES_MAX, *batches) == expected, number


def test_what_is_wrapped_of_damaged_batches_is_what_the_python_makes_of_them(compiled: list[Kernel]) -> None:
    random = Random(6)
    for number in range(BATCHES):
        batch = damaged(random_batch(random), random)
        for one in compiled:
            made = one.wrap_batches(OUTPUT_BYTES_MAX, batch)
            assert (made is None) == (one.convert(1, OUTPUT_BYTES_MAX, batch) is None), number
            with suppress(WireError):
                assert made is None or made == wrapper_in_python([batch]), number


def test_messages_have_the_same_digest_however_many_calls_it_takes(compiled: list[Kernel]) -> None:
    """The kernel takes a megabyte at a time, and leaves what is larger to the Python."""
    sizes = (0, 1, 63, 64, 300_000, 300_000, 900_000, 2_000_000, 5, 300_000)
    messages = encode_set([(None if size % 2 else b"key", bytes(size) or None, size) for size in sizes], magic=1)
    with with_kernel(None):
        whole = at_once(digesting_messages(messages, len(sizes)))
        assert whole[1] == len(messages)
    for one in compiled:
        with with_kernel(one):
            assert at_once(digesting_messages(messages, len(sizes))) == whole
            first = at_once(digesting_messages(messages, 6))
            assert at_once(digesting_messages(messages, 4, first[1], first[0])) == whole
        for data, position in ((messages[:20], 0), (messages[:10], 0), (messages, len(messages) + 1)):
            assert one.digest_messages(data, position, 1, bytes(8)) is None
        assert one.digest_messages(messages, 0, 1, b"short") is None


def test_no_wrapper_is_made_of_what_no_batch_marker_names(compiled: list[Kernel]) -> None:
    batch = encode_batch([Record(0, 0, None, b"v")], producer_id=7, producer_epoch=2, base_sequence=3)
    for one in compiled:
        assert one.wrap_batches(OUTPUT_BYTES_MAX, batch) == wrapper_in_python([batch])
        assert one.wrap_batches(OUTPUT_BYTES_MAX, *[batch] * kernel.BATCHES_MAX) is not None
        assert one.wrap_batches(OUTPUT_BYTES_MAX, *[batch] * (kernel.BATCHES_MAX + 1)) is None
        assert one.wrap_batches(0, batch) is None
        assert one.wrap_batches(OUTPUT_BYTES_MAX, batch, batch[:-1]) is None
        for at, size in ((43, 8), (51, 2), (53, 4)):  # producer id, epoch, base sequence
            assert one.wrap_batches(OUTPUT_BYTES_MAX, batch[:at] + b"\xff" * size + batch[at + size :]) is None
        call: Any = one.wrap_batches
        for wrong in ((), (99,), ("99", batch), (99, None), (99, batch, 5)):
            with pytest.raises(TypeError):
                call(*wrong)
        data = bytearray(batch)
        for room in (OUTPUT_BYTES_MAX, 0):
            one.wrap_batches(room, data)
            data.append(1)  # nothing holds the buffer any more


def test_what_is_taken_of_damaged_batches_is_what_the_python_makes_of_them(compiled: list[Kernel]) -> None:
    random = Random(2)
    taken = refused = 0
    for number in range(BATCHES):
        batch = damaged(random_batch(random), random)
        for one in compiled:
            made = in_kernel(one, [batch], 1)
            taken, refused = taken + (made is not None), refused + (made is None)
            assert made is None or made == in_python([batch], 1), number
    assert not compiled or min(taken, refused) > BATCHES // 20


def test_every_flipped_bit_is_refused(compiled: list[Kernel]) -> None:
    batch = encode_batch(
        [Record(0, 1_700_000_000_000, b"key", b"value"), Record(1, 1_700_000_000_001, None, b"v" * 90)]
    )
    for one in compiled:
        with with_kernel(one):
            verify_crc(memoryview(batch), parse_single_batch(memoryview(batch)))
            for bit in range(8 * 17, 8 * len(batch)):  # from the checksum on: what is before it is not signed
                flipped = bytearray(batch)
                flipped[bit // 8] ^= 1 << bit % 8
                view = memoryview(flipped)
                with pytest.raises((ChecksumMismatch, WireError)):
                    verify_crc(view, parse_single_batch(view))


def test_a_batch_that_ends_at_any_byte_is_left_to_the_python(compiled: list[Kernel]) -> None:
    batch = encode_batch([Record(i, 1_700_000_000_000 + i, b"k" * i, b"v" * 100) for i in range(5)])
    for one in compiled:
        assert one.convert(1, OUTPUT_BYTES_MAX, batch) is not None
        for size in range(len(batch)):
            assert one.convert(1, OUTPUT_BYTES_MAX, batch[:size]) is None


@pytest.mark.parametrize("size", [*range(0, 200, 7), 255, 333, 1_023, 1_024, 1_300, 4_096, 100_001])
def test_the_checksum_is_that_of_the_package(compiled: list[Kernel], size: int) -> None:
    data = Random(size).randbytes(size)
    for one in compiled:
        assert [one.crc32c(data, start) for start in (0, 1, 21)] == [crc32c(data[start:]) for start in (0, 1, 21)]


def test_numbers_that_no_batch_has_are_refused_before_anything_is_read(compiled: list[Kernel]) -> None:
    batch = encode_batch([Record(0, 0, None, None)])
    for one in compiled:
        assert one.convert(1, 34, batch) is not None
        for room in (-(2**63), -1, 0, 33):
            assert one.convert(1, room, batch) is None
        for magic in (-1, 2, 2**40):
            assert one.convert(magic, OUTPUT_BYTES_MAX, batch) is None
        for count in (-(2**31), -1, 0, 2, 2**31 - 1):
            assert (
                one.convert(1, OUTPUT_BYTES_MAX, batch[:57] + count.to_bytes(4, "big", signed=True) + batch[61:])
                is None
            )
        for codec in range(1, 8):
            assert one.convert(1, OUTPUT_BYTES_MAX, batch[:22] + bytes((codec,)) + batch[23:]) is None
        assert one.crc32c(batch, 2**62) == one.crc32c(b"", 0) == 0
        assert one.crc32c(batch, -5) == one.crc32c(batch, 0)


def test_more_than_five_batches_are_left_to_the_python(compiled: list[Kernel]) -> None:
    batch = encode_batch([Record(0, 0, None, b"v")])
    for one in compiled:
        assert one.convert(1, OUTPUT_BYTES_MAX, *[batch] * kernel.BATCHES_MAX) is not None
        assert one.convert(1, OUTPUT_BYTES_MAX, *[batch] * (kernel.BATCHES_MAX + 1)) is None
        with with_kernel(one):
            views = [memoryview(batch)] * (kernel.BATCHES_MAX + 1)
            inner = to_inner(views, policy=POLICY, output_bytes_max=OUTPUT_BYTES_MAX)
        assert inner.record_count == kernel.BATCHES_MAX + 1


def test_a_wrong_call_is_an_error_and_nothing_else(compiled: list[Kernel]) -> None:
    batch = encode_batch([Record(0, 0, None, b"v")])
    wrong: list[tuple[Any, ...]] = [(), (1,), (1, 99), ("1", 99, batch), (1, "99", batch), (1, 99, "text")]
    wrong += [(1, 99, None), (1, 99, batch, None), (1, 99, batch, 5)]
    for one in compiled:
        call: Any = one.convert
        for arguments in wrong:
            with pytest.raises(TypeError):
                call(*arguments)
        with pytest.raises(OverflowError):
            call(1, 1 << 70, batch)
        with pytest.raises(BufferError):
            call(1, 99, memoryview(batch)[::2])
        bytearray(batch).append(1)  # nothing holds a buffer any more
        checksum: Any = one.crc32c
        for arguments in ((), (batch,), (batch, 0, 0), (1, 0), (batch, "0")):
            with pytest.raises(TypeError):
                checksum(*arguments)


def test_no_buffer_is_held_on_to(compiled: list[Kernel]) -> None:
    for one in compiled:
        data = bytearray(encode_batch([Record(0, 0, None, b"v")]))
        for room in (99, 0):  # taken, refused
            one.convert(1, room, data)
            one.crc32c(data, 0)
            data.append(0)  # a BufferError, if it were
            data.pop()


@pytest.mark.parametrize("value_bytes", [None, 0, 20, 1_000, 900_000])
def test_no_call_takes_long(compiled: list[Kernel], value_bytes: int | None) -> None:
    """The largest that is taken, of records of every size; what is larger is not taken."""
    value = None if value_bytes is None else bytes(value_bytes)
    record = len(encode_batch([Record(0, 0, None, value)])) - 61
    count = kernel.OUTPUT_BYTES_MAX // (record + 33)
    batch = encode_batch([Record(i, 0, None, value) for i in range(count)])
    for one in compiled:
        took = []
        for _ in range(3):
            began = time.thread_time()
            assert one.convert(1, OUTPUT_BYTES_MAX, batch) is not None
            took.append(time.thread_time() - began)
        assert min(took) < CALL_SECONDS_MAX
        padding = bytes(kernel.OUTPUT_BYTES_MAX - len(batch) + 62)
        assert one.convert(1, OUTPUT_BYTES_MAX, batch + padding) is None


def in_steps(batches: list[bytes], magic: int) -> tuple[Inner | str, int]:
    """What the batches become, or the error; and the number of steps."""
    views = [memoryview(batch) for batch in batches]
    headers = [parse_single_batch(view) for view in views]
    steps = converting(views, headers, policy=POLICY, output_bytes_max=1 << 26, magic=magic)
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        except (WireError, HeaderRefused) as error:
            return f"{type(error).__name__}: {error}", count
        count += 1


LARGE = [Record(i, i, b"k" * (i % 3), b"v" * (i % 2_000)) for i in range(2_000)]
TRACED = (("traceparent", b"1"),)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("records", "least_steps"),
    [
        ([Record(i, 1_700_000_000_000 - i, None, b"v") for i in range(7)], 1),
        ([Record(i, 0, None, None) for i in range(200_000)], 4),
        (LARGE, 1),
        (LARGE * 3, 5),
        ([*LARGE[:1_999], Record(1_999, 0, b"k", bytes(1 << 20))], 1),
        ([*LARGE[:1_999], Record(1_999, 0, b"k", b"v", TRACED)], 1),
        ([*LARGE[:1_999], Record(1_999, 0, b"k", b"v", (("mine", b"1"),))], 1),
        ([*LARGE[:1_999], Record(1_999, -2, b"k", b"v")], 1),
    ],
    ids=["small", "empty", "one part", "several parts", "a large one last", "a header last", "refused", "no time"],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_what_is_large_or_compressed_is_converted_part_by_part(
    compiled: list[Kernel], records: list[Record], least_steps: int, magic: int, codec: Codec
) -> None:
    numbered = [record._replace(offset_delta=index) for index, record in enumerate(records)]
    plain = encode_batch([Record(0, 5, b"first", None)])
    batch = encode_batch(numbered, codec=codec, base_timestamp=0)
    for group in ([batch], [plain, batch, plain]):
        with with_kernel(None):
            expected, _ = in_steps(group, magic)
        for one in compiled:
            with with_kernel(one):
                made, steps = in_steps(group, magic)
                assert made == expected
                assert steps >= least_steps


def test_parts_are_at_most_a_megabyte_and_begin_where_the_last_ended(compiled: list[Kernel]) -> None:
    count = 50_000
    batch = encode_batch([Record(i, i, b"k", b"v" * 20) for i in range(count)])
    expected = in_python([batch], 1)
    assert expected is not None
    for one in compiled:
        whole, position, index, highest = bytearray(), 61, 0, -1
        while index < count:
            began = time.thread_time()
            made = one.convert_part(1, index, batch, position, 0, index, count)
            assert time.thread_time() - began < CALL_SECONDS_MAX
            assert made is not None
            part, position, next_index, part_highest, content = made
            assert len(part) <= 1 << 20
            assert content == expected.first_content or index
            whole, index, highest = whole + part, next_index, max(highest, part_highest)
        assert (whole, highest, position) == (expected.message_set, count - 1, len(batch))
        for wrong in ((2, 0, batch, 61, 0, 0, count), (1, -1, batch, 61, 0, 0, count), (1, 0, batch, -1, 0, 0, count)):
            assert one.convert_part(*wrong) is None
        for position, index in ((61, 1), (62, 0), (61, count)):
            assert one.convert_part(1, 0, batch, position, 0, index, count) is None
        for position, index, records in ((len(batch), 0, 1), (len(batch) + 1, 0, 1), (61, -1, 1), (61, 0, 2**63 - 1)):
            assert one.convert_part(1, 0, batch, position, 0, index, records) is None
        call: Any = one.convert_part
        for arguments in ((), (1,) * 8, (1, 0, "text", 61, 0, 0, 1), (1, 0, batch, None, 0, 0, 1)):
            with pytest.raises(TypeError):
                call(*arguments)


@pytest.mark.parametrize("size", [1, 2, 100, 1_023, 65_535, 65_536, 131_070, 131_071, 300_000])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_is_the_one_that_the_python_makes(compiled: list[Kernel], size: int, magic: int) -> None:
    inner = Inner(bytearray(Random(size).randbytes(size)), 1 + size % 9, 1_700_000_000_000 + size, b"")
    for key in (None, b"", b"k", bytes(range(100))):
        for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
            for harder in (False, True):
                with with_kernel(None):
                    expected = at_once(wrapping(inner, key=key, codec=codec, compress_harder=harder, magic=magic))
                for one in compiled:
                    with with_kernel(one):
                        steps = wrapping(inner, key=key, codec=codec, compress_harder=harder, magic=magic)
                        assert at_once(steps) == expected


def test_what_no_wrapper_has_is_left_to_the_python(compiled: list[Kernel]) -> None:
    for one in compiled:
        assert one.wrap(1, 1, True, 0, 0, None, b"v") is not None
        for magic, codec in ((-1, 1), (2, 1), (1, -1), (1, 8)):
            assert one.wrap(magic, codec, True, 0, 0, None, b"v") is None
        assert one.wrap(1, 1, True, 0, 0, bytes(1 << 17), b"v") is None
        assert one.wrap(1, 1, True, 0, 0, None, bytes(kernel.OUTPUT_BYTES_MAX + 1)) is None
        began = time.thread_time()
        assert one.wrap(1, 1, True, 0, 0, None, bytes(kernel.OUTPUT_BYTES_MAX)) is not None
        assert time.thread_time() - began < CALL_SECONDS_MAX
        call: Any = one.wrap
        for wrong in (
            (),
            (1,) * 8,
            ("1", 1, True, 0, 0, None, b""),
            (1, 1, True, 0, 0, 5, b""),
            (1, 1, 1, 0, 0, b"", None),
        ):
            with pytest.raises(TypeError):
                call(*wrong)


def test_a_batch_marker_is_the_one_that_the_python_makes(compiled: list[Kernel]) -> None:
    random = Random(3)
    for _ in range(300):
        identities = [
            Identity(
                random.choice((0, random.getrandbits(40), 2**63 - 1)),
                random.choice((0, random.getrandbits(15), 2**15 - 1)),
                random.choice((0, random.getrandbits(31), 2**31 - 1)),
                random.choice((1, 1 + random.getrandbits(30), 2**31 - 1)),
            )
            for _ in range(random.randint(1, 6))
        ]
        with with_kernel(None):
            expected = batch_marker.encode_batch_marker(identities)
            digest = batch_marker.anchor_of_batch_marker(expected)
        for one in compiled:
            assert one.encode_marker(*identities) == (expected if len(identities) <= kernel.BATCHES_MAX else None)
            assert one.digest_marker(expected) == digest
    for one in compiled:
        for impossible in (
            (-1, 0, 0, 1),
            (0, -1, 0, 1),
            (0, 1 << 15, 0, 1),
            (0, 0, -1, 1),
            (0, 0, 1 << 31, 1),
            (0, 0, 0, 0),
        ):
            assert one.encode_marker(impossible) is None
        assert one.encode_marker() is None
        assert one.digest_marker(bytes(1 << 17)) is None
        call: Any = one.encode_marker
        assert call((0, 0, 0)) is None
        for wrong in (5, ("0", 0, 0, 1)):
            with pytest.raises((TypeError, SystemError)):
                call(wrong)


@pytest.mark.parametrize("size", [0, 1, 107, 108, 109, 122, 123, 124, 128, 256, 5_000])
def test_the_digest_of_a_content_is_the_one_that_the_python_makes(compiled: list[Kernel], size: int) -> None:
    data = Random(size).randbytes(size)
    for key in (None, b"", b"key", data):
        for value in (None, b"", data):
            with with_kernel(None):
                expected = batch_marker.content_digest(key, value)
            assert [one.digest_content(key, value) for one in compiled] == [expected] * len(compiled)
    for one in compiled:
        assert one.digest_content(None, bytes(kernel.OUTPUT_BYTES_MAX + 1)) is None


def test_a_block_of_snappy_is_what_the_library_makes_of_it(compiled: list[Kernel]) -> None:
    """Also a damaged one, or one that no compressor makes: copies from far away, of themselves, of any length."""
    random = Random(9)
    for _ in range(1_500):
        size = random.choice((1, 40, 300, 70_000))
        data = random.choices(b"ab", k=size) if random.random() < 0.5 else random.randbytes(size)
        start, block = len(varint(size)), bytearray(cramjam.snappy.compress_raw(bytes(data)))
        for _ in range(random.choice((0, 1, 1, 3))):
            at = random.randrange(start, len(block))
            block[at] = random.choice((0xF0, 0xF4, 0xFC, 1, 2, 3, random.randrange(256)))
        try:
            expected: bytes | None = bytes(cramjam.snappy.decompress_raw(bytes(block)))
        except cramjam.DecompressionError:
            expected = None
        for one in compiled:
            assert unsnappied(one, bytes(block[start:]), size) == expected


def test_a_part_of_a_block_of_snappy_is_a_megabyte_and_takes_no_longer(compiled: list[Kernel]) -> None:
    size, mib = 3 << 20, 1 << 20
    densest = {"copies": b"\x0cabcd" + b"\x01\x04" * (size // 4 - 1), "literals": b"\0a" * size}
    for one in compiled:
        for block in densest.values():
            output, position, filled = bytearray(size), 0, 0
            for part in range(1, 4):
                before = time.thread_time()
                made = one.unsnappy_part(block, position, output, filled)
                assert time.thread_time() - before < CALL_SECONDS_MAX
                assert made is not None
                position, filled = made
                assert part * mib <= filled <= part * mib + 63
            assert (position, filled) == (len(block), size)
        for position, filled in ((-1, 0), (0, -1), (3, 0), (0, 9)):
            assert one.unsnappy_part(b"\0a", position, bytearray(8), filled) is None
        assert one.unsnappy_part(b"\0a", 0, bytearray(0), 0) == (0, 0), "there is no room"


def varint(number: int) -> bytes:
    made = b""
    while number > 0x7F:
        made, number = made + bytes([number & 0x7F | 0x80]), number >> 7
    return made + bytes([number])


def test_a_kernel_from_other_sources_is_not_used() -> None:
    for revision, is_used in ((kernel.REVISION, True), (kernel.REVISION - 1, False), (kernel.REVISION + 1, False)):
        found: Any = SimpleNamespace(REVISION=revision)
        assert kernel.usable(found) is (found if is_used else None)
