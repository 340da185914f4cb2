"""The compiled kernel (``kernel.c``), where it was built; else None, and everything is done in Python.

Both make the same bytes. The kernel leaves what is unusual or wrong to the Python by returning None, so errors are
raised and worded in one place. It is built with the package where there is a C compiler (``hatch_build.py``).
"""

from __future__ import annotations

from typing import Final, Protocol

from ..primitives import Buffer

REVISION: Final = 10
"""Raised with every change of what the kernel does: a library of another revision is not used."""

OUTPUT_BYTES_MAX: Final = 4 << 20
"""Bytes that one call makes at most: what is larger is done in steps. Records of seven bytes are slowest: so many bytes
of them take about 10 ms."""
BATCHES_MAX: Final = 5


class Kernel(Protocol):
    """What is compiled. Every function but ``crc32c`` may return None: then the caller does the same in Python. They
    raise only for a wrong call."""

    REVISION: int

    def crc32c(self, data: Buffer, start: int, /) -> int:
        """Return the CRC-32C of the data from ``start`` on."""

    def convert(self, magic: int, room: int, /, *batches: Buffer) -> tuple[bytearray, int, int, bytes] | None:
        """Return (message set of format ``magic``, records, highest timestamp, digest of the first record's content).

        ``batches``: up to five, each whole, uncompressed, with records without headers. ``room``: the most bytes that
        their records may have as messages.
        """

    def convert_part(
        self,
        magic: int,
        offset: int,
        data: Buffer,
        position: int,
        base_timestamp: int,
        index: int,
        record_count: int,
        /,
    ) -> tuple[bytearray, int, int, int, bytes] | None:
        """Return (message set, position and index of the next record, highest timestamp, digest of the first content).

        ``data``: the records of a batch that has ``record_count`` of them. Converts at most a megabyte of messages,
        from the record with this position and index on; the first one gets the offset ``offset``. The digest is of the
        record that gets offset 0; eight zeros if another call had that one.
        """

    def wrap(
        self,
        magic: int,
        codec: int,
        is_stored: bool,
        offset: int,
        timestamp: int,
        key: Buffer | None,
        value: Buffer,
        /,
    ) -> bytes | None:
        """Return a message of format ``magic``. ``is_stored``: its value is gzip with ``value`` in it, uncompressed."""

    def wrap_batches(self, room: int, /, *batches: Buffer) -> tuple[bytes, bytes, bytes, int, bytes] | None:
        """Return (wrapper of format v1, its anchor, digest of the first record's content, highest timestamp, the eight
        bytes of each batch's digest).

        ``batches``, ``room``: as of ``convert``. The wrapper is stored gzip; its batch marker names the identities that
        are in the batches' headers."""

    def encode_marker(self, /, *identities: tuple[int, int, int, int]) -> bytes | None:
        """Return what ``batch_marker.encode_marker`` does."""

    def digest_content(self, key: Buffer | None, value: Buffer | None, /) -> bytes | None:
        """Return what ``batch_marker.content_digest`` does."""

    def digest_messages(
        self, message_set: Buffer, position: int, record_count: int, before: bytes, /
    ) -> tuple[bytes, int, int] | None:
        """Return (digest, position after them, how many) of the next plain messages, as
        ``batch_digest.digesting_messages`` has it: at most ``record_count``, and a megabyte of them."""

    def digest_marker(self, batch_marker: Buffer, /) -> bytes | None:
        """Return what ``batch_marker.anchor_of_batch_marker`` does."""

    def mark_batch(self, batch: Buffer, /) -> tuple[bytes, bytes, bytes, bytes] | None:
        """Return (a whole, uncompressed batch as ``header_marker.marking_batch`` makes it of the identity in its
        header, its anchor, the digest of its first record's content, the digest of its records)."""

    def digest_batch(self, batch: Buffer, /) -> tuple[bytes, bytes] | None:
        """Return (``logged.anchor_of_own_ids`` of a whole, uncompressed batch, the digest of its records)."""

    def unsnappy_part(self, block: Buffer, position: int, output: bytearray, filled: int, /) -> tuple[int, int] | None:
        """Decompress more of a block of snappy, from its element at ``position`` on: a megabyte at most, or one literal
        more, which goes after the first ``filled`` bytes of ``output``. Return the position of the next element, and
        how much is filled now. None: the block is damaged; what is not filled may have changed."""


def usable(found: Kernel) -> Kernel | None:
    """Return what was built, if it is of this revision: a checkout may have an older one next to its source."""
    return found if found.REVISION == REVISION else None


def _compiled() -> Kernel | None:
    try:
        from . import compiled
    except ImportError:
        return None
    return usable(compiled)


KERNEL: Final[Kernel | None] = _compiled()

TOLD: Final = "by the compiled kernel" if KERNEL else "in Python: there is no compiled kernel"
"""For people: what checksums and conversion are done with."""
