"""As which proxy instance this process works, and in which Redis data generation. Plain data:
``engine/proxy_instances.py`` changes it, flows read it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from cachetools import LRUCache

from ...state.entry import NO_DATA_GENERATION, NO_INSTANCE_ID
from ...state.names import is_named
from ...state.producer_ids import block_of
from ...state.store import block_key, issued_key
from .. import limits


@dataclass(slots=True)
class ProxyInstance:
    """One per process. ``cluster``: the name in its Redis keys. ``wall_clock_ms``: ms since 1970."""

    cluster: str
    wall_clock_ms: Callable[[], int] = lambda: 0
    instance_id: bytes = NO_INSTANCE_ID
    data_generation: bytes = NO_DATA_GENERATION
    """Of the Redis data, as last seen."""
    lease_epoch: int = 0
    """Counts proxy instances and data generations of this process: what was learned in an earlier lease epoch is
    void."""
    grace_until: float = 0.0
    """Reactor seconds. Before this no unverified entry is touched, nor, from the second lease epoch on, another proxy's
    intent: leases of the lost state run out first (rules R1, R10)."""
    returning_until: float = 0.0
    """Reactor seconds. Before this, many producers may come back whose ids Redis has lost: this data generation has
    just begun, or this process."""
    brokers_issue_ids: bool = False
    """Do producers without a name have their ids from the brokers? Then each id is noted in Redis for itself."""
    earlier_instance_ids: deque[bytes] = field(default_factory=lambda: deque(maxlen=limits.EARLIER_INSTANCE_IDS_MAX))
    """Those of this process before ``instance_id``, newest last. They send nothing any more."""
    is_draining: bool = False
    """The process is about to end: what it cannot finish is left to other proxies (rule R15)."""
    _expiry_ms: int = limits.PRODUCER_EXPIRY_SECONDS * 1000
    shortest_expiry_ms: float = float("inf")
    """The shortest expiry that was set since the process began: an entry keeps the time to live that it was written
    with."""
    _name_expiry_ms: int = limits.NAME_EXPIRY_SECONDS * 1000
    ids_ttl_ms: int = 0
    """The time to live of what belongs to a producer id, when it is renewed, and of an entry with an open intent:
    longer than that of the name, and of an entry at rest."""
    missing_names: LRUCache[int, tuple[float, float]] = field(
        default_factory=lambda: LRUCache(limits.NAMES_REMEMBERED_MAX)
    )
    """Producer id whose name was not found in Redis -> since when, and when it was looked for last, reactor seconds. Of
    all partitions, as a sequencer of which nothing is known is dropped."""
    renewed_at_ms: LRUCache[int, int] = field(default_factory=lambda: LRUCache(limits.IDS_IN_USE_MAX))
    """First id of a block -> when this process has renewed it last in this lease epoch, since 1970."""

    def __post_init__(self) -> None:
        self._set_ttl()

    def _set_ttl(self) -> None:
        self.ids_ttl_ms = int(max(self.name_ttl_ms, self._expiry_ms) * limits.NAME_STATE_SHARE)

    @property
    def renew_ms(self) -> int:
        """What is in use is renewed so often."""
        return int(min(limits.NAME_RENEW_SECONDS * 1000, self.name_expiry_ms * limits.NAME_RENEW_SHARE))

    @property
    def name_ttl_ms(self) -> int:
        """The time to live of the record of a name when it is renewed."""
        return self.name_expiry_ms + self.renew_ms

    def first_id(self, producer_id: int) -> int:
        """Return the producer id under which Redis has when this one was issued: the first of its block or, if a broker
        has issued it, itself."""
        return producer_id if self._is_brokers(producer_id) else block_of(producer_id)

    def issue_key(self, first_id: int) -> bytes:
        """Return the key of what Redis has of it (``producer_ids.Block``)."""
        return (issued_key if self._is_brokers(first_id) else block_key)(self.cluster, first_id)

    def issue_ttl_ms(self, first_id: int) -> int:
        """Return the time to live of that, when it is written or renewed."""
        return int(limits.ISSUED_ID_SECONDS * 1000) if self._is_brokers(first_id) else self.ids_ttl_ms

    def _is_brokers(self, producer_id: int) -> bool:
        return self.brokers_issue_ids and not is_named(producer_id)

    def is_renewal_due(self, first_id: int) -> bool:
        """Does what Redis has of this block of producer ids, or of its name, have to be renewed before it is used?"""
        renewed_at_ms = self.renewed_at_ms.get(first_id)
        return renewed_at_ms is None or not 0 <= self.wall_clock_ms() - renewed_at_ms < self.renew_ms

    @property
    def expiry_ms(self) -> int:
        """The state of a producer that is idle for so long expires, by the clock of Redis."""
        return self._expiry_ms

    @expiry_ms.setter
    def expiry_ms(self, expiry_ms: int) -> None:
        self._expiry_ms = expiry_ms
        self.shortest_expiry_ms = min(self.shortest_expiry_ms, expiry_ms)
        self._set_ttl()

    @property
    def name_expiry_ms(self) -> int:
        """A name expires so long after its last use, by the clock of Redis (rule R22)."""
        return self._name_expiry_ms

    @name_expiry_ms.setter
    def name_expiry_ms(self, name_expiry_ms: int) -> None:
        self._name_expiry_ms = name_expiry_ms
        self._set_ttl()

    def begin_lease_epoch(self, instance_id: bytes) -> None:
        """A new lease epoch begins, under another proxy instance."""
        self.lease_epoch += 1
        self.earlier_instance_ids.append(self.instance_id)
        self.instance_id = instance_id
        self.renewed_at_ms.clear()  # Redis may have lost it
