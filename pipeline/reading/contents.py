"""Contents of many records in one piece of memory, and numbers that stand in it, without an object for each. Pure.

The content of a record is: length (four bytes, -1 for null) and bytes of its key, the same of its value, and, if it has
headers, these as format v2 stores them, their number first. It is the same in every format, so that contents can be
compared and hashed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import Any, Final, Self, overload

import numpy as np
from numpy.typing import NDArray

from ...codecs.primitives import Buffer

Array = NDArray[Any]

LENGTH_BYTES: Final = 4
_INT32: Final = Struct(">i")


@dataclass(frozen=True, slots=True)
class Fields:
    """Where in ``data`` keys, values and headers of records begin. Sizes are -1 for null."""

    data: Buffer
    key_at: Array
    key_sizes: Array
    value_at: Array
    value_sizes: Array
    headers_at: Array
    headers_end: Array

    def arrays(self) -> tuple[Array, ...]:
        """All but the data."""
        return (self.key_at, self.key_sizes, self.value_at, self.value_sizes, self.headers_at, self.headers_end)


class Contents(Sequence[Buffer], ABC):
    """The contents of records, in order; a slice copies no bytes."""

    __slots__ = ()

    @property
    @abstractmethod
    def sizes(self) -> Array:
        """Bytes of each."""

    @abstractmethod
    def fields(self) -> Fields:
        """Return where keys, values and headers are."""

    @abstractmethod
    def _part(self, part: slice) -> Self: ...

    @abstractmethod
    def _one(self, index: int) -> Buffer: ...

    @overload
    def __getitem__(self, index: int) -> Buffer: ...

    @overload
    def __getitem__(self, index: slice) -> Self: ...

    def __getitem__(self, index: int | slice) -> Buffer | Self:
        return self._part(index) if isinstance(index, slice) else self._one(index)


class StoredContents(Contents):
    """Contents of formats v0 and v1, which store them as they are: in ``data`` from ``begins`` up to ``ends``."""

    __slots__ = ("begins", "data", "ends")

    def __init__(self, data: Buffer, begins: Array, ends: Array) -> None:
        self.data = data
        self.begins = begins
        self.ends = ends

    @classmethod
    def of(cls, contents: Sequence[Buffer]) -> Self:
        """Return a copy of these."""
        ends = np.cumsum([len(content) for content in contents], dtype=np.int64)
        return cls(b"".join(contents), np.concatenate(([0], ends[:-1])) if len(ends) else ends, ends)

    def __len__(self) -> int:
        return len(self.begins)

    def __iter__(self) -> Iterator[Buffer]:
        view = memoryview(self.data)
        for begin, end in zip(self.begins.tolist(), self.ends.tolist(), strict=True):
            yield view[begin:end]

    @property
    def sizes(self) -> Array:
        found: Array = self.ends - self.begins
        return found

    def fields(self) -> Fields:
        key_sizes = integers(self.data, self.begins, ">i4")
        key_at = self.begins + LENGTH_BYTES
        behind_key = key_at + np.maximum(key_sizes, 0)
        value_sizes = integers(self.data, behind_key, ">i4")
        value_at = behind_key + LENGTH_BYTES
        headers_at = value_at + np.maximum(value_sizes, 0)
        return Fields(self.data, key_at, key_sizes, value_at, value_sizes, headers_at, self.ends)

    def _part(self, part: slice) -> Self:
        return type(self)(self.data, self.begins[part], self.ends[part])

    def _one(self, index: int) -> Buffer:
        return memoryview(self.data)[int(self.begins[index]) : int(self.ends[index])]


class SplitContents(Contents):
    """Contents of format v2, put together when they are asked for: ``data`` has varint lengths between the fields."""

    __slots__ = ("_fields",)

    def __init__(self, fields: Fields) -> None:
        self._fields = fields

    def __len__(self) -> int:
        return len(self._fields.key_at)

    def __iter__(self) -> Iterator[Buffer]:
        data, pack = bytes(self._fields.data), _INT32.pack
        for key, size, value, value_size, begin, end in zip(
            *(one.tolist() for one in self._fields.arrays()), strict=True
        ):
            key_bytes = data[key : key + size] if size > 0 else b""
            value_bytes = data[value : value + value_size] if value_size > 0 else b""
            yield b"".join((pack(size), key_bytes, pack(value_size), value_bytes, data[begin:end]))

    @property
    def sizes(self) -> Array:
        one = self._fields
        kept = np.maximum(one.key_sizes, 0) + np.maximum(one.value_sizes, 0) + one.headers_end - one.headers_at
        found: Array = kept + 2 * LENGTH_BYTES
        return found

    def fields(self) -> Fields:
        return self._fields

    def _part(self, part: slice) -> Self:
        return type(self)(Fields(self._fields.data, *(one[part] for one in self._fields.arrays())))

    def _one(self, index: int) -> Buffer:
        return next(iter(self._part(slice(index, index + 1 or None))))  # after -1 is the end


NO_CONTENTS: Final = StoredContents(b"", np.empty(0, np.int64), np.empty(0, np.int64))


def joined(parts: Sequence[Contents]) -> Fields:
    """Return where the fields of all parts are, in one piece of memory. Data that several parts share is in it once."""
    found: list[Fields] = []
    for kind, group in groupby(parts, type):
        together = list(group)
        if kind is StoredContents:
            found.append(_stored_together([one for one in together if isinstance(one, StoredContents)]).fields())
        else:
            found += [one.fields() for one in together]
    if len(found) == 1:
        return found[0]
    data, bases = _in_one_piece([one.data for one in found])
    shifts = np.repeat(bases, [len(one.key_at) for one in found])
    key_at, key_sizes, value_at, value_sizes, headers_at, headers_end = (
        np.concatenate(columns) for columns in zip(*(one.arrays() for one in found), strict=True)
    )
    positions = (key_at + shifts, value_at + shifts, headers_at + shifts, headers_end + shifts)
    return Fields(data, positions[0], key_sizes, positions[1], value_sizes, *positions[2:])


def _stored_together(parts: Sequence[StoredContents]) -> StoredContents:
    if len(parts) == 1:
        return parts[0]
    data, bases = _in_one_piece([part.data for part in parts])
    shifts = np.repeat(bases, [len(part) for part in parts])
    begins, ends = np.concatenate([part.begins for part in parts]), np.concatenate([part.ends for part in parts])
    return StoredContents(data, begins + shifts, ends + shifts)


def _in_one_piece(pieces: Sequence[Buffer]) -> tuple[Buffer, list[int]]:
    """Return the bytes of all, each piece of memory once, and where in them each begins."""
    at: dict[int, int] = {}
    kept: list[Buffer] = []
    size = 0
    for piece in pieces:
        if id(piece) not in at:
            at[id(piece)] = size
            kept.append(piece)
            size += len(piece)
    return kept[0] if len(kept) == 1 else b"".join(kept), [at[id(piece)] for piece in pieces]


def integers(data: Buffer, at: Array, dtype: str) -> Array:
    """Return the integers that stand at these places. Raises IndexError where one is not whole."""
    width = np.dtype(dtype).itemsize
    # One integer begins at each byte: they overlap, and those that are wanted are copied.
    overlapping = np.ndarray((max(0, len(data) - width + 1),), dtype, data, strides=(1,))
    found: Array = overlapping[at].astype(np.int64)
    return found
