"""Bytes of a log, as fetched or as in a segment file, taken apart into containers: what stands in the log as one entry.

Formats v0, v1 (wrappers with or without a batch marker) and v2. The bytes are hostile until they are checked: every
length is looked at before it is used, and what is unpacked has a limit. Pure; owns no socket and no file."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

import numpy as np

from ...codecs import message_set, record_batch
from ...codecs.primitives import Buffer
from .container import MAGIC_AT, SIZE_AT, SIZE_FIELDS, Broken, Container, entries
from .contents import integers
from .new_format import batch_container
from .old_format import plain_containers, wrapper_containers

_INT32: Final = Struct(">i")


def containers(data: Buffer, *, joins_wrappers: bool = False) -> Iterator[Container]:
    """Yield the whole entries in the data, in order, as containers; one that is cut off at the end is left out.
    ``joins_wrappers``: consecutive wrappers may come as one container, without pieces.

    An entry that cannot be read is yielded as an unreadable container. Raises Broken where no further entry can be
    found.
    """
    broken = None
    try:
        starts, end = entries(data)
    except Broken as error:
        broken = error
        starts, end = entries(memoryview(data)[: error.position])
    if len(starts):
        view, octets = memoryview(data), np.frombuffer(data, np.uint8)
        ends = np.append(starts[1:], end)
        magics, attributes = octets[starts + MAGIC_AT], octets[starts + MAGIC_AT + 1]
        is_alone = (magics >= record_batch.MAGIC) | (attributes & message_set.CODEC_MASK != 0)
        # Plain messages of one kind are taken at once, and so are wrappers; a batch is a block of its own.
        is_batch = magics >= record_batch.MAGIC
        is_border = is_batch[1:] | is_batch[:-1] | (magics[1:] != magics[:-1]) | (is_alone[1:] != is_alone[:-1])
        is_border |= ~is_alone[1:] & (attributes[1:] != attributes[:-1])
        borders = np.concatenate(([0], np.flatnonzero(is_border) + 1, [len(starts)]))
        for begin, behind in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
            if magics[begin] > record_batch.MAGIC:
                raise Broken(int(starts[begin]), f"an entry of magic {int(magics[begin])}")
            if is_batch[begin]:
                yield batch_container(view[int(starts[begin]) : int(ends[begin])])
            elif is_alone[begin]:
                yield from wrapper_containers(
                    [
                        view[start:end]
                        for start, end in zip(starts[begin:behind].tolist(), ends[begin:behind].tolist(), strict=True)
                    ],
                    joins_wrappers,
                )
            else:
                yield from plain_containers(view, octets, starts[begin:behind], ends[begin:behind], int(magics[begin]))
    if broken is not None:
        raise broken


def in_order(data: memoryview) -> int:
    """Return the length of the data up to which the entries' offsets increase, as no checksum covers these. An entry
    that is cut off at the end counts as in order."""
    try:
        starts, _ = entries(data)
    except Broken as error:
        starts, _ = entries(data[: error.position])
    back = np.flatnonzero(np.diff(integers(data, starts, ">i8")) <= 0)
    return int(starts[back[0]]) if len(back) else len(data)


def first_size(data: Buffer) -> int:
    """Return the bytes of the first entry, whole or not; 0 if not even its size is there."""
    return SIZE_FIELDS + _INT32.unpack_from(data, SIZE_AT)[0] if len(data) >= SIZE_FIELDS else 0
