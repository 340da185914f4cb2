"""The number of a topic's partitions, for the tasks. Cached for ``FRESH_SECONDS`` in each Python worker."""

from __future__ import annotations

import time
from typing import Final

from ...client import ClientError
from .options import Connection
from .problems import SinkProblem

FRESH_SECONDS: Final = 60.0
"""New partitions are used after this. Until then rows go to the partitions that were there before, which does no
harm."""
_known: dict[tuple[Connection, str], tuple[int, float]] = {}


def partition_count(connection: Connection, topic: str) -> int:
    """Return the number of partitions. Raises SinkProblem."""
    count, asked_at = _known.get((connection, topic), (0, 0.0))
    if count and time.monotonic() - asked_at < FRESH_SECONDS:
        return count
    try:
        with connection.client() as client:
            count = len(client.partitions(topic))
    except ClientError as error:
        raise SinkProblem(f"the partitions of {topic} cannot be asked for (topics are not created): {error}") from error
    _known[connection, topic] = (count, time.monotonic())
    return count
