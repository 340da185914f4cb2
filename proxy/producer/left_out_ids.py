"""Batches that a proxy appends without their producer ids, where all proxies give idempotence: by its own numbers a
broker does not know such a batch again. So brokers take over (``broker/mode.py``) only once none of them may come
again, and Redis has for all proxies whether one may (``store.without_ids_key``)."""

from __future__ import annotations

from math import inf

from ...state.store import MODE_PROXY, NO_VERSION, Conflict, Swapped, mode_key, without_ids_key
from ..flow.effects import Now, Read, Swap
from .proxy_instance import ProxyInstance

VERSION = 1
VALUE = b"\x01" + VERSION.to_bytes(8, "big")
"""Of ``without_ids_key``: its format and version never change, only when it expires."""


def kept_seconds(retry_seconds: int) -> int:
    """So long Redis keeps it after it was told."""
    return 2 * retry_seconds


class LeftOutIds:
    """Of one process. ``retry_seconds``: a client sends a batch again for so long; 0: it is of no interest, as the
    proxy does not give idempotence on all topics. ``has_left_out``: may an id have been left out since a look at Redis
    (``process/server.py``) has last set this to False?"""

    __slots__ = ("_told_at", "has_left_out", "retry_seconds")

    def __init__(self) -> None:
        self.retry_seconds = 0
        self.has_left_out = True
        self._told_at = -inf

    def has_to_tell(self, now: float) -> bool:
        """Has Redis to be told before a batch without its id is appended? ``now``: reactor seconds."""
        return self.retry_seconds > 0 and now - self._told_at > self.retry_seconds / 2

    async def telling(self, instance: ProxyInstance) -> bool:
        """Tell Redis. False: it may not be appended, as Redis is away or the brokers take over. They begin to only in
        the same step of Redis in which nothing is told there."""
        key, now = without_ids_key(instance.cluster), await Now()
        ttl_ms = kept_seconds(self.retry_seconds) * 1000
        stored = await Read(key)
        result = await Swap(
            key, NO_VERSION if stored is None else VERSION, VALUE, kept_seconds(self.retry_seconds) * 1000
        )
        if isinstance(result, Conflict) and result.value is None:  # it has expired in between
            result = await Swap(key, NO_VERSION, VALUE, ttl_ms)
        if not isinstance(result, Swapped) or await Read(mode_key(instance.cluster)) != MODE_PROXY:
            return False
        self._told_at = now
        return True
