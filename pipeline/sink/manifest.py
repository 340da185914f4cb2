"""What a batch of a query is: which stage files won, and under which numbers each of their batches is published. Pure.

A manifest is made once for each batch and never changed; the next one's numbers follow from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ...client import ProducerId, sequence_after
from . import content
from .problems import SinkProblem

Place = tuple[str, int]

_FORMAT: Final = 1
_MARGIN_SECONDS_MAX: Final = 3600
"""Safety margin before a producer expires, for clocks that differ and for a publication that takes long."""


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A finished batch in a stage file. ``crc``: its own CRC-32C before it is numbered."""

    topic: str
    partition: int
    position: int
    size_bytes: int
    record_count: int
    crc: int


@dataclass(frozen=True, slots=True)
class StageFile:
    """What one attempt of one task has written, in order. ``name``: below the sink's folder. ``digest``: of its rows,
    if it is a batch write."""

    name: str
    size_bytes: int
    batches: tuple[StagedBatch, ...]
    digest: content.Digest = content.NOTHING


@dataclass(frozen=True, slots=True)
class Run:
    """What a batch write is: a digest of its rows, and the micro-batch in whose ``foreachBatch`` it was made (None: in
    none). Two writes under one name are the same one only if both are equal."""

    digest: str
    micro_batch: str | None = None


@dataclass(frozen=True, slots=True)
class Writer:
    """The producer of a query: producer id and epoch, and the query's name, if it has one. ``is_named``: the server
    knows the producer by that name (``fencing=name``), and does not forget it."""

    number: int
    epoch: int
    name: str | None = None
    is_named: bool = False

    @property
    def producer_id(self) -> ProducerId:
        """As the client takes it."""
        return ProducerId(self.number, self.epoch)


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch that is published under this base sequence."""

    file: str
    position: int
    size_bytes: int
    record_count: int
    crc: int
    base_sequence: int

    @property
    def next_sequence(self) -> int:
        """The base sequence after it."""
        return sequence_after(self.base_sequence, self.record_count)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One batch of the query. ``next_sequences``: of all partitions that the query has ever written to."""

    batch_id: int
    created_ms: int
    writer: Writer
    planned: Mapping[Place, tuple[PlannedBatch, ...]] = field(default_factory=dict)
    next_sequences: Mapping[Place, int] = field(default_factory=dict)
    offsets: str | None = None
    """A digest of the source offsets that Spark has noted for the batch. None: there are none, or the manifest is of a
    version that did not keep it."""
    run: Run | None = None
    """None: the batch of a streaming query, or the manifest is of a version that did not keep it."""

    @property
    def record_count(self) -> int:
        """Of all partitions."""
        return sum(batch.record_count for batches in self.planned.values() for batch in batches)


def winners(messages: Sequence[StageFile | None]) -> list[StageFile]:
    """Return the files of the attempts that Spark has chosen, in the order of their tasks. Raises SinkProblem where one
    is missing."""
    chosen = [message for message in messages if message is not None]
    if len(chosen) != len(messages):
        raise SinkProblem(
            f"{len(messages) - len(chosen)} of {len(messages)} tasks have reported no file; nothing was sent"
        )
    return chosen


def numbered(
    batch_id: int,
    files: Sequence[StageFile],
    writer: Writer,
    next_sequences: Mapping[Place, int],
    created_ms: int,
    offsets: str | None = None,
    run: Run | None = None,
) -> Manifest:
    """Return the manifest that publishes these files in their order, each partition from its next sequence on."""
    planned: dict[Place, list[PlannedBatch]] = {}
    following = dict(next_sequences)
    for file in files:
        for staged in file.batches:
            place = (staged.topic, staged.partition)
            batch = PlannedBatch(
                file.name,
                staged.position,
                staged.size_bytes,
                staged.record_count,
                staged.crc,
                following.get(place, 0),
            )
            planned.setdefault(place, []).append(batch)
            following[place] = batch.next_sequence
    return Manifest(
        batch_id,
        created_ms,
        writer,
        {place: tuple(planned[place]) for place in sorted(planned)},
        {place: following[place] for place in sorted(following)},
        offsets,
        run,
    )


def record_count_of(files: Sequence[StageFile]) -> int:
    """Return the records of all files."""
    return sum(batch.record_count for file in files for batch in file.batches)


