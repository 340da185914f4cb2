"""What an entry becomes after the log was read for its producer (rule R10), by the proxy to which the producer comes
back or by a bulk rebuild. Pure: reads nothing, writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from .commit import Stored, rebuilt
from .entry import NO_DATA_GENERATION, NO_OFFSET, Entry, Intent


class Found(Protocol):
    """What a completely read range of the log has of one producer. ``pieces``: in log order, those that matter
    (``commit.Gathered``). ``end_offset`` and ``anchor``: of the message with the last piece. ``gap_at``: the first
    missing offset of the range; -1: none. ``has_unmarked``: is there a message without a batch marker after that
    piece?"""

    @property
    def pieces(self) -> Sequence[Stored]: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def anchor(self) -> bytes: ...

    @property
    def gap_at(self) -> int: ...

    @property
    def has_unmarked(self) -> bool: ...


def completed(
    entry: Entry, result: Found, data_generation: bytes, unrecoverable: Intent | None, *, is_since_checkpoint: bool
) -> Entry:
    """Return the entry with all that was found. ``unrecoverable``: an intent whose outcome could not be determined
    before. ``is_since_checkpoint``: the log was read from a checkpoint on, not from the entry's bound. The entry also
    counts as rebuilt if only messages without a batch marker were found."""
    done = rebuilt(entry, result.pieces, data_generation, result.end_offset, result.anchor)
    if result.has_unmarked:
        done = replace(done, is_rebuilt=True)
    of_epoch = [piece for piece in result.pieces if piece.producer_epoch == done.producer_epoch]
    has_beginning = bool(of_epoch) and of_epoch[0].base_sequence == 0
    knew_beginning = entry.producer_epoch == done.producer_epoch and entry.first_base_offset != NO_OFFSET
    if not is_since_checkpoint and NO_OFFSET < result.gap_at < done.first_base_offset and not has_beginning:
        done = replace(done, first_base_offset=result.gap_at)  # the epoch may have begun in what is missing
    elif of_epoch and not has_beginning and not knew_beginning:
        # It may have begun anywhere below: before a checkpoint, or without a batch marker. A search for an older batch
        # then covers the whole log, so that no batch is refused as out of order wrongly.
        done = replace(done, first_base_offset=0)
    if unrecoverable and (unrecoverable.producer_epoch, unrecoverable.batches[0].base_sequence) == (
        done.producer_epoch,
        done.next_sequence,
    ):
        # The log does not have its batches as the next ones, so it still cannot tell: they stay unrecoverable (R17).
        done = replace(done, intent=unrecoverable)
    return done


def known_as_a_whole(done: Entry) -> Entry:
    """Return a rebuilt entry that is certainly complete: after its last piece every message has a batch marker and no
    offset is missing. So the next batch need not be looked for by its content."""
    return replace(done, is_rebuilt=False)


def known_in_part(done: Entry) -> Entry:
    """Return a rebuilt entry that may lack batches after its last piece. What it says is true, but it stays
    unverified: the proxy to which the producer comes back reads the log from there on."""
    return replace(done, data_generation=NO_DATA_GENERATION)
