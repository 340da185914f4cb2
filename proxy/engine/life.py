"""The incarnations of one process, one after the other: when one ends, and what the next one waits for (rules R1,
R10). Sans-IO; the engine is called when a new one has begun."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...reactor import Reactor
from ...state.lease import Lease
from ...state.store import Store
from .. import limits
from ..events import GenerationChanged, IncarnationBegun, OperatorMessage, Report
from ..producer.life import Life
from .store_to_come import StoreToCome

INCARNATION_BYTES = 8


class LeasedStore(Store, Protocol):
    """A store that holds the lease of an incarnation."""

    @property
    def lease(self) -> Lease: ...

    def begin_incarnation(self, incarnation: bytes, registered: Callable[[], None]) -> None:
        """From now on another incarnation is registered; nothing may be sent before it is. ``registered``: it is."""
        ...


class Incarnations:
    """The incarnations of one process. ``life`` has the present one, the generation, and until when it waits."""

    def __init__(
        self,
        reactor: Reactor,
        life: Life,
        random_bytes: Callable[[int], bytes],
        report: Report,
        *,
        shares_store: bool,
        begun: Callable[[], None],
    ) -> None:
        """``shares_store``: other proxies may use the store as well. ``begun``: another incarnation has begun; what
        was given out or sent under the last one is void."""
        self._reactor = reactor
        self._life = life
        self._random_bytes = random_bytes
        self._report = report
        self._shares_store = shares_store
        self._begun = begun
        self._store: LeasedStore | None = None
        self._store_to_come = StoreToCome(reactor)
        life.incarnation = random_bytes(INCARNATION_BYTES)

    def start(self, store: LeasedStore) -> None:
        """Begin the first incarnation. ``store``: was made with its name."""
        self._store = store
        self._report(IncarnationBegun(self._life.incarnation))

    def stored(self) -> Store:
        """Return the store that holds the lease; until it is started, one that knows nothing."""
        return self._store or self._store_to_come

    def may_send(self) -> bool:
        """Does the lease still allow to send (rule R4)?"""
        return self._store is not None and self._store.lease.may_send(self._reactor.now())

    # R10 lives here: the data in Redis have begun a new life.
    def new_generation(self, generation: bytes) -> None:
        """The data of the store has begun a new life: every entry is suspect until the log was read (rule R10)."""
        first = self._life.era == 0
        self._life.generation = generation
        self._life.returning_until = self._reactor.now() + limits.RETURN_SECONDS
        self._report(GenerationChanged(generation))
        if first:
            self._life.era = 1
            self._wait_for_old_leases()
            return
        self._begin()

    def lease_lost(self) -> None:
        """The lease ran out or its registration is gone: others may have taken over what was open (rules R1, R10)."""
        self._report(
            OperatorMessage(
                "warning",
                "the lease was lost, as Redis did not renew it in time: nothing is sent before there is a new one",
            )
        )
        self._begin()

    def _begin(self) -> None:
        life = self._life
        life.begin_era(self._random_bytes(INCARNATION_BYTES))
        self._report(IncarnationBegun(life.incarnation))
        self._wait_for_old_leases()
        assert self._store is not None, "a life ends that has begun"
        self._store.begin_incarnation(life.incarnation, self._wait_for_old_leases)
        self._begun()

    def _wait_for_old_leases(self) -> None:
        """What was granted under a lost state may still be in flight: those leases have to run out first (rule R10).
        Called again once this incarnation is registered, as until then the state may be lost once more, unnoticed.
        Where no other proxy uses the store, all these leases were this process' own: it sends nothing more under them,
        and what a broker has read of it is waited for by rule R6."""
        if self._shares_store:
            self._life.grace_until = self._reactor.now() + limits.LEASE_SECONDS + limits.LEASE_MARGIN_SECONDS
