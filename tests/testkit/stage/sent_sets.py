"""Message sets as producers of Kafka 0.8 to 0.10 send them, of any kind, and how they are raised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message
from idemproxy.codecs.old_formats import RaiseSet, raising
from idemproxy.codecs.old_formats.raising import RefusedSet
from idemproxy.codecs.primitives import Buffer
from idemproxy.codecs.steps import at_once

SentRecord = tuple[bytes | None, bytes | None, int]
"""Key, value and timestamp; the timestamp of format v0 is that of its arrival."""
ARRIVAL_MS = 1_800_000_000_000
UNPACKED_BYTES_MAX = 8 << 20
_CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
_TIMES = (-1, 0, 5, 1_700_000_000_000, 2**63 - 1, -(2**63))


def random_set(random: Random) -> tuple[bytes, list[SentRecord]]:
    """Return a set with its records: plain messages and wrappers of both formats."""
    chunks: list[bytes] = []
    records: list[SentRecord] = []
    for _ in range(random.choice((1, 1, 2, 4))):
        magic = random.choice((0, 1))
        mine = [_random_record(random, magic) for _ in range(random.choice((1, 2, 10, 60)))]
        records += mine
        plain = b"".join(
            encode_message(key, value, magic=magic, offset=random.choice((0, -1, 7)), timestamp=timestamp)
            for key, value, timestamp in mine
        )
        if random.random() < 0.4:
            codec = random.choice(_CODECS)
            plain = encode_message(None, compress(codec, plain, magic=magic), magic=magic, codec=codec)
        chunks.append(plain)
    return b"".join(chunks), records


def _random_record(random: Random, magic: int) -> SentRecord:
    timestamp = random.choice(_TIMES) if random.random() < 0.2 else 1_700_000_000_000 + random.randrange(100_000)
    return _random_field(random), _random_field(random), timestamp if magic else ARRIVAL_MS


def _random_field(random: Random) -> bytes | None:
    size = random.choice((-1, 0, 1, 8, 63, 64, 65, 300))
    return None if size < 0 else random.randbytes(size)


def raised(message_set: bytes, batch_bytes_max: int, unpacked_bytes_max: int) -> list[Buffer] | RefusedSet:
    """Return what is made of a set, at once."""
    return at_once(
        raising.raising(
            message_set,
            arrival_ms=ARRIVAL_MS,
            batch_bytes_max=batch_bytes_max,
            unpacked_bytes_max=unpacked_bytes_max,
        )
    )


@contextmanager
def with_raise_set(library: RaiseSet | None) -> Iterator[None]:
    """Meanwhile sets are raised by this library, or in Python."""
    names = vars(raising)
    before = names["RAISE_SET"]
    try:
        names["RAISE_SET"] = library
        yield
    finally:
        names["RAISE_SET"] = before


def raised_both_ways(
    message_set: bytes, batch_bytes_max: int, library: RaiseSet | None, unpacked_bytes_max: int = UNPACKED_BYTES_MAX
) -> list[bytes] | RefusedSet:
    """Return what is made of a set, in Python and compiled, after a comparison."""
    made: list[list[bytes] | RefusedSet] = []
    for one in (None, library):
        with with_raise_set(one):
            found = raised(message_set, batch_bytes_max, unpacked_bytes_max)
        made.append(found if isinstance(found, RefusedSet) else [bytes(batch) for batch in found])
    in_python, compiled = made
    if isinstance(in_python, RefusedSet) and isinstance(compiled, RefusedSet):
        assert in_python.code == compiled.code
    else:
        assert in_python == compiled
    return in_python