def run_of(files: Sequence[StageFile], micro_batch: str | None) -> Run:
    """Return what a batch write is that has made these files."""
    return Run(content.shown(content.together(file.digest for file in files)), micro_batch)


def difference(stored: Manifest, run: Run, record_count: int) -> str | None:
    """Return in what a batch write differs from the one that is stored under its name; None: it is the same one."""
    if record_count != stored.record_count:
        return f"this write has {record_count}"
    if stored.run is None:
        return "a version that kept no digest of their content stored them, so nobody can tell if these are the same"
    if run.micro_batch != stored.run.micro_batch:
        said = (f"in the micro-batch {one.micro_batch}" if one.micro_batch else "in none" for one in (run, stored.run))
        return "this write was made {}, and that one {}".format(*said)
    return None if run.digest == stored.run.digest else "this write has as many with other content"


def in_turns(batches: Mapping[Place, Sequence[PlannedBatch]]) -> Iterator[tuple[Place, PlannedBatch]]:
    """Yield all batches, each partition's in order, round-robin over the partitions, so that all leaders have work."""
    left = {place: iter(each) for place, each in batches.items()}
    while left:
        for place in list(left):
            batch = next(left[place], None)
            if batch is None:
                del left[place]
            else:
                yield place, batch


def is_too_old(created_ms: int, now_ms: int, expiry_seconds: int) -> bool:
    """Whether the server may have forgotten what was published of a batch since its manifest was made. Until then, if
    the server does not know the producer on a partition, nothing of the batch is there, and sending it is safe."""
    margin = min(_MARGIN_SECONDS_MAX, expiry_seconds / 2)
    return now_ms - created_ms >= (expiry_seconds - margin) * 1000


def pack(manifest: Manifest) -> bytes:
    """Return the file of a manifest."""
    names = sorted({batch.file for batches in manifest.planned.values() for batch in batches})
    index = {name: number for number, name in enumerate(names)}
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            "base_sequence": batches[0].base_sequence,
            "batches": [[index[one.file], one.position, one.size_bytes, one.record_count, one.crc] for one in batches],
        }
        for (topic, partition), batches in manifest.planned.items()
    ]
    packed: dict[str, object] = {
        "format": _FORMAT,
        "batch": manifest.batch_id,
        "created_ms": manifest.created_ms,
        "producer": _of_writer(manifest.writer),
        "files": names,
        "partitions": partitions,
        "next_sequences": [[*place, sequence] for place, sequence in manifest.next_sequences.items()],
    }
    if manifest.offsets is not None:
        packed["offsets"] = manifest.offsets
    if manifest.run is not None:
        packed["run"] = asdict(manifest.run)
    return json.dumps(packed, separators=(",", ":")).encode()


def _of_writer(writer: Writer) -> dict[str, object]:
    """Return the writer as JSON; without ``is_named`` if it is false, as versions before names refuse that key."""
    packed = asdict(writer)
    if not writer.is_named:
        del packed["is_named"]
    return packed


def unpack(data: bytes, shown: str) -> Manifest:
    """Return the manifest in a file. Raises SinkProblem: it is none, or of a later version."""
    try:
        packed = json.loads(data)
        if packed["format"] != _FORMAT:
            raise SinkProblem(f"{shown}: format {packed['format']} is of a later version than this")
        return Manifest(
            packed["batch"],
            packed["created_ms"],
            Writer(**packed["producer"]),
            {(one["topic"], one["partition"]): _planned(one, packed["files"]) for one in packed["partitions"]},
            {(topic, partition): sequence for topic, partition, sequence in packed["next_sequences"]},
            packed.get("offsets"),
            Run(**packed["run"]) if "run" in packed else None,
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise SinkProblem(f"{shown}: this is no manifest of the sink: {error!r}") from None


def _planned(partition: Mapping[str, Any], files: Sequence[str]) -> tuple[PlannedBatch, ...]:
    sequence = partition["base_sequence"]
    batches = []
    for file, position, size_bytes, record_count, crc in partition["batches"]:
        batch = PlannedBatch(files[file], position, size_bytes, record_count, crc, sequence)
        batches.append(batch)
        sequence = batch.next_sequence
    return tuple(batches)
