"""The names of topics that clients name by their ids. Sans-IO.

An id is never given to another topic. But a topic may be deleted, and its name given to another one: so what is known
is asked for again after a while."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from cachetools import TTLCache

from ...reactor import Reactor
from .. import limits
from ..bridge.topic_ids import NamesOfTopics
from ..flow.effects import Unanswered
from .broker import Broker


class TopicNames:
    """Of one process."""

    def __init__(self, reactor: Reactor) -> None:
        self._known: TTLCache[str, str] = TTLCache(
            limits.TOPIC_IDS_KNOWN_MAX, limits.TOPIC_ID_SECONDS, timer=reactor.now
        )

    def known(self, topic_ids: Collection[str]) -> Mapping[str, str]:
        """Return the names of those that are known."""
        found = {one: self._known.get(one) for one in topic_ids}
        return {topic_id: name for topic_id, name in found.items() if name is not None}

    def look_for(
        self, topic_ids: Collection[str], broker: Broker, done: Callable[[Mapping[str, str] | None], None]
    ) -> None:
        """Ask a broker for these; ``done`` gets those that it knows, or None if it has not answered."""

        def answered(answer: Any) -> None:
            if isinstance(answer, Unanswered):
                done(None)
                return
            self._known.update(answer)
            done(answer)

        broker.ask(NamesOfTopics(tuple(topic_ids)), answered)
