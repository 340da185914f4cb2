"""The duplicate audit: batches that were sent twice, or dropped after a search, are looked for in the log again, later
(rule R14). Flows that no request waits for; they report what they find, and change nothing."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from .. import limits
from ..events import DuplicateFound, Report
from ..flow.effects import Effect, Wait
from .log_chunk import LogChunk, pieces_in
from .log_offsets import Later, Position
from .log_search import LogSearch

Name = tuple[int, int, int]
"""Producer id, epoch, base sequence of a batch."""


class DuplicateSearch(LogSearch):
    """Counts the copies of some batches, of any producers, from the lowest of their bounds on."""

    def __init__(self, topic: str, partition: int, bound: Position) -> None:
        super().__init__(topic, partition, -1, bound, {}, set(), lambda _pieces: False)
        self.budget_bytes = limits.AUDIT_BYTES_MAX
        self.offsets: dict[Name, set[int]] = {}
        """The offsets at which each of the wanted batches was found."""

    def add(self, bound: Position, names: Iterable[Name]) -> None:
        """Look for these batches, too. Only before the first ``run``."""
        if bound.offset < self.bound.offset:
            self.bound = bound
        self.offsets.update({name: set() for name in names})

    async def _take(self, chunk: LogChunk, log_end: int) -> None:
        """Also note where the chunk has one of the wanted batches, of whichever producer."""
        start = self.reached
        await super()._take(chunk, log_end)
        for marked in chunk.marked:
            for producer_id, piece in pieces_in(marked) if marked.message.offset >= start else ():
                name = (producer_id, piece.producer_epoch, piece.base_sequence)
                if name in self.offsets:
                    self.offsets[name].add(piece.base_offset)


class DuplicateAudit:
    """All duplicate audits of one engine. They read one piece of a log at a time (``limits.AUDIT_BYTES_MAX``), so that
    searches for doubts are hardly delayed."""

    def __init__(self, report: Report) -> None:
        self.waiting: dict[tuple[str, int], DuplicateSearch] = {}
        """By partition: batches that were sent twice lately, until they are looked for."""
        self._report = report
        self.is_looking = False

    # R14 lives here: what was sent twice is looked for.
    def looking_for(
        self, place: tuple[str, int], bound: Position, names: Iterable[Name]
    ) -> Coroutine[Effect[Any], Any, None] | None:
        """Return the flow of an audit (rule R14) to be run; None: the batches were added to an audit of this partition
        that has not begun to read. ``bound``: no copy lies below."""
        waiting = self.waiting.get(place)
        if waiting is not None:
            waiting.add(bound, names)
            return None
        search = self.waiting[place] = DuplicateSearch(*place, bound)
        search.add(bound, names)
        return self._look(place, search)

    async def _look(self, place: tuple[str, int], search: DuplicateSearch) -> None:
        """Look for second copies: a broker that was paused for longer than the settle time may have appended the first
        try after all."""
        told: set[Name] = set()
        for seconds in limits.DUPLICATE_AUDITS_SECONDS:
            await Wait(seconds)
            if self.waiting.get(place) is search:
                del self.waiting[place]
            search.keeps_end = False
            for _ in range(limits.DUPLICATE_AUDIT_PIECES_MAX):
                if not await self._comes_further(search):
                    break
                search.keeps_end = True  # where the log ended: others may append as fast as it is read
                await Wait(limits.SETTLE_SECONDS)
            for name, offsets in search.offsets.items():
                if len(offsets) > 1 and name not in told:
                    told.add(name)
                    self._report(DuplicateFound(*name, *place, tuple(sorted(offsets))))

    async def _comes_further(self, search: DuplicateSearch) -> bool:
        """Read the next piece of the log, in turn with other audits. True: there is more to read."""
        while self.is_looking:
            await Wait(limits.SETTLE_SECONDS)
        self.is_looking = True
        reached = search.reached
        try:
            result = await search.run()
        finally:
            self.is_looking = False
        return isinstance(result, Later) and search.reached > reached
