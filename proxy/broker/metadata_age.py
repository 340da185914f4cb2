"""How old the known state of the cluster may be before a broker is asked again. Pure.

Metadata in which a client misses nothing may be a second old. What a client looks for (a topic that is not there, or
has no leader yet) is asked for again soon, and less often the longer it has been looked for. After topics have changed,
only an answer to a question that was asked later counts, and for half a second it counts only briefly: brokers learn of
a change one after the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice

from .. import limits

_NEVER = float("-inf")


class MetadataAge:
    """The age of what is known of the whole cluster and of single topics."""

    def __init__(self) -> None:
        self._all_learned_at = _NEVER
        self._topic_learned_at: dict[str, float] = {}
        self._changed_at = _NEVER
        self._topic_asked_at: dict[str, float] = {}
        self._all_asked_at = self._last_asked_at = _NEVER
        self._looked_for: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By topic: since when it has been looked for, and when last, in reactor seconds; in the order of the last."""
        self._partitions = 0
        self._distrusted_until: dict[str, float] = {}

    # ------------------------------------------------------------------ what happens
    def learned(self, topics: Iterable[str], asked_at: float, now: float) -> None:
        """These topics were asked for at ``asked_at``, and their answer is there now."""
        self._last_asked_at = max(asked_at, self._last_asked_at)
        for name in topics:
            self._trust(name, asked_at)
            if not self.is_topic_overtaken(name, asked_at):
                self._topic_asked_at.pop(name, None)  # so that the one that was asked for last stands last
                self._topic_asked_at[name] = asked_at
                self._topic_learned_at[name] = self._counted_from(asked_at, now)
        too_many = len(self._topic_asked_at) - limits.METADATA_ASKED_FOR_MAX
        for name in tuple(islice(self._topic_asked_at, max(too_many, 0))):
            del self._topic_asked_at[name], self._topic_learned_at[name]

    def learned_all(self, partitions: int, asked_at: float, now: float) -> None:
        """The whole cluster was asked for; it has so many partitions."""
        self._last_asked_at = max(asked_at, self._last_asked_at)
        for name in tuple(self._distrusted_until):
            self._trust(name, asked_at)
        while self._looked_for and now - next(iter(self._looked_for.values()))[1] > limits.METADATA_LOOKED_FOR_SECONDS:
            self._looked_for.popitem(last=False)  # nobody looks for it any more
        if asked_at < self._all_asked_at:
            return
        self._all_asked_at = asked_at
        self._all_learned_at = self._counted_from(asked_at, now)
        self._topic_asked_at = {name: at for name, at in self._topic_asked_at.items() if at > asked_at}
        self._topic_learned_at = {name: self._topic_learned_at[name] for name in self._topic_asked_at}
        self._partitions = partitions

    def changed(self, now: float) -> None:
        """Topics were created or deleted: what was asked before is out of date."""
        self._changed_at = now

    def distrust(self, topic: str, now: float) -> None:
        """A known topic may be gone. It must not be named to a broker, which would create it again, until one has
        reported it after all brokers have learned of the change."""
        self._distrusted_until[topic] = now + limits.METADATA_SPREAD_SECONDS

    def appeared(self, topic: str) -> None:
        """A topic that may have been looked for is there now: its leaders will be known soon."""
        self._looked_for.pop(topic, None)

    def is_distrusted(self, topic: str) -> bool:
        """May the topic be gone?"""
        return topic in self._distrusted_until

    # ------------------------------------------------------------------ which answer is the last one
    def is_overtaken(self, asked_at: float) -> bool:
        """Has the answer to a later question been learned already? A large answer takes longer than a small one."""
        return asked_at < self._last_asked_at

    def is_topic_overtaken(self, topic: str, asked_at: float) -> bool:
        """The same for one topic."""
        return asked_at < max(self._topic_asked_at.get(topic, _NEVER), self._all_asked_at)

    # ------------------------------------------------------------------ what may be answered
    def age_of_all(self, now: float) -> float:
        """Seconds since the whole cluster was seen."""
        return now - self._all_learned_at

    def age_of(self, topic: str, now: float) -> float:
        """Seconds since a topic was seen, by its name or with all others."""
        return now - self._learned_at(topic)

    def is_fresh(self, topic: str, now: float) -> bool:
        """Is what is known of a topic recent enough, if all its partitions have leaders?"""
        learned_at = self._learned_at(topic)
        return now - learned_at < self._holds(learned_at, 0.0)

    def is_all_fresh(self, now: float) -> bool:
        """The same for the whole cluster. A large one, which is work to ask for, may be a little older."""
        return self.age_of_all(now) < self._holds(self._all_learned_at, self._pause_of_all)

    @property
    def is_large(self) -> bool:
        """Is the cluster so large that it is work to ask for all of it where a few topics are wanted?"""
        return self._pause_of_all > limits.METADATA_PAUSE_SECONDS

    def may_name(self, topic: str, now: float) -> bool:
        """May a topic that is not there be asked for by its name now?"""
        learned_at = self._topic_learned_at.get(topic, _NEVER)
        return learned_at <= self._changed_at or now - learned_at >= limits.METADATA_PAUSE_SECONDS

    def may_look_for_leader(self, topic: str, now: float) -> bool:
        """May a topic that lacks a leader be asked for now? Notes that it is looked for."""
        return self.age_of(topic, now) >= self._pause(topic, now)

    def may_look_in_all(self, topic: str, now: float) -> bool:
        """May a topic that is not there be looked for in the whole cluster now? Notes that it is looked for."""
        pause = max(self._pause(topic, now), self._pause_of_all)
        return not self.is_all_fresh(now) or self.age_of_all(now) >= pause

    # ------------------------------------------------------------------ inside
    def _trust(self, topic: str, asked_at: float) -> None:
        if asked_at >= self._distrusted_until.get(topic, _NEVER):
            self._distrusted_until.pop(topic, None)

    def _holds(self, learned_at: float, least: float) -> float:
        """Return for how long something that was learned at this time is believed: not all brokers learn of a change at
        once."""
        if learned_at <= self._changed_at:
            return least
        if learned_at <= self._changed_at + limits.METADATA_SPREAD_SECONDS:
            return max(limits.METADATA_PAUSE_SECONDS, least)
        return limits.METADATA_FRESH_SECONDS

    def _counted_from(self, asked_at: float, now: float) -> float:
        return now if asked_at > self._changed_at else asked_at

    def _learned_at(self, topic: str) -> float:
        return max(self._topic_learned_at.get(topic, _NEVER), self._all_learned_at)

    @property
    def _pause_of_all(self) -> float:
        return min(self._partitions * limits.METADATA_PARTITION_SECONDS, limits.METADATA_FRESH_SECONDS)

    def _pause(self, topic: str, now: float) -> float:
        since, last = self._looked_for.pop(topic, (now, now))
        if now - last > limits.METADATA_LOOKED_FOR_SECONDS:
            since = now
        if len(self._looked_for) >= limits.METADATA_LOOKED_FOR_MAX:
            self._looked_for.popitem(last=False)
        self._looked_for[topic] = since, now
        pause = (now - since) * limits.METADATA_PAUSE_SHARE
        return min(max(pause, limits.METADATA_PAUSE_SECONDS), limits.METADATA_FRESH_SECONDS)
