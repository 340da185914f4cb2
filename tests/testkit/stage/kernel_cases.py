"""Batches for the compiled kernel and its Python equivalent, whole and damaged, and what either makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from idemproxy.codecs import batch_digest, batch_marker, compression, convert, record_batch
from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import HeaderPolicy, HeaderRefused, Inner
from idemproxy.codecs.errors import WireError
from idemproxy.codecs.kernel import Kernel
from idemproxy.codecs.record_batch import Record, encode_batch, parse_single_batch
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.producer import grouping

OUTPUT_BYTES_MAX = 1 << 24
USERS = (batch_digest, compression, convert, batch_marker, record_batch, grouping)
"""The modules that have the kernel do something."""
_DROPS_ALL = HeaderPolicy(("*",))
_SIZES = (0, 1, 2, 63, 64, 65, 127, 128, 129, 300, 3_000, 70_000)


@contextmanager
def with_kernel(kernel: Kernel | None) -> Iterator[None]:
    """Meanwhile everything is done by this kernel, or without one."""
    before = [module.KERNEL for module in USERS]
    try:
        for module in USERS:
            vars(module)["KERNEL"] = kernel
        yield
    finally:
        for module, one in zip(USERS, before, strict=True):
            vars(module)["KERNEL"] = one


def random_batch(random: Random) -> bytes:
    """A batch as the kernel takes it: plain, without headers, with null and empty fields, and times around a base."""
    base = random.choice((0, 1_700_000_000_000, 2**62))
    largest = random.choice((2, 20, 300, 3_000))

    def field() -> bytes | None:
        kind = random.randrange(8)
        if kind < 2:
            return None if kind else b""
        return random.randbytes(random.choice(_SIZES) if kind == 2 and largest > 20 else random.randrange(largest))

    count = random.choice((1, 1, 1, 2, 5, 30, 200))
    records = [Record(i, max(-1, base + random.randint(-5, 5_000)), field(), field()) for i in range(count)]
    return encode_batch(
        records,
        producer_id=random.getrandbits(40),
        producer_epoch=random.randrange(1 << 15),
        base_sequence=random.randrange(1 << 31),
        attributes=random.choice((0, 0, record_batch.LOG_APPEND_TIME_FLAG)),
    )


def damaged(batch: bytes, random: Random) -> bytes:
    """The same with some bytes of its records changed, cut out or doubled, and a length that is right."""
    data = bytearray(batch)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(record_batch.BATCH_OVERHEAD_BYTES - 4, len(data) + 1)
        match random.randrange(4):
            case 0:
                data[at : at + 1] = random.choice((b"\x7f", b"\x80", b"\xff", b"\0", b"\1", random.randbytes(1)))
            case 1:
                del data[at : at + random.randint(1, 8)]
            case 2:
                data[at:at] = data[at : at + random.randint(1, 8)]
            case _:
                data[at:at] = b"\xff" * random.randint(1, 10)
    data[8:12] = (len(data) - record_batch.SIZE_FIELDS_BYTES).to_bytes(4, "big")
    return bytes(data)


def in_python(batches: list[bytes], magic: int) -> Inner | None:
    """What the Python makes of the batches; None: it refuses them."""
    views = [memoryview(batch) for batch in batches]
    with with_kernel(None):
        try:
            headers = [parse_single_batch(view) for view in views]
            return at_once(
                convert.converting(views, headers, policy=_DROPS_ALL, output_bytes_max=OUTPUT_BYTES_MAX, magic=magic)
            )
        except (WireError, HeaderRefused):
            return None


def wrapper_in_python(batches: list[bytes]) -> tuple[bytes, bytes, bytes, int, bytes] | None:
    """What the Python makes of them in its steps, where ``Kernel.wrap_batches`` does all at once."""
    inner = in_python(batches, 1)
    headers = [parse_single_batch(memoryview(batch)) for batch in batches]
    whose = [Identity(h.producer_id, h.producer_epoch, h.base_sequence, h.record_count) for h in headers]
    if inner is None or any(min(one) < 0 for one in whose):
        return None
    with with_kernel(None):
        key = batch_marker.encode_batch_marker(whose)
        wrapper = convert.wrap(inner, key=key, codec=Codec.NONE)
        digests = [
            at_once(convert.digesting_whole(memoryview(batch), header, OUTPUT_BYTES_MAX))
            for batch, header in zip(batches, headers, strict=True)
        ]
        return (
            wrapper,
            batch_marker.anchor_of_batch_marker(key),
            inner.first_content,
            inner.max_timestamp,
            b"".join(digests),
        )


def in_kernel(kernel: Kernel, batches: list[bytes], magic: int) -> Inner | None:
    """What the kernel makes of the batches; None: it leaves them to the Python."""
    try:
        for batch in batches:
            parse_single_batch(memoryview(batch))
    except WireError:
        return None
    made = kernel.convert(magic, OUTPUT_BYTES_MAX, *batches)
    return None if made is None else Inner(*made)


def unsnappied(kernel: Kernel, block: bytes, size: int) -> bytes | None:
    """What a block of snappy, without the size in front, holds; None: the kernel says that it is damaged."""
    output, position, filled = bytearray(size), 0, 0
    while position < len(block):
        made = kernel.unsnappy_part(block, position, output, filled)
        if made is None or made == (position, filled):
            return None
        position, filled = made
    return bytes(output) if filled == size else None
