"""The duplicate audit: batches that were sent twice, or dropped after a search, are looked for in the log again, later
(rule R14). Flows that no request waits for; they report what they find, and change nothing."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from ...codecs.batch_marker import Identity
from .. import limits
from ..events import DuplicateFound, Report
from ..flow.effects import Effect, Wait
from .log_offsets import Later, Position
from .log_search import LogSearch, Wanted


@dataclass(slots=True)
class Waiting:
    """What is looked for in one partition soon. ``bound``: no copy lies below."""

    bound: Position
    names: set[Identity]


class DuplicateAudit:
    """All duplicate audits of one engine. They read one piece of a log at a time (``limits.AUDIT_BYTES_MAX``), so that
    searches for unknown outcomes are hardly delayed."""

    def __init__(self, report: Report) -> None:
        self.waiting: dict[tuple[str, int], Waiting] = {}
        """By partition: batches that were sent twice lately, until they are looked for."""
        self._report = report
        self.is_looking = False

    # R14 lives here: what was sent twice is looked for.
    def looking_for(
        self, place: tuple[str, int], bound: Position, names: Iterable[Identity]
    ) -> Coroutine[Effect[Any], Any, None] | None:
        """Return the flow of an audit (rule R14) to be run; None: the batches were added to an audit of this partition
        that has not begun to read. ``bound``: no copy lies below."""
        waiting = self.waiting.get(place)
        if waiting is not None:
            waiting.names.update(names)
            if bound.offset < waiting.bound.offset:
                waiting.bound = bound
            return None
        self.waiting[place] = waiting = Waiting(bound, set(names))
        return self._look(place, waiting)

    async def _look(self, place: tuple[str, int], waiting: Waiting) -> None:
        """Look for duplicates: a broker that was paused for longer than the quiescence check takes may have appended
        the first try after all."""
        reported: set[Identity] = set()
        search = None
        for seconds in limits.DUPLICATE_AUDITS_SECONDS:
            await Wait(seconds)
            if search is None:
                del self.waiting[place]
                names, most = frozenset(waiting.names), limits.AUDIT_BYTES_MAX
                wanted = Wanted(*place, -1, waiting.bound, None, frozenset(), copies_of=names, budget_bytes=most)
                search = LogSearch(wanted)
            search.read_on()
            for _ in range(limits.DUPLICATE_AUDIT_PIECES_MAX):
                if not await self._comes_further(search):
                    break
                await Wait(limits.QUIESCENCE_SECONDS)
            for name, offsets in search.copies.items():
                if len(offsets) > 1 and name not in reported:
                    reported.add(name)
                    self._report(DuplicateFound(*name[:3], *place, tuple(sorted(offsets))))

    async def _comes_further(self, search: LogSearch) -> bool:
        """Read the next piece of the log, in turn with other audits. True: there is more to read."""
        while self.is_looking:
            await Wait(limits.QUIESCENCE_SECONDS)
        self.is_looking = True
        reached = search.reached
        try:
            result = await search.run()
        finally:
            self.is_looking = False
        return isinstance(result, Later) and search.reached > reached
