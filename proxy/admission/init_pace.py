"""How often one address may ask for producer ids: each question may write to Redis, where it stays for a month. Of IPv6
a whole /64 counts as one address (``connection_quotas.address_of``). Knows no Kafka."""

from __future__ import annotations

from cachetools import LRUCache

from .. import limits
from .token_bucket import TokenBucket


class InitPace:
    """Of one process."""

    def __init__(self) -> None:
        self._buckets: LRUCache[str, TokenBucket] = LRUCache(limits.INIT_ADDRESSES_MAX)

    def admits(self, address: str, now: float) -> bool:
        """May this address ask now? It counts if so. ``now``: reactor seconds."""
        bucket = self._buckets.get(address)
        if bucket is None:
            rate, burst = limits.INIT_PRODUCER_IDS_PER_IP_RATE_MAX, limits.INIT_PRODUCER_IDS_PER_IP_BURST_MAX
            bucket = self._buckets[address] = TokenBucket(rate, burst, now)
        return bucket.take(now)
