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

    def wait_seconds(self, address: str, connections_max: int, now: float) -> float | None:
        """Return how long this address waits for its turn; None: too long, it has to ask again. ``connections_max``:
        how many connections one address may have. Where that is more than by default, it may ask so many times as
        often. ``now``: reactor seconds."""
        share = max(1.0, connections_max / limits.CONNECTIONS_PER_IP_MAX)
        rate = share * limits.INIT_PRODUCER_IDS_PER_IP_RATE_MAX
        burst = share * limits.INIT_PRODUCER_IDS_PER_IP_BURST_MAX
        bucket = self._buckets.get(address)
        if bucket is None or (bucket.rate, bucket.burst) != (rate, burst):
            bucket = self._buckets[address] = TokenBucket(rate, burst, now)
        return bucket.owe(now, limits.INIT_PRODUCER_ID_WAIT_SECONDS)
