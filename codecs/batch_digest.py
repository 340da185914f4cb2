"""The digest by which a batch is recognised: of the keys and values of its records, and nothing else. So it is the same
however often a client makes the batch again, with other timestamps or compressed again, and however it is stored.

Eight bytes: a CRC-32C and a CRC-32 over the keys and values in order, each after its length (four bytes, -1: null), as
messages of formats v0 and v1 have them at their end. It tells batches of one producer apart, not forgeries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from struct import Struct
from typing import Final

from crc32c import crc32c
from isal import isal_zlib

from .kernel import KERNEL
from .message_set import OFFSET_AND_SIZE_BYTES, OVERHEAD_BYTES, ShallowMessage, iterate_inside, unpacking
from .primitives import Buffer
from .steps import STEP_BYTES, STEP_RECORDS, Steps

NO_DIGEST: Final = bytes(8)
"""Of no records; the digest of what comes first begins with it."""
_CRCS: Final = Struct(">II")
_SIZE: Final = Struct(">i")
_SIZE_AT, _MAGIC_AT, _LENGTHS_BYTES = 8, 16, 8
"""In a message, and at its end: of key and value."""


def digesting_messages(
    message_set: Buffer, record_count: int, position: int = 0, before: bytes = NO_DIGEST
) -> Steps[tuple[bytes, int]]:
    """Return the digest of so many plain messages, which we have made, after those that ``before`` is of, and the
    position after the last one. ``position``: of the first one."""
    digest, left = before, record_count
    while left:
        made = KERNEL.digest_messages(message_set, position, left, digest) if KERNEL else None
        digest, position, done = made or (yield from _digesting_some(message_set, position, left, digest))
        if done == left:
            break
        left -= done
        yield
    return digest, position


def _digesting_some(message_set: Buffer, position: int, most: int, before: bytes) -> Steps[tuple[bytes, int, int]]:
    """Return the digest of the next messages, the position after them, and how many they are."""
    view, count_max = memoryview(message_set), min(most, STEP_RECORDS)
    fields: list[memoryview] = []
    count = held_bytes = 0
    while count < count_max and held_bytes < STEP_BYTES:
        (size,) = _SIZE.unpack_from(view, position + _SIZE_AT)
        start, position = position + OVERHEAD_BYTES[view[position + _MAGIC_AT]], position + OFFSET_AND_SIZE_BYTES + size
        fields += (view[start - _LENGTHS_BYTES : position],)
        count, held_bytes = count + 1, held_bytes + position - start
    some = fields if held_bytes > 2 * STEP_BYTES else (memoryview(b"".join(fields)),)
    return (yield from _added(before, some)), position, count


def digesting_stored(
    wrapper: ShallowMessage, unpacked_bytes_max: int, first: int, record_count: int, before: bytes = NO_DIGEST
) -> Steps[bytes]:
    """Return the digest of so many messages inside a stored wrapper, from number ``first`` on, after those that
    ``before`` is of. Raises WireError."""
    data = yield from unpacking(wrapper, unpacked_bytes_max)
    messages = islice(iterate_inside(wrapper, data), first, first + record_count)
    return (yield from _digesting(memoryview(data), messages, before))


def _digesting(data: memoryview, messages: Iterable[ShallowMessage], before: bytes) -> Steps[bytes]:
    digest = before
    for number, message in enumerate(messages, 1):
        start = message.start + OVERHEAD_BYTES[message.magic] - _LENGTHS_BYTES
        digest = yield from _added(digest, (data[start : message.start + message.size_bytes],))
        if not number % STEP_RECORDS:
            yield
    return digest


def _added(before: bytes, fields: Sequence[memoryview]) -> Steps[bytes]:
    """Return the digest with these keys and values added to it."""
    castagnoli, gzip = _CRCS.unpack(before)
    for one in fields:
        for start in range(0, len(one), STEP_BYTES):
            if start:
                yield
            castagnoli = crc32c(one[start : start + STEP_BYTES], castagnoli)
            gzip = isal_zlib.crc32(one[start : start + STEP_BYTES], gzip)
    return _CRCS.pack(castagnoli, gzip)
