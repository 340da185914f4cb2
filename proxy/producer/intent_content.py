"""Does the log have an intent's batches under their numbers, or others? Rule R9. Flows only: they look into the log.

Another batch may have the numbers: one that was unrecoverable, so that a client was told to send other records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...codecs.logged import Logged
from ...state.commit import Stored
from ...state.decide import BatchIdentity
from ...state.entry import NO_CONTENT, NO_DIGEST, Entry, Intent, IntentBatch
from ..flow.effects import in_steps
from ..partition_log.log_chunk import holds_content
from ..partition_log.log_offsets import Later, look_at
from ..partition_log.log_search import covered
from .duplicates import digest_of_pieces
from .stream import Stream


async def has_intents_content(stream: Stream, entry: Entry, intent: Intent, pieces: Sequence[Stored]) -> bool | Later:
    """Are these pieces, found just now by the intent's numbers, its batches or their first ones? ``entry``: with the
    intent. Later: it could not be determined; Unreadable: perhaps never."""
    left = covered(pieces, BatchIdentity(intent.producer_epoch, intent.batches[0].base_sequence, 1))
    for number, batch in enumerate(intent.batches):
        own = _of_batch(batch, left)
        left = left[len(own) :]
        is_own = not own or await _is_own(stream, intent, batch, own, is_first=not number, is_rest=_may_be_rest(entry))
        if is_own is not True:
            return is_own
    return True


def _of_batch(batch: IntentBatch, pieces: Sequence[Stored]) -> list[Stored]:
    own: list[Stored] = []
    for piece in pieces:
        if sum(one.record_count for one in own) >= batch.record_count:
            break
        own.append(piece)
    return own


def _may_be_rest(entry: Entry) -> bool:
    """May the batch that is due be what is left of one that is stored in parts? Its digest is of the whole batch."""
    return bool(entry.window) and entry.window[-1].digest == NO_DIGEST


async def _is_own(
    stream: Stream, intent: Intent, batch: IntentBatch, pieces: Sequence[Stored], *, is_first: bool, is_rest: bool
) -> bool | Later:
    """Are the pieces of this batch? Of a part of it no digest is known: then its first record tells."""
    found = sum(piece.record_count for piece in pieces)
    if found > batch.record_count:
        return False
    if found == batch.record_count:
        digest = NO_DIGEST if batch.digest == NO_DIGEST else await digest_of_pieces(stream, pieces)
        if isinstance(digest, Later):
            return digest
        if digest in (NO_DIGEST, batch.digest):
            return True
        if not is_first or not is_rest or intent.content == NO_CONTENT:
            return False
    if not is_first or intent.content == NO_CONTENT:
        return True
    offset = pieces[0].base_offset

    async def fits(message: Logged) -> bool:
        return await in_steps(partial(holds_content, message, offset, intent.content), stream.topic)

    return await look_at(stream.topic, stream.partition, offset, fits)
