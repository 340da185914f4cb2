"""The sequencers of one process by key. Only idle ones are dropped: their state is read from the store again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from itertools import islice

from ...codecs.steps import Steps
from ..events import EntryEvicted, EntryLoaded, Report
from .sequencer import ProducerStatistics, Sequencer

_LOOKED_AT_MAX = 16
"""Sequencers that are checked for an idle one when the limit is reached."""
_LOOKED_AT_PER_STEP = 10_000
"""Sequencers that are looked at in one step: some 5 ms."""


class Sequencers:
    """The sequencers by producer id, topic and partition, least recently used first."""

    def __init__(self, entries_max: int, report: Report) -> None:
        self.entries_max = entries_max
        self._report = report
        self._known: OrderedDict[tuple[int, str, int], Sequencer] = OrderedDict()

    def get(self, key: tuple[int, str, int], make: Callable[[], Sequencer]) -> Sequencer | None:
        """Return the sequencer with this key, made if there is none. None: there are ``entries_max``, and of the
        ``_LOOKED_AT_MAX`` that were used least recently none is idle."""
        found = self.known(key)
        if found is not None:
            return found
        if len(self._known) >= self.entries_max:
            for old in list(islice(self._known, _LOOKED_AT_MAX)):
                if self._known[old].is_idle:
                    del self._known[old]
                    self._report(EntryEvicted(*old))
                else:
                    self._known.move_to_end(old)
            if len(self._known) >= self.entries_max:
                return None
        self._report(EntryLoaded(*key))
        found = self._known[key] = make()
        return found

    def known(self, key: tuple[int, str, int]) -> Sequencer | None:
        """Return the sequencer with this key, if there is one; it counts as used."""
        if key not in self._known:
            return None
        self._known.move_to_end(key)
        return self._known[key]

    def drop(self, key: tuple[int, str, int]) -> None:
        """Drop the sequencer with this key, if it is idle: nothing is known of its producer there."""
        found = self._known.get(key)
        if found is not None and found.is_idle:
            del self._known[key]
            self._report(EntryEvicted(*key))

    def ids_on(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], list[int]]:
        """Return the producer ids that are known on each of these partitions."""
        found: dict[tuple[str, int], list[int]] = {}
        for producer_id, topic, partition in self._known:
            if (place := (topic, partition)) in places:
                found.setdefault(place, []).append(producer_id)
        return found

    def __len__(self) -> int:
        return len(self._known)

    def statistics(self, producer_id: int | None, topic: str | None, count: int) -> list[ProducerStatistics]:
        """Return the statistics of ``count`` sequencers of this producer id and topic (None: any), most recently used
        first. May be called from other threads."""
        fits = (one for one in reversed(list(self._known)) if producer_id in (None, one[0]) and topic in (None, one[1]))
        found = [self._known.get(key) for key in islice(fits, count)]
        return [one.statistics() for one in found if one is not None]

    def of_ids(self, producer_ids: Collection[int], count_each: int) -> dict[int, list[ProducerStatistics]]:
        """Return the statistics of up to ``count_each`` sequencers of each producer id, most recently used first. May
        be called from other threads."""
        found: dict[int, list[ProducerStatistics]] = {}
        for key in reversed(list(self._known)):
            if key[0] not in producer_ids or len(found.get(key[0], ())) >= count_each:
                continue
            if (one := self._known.get(key)) is not None:
                found.setdefault(key[0], []).append(one.statistics())
        return found

    def written_since(self, at: float) -> Steps[set[int]]:
        """Find the producer ids of which something was written at this time (reactor seconds) or later."""
        found = set()
        for number, (key, sequencer) in enumerate(list(self._known.items()), 1):
            if sequencer.written_at >= at:
                found.add(key[0])
            if number % _LOOKED_AT_PER_STEP == 0:
                yield
        return found

    def looking_for_busy(self) -> Steps[bool]:
        """Is one of them working, or has it something to write? Between the steps none may begin to work."""
        for number, sequencer in enumerate(list(self._known.values()), 1):
            if not sequencer.is_idle:
                return True
            if number % _LOOKED_AT_PER_STEP == 0:
                yield
        return False
