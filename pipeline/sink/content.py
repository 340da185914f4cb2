"""What a batch write brings, as a digest that neither the order of its rows nor the number of its tasks changes: the
sum of a hash of each row. It distinguishes a run that is repeated from another one under the same name. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import encode
from .encode import Columns

Digest = tuple[int, int]
"""Two sums of 64 bits."""

NOTHING: Final[Digest] = (0, 0)
_MODULUS: Final = 1 << 64
_HASH_BYTES: Final = 16
_NO_PARTITION: Final = -1


def digest_of(topic: str, rows: Columns, partitions: Any) -> Digest:
    """Return the digest of rows for one topic. ``partitions``: those that the rows ask for (null: none), or None where
    no row does. The partition that a key leads to adds nothing to the key."""
    asked = pa.nulls(len(rows), pa.int32()) if partitions is None else partitions
    whole = encode.identities(rows, np.asarray(pc.fill_null(asked, _NO_PARTITION), np.int64))
    data, offsets = encode.buffers_of(whole)
    view = data.data
    seed = blake2b(topic.encode(), digest_size=_HASH_BYTES)
    hashes = []
    for begin, end in pairwise(offsets.tolist()):
        one = seed.copy()
        one.update(view[begin:end])
        hashes.append(one.digest())
    sums = np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2).sum(axis=0, dtype=np.uint64)
    return int(sums[0]), int(sums[1])


def together(digests: Iterable[Digest]) -> Digest:
    """Return the digest of all rows."""
    one, other = NOTHING
    for first, second in digests:
        one, other = (one + first) % _MODULUS, (other + second) % _MODULUS
    return one, other


def shown(digest: Digest) -> str:
    """Return it as text, for a manifest."""
    return "{:016x}{:016x}".format(*digest)
