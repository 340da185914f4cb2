"""From record batches to the message formats v0 and v1, and back, for clients that know nothing newer. The parts that
are compiled (``lower.c``, ``raise_set.c``) are None where they were not built; then everything is done in Python.

Both make the same bytes. They are no part of the kernel, of which other releases have stored what it makes.
"""

from __future__ import annotations

from typing import Final, Protocol

from ..primitives import Buffer

REVISION: Final = 1
"""Raised with every change of what ``lower.c`` does: a library of another revision is not used."""


class Lower(Protocol):
    """What is compiled. Raises only for a wrong call."""

    REVISION: int

    def lower_part(
        self,
        data: Buffer,
        magic: int,
        attributes: int,
        shift: int,
        base_timestamp: int,
        append_time: int,
        position: int,
        record_count: int,
        before: int,
        first: int,
        last: int,
        room: int,
        at_least_one: bool,
        /,
    ) -> tuple[bytearray, int, int, int, int, int, int] | None:
        """Return (plain messages of format ``magic``, position after the last record that was read, how many were read,
        offset delta of the last one, that of the last message or -1, highest timestamp, messages whose record had
        headers).

        ``data``: the records of a batch from ``position`` on, of which at most ``record_count`` are read. Their offset
        deltas have to be above ``before``, the one of the record in front of them, and at most ``last``; below
        ``first`` they are left out. A message's offset is its delta plus ``shift``. ``attributes``: of each message;
        with log append time, ``append_time`` is the time of all. At most ``room`` bytes, and a megabyte, are made;
        ``at_least_one``: the first message is, even if it is larger than ``room``. None: the first record is not whole,
        wrong, or too large for a megabyte.
        """

    def lower_batches(
        self, data: Buffer, magic: int, position: int, fetch_offset: int, is_any_aborted: bool, room: int, /
    ) -> tuple[bytearray, int, int, int, int] | None:
        """Return (plain messages of format ``magic``, position after the last batch, the offset after it, the offset of
        the last message or -1, messages whose record had headers).

        ``data``: what was fetched, from a batch at ``position`` on. Takes batches that are whole and not compressed, up
        to the first that is unusual or wrong, or has a part that might not fit into ``room``, or into a megabyte.
        ``is_any_aborted``: transactional batches are unusual. None: the first one is.
        """


def usable(found: Lower) -> Lower | None:
    """Return what was built, if it is of this revision: a checkout may have an older one next to its source."""
    return found if found.REVISION == REVISION else None


def _compiled() -> Lower | None:
    try:
        from . import lower
    except ImportError:
        return None
    return usable(lower)


LOWER: Final[Lower | None] = _compiled()

RAISE_REVISION: Final = 1
"""The same of ``raise_set.c``."""


class RaiseSet(Protocol):
    """What is compiled for the way back. Raises only for a wrong call."""

    REVISION: int

    def raise_part(
        self,
        data: Buffer,
        position: int,
        magic: int,
        missing_timestamp: int,
        record_count: int,
        base_timestamp: int,
        max_timestamp: int,
        room: int,
        /,
    ) -> tuple[bytearray, int, int, int, int] | None:
        """Return (records of format v2, position after the last message that was read, how many records the batch has
        by then, its base timestamp, its highest timestamp).

        ``data``: plain messages from ``position`` on, all of format ``magic``, or with -1 of both. ``record_count``,
        ``base_timestamp``, ``max_timestamp``: of the batch so far. Reads up to the first message that is a wrapper, cut
        off, wrong in any way, or for which there is no ``room``, in bytes of records; but a batch without records has
        room for one. Makes a megabyte at most. None: the first one is such a message, or larger than that.
        """


def usable_raise_set(found: RaiseSet) -> RaiseSet | None:
    """The same for ``raise_set.c``."""
    return found if found.REVISION == RAISE_REVISION else None


def _compiled_raise_set() -> RaiseSet | None:
    try:
        from . import raise_set
    except ImportError:
        return None
    return usable_raise_set(raise_set)


RAISE_SET: Final[RaiseSet | None] = _compiled_raise_set()
