"""Bytes of logs for tests that read one: plain messages, wrappers with a batch marker, batches, each at its offset."""

from __future__ import annotations

from collections.abc import Sequence

from idemproxy.codecs.batch_marker import Identity, encode_batch_marker
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.header_marker import header_marker_of, marking_batch
from idemproxy.codecs.message_set import encode_message
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.codecs.steps import at_once

Entry = tuple[bytes | None, bytes | None, int]
"""Key, value, time in ms."""
BEGUN_MS = 1_700_000_000_000


def numbered(first: int, count: int, begun_ms: int = BEGUN_MS) -> list[Entry]:
    """Return records that differ in value and time."""
    return [(b"key", b"value %d" % number, begun_ms + number) for number in range(first, first + count)]


def plain(entries: Sequence[Entry], offset: int = 0, magic: int = 1) -> bytes:
    """Return messages one after the other."""
    return b"".join(
        encode_message(key, value, magic=magic, offset=offset + index, timestamp=time_ms if magic else -1)
        for index, (key, value, time_ms) in enumerate(entries)
    )


def wrapper(
    entries: Sequence[Entry],
    offset: int = 0,
    *identities: Identity,
    codec: Codec = Codec.GZIP,
    magic: int = 1,
    log_append_time_ms: int = 0,
) -> bytes:
    """Return one compressed message, whose first record has this offset; with identities it has a batch marker."""
    inner = plain(entries, 0 if magic else offset, magic)
    return encode_message(
        encode_batch_marker(identities) if identities else None,
        compress(codec, inner, magic=magic),
        magic=magic,
        offset=offset + len(entries) - 1,
        timestamp=(log_append_time_ms or entries[-1][2]) if magic else -1,
        codec=codec,
        log_append_time=bool(log_append_time_ms),
    )


def modern(
    entries: Sequence[Entry], offset: int = 0, identity: Identity | None = None, codec: Codec = Codec.NONE
) -> bytes:
    """Return one batch of format v2."""
    who = identity or Identity(-1, -1, -1, 0)
    return encode_batch(
        [Record(index, time_ms, key, value) for index, (key, value, time_ms) in enumerate(entries)],
        producer_id=who.producer_id,
        producer_epoch=who.producer_epoch,
        base_sequence=who.base_sequence,
        codec=codec,
        base_offset=offset,
    )


def marked_batch(batch: memoryview, identity: Identity) -> bytearray:
    """Return a client's batch as the proxy sends it, with the batch marker of this identity."""
    return at_once(marking_batch(batch, header_marker_of(identity)))


def marked(entries: Sequence[Entry], offset: int, identity: Identity, codec: Codec = Codec.NONE) -> bytes:
    """Return one batch of format v2 as the proxy appends it: with the batch marker of its identity in its header."""
    batch = marked_batch(memoryview(modern(entries, 0, identity, codec)), identity)
    batch[:8] = offset.to_bytes(8, "big")
    return bytes(batch)
