"""Contents of many records in one piece of memory, and numbers that stand in it, without an object for each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from ...codecs.primitives import Buffer

Array = NDArray[Any]


class Contents(Sequence[memoryview]):
    """Of each record the bytes from ``begins`` up to ``ends`` in ``data``, in order; a slice copies no bytes."""

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

    @overload
    def __getitem__(self, index: int) -> memoryview: ...

    @overload
    def __getitem__(self, index: slice) -> Contents: ...

    def __getitem__(self, index: int | slice) -> memoryview | Contents:
        if isinstance(index, slice):
            return Contents(self.data, self.begins[index], self.ends[index])
        return memoryview(self.data)[int(self.begins[index]) : int(self.ends[index])]

    def __iter__(self) -> Iterator[memoryview]:
        view = memoryview(self.data)
        for begin, end in zip(self.begins.tolist(), self.ends.tolist(), strict=True):
            yield view[begin:end]

    @property
    def sizes(self) -> Array:
        """Bytes of each."""
        found: Array = self.ends - self.begins
        return found


NO_CONTENTS = Contents(b"", np.empty(0, np.int64), np.empty(0, np.int64))


def joined(parts: Sequence[Contents]) -> Contents:
    """Return the contents of all parts. Memory that several have in common is there once."""
    if len(parts) == 1:
        return parts[0]
    bases: dict[int, int] = {}
    pieces: list[Buffer] = []
    size = 0
    begins, ends = [], []
    for part in parts:
        base = bases.get(id(part.data))
        if base is None:
            base = bases[id(part.data)] = size
            pieces.append(part.data)
            size += len(part.data)
        begins.append(part.begins + base if base else part.begins)
        ends.append(part.ends + base if base else part.ends)
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    return Contents(data, np.concatenate(begins), np.concatenate(ends))


def integers(data: Buffer, at: Array, dtype: str) -> Array:
    """Return the integers that stand at these places. Raises IndexError where one is not whole."""
    width = np.dtype(dtype).itemsize
    # One integer begins at each byte: they overlap, and those that are wanted are copied.
    overlapping = np.ndarray((max(0, len(data) - width + 1),), dtype, data, strides=(1,))
    found: Array = overlapping[at].astype(np.int64)
    return found
