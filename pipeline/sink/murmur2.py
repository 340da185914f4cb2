"""Which partition Kafka's default partitioner gives a key: murmur2, for a whole column at once.

Source: org.apache.kafka.common.utils.Utils.murmur2 and BuiltInPartitioner.partitionForKey."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint32]

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
_POSITIVE: Final = 0x7FFF_FFFF
_WORD_BYTES: Final = 4
_MASK: Final = 0xFFFF_FFFF
LONG_BYTES: Final = 1024
"""Keys above this are hashed one by one: as columns they would cost a pass over the column for every four bytes."""


def partitions_of(data: Bytes, offsets: Int64s, partition_count: int) -> Int64s:
    """Return for each key (``data[offsets[i]:offsets[i + 1]]``) its partition, from 0 on."""
    positive = murmur2(data, offsets).astype(np.int64) & _POSITIVE
    return positive % partition_count


def murmur2(data: Bytes, offsets: Int64s) -> Hashes:
    """Return the hash of each key."""
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = np.empty(len(lengths), np.uint32)
    is_long = lengths > LONG_BYTES
    for index in np.flatnonzero(is_long):
        hashes[index] = murmur2_of(data[starts[index] : offsets[index + 1]].tobytes())
    short = np.flatnonzero(~is_long)
    # Longest first: those that still have a word are always the first ones.
    order = short[np.argsort(-lengths[short], kind="stable")]
    hashes[order] = _by_columns(data, starts[order], lengths[order])
    return hashes


def murmur2_of(key: bytes) -> int:
    """Return the hash of one key, as an unsigned number of 32 bits."""
    hashed = _SEED ^ len(key)
    whole = len(key) - len(key) % _WORD_BYTES
    for at in range(0, whole, _WORD_BYTES):
        word = int.from_bytes(key[at : at + _WORD_BYTES], "little") * _MULTIPLIER & _MASK
        word ^= word >> _SHIFT
        hashed = (hashed * _MULTIPLIER & _MASK) ^ (word * _MULTIPLIER & _MASK)
    if rest := key[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _MULTIPLIER & _MASK
    hashed ^= hashed >> 13
    hashed = hashed * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def _by_columns(data: Bytes, starts: Int64s, lengths: Int64s) -> Hashes:
    """Hash keys that are sorted by length, the longest first, word by word over all of them."""
    multiplier = np.uint32(_MULTIPLIER)
    hashes = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths // _WORD_BYTES
    for number in range(int(words[0]) if len(words) else 0):
        count = int(np.searchsorted(-words, -number, side="left"))
        word = _word_at(data, starts[:count] + number * _WORD_BYTES, _WORD_BYTES) * multiplier
        word ^= word >> np.uint32(_SHIFT)
        hashes[:count] = (hashes[:count] * multiplier) ^ (word * multiplier)
    for rest in range(1, _WORD_BYTES):
        chosen = np.flatnonzero(lengths % _WORD_BYTES == rest)
        last = _word_at(data, starts[chosen] + words[chosen] * _WORD_BYTES, rest)
        hashes[chosen] = (hashes[chosen] ^ last) * multiplier
    hashes ^= hashes >> np.uint32(13)
    hashes *= multiplier
    return hashes ^ (hashes >> np.uint32(15))


def _word_at(data: Bytes, positions: Int64s, size: int) -> Hashes:
    """Return the little-endian number of ``size`` bytes at each position."""
    word = np.zeros(len(positions), np.uint32)
    for byte in range(size):
        word |= data[positions + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
