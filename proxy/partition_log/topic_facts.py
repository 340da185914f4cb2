"""What topics were seen to accept and to store: sizes that were refused, codecs, batch markers. Plain data and its
rules."""

from __future__ import annotations

from ...codecs.compression import Codec
from .. import limits
from ..flow.form import Form
from ..flow.recent_time import RecentTime
from .offset_checkpoints import Place


class TopicFacts:
    """The facts of all topics, as one process knows them.

    ``too_large``: the smallest size in bytes of a message set that was refused as too large, and when.
    ``wrapper_codecs``: the codec to which the broker recompresses whatever it is sent (compression.type).
    ``unmarked``: topics that are stored without batch markers: an unknown outcome there may end as unknown.
    ``old_format``: topics that are stored in format v1, whatever their brokers store else (message.format.version)."""

    def __init__(self, time: RecentTime) -> None:
        self.too_large: dict[str, tuple[int, float]] = {}
        self.wrapper_codecs: dict[str, Codec] = {}
        self.unmarked: set[str] = set()
        self.old_format: set[str] = set()
        self._seen_unmarked: dict[Place, float] = {}
        """The partitions in which that was seen, and when: brokers may store one topic in different ways."""
        self._time = time

    def form_at(self, topic: str, form: Form) -> Form:
        """Return how a topic is stored by a broker that stores batches in this form."""
        return Form.WRAPPER_V1 if topic in self.old_format else form

    def note_too_large(self, topic: str, size_bytes: int) -> None:
        """A message set of this size was refused as too large."""
        known = self.refused_size(topic)
        if known is None or size_bytes < known:
            self.too_large[topic] = (size_bytes, self._time.now)

    def note_taken(self, topic: str, size_bytes: int) -> None:
        """A message set of this size was appended: if that was refused before, the topic takes more now."""
        known = self.too_large.get(topic)
        if known is not None and size_bytes >= known[0]:
            del self.too_large[topic]

    def refused_size(self, topic: str) -> int | None:
        """Return the smallest size that was refused as too large lately; None if none was. The limit may be raised at
        any time, so what was seen is forgotten after a while, and the next larger batch shows it again."""
        known = self.too_large.get(topic)
        if known is None:
            return None
        if self._time.now - known[1] > limits.TOO_LARGE_SECONDS:
            del self.too_large[topic]
            return None
        return known[0]

    def note_batch_marker_kept(self, topic: str, partition: int) -> bool:
        """A partition was seen to keep batch markers. So does the whole topic, unless another partition was seen to
        lose them lately. True: the topic counted as unmarked until now."""
        self._seen_unmarked.pop((topic, partition), None)
        recently = self._time.now - 2 * limits.BATCH_MARKER_PROBE_SECONDS
        others = (seen for place, seen in self._seen_unmarked.items() if place[0] == topic)
        if topic not in self.unmarked or any(seen > recently for seen in others):
            return False
        self.unmarked.discard(topic)
        return True

    def note_batch_marker_lost(self, topic: str, partition: int) -> tuple[bool, bool]:
        """Return whether that is news of the topic, and whether it is news of this partition."""
        is_news = topic not in self.unmarked
        is_news_here = is_news or (topic, partition) not in self._seen_unmarked
        self._seen_unmarked[(topic, partition)] = self._time.now
        self.unmarked.add(topic)
        return is_news, is_news_here
