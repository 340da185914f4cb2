"""Topics that a client has just had created: they are there, though not every broker knows them yet. Pure.

The proxy asks any broker for Metadata, and one that has not heard of a new topic answers UNKNOWN_TOPIC_OR_PARTITION. A
client that asks the controller itself, as kafkajs' admin client does after it has created a topic, never gets that from
a broker, and takes it for an error. So the proxy returns LEADER_NOT_AVAILABLE, after which every client asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...codecs.error_codes import ErrorCode
from .. import limits
from ..bridge.cluster import Topic


class NewTopics:
    """Their names, for ``limits.NEW_TOPIC_SECONDS`` each."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def changed(self, created: Iterable[str], gone: Iterable[str], now: float) -> None:
        """A broker says that it has created these topics, or deleted those."""
        for name in (*gone, *created):
            self._until.pop(name, None)
        for name in created:
            self._until[name] = now + limits.NEW_TOPIC_SECONDS
        while self._until and (len(self._until) > limits.NEW_TOPICS_MAX or self._oldest <= now):
            del self._until[next(iter(self._until))]

    def has(self, name: str, now: float) -> bool:
        """Has it just been created?"""
        return self._until.get(name, now) > now

    def not_listed(self, topics: Mapping[str, Topic], asked: tuple[str, ...] | None, now: float) -> dict[str, Topic]:
        """Return those new topics among the asked ones that are not in ``topics``, as topics without a leader; none
        where so many are asked for that looking takes long."""
        if not self._until or asked is None or len(asked) > limits.METADATA_TOPICS_PER_QUESTION_MAX:
            return {}
        return {
            name: Topic(name, int(ErrorCode.LEADER_NOT_AVAILABLE), False)
            for name in asked
            if name not in topics and self.has(name, now)
        }

    @property
    def _oldest(self) -> float:
        return self._until[next(iter(self._until))]
