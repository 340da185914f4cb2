"""How large a batch a topic's brokers take, by what they have refused: to ask for max.message.bytes a client needs a
right. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

BATCH_BYTES_MAX: Final = 1_000_012
"""Where nothing else is known: the lower one of Kafka's defaults for message.max.bytes (1,048,588 since 2.5)."""
BATCH_BYTES_MIN: Final = 512
"""No limit is assumed to be lower: every record would become a batch, with a header as large as itself."""
TOPICS_MAX: Final = 10_000
"""Topics whose limits are remembered, 2 MB in all."""


class TopicLimits:
    """The limits of one cluster's topics, in bytes."""

    def __init__(self, topics_max: int = TOPICS_MAX) -> None:
        self._topics_max = topics_max
        self._bytes_max: OrderedDict[str, int] = OrderedDict()

    def batch_bytes_max(self, topic: str) -> int:
        """Return the largest batch that is sent to this topic, unless one record has more."""
        return self._bytes_max.get(topic, BATCH_BYTES_MAX)

    def refused(self, topic: str, size_bytes: int) -> None:
        """A broker has found a batch of several records too large: half of it may do."""
        self._bytes_max[topic] = max(min(self.batch_bytes_max(topic), size_bytes // 2), BATCH_BYTES_MIN)
        self._bytes_max.move_to_end(topic)
        if len(self._bytes_max) > self._topics_max:
            self._bytes_max.popitem(last=False)
