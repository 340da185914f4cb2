"""The tasks that touch the log: a range becomes rows, and flagged records are looked at again, byte by byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha512
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from ...codecs.primitives import Buffer
from ..reading.broker import FETCH_BYTES, Cluster, OutOfRange
from ..reading.container import Broken
from ..reading.contents import Array
from ..reading.decode import containers
from ..reading.fetching import PartitionFetch
from ..reading.patience import Patience
from ..reading.places import Range
from ..reading.segments import hides_entries, is_cut, pieces
from .fingerprints import RangeTaker
from .plan import ACCESS, Plan

PAIRS_AT_A_TIME: Final = 2_000
"""Pairs of records that a task compares at once: with ``WHOLE_BYTES_MAX`` for each record it holds 64 MiB at most."""
WHOLE_BYTES_MAX: Final = 16 << 10
"""The largest record that is compared byte by byte; of a larger one the SHA-512 is compared."""
_LOOK_BYTES: Final = 1 << 20
"""To fetch at once where single records are wanted."""


def read_range(plan: Plan, wanted: Range) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one range. Raises BrokerProblem, TooLarge, OSError."""
    bytes_read = 0
    if wanted.path:
        following = min((one.start for one in plan.ranges if _is_behind(one, wanted)), default=wanted.end)
        taker = RangeTaker(wanted.place, wanted.start, wanted.end, following)
        for piece in pieces(Path(wanted.path)):
            bytes_read += len(piece)
            yield taker.take(piece)
            if is_cut(piece):
                is_last = following == wanted.end
                is_lost = following > taker.position and not is_last
                yield taker.cut_off() if is_lost or hides_entries(piece, taker.position) else taker.torn(len(piece))
        yield taker.finished(bytes_read)
        return
    taker = RangeTaker(wanted.place, wanted.start, wanted.end)
    place = plan.places[wanted.place]
    with Cluster(plan.bootstrap, ACCESS) as cluster:
        fetch = PartitionFetch(cluster, place.topic, place.partition, FETCH_BYTES)
        patience = Patience()
        while not taker.is_over:
            before = taker.position
            try:
                fetched = fetch.at(before)
            except OutOfRange:
                first, _ = cluster.offsets(place.topic, place.partition)
                if first <= before and patience.waits():
                    continue
                yield taker.deleted(min(first, wanted.end) - 1) if first > before else taker.truncated()
                continue
            bytes_read += len(fetched.records)
            if fetched.records:
                patience.ends()
            yield taker.take(fetched.records)
            if not fetched.records and not taker.is_over:
                if fetched.high_watermark < wanted.end:
                    if patience.waits():
                        continue
                    yield taker.truncated()
                break  # else the last records were compacted away, or hidden ranges leave them out
    yield taker.finished(bytes_read)


def _is_behind(one: Range, other: Range) -> bool:
    return one.place == other.place and one.start > other.start


def compare(plan: Plan, place: int, pairs: Array) -> Array:
    """Return for each pair of offsets (shape n, 2) of one partition: 1 the records are the same, 0 they are not, -1 one
    cannot be read any more. Raises as ``read_range``."""
    verdicts = np.full(len(pairs), -1, np.int8)
    for begin in range(0, len(pairs), PAIRS_AT_A_TIME):
        part = pairs[begin : begin + PAIRS_AT_A_TIME]
        found = contents_at(plan, place, np.unique(part))
        for index, (one, other) in enumerate(part.tolist(), begin):
            if one in found and other in found:
                verdicts[index] = found[one] == found[other]
    return verdicts


def contents_at(plan: Plan, place: int, offsets: Array) -> dict[int, bytes]:
    """Return the contents of the records at these offsets, which increase, as far as they are there."""
    found: dict[int, bytes] = {}
    if plan.bootstrap:
        with Cluster(plan.bootstrap, ACCESS) as cluster:
            _fetch_at(cluster, plan, place, offsets, found)
        return found
    files = sorted((one for one in plan.ranges if one.place == place), key=lambda one: one.start)
    bases = np.array([one.start for one in files])
    for number in np.unique(np.searchsorted(bases, offsets, "right") - 1).tolist():
        for piece in pieces(Path(files[max(number, 0)].path)):
            _collect(piece, offsets, found)
    return found


def _fetch_at(cluster: Cluster, plan: Plan, place: int, offsets: Array, found: dict[int, bytes]) -> None:
    topic, partition = plan.places[place].topic, plan.places[place].partition
    fetch = PartitionFetch(cluster, topic, partition, _LOOK_BYTES)
    index = 0
    while index < len(offsets):
        try:
            fetched = fetch.at(int(offsets[index]))
        except OutOfRange:
            index += 1
            continue
        behind = _collect(fetched.records, offsets, found)
        if behind is not None or not fetched.records:
            index = max(index + 1, int(np.searchsorted(offsets, behind)) if behind is not None else 0)


def _collect(data: Buffer, offsets: Array, found: dict[int, bytes]) -> int | None:
    """Note the wanted records that are in the data; return the offset after it, None if nothing whole is there."""
    behind = None
    try:
        for container in containers(data):
            behind = container.last + 1
            begin, end = np.searchsorted(offsets, (container.first, behind))
            if begin == end or not len(container.offsets):
                continue
            at = np.searchsorted(container.offsets, offsets[begin:end])
            for offset, index in zip(offsets[begin:end].tolist(), at.tolist(), strict=True):
                if index < len(container.offsets) and container.offsets[index] == offset:
                    found[offset] = _kept(container.contents[index])
    except Broken:
        pass  # it was reported when the range was read
    return behind


def _kept(content: Buffer) -> bytes:
    return bytes(content) if len(content) <= WHOLE_BYTES_MAX else sha512(content).digest()


def read_ranges(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a Spark task does: the numbers of ranges in, their rows out."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from read_range(plan, plan.ranges[number])


def compared(plan: Plan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a Spark task does: findings with place, offset and other_offset in; the same with a verdict out."""
    names = ("place", "offset", "other_offset")
    for batch in batches:
        table = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in names}
        verdicts = np.full(batch.num_rows, -1, np.int8)
        for place in np.unique(table["place"]).tolist():
            at = np.flatnonzero(table["place"] == place)
            pairs = np.stack((table["offset"][at], table["other_offset"][at]), axis=1)
            verdicts[at] = compare(plan, place, pairs)
        yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(verdicts)], names=[*batch.schema.names, "verdict"])
