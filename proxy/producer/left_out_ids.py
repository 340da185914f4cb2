"""Batches that a proxy appends without their producer ids, where all proxies give idempotence: by its own numbers a
broker does not know such a batch again. So brokers take over (``broker/mode.py``) only once none of them may come
again. Before one is appended, Redis has that it may (``store.without_ids_key``), for all proxies."""

from __future__ import annotations

from math import inf

from ...state.store import MODE_PROXY, NO_VERSION, Conflict, Swapped, mode_key, without_ids_key
from ..flow.effects import Now, Read, Swap
from .proxy_instance import ProxyInstance

_FORMAT = 1


def kept_seconds(retry_seconds: int) -> int:
    """So long Redis has it: batches are appended for a quarter of that time, and sent again for half of it."""
    return 2 * retry_seconds


class LeftOutIds:
    """Of one process. ``retry_seconds``: a client sends a batch again for so long; 0: it is of no interest, as the
    proxy does not give idempotence on all topics. ``told_until``: until then, reactor seconds, such batches may be
    appended before Redis has to be told again."""

    __slots__ = ("retry_seconds", "told_until")

    def __init__(self) -> None:
        self.retry_seconds = 0
        self.told_until = inf

    def begin(self, retry_seconds: int) -> None:
        """Redis has to be told from now on; what was told is void."""
        self.retry_seconds, self.told_until = retry_seconds, -inf

    def forget(self) -> None:
        """Redis may have lost what was told."""
        if self.retry_seconds:
            self.told_until = -inf

    def end(self) -> None:
        """It is of no interest any more."""
        self.retry_seconds, self.told_until = 0, inf

    async def telling(self, instance: ProxyInstance) -> bool:
        """Tell Redis. False: no such batch may be appended, as Redis is away or the brokers take over. They begin to
        only in a step of Redis in which nothing is told there."""
        key, now, lease_epoch = without_ids_key(instance.cluster), await Now(), instance.lease_epoch
        stored = await Read(key)
        if not (stored is None or isinstance(stored, bytes)):
            return False
        result = await self._swap(key, stored)
        if isinstance(result, Conflict):  # it has expired in between, or is another proxy's
            result = await self._swap(key, result.value)
        if not isinstance(result, Swapped) or await Read(mode_key(instance.cluster)) != MODE_PROXY:
            return False
        if instance.lease_epoch == lease_epoch and self.retry_seconds:
            self.told_until = now + self.retry_seconds / 2
        return True

    def _swap(self, key: bytes, stored: bytes | None) -> Swap:
        """Let it expire later. Its version is the longest time for which a client of some proxy sends a batch again."""
        version = NO_VERSION if stored is None else int.from_bytes(stored[1:], "big")
        seconds = max(version, self.retry_seconds)
        return Swap(key, version, bytes([_FORMAT]) + seconds.to_bytes(8, "big"), kept_seconds(seconds) * 1000)
