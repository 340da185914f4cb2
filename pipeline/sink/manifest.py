"""What a batch of a query is: which stage files won, and under which numbers each of their batches is published. Pure.

A manifest is made once for each batch and never changed; the next one's numbers follow from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ...client import ProducerId, sequence_after
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
    """What one attempt of one task has written, in order. ``name``: below the sink's folder."""

    name: str
    size_bytes: int
    batches: tuple[StagedBatch, ...]


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
        """The base sequence behind it."""
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
            f"{len(messages) - len(chosen)} of {len(messages)} tasks have told of no file; nothing was sent"
        )
    return chosen


def numbered(
    batch_id: int,
    files: Sequence[StageFile],
    writer: Writer,
    next_sequences: Mapping[Place, int],
    created_ms: int,
    offsets: str | None = None,
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
    )


def in_turns(batches: Mapping[Place, Sequence[PlannedBatch]]) -> Iterator[tuple[Place, PlannedBatch]]:
    """Yield all batches, each partition's in order, one of each partition in turns, so that all leaders have work."""
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
    content = {
        "format": _FORMAT,
        "batch": manifest.batch_id,
        "created_ms": manifest.created_ms,
        "producer": _of_writer(manifest.writer),
        "files": names,
        "partitions": partitions,
        "next_sequences": [[*place, sequence] for place, sequence in manifest.next_sequences.items()],
    }
    if manifest.offsets is not None:
        content["offsets"] = manifest.offsets
    return json.dumps(content, separators=(",", ":")).encode()


def _of_writer(writer: Writer) -> dict[str, object]:
    """Return the writer as JSON; without ``is_named`` if it is false, as versions before names refuse that key."""
    content = asdict(writer)
    if not writer.is_named:
        del content["is_named"]
    return content


def unpack(data: bytes, shown: str) -> Manifest:
    """Return the manifest in a file. Raises SinkProblem: it is none, or of a later version."""
    try:
        content = json.loads(data)
        if content["format"] != _FORMAT:
            raise SinkProblem(f"{shown}: format {content['format']} is of a later version than this")
        return Manifest(
            content["batch"],
            content["created_ms"],
            Writer(**content["producer"]),
            {(one["topic"], one["partition"]): _planned(one, content["files"]) for one in content["partitions"]},
            {(topic, partition): sequence for topic, partition, sequence in content["next_sequences"]},
            content.get("offsets"),
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
