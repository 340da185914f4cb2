"""What a record of a chaos run says: ``<name>:<partition>:<number>:<random>:<crc>``, so that each differs from
every other and a damaged or mixed up one is noticed. Pure."""

from __future__ import annotations

from binascii import crc32
from typing import NamedTuple

_PARTS = 5


class Payload(NamedTuple):
    """The ``number``-th record that the producer ``name`` sent to ``partition``, counted from 0."""

    name: str
    partition: int
    number: int


def encode(name: str, partition: int, number: int, random: int) -> bytes:
    """Return the value of one record; ``random`` has 32 bits."""
    body = b"%s:%d:%d:%08x" % (name.encode(), partition, number, random)
    return b"%s:%08x" % (body, crc32(body))


def decode(value: bytes) -> Payload | None:
    """Return what a value stands for; None when it is not exactly what a producer of ours sends."""
    body, colon, crc = value.rpartition(b":")
    parts = value.split(b":")
    if not colon or len(parts) != _PARTS or len(crc) != 8:
        return None
    try:
        if int(crc, 16) != crc32(body):
            return None
        return Payload(parts[0].decode(), int(parts[1]), int(parts[2]))
    except ValueError:
        return None
