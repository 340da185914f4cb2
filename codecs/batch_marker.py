"""The batch marker: which batches a stored wrapper is, written into the wrapper's key, and digests to recognise
messages by.

Format, big endian: magic (4 bytes), version (1), then of each batch producer id (8), epoch (2), base sequence (4) and
record count (4), at last a CRC-32 over all before it (4): 27 bytes for one batch, 99 for five. The checksum keeps a
foreign key from being taken for a batch marker. Knows no producer state: whether an identity is expected is judged
elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from isal import isal_zlib

from .kernel import KERNEL
from .message_set import ShallowMessage
from .primitives import Buffer
from .steps import STEP_BYTES, Steps

MAGIC: Final = b"\xa9idm"
VERSION: Final = 1
DIGEST_BYTES: Final = 8

_START: Final = MAGIC + bytes((VERSION,))
_ENTRY: Final = Struct(">qhii")
_CRC: Final = Struct(">I")
_INT32: Final = Struct(">i")
_SEQUENCE_LIMIT: Final = 1 << 31
_CONTENT: Final = blake2b(digest_size=DIGEST_BYTES, person=b"content")
_BATCH_MARKER: Final = blake2b(digest_size=DIGEST_BYTES, person=b"marker")
_NULL_KEY: Final = _CONTENT.copy()
_NULL_KEY.update(b"\xff\xff\xff\xff\1")
"""The digest of a record with a null key, begun up to its value: to copy it takes a third of the time of a new one."""


class Identity(NamedTuple):
    """Which records of a producer these are: a batch, or a part of one with the sequences of that part."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


def encode_batch_marker(identities: Sequence[Identity]) -> bytes:
    """Return the wrapper key for batches that are stored together, in their order in the wrapper."""
    assert identities
    if KERNEL and (batch_marker := KERNEL.encode_marker(*identities)):
        return batch_marker
    chunks = [_START]
    for identity in identities:
        assert _is_possible(identity), identity
        chunks.append(_ENTRY.pack(*identity))
    body = b"".join(chunks)
    return body + _CRC.pack(isal_zlib.crc32(body))


def parse_batch_marker(key: Buffer | None) -> tuple[Identity, ...] | None:
    """Return the identities in a wrapper's key, or None when it is not a batch marker. Never raises."""
    if key is None:
        return None
    entries_bytes = len(key) - len(_START) - _CRC.size
    if entries_bytes <= 0 or entries_bytes % _ENTRY.size or key[: len(_START)] != _START:
        return None
    body = memoryview(key)[: -_CRC.size]
    if isal_zlib.crc32(body) != _CRC.unpack_from(key, len(body))[0]:
        return None
    identities = tuple(Identity(*fields) for fields in _ENTRY.iter_unpack(body[len(_START) :]))
    return identities if all(map(_is_possible, identities)) else None


def _is_possible(identity: Identity) -> bool:
    return (
        identity.producer_id >= 0
        and identity.producer_epoch >= 0
        and 0 <= identity.base_sequence < _SEQUENCE_LIMIT
        and identity.record_count > 0
    )


def content_digest(key: Buffer | None, value: Buffer | None) -> bytes:
    """Return 8 bytes of BLAKE2b over a key and a value. Null and empty differ; the border between the two counts."""
    if KERNEL and (made := KERNEL.digest_content(key, value)):
        return made
    if key is None and value is not None:
        digest = _NULL_KEY.copy()
        digest.update(value)
        return digest.digest()
    digest = _CONTENT.copy()
    digest.update(_INT32.pack(-1 if key is None else len(key)))
    if key:
        digest.update(key)
    digest.update(b"\0" if value is None else b"\1")
    if value:
        digest.update(value)
    return digest.digest()


def digesting_content(key: Buffer | None, value: Buffer | None) -> Steps[bytes]:
    """Return what ``content_digest`` does; a large record takes several steps."""
    if len(key or b"") + len(value or b"") <= STEP_BYTES:
        return content_digest(key, value)
    digest = _CONTENT.copy()
    digest.update(_INT32.pack(-1 if key is None else len(key)))
    for field, mark in ((key, b""), (value, b"\0" if value is None else b"\1")):
        digest.update(mark)
        view = memoryview(field or b"")
        for start in range(0, len(view), STEP_BYTES):
            digest.update(view[start : start + STEP_BYTES])
            yield
    return digest.digest()


def anchor_of_batch_marker(batch_marker: Buffer) -> bytes:
    """Return the anchor of a wrapper that carries this batch marker: 8 bytes of BLAKE2b."""
    if KERNEL and (made := KERNEL.digest_marker(batch_marker)):
        return made
    digest = _BATCH_MARKER.copy()
    digest.update(batch_marker)
    return digest.digest()


def anchor_of(message: ShallowMessage) -> bytes:
    """Return 8 bytes by which a stored message is recognised later: its batch marker's, or its content's if it has
    none."""
    if message.key is not None and parse_batch_marker(message.key) is not None:
        return anchor_of_batch_marker(message.key)
    return content_digest(message.key, message.value)
