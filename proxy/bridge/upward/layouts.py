"""Layouts of bodies as data, and the walk that rewrites a body from one version of a layout to another. Knows no API.

A layout says what Kafka's message schemas say: the fields in order, and which versions have them. So the same data
leads upwards and downwards, over any number of versions: a field that only the target has gets its default, a field
that only the source has is left out, the rest is copied as bytes. Strings are not decoded, and null stays null.

The steps of ``bridge/ladder.py`` can not do that: each is a procedure for one direction, request down and answer up,
and none can be inverted. They also read a whole body in one go, which suits requests that an old broker can not answer
in bulk. Here every body is walked in steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ....codecs.errors import Malformed
from ....codecs.steps import Steps
from ....reactor import Buffer
from ..fields import INT8, INT16, INT32, INT64, Reader

ENTRIES_PER_STEP: Final = 500
"""Entries of arrays, nested ones included, that are walked in one step: 2 to 5 ms."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A number of so many bytes."""

    size_bytes: int

    @property
    def bytes_min(self) -> int:
        """What it takes at least."""
        return self.size_bytes

    def skip(self, reader: Reader, field: str) -> None:
        """Pass over it."""
        reader.take(self.size_bytes, field)


@dataclass(frozen=True, slots=True)
class Sized:
    """A string, or bytes: a length of ``length_bytes``, and so many bytes. ``is_nullable``: the length may be -1."""

    length_bytes: int
    is_nullable: bool = False

    @property
    def bytes_min(self) -> int:
        """What it takes at least."""
        return self.length_bytes

    def skip(self, reader: Reader, field: str) -> None:
        """Pass over it."""
        size = reader.int16(field) if self.length_bytes == INT16.size else reader.int32(field)
        if size != -1 or not self.is_nullable:
            reader.take(size, field)


@dataclass(frozen=True, slots=True)
class Array:
    """An array of structures. ``patched``: called with what was written and the position of each entry in it, to change
    the entry in an answer that goes down."""

    entry: Layout
    is_nullable: bool = False
    patched: Callable[[bytearray, int], None] | None = None


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the versions ``since`` to ``until``, both inclusive.

    ``default``: its bytes where only the target version has it. ``is_ignorable``: a source may have another value where
    the target lacks the field, as in Kafka's schemas. ``lowered``: what its bytes become in an answer that goes down.
    """

    name: str
    kind: Fixed | Sized | Array
    since: int = 0
    until: int | None = None
    default: bytes = b""
    is_ignorable: bool = True
    lowered: Callable[[bytes], bytes] | None = None

    def is_in(self, version: int) -> bool:
        """Does this version have the field?"""
        return self.since <= version and (self.until is None or version <= self.until)


Layout = tuple[Field, ...]

BYTE: Final = Fixed(INT8.size)
"""Booleans, too."""
SHORT: Final = Fixed(INT16.size)
INT: Final = Fixed(INT32.size)
LONG: Final = Fixed(INT64.size)
STRING: Final = Sized(INT16.size)
NULLABLE_STRING: Final = Sized(INT16.size, is_nullable=True)
BYTES: Final = Sized(INT32.size)


@dataclass(frozen=True, slots=True)
class _Op:
    """What is done about one field between two versions. ``entry``: of an array; ``entry_bytes_min``: in the source."""

    field: Field
    is_read: bool
    is_written: bool
    entry: Sequence[_Op] = ()
    entry_bytes_min: int = 0

    @property
    def bytes_min(self) -> int:
        if not self.is_read:
            return 0
        return INT32.size if isinstance(self.field.kind, Array) else self.field.kind.bytes_min


def _ops(layout: Layout, source: int, target: int) -> list[_Op]:
    found = []
    for field in layout:
        is_read, is_written = field.is_in(source), field.is_in(target)
        entry: Sequence[_Op] = ()
        if is_read and isinstance(field.kind, Array):
            # Of an array that is left out, the entries are only passed over.
            entry = _ops(field.kind.entry, source, target if is_written else source)
        if is_read or is_written:
            found.append(_Op(field, is_read, is_written, entry, sum(op.bytes_min for op in entry)))
    return found


class Rewriting:
    """From one version of a layout to another. Made once for all bodies."""

    __slots__ = ("_is_downward", "_ops")

    def __init__(self, layout: Layout, source: int, target: int) -> None:
        self._ops = _ops(layout, source, target)
        self._is_downward = target < source

    def rewritten(self, body: Buffer) -> Steps[bytearray]:
        """The body in the target version. WireError for anything but one whole body of the source version."""
        walk = _Walk(body, self._is_downward)
        yield from walk.fields(self._ops)
        return walk.finished()


class _Walk:
    """One body on its way. ``_kept_from``: where the bytes begin that are read, kept and not yet written; they are
    copied in one piece, so that an array of unchanged entries costs no copy for each of them."""

    __slots__ = ("_is_downward", "_kept_from", "_left", "_out", "_reader")

    def __init__(self, body: Buffer, is_downward: bool) -> None:
        self._reader = Reader(body)
        self._out = bytearray()
        self._is_downward = is_downward
        self._kept_from = 0
        self._left = ENTRIES_PER_STEP

    def fields(self, ops: Sequence[_Op]) -> Steps[None]:
        reader = self._reader
        for op in ops:
            field = op.field
            if not op.is_read:
                self._write_kept()
                self._out += field.default
                continue
            lowered = field.lowered if self._is_downward else None
            is_copied = op.is_written and lowered is None
            if not is_copied:
                self._write_kept()
            if isinstance(field.kind, Array):
                yield from self._array(op, field.kind)
            else:
                field.kind.skip(reader, field.name)
            if not is_copied:
                self._replace(op, lowered)

    def finished(self) -> bytearray:
        self._write_kept()
        self._reader.finish()
        return self._out

    def _array(self, op: _Op, kind: Array) -> Steps[None]:
        count = self._reader.count(op.field.name, op.entry_bytes_min, null_is=0 if kind.is_nullable else None)
        patched = kind.patched if self._is_downward else None
        for _ in range(count):
            self._left -= 1
            if self._left == 0:
                self._left = ENTRIES_PER_STEP
                yield
            if patched is None:
                yield from self.fields(op.entry)
                continue
            self._write_kept()
            start = len(self._out)
            yield from self.fields(op.entry)
            self._write_kept()
            patched(self._out, start)

    def _replace(self, op: _Op, lowered: Callable[[bytes], bytes] | None) -> None:
        """Write something else for what was read since ``_kept_from``, or nothing."""
        field, position = op.field, self._reader.position
        read = self._reader.data[self._kept_from : position]
        self._kept_from = position
        if op.is_written and lowered is not None:
            self._out += lowered(bytes(read))
        elif not field.is_ignorable and read != field.default:
            raise Malformed(f"{field.name} before {position}: the other version can not say this")

    def _write_kept(self) -> None:
        position = self._reader.position
        self._out += self._reader.data[self._kept_from : position]
        self._kept_from = position
