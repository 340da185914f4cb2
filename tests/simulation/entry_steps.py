"""What becomes of entries in a world, step by step, as each proxy knows them: from which state to which, and by which
function of ``state/commit.py``.

The shipped code runs, of which a copy says two things more: what has made an entry, and when one was read. Looked at
before each effect, in between a flow is not interrupted."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

from simulation.chaos import Chaos

from testkit.virtual.mutant import Patch, patched_package
from testkit.virtual.proxy import VirtualProxy

READ = "read"
ENDS = {"released": "quiet", "reserved": "reserved", "committed": "quiet"}
"""By which functions an append reservation or an unknown outcome ends, and the state then. After it the store may lose
writes before anybody looks."""
PRODUCERS_MAX = 1000
MADE = """\
made: dict[int, tuple[Entry, str]] = {}


def _noting(function):
    def make(*arguments, **named):
        return noted(function.__name__, function(*arguments, **named))

    return make


def noted(name, entry):
    made[id(entry)] = entry, name
    return entry


def noted_as(entry, other):
    return noted(made.get(id(other), (None, "?"))[1], entry)


for _name in ("reserved", "renewed", "with_takeover", "released", "unrecoverable", "committed", "ambiguous"):
    globals()[_name] = _noting(globals()[_name])
"""
CACHE, REBUILDING, APPEND = "proxy.producer.entry_cache", "state.rebuilding", "proxy.producer.append"
KNOWN = "self.known_lease_epoch = self._instance.lease_epoch"
PACKED, UNPACKED = "state.packed", "view = self._view = self.entry()"
OLDER = "replace(entry, version=max(entry.version, found + 1))"
NOWHERE = "replace(entry, version=NO_VERSION)"
PATCHES = (
    # It is the loop that looks here, so that what it sees is what it works with next.
    Patch("proxy.producer.sequencer", "Sequencer.statistics", "self.stream.held.seen", "self.stream.held.entry"),
    Patch("state.commit", "_with_intent", "", MADE),
    Patch(REBUILDING, "completed", "", "from .commit import noted"),
    Patch(REBUILDING, "completed", "return done", "return noted('rebuilt', done)"),
    Patch(APPEND, "GroupAppend", "", "from ...state.commit import noted"),
    Patch(APPEND, "GroupAppend._trouble", "self._entry_of(plan)", "noted('reserved', self._entry_of(plan))"),
    Patch(CACHE, "CachedEntry", "", "from ...state.commit import noted, noted_as"),
    Patch(CACHE, "CachedEntry._take", KNOWN, f"{KNOWN}; noted('read', self.entry)"),
    Patch(CACHE, "CachedEntry.write", OLDER, f"noted_as({OLDER}, entry)"),
    Patch(CACHE, "CachedEntry.write", NOWHERE, f"noted_as({NOWHERE}, entry)"),  # of nobody, and not stored
    Patch(PACKED, "PackedEntry", "", "from .commit import noted"),
    Patch(  # appends keep their entries packed, and only reserve and commit
        PACKED,
        "PackedEntry.view",
        UNPACKED,
        f"{UNPACKED}; noted('committed' if view.intent is None else 'reserved', view)",
    ),
)
Seen = tuple[str, str, str]
"""State before, state after, and the function; empty: the entry is the same."""


class StepsSeen:
    """Looks at the producers of one world after the other. ``made``: what the copy says of how entries were made; of
    what it does not name, the function is ``?``."""

    def __init__(self, made: dict[int, tuple[Any, str]] | None = None) -> None:
        self.seen: Counter[Seen] = Counter()
        self._made = {} if made is None else made
        self._last: dict[Hashable, Any] = {}

    def watch(self, proxies: Iterable[VirtualProxy]) -> None:
        """Begin with another world."""
        self._last.clear()
        self._made.clear()
        for proxy in proxies:
            proxy.watch_effects(self._look_at)

    def _look_at(self, proxy: VirtualProxy, _effect: Any) -> None:
        self.look((proxy.name, proxy.lives), proxy.engine.producers(None, None, PRODUCERS_MAX))

    def look(self, instance: Hashable, producers: Iterable[Any]) -> None:
        """Compare with the last look. ``instance``: of the process that works for these producers."""
        for now in producers:
            key = instance, now.producer_id, now.topic, now.partition
            last = self._last.get(key)
            self._last[key] = now
            if last is None or last.state == now.state or (last.entry is not None and now.entry is None):
                continue
            by = "" if now.entry is last.entry else self._made.get(id(now.entry), (None, "?"))[1]
            before = last.state.value
            if now.state.value == "unverified" and by in ENDS:  # two steps at once
                self.seen[before, ENDS[by], by] += 1
                before, by = ENDS[by], ""
            if (before, now.state.value, by) == ("append reservation", "quiet", "committed"):
                by = ""  # a commit leaves the append reservation: it has become another's since
            if by != READ:
                self.seen[before, now.state.value, by] += 1


def steps_of_worlds(seeds: Iterable[int], batches: int) -> Counter[Seen]:
    """What is seen in these random worlds."""
    with patched_package("watched", PATCHES) as package:
        seen = StepsSeen(importlib.import_module(f"{package}.state.commit").made)
        for seed in seeds:
            chaos = Chaos(seed, package=package, batches=batches, as_drawn=True)
            seen.watch(chaos.world.proxies)
            assert chaos.run().problems == []
    return seen.seen
