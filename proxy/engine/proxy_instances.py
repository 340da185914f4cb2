"""The proxy instances of one process, one after the other: when one ends, and what the next one waits for (rules R1,
R10). Sans-IO; the engine is called when a new one has begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...reactor import Reactor
from ...state.lease import Lease
from ...state.store import Store
from .. import limits
from ..events import DataGenerationChanged, OperatorMessage, ProxyInstanceBegun, Report
from ..producer.proxy_instance import ProxyInstance
from .store_to_come import StoreToCome

INSTANCE_ID_BYTES = 8


class LeasedStore(Store, Protocol):
    """A store that holds the lease of a proxy instance."""

    @property
    def lease(self) -> Lease: ...

    def begin_instance(self, instance_id: bytes, registered: Callable[[], None]) -> None:
        """From now on another proxy instance is registered; nothing may be sent before it is. ``registered``: it is."""
        ...


class ProxyInstances:
    """The proxy instances of one process. ``instance`` has the present one, the data generation, and until when it
    waits."""

    def __init__(
        self,
        reactor: Reactor,
        instance: ProxyInstance,
        random_bytes: Callable[[int], bytes],
        report: Report,
        *,
        shares_store: bool,
        begun: Callable[[], None],
    ) -> None:
        """``shares_store``: other proxies may use the store as well. ``begun``: another proxy instance has begun; what
        was given out or sent under the last one is void."""
        self._reactor = reactor
        self._instance = instance
        self._random_bytes = random_bytes
        self._report = report
        self._shares_store = shares_store
        self._begun = begun
        self._store: LeasedStore | None = None
        self._store_to_come = StoreToCome(reactor)
        instance.instance_id = random_bytes(INSTANCE_ID_BYTES)

    def start(self, store: LeasedStore) -> None:
        """Begin the first proxy instance. ``store``: was made with its name."""
        self._store = store
        self._report(ProxyInstanceBegun(self._instance.instance_id))

    def stored(self) -> Store:
        """Return the store that holds the lease; until it is started, one that knows nothing."""
        return self._store or self._store_to_come

    def may_send(self) -> bool:
        """Does the lease still allow to send (rule R4)?"""
        return self._store is not None and self._store.lease.may_send(self._reactor.now())

    # R10 lives here: the data in Redis have a new data generation.
    def new_data_generation(self, data_generation: bytes) -> None:
        """The data of the store has a new data generation: every entry is unverified until the log was read (rule
        R10)."""
        first = self._instance.lease_epoch == 0
        self._instance.data_generation = data_generation
        self._instance.returning_until = self._reactor.now() + limits.RETURN_SECONDS
        self._report(DataGenerationChanged(data_generation))
        if first:
            self._instance.lease_epoch = 1
            self._wait_for_old_leases()
            return
        self.begin()

    def lease_lost(self) -> None:
        """The lease ran out or its registration is gone: others may have taken over what was open (rules R1, R10)."""
        self._report(
            OperatorMessage(
                "warning",
                "the lease was lost, as Redis did not renew it in time: nothing is sent before there is a new one",
            )
        )
        self.begin()

    def begin(self) -> None:
        """Another proxy instance begins: what the last one has sent and knows is void."""
        instance = self._instance
        instance.begin_lease_epoch(self._random_bytes(INSTANCE_ID_BYTES))
        self._report(ProxyInstanceBegun(instance.instance_id))
        self._wait_for_old_leases()
        assert self._store is not None, "an instance ends that has begun"
        self._store.begin_instance(instance.instance_id, self._wait_for_old_leases)
        self._begun()

    def _wait_for_old_leases(self) -> None:
        """What was granted under a lost state may still be in flight: those leases have to run out first (rule R10).
        Called again once this proxy instance is registered, as until then the state may be lost once more, unnoticed.
        Where no other proxy uses the store, all these leases were this process' own: it sends nothing more under them,
        and what a broker has read of it is waited for by rule R6."""
        if self._shares_store:
            self._instance.grace_until = self._reactor.now() + limits.LEASE_SECONDS + limits.LEASE_MARGIN_SECONDS
