"""How far a program is that makes one partition out of another, as one value: the offset in its input, the numbers of
its output, and the batches that it is about to send. Pure.

It is the text that goes with a committed offset, so that one OffsetCommit stores all of it or nothing. Saved *before*
the batches are sent, it lets a later run make the same batches of the same input, and send them under the same
numbers."""

from __future__ import annotations

import json
from typing import Any, Final

from ..codecs.record_batch import parse_single_batch
from ..producing.numbered_batch import ProducerId, sequence_after
from ..values import value
from .limits import METADATA_BYTES_MAX
from .records import CommittedOffset

FORMAT: Final = 1
"""The version of the text. A reader refuses one that it does not know."""


@value(frozen=True, slots=True)
class PlannedBatch:
    """One batch that is about to be sent, or was. ``end_offset``: of the input, after the last record it is made of.
    ``record_count`` and ``crc`` (CRC-32C of the finished batch, before it is numbered) are 0 where the input yields no
    records."""

    end_offset: int
    record_count: int = 0
    crc: int = 0

    @classmethod
    def of(cls, end_offset: int, batch: bytes | None) -> PlannedBatch:
        """Return the plan for a finished batch, None: nothing is sent."""
        if batch is None:
            return cls(end_offset)
        header = parse_single_batch(memoryview(batch))
        return cls(end_offset, header.record_count, header.crc)


@value(frozen=True, slots=True)
class Progress:
    """All input below ``offset`` is in the output, and the output's next batch has ``next_sequence``. ``batches``: what
    is sent next; some of them may be in the log. ``note``: the program's own state at ``offset``."""

    offset: int
    producer_id: ProducerId
    next_sequence: int = 0
    batches: tuple[PlannedBatch, ...] = ()
    note: str = ""

    def after_batches(self, note: str = "") -> Progress:
        """Return how far it is when the planned batches are in the log."""
        if not self.batches:
            return self
        count = sum(one.record_count for one in self.batches)
        return Progress(
            self.batches[-1].end_offset, self.producer_id, sequence_after(self.next_sequence, count), (), note
        )

    def to_commit(self) -> CommittedOffset:
        """Return what is committed. Raises ValueError when it is more than brokers take."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "id": str(self.producer_id.number),  # 63 bits: many readers of JSON keep only 53 of a number
            "epoch": self.producer_id.epoch,
            "next": self.next_sequence,
        }
        if self.batches:
            content["batches"] = [[one.end_offset, one.record_count, one.crc] for one in self.batches]
        if self.note:
            content["note"] = self.note
        text = json.dumps(content, separators=(",", ":"))  # ASCII: one byte for each character
        if len(text) > METADATA_BYTES_MAX:
            raise ValueError(f"{len(text)} bytes of metadata; brokers take {METADATA_BYTES_MAX} for an offset")
        return CommittedOffset(self.offset, text)

    @classmethod
    def committed(cls, saved: CommittedOffset) -> Progress:
        """Return what was committed. Raises ValueError for what ``to_commit`` has not made."""
        try:
            content = json.loads(saved.metadata)
            if content["format"] != FORMAT:
                raise ValueError(f"format {content['format']}")
            batches = tuple(PlannedBatch(*map(int, one)) for one in content.get("batches", ()))
            return cls(
                saved.offset,
                ProducerId(int(content["id"]), int(content["epoch"])),
                int(content["next"]),
                batches,
                str(content.get("note", "")),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"the metadata of the committed offset is not ours: {saved.metadata[:80]!r}") from error
