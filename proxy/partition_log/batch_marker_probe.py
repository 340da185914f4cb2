"""Reads back what was appended, as it is stored: does the topic keep batch markers, and with which codec does its
broker compress? Flows that no request waits for; they note in ``topic_facts.py`` what they learn, and append
nothing."""

from __future__ import annotations

from collections.abc import Callable

from ...codecs.batch_marker import parse_batch_marker
from ...codecs.compression import Codec
from ...codecs.logged import Logged, LoggedBatch, iterate_logged
from ...reactor import Buffer
from .. import limits
from ..events import BatchMarkerLost, OperatorMessage, Report
from ..flow.effects import Leader, Wait
from .log_offsets import Later, Unreadable, message_at
from .lower_bounds import LowerBounds
from .offset_checkpoints import Place
from .topic_facts import TopicFacts

Named = tuple[int, int, int]
"""Producer id, producer epoch and base sequence of a batch of format v2: they name it, or are its batch marker."""


class BatchMarkerProbe:
    """The batch marker probes of one process. ``probed``: partitions of which an append was read back lately, and what
    the topic does with batch markers is known. ``pending``: those of which one is being read back."""

    def __init__(self, topics: TopicFacts, bounds: LowerBounds, report: Report) -> None:
        self.probed: set[Place] = set()
        self.pending: set[Place] = set()
        self._topics = topics
        self._bounds = bounds
        self._report = report

    async def probe(self, place: Place, sent_set: Buffer, last_offset: int) -> None:
        """Check whether the broker has kept the batch marker of an append, and let an append be checked again after a
        while: the topic's settings and the brokers' message format may change under a running proxy. ``sent_set``: what
        was appended. To be called where the partition is put among ``pending``."""
        sent = next(iterate_logged(sent_set))
        named, sent_codec = _named_in(sent), 0 if isinstance(sent, LoggedBatch) else sent.codec
        del sent, sent_set  # neither it nor what is fetched is kept during the wait
        has_seen = await self._has_seen(place, sent_codec, last_offset, named)
        self.pending.discard(place)
        if has_seen:
            # Not before: under an append reservation a batch without its batch marker could not be found again (R2).
            self.probed.add(place)
            await Wait(limits.BATCH_MARKER_PROBE_SECONDS)
            self.probed.discard(place)

    async def _has_seen(self, place: Place, sent_codec: int, last_offset: int, named: Named | None) -> bool:
        """Look at the append as it is stored. If the batch marker is lost, as the broker has compressed with another
        codec, use that codec for the topic from now on, and check the next append; a batch marker that is lost with the
        same codec is reported. False: the next append has to be checked."""
        leader = await Leader(*place)
        stored = Later("no leader is known") if leader is None else await message_at(leader, *place, last_offset)
        if isinstance(stored, Unreadable):  # for instance record batches: the message format is 0.11 or later
            self._note_lost(place, f"something that cannot be read as message format 0.10 ({stored.reason})")
            return True
        if stored is None or isinstance(stored, Later):
            return False
        if isinstance(stored, LoggedBatch):
            if named is None and place[0] in self._topics.old_format:
                self._store_otherwise(place, "format v2", self._topics.old_format.discard)
                return False
            if named is None or _named_in(stored) != named:
                self._note_lost(place, "batches of format v2 without them")
            elif self._topics.note_batch_marker_kept(*place):
                self._report(OperatorMessage("info", f"topic {place[0]} keeps batch markers again"))
            return True
        if named is not None:
            self._store_otherwise(place, "format v1 (message.format.version)", self._topics.old_format.add)
            return False
        if stored.is_wrapper and parse_batch_marker(stored.key) is not None:
            if self._topics.note_batch_marker_kept(*place):
                self._report(OperatorMessage("info", f"topic {place[0]} keeps batch markers again"))
            return True
        if stored.is_wrapper and stored.codec != sent_codec:
            self._bounds.forget(*place)
            codec = self._topics.wrapper_codecs[place[0]] = Codec(stored.codec)
            self._report(
                OperatorMessage(
                    "info", f"topic {place[0]} is compressed with {codec.name.lower()} from now on: its broker does"
                )
            )
            return False
        what = "wrappers without a key" if stored.is_wrapper else "plain messages"
        self._note_lost(place, f"{what} of format v{stored.magic}")
        return True

    def _store_otherwise(self, place: Place, form: str, note: Callable[[str], None]) -> None:
        """What was appended was stored in another format than its brokers store else: the next appends are of that."""
        note(place[0])
        self._bounds.forget(*place)
        self._report(OperatorMessage("info", f"topic {place[0]} is stored in message {form}"))

    def _note_lost(self, place: Place, stored_as: str) -> None:
        """Bounds that were taken from what was sent do not fit what is stored; those that are taken from now on do."""
        is_news, is_news_here = self._topics.note_batch_marker_lost(*place)
        if is_news_here:
            self._bounds.forget(*place)
        if is_news:
            self._report(BatchMarkerLost(*place, stored_as))


def _named_in(logged: Logged) -> Named | None:
    return logged.header[6:9] if isinstance(logged, LoggedBatch) else None
