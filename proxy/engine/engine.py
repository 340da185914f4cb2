"""The proxy without sockets and trio: wires store, topology, flows and sessions on a reactor. The simulation runs
this very class.

Owns the life of the process in the protocol: incarnation, era, generation (rules R1, R10), the drain (R15). Decides
nothing about a batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from ...codecs.error_codes import ErrorCode
from ...reactor import Address, Reactor
from ...state.entry import principal_of
from ...state.lease import Lease
from ...state.store import Store
from .. import limits
from ..admission.connection_quotas import AdmittedConnection
from ..admission.idle_eviction import IdleEviction
from ..admission.long_work import LongWork
from ..admission.loop_budget import LoopBudget
from ..admission.memory_budget import MemoryBudget
from ..bridge.base import Addresses
from ..bridge.cluster import BrokerAddress
from ..bridge.init_producer_id import InitProducerIdRequest
from ..bridge.metadata import ClientQuestion, synthetic_cluster_id
from ..broker.broker import Broker
from ..broker.lane_pool import LanePool
from ..broker.topology import Topology
from ..events import (
    ConnectionRefused,
    EntryEvicted,
    EntryLoaded,
    GenerationChanged,
    IncarnationBegun,
    OperatorMessage,
    Report,
)
from ..flow import effects
from ..flow.effects import Append
from ..flow.outcome import NotSent, Outcome
from ..flow.runner import FlowRunner, Resume
from ..producer.context import Shared
from ..producer.sequencer import Sequencer
from ..session.host import Hosted
from ..session.init_producer import ProducerIds
from ..session.produce import Part, ProduceCall, Sweeper
from ..session.session import Session
from ..settings.addresses import PlaceOf
from ..settings.config import Caps
from ..versions import advertised
from .metadata_answers import MetadataAnswers

INCARNATION_BYTES = 8
MakeSession = Callable[..., Session]


class LeasedStore(Store, Protocol):
    """A store that holds the lease of an incarnation."""

    @property
    def lease(self) -> Lease: ...

    def begin_incarnation(self, incarnation: bytes, registered: Callable[[], None]) -> None:
        """From now on another incarnation is registered; nothing may be sent before it is. ``registered``: it is."""
        ...


class _Sequencers:
    """Sequencers by key, least recently used first. Only idle ones are dropped: their state is read from the store
    again."""

    _LOOKED_AT_MAX = 16

    def __init__(self, entries_max: int, report: Report) -> None:
        self.entries_max = entries_max
        self._report = report
        self._known: OrderedDict[tuple[int, str, int], Sequencer] = OrderedDict()

    def get(self, key: tuple[int, str, int], make: Callable[[], Sequencer]) -> Sequencer | None:
        """The one with this key, made if there is none. None: there are too many, and all of them are at work."""
        found = self._known.get(key)
        if found is not None:
            self._known.move_to_end(key)
            return found
        if len(self._known) >= self.entries_max:
            for old in list(islice(self._known, self._LOOKED_AT_MAX)):
                if self._known[old].is_idle:
                    del self._known[old]
                    self._report(EntryEvicted(*old))
                else:
                    self._known.move_to_end(old)
            if len(self._known) >= self.entries_max:
                return None
        self._report(EntryLoaded(*key))
        found = self._known[key] = make()
        return found

    @property
    def all(self) -> Collection[Sequencer]:
        """Every one, least recently used first. To be looked at in one step."""
        return self._known.values()

    @property
    def any_busy(self) -> bool:
        """Is one of them working?"""
        return any(not sequencer.is_idle for sequencer in self._known.values())


class Engine(MemoryBudget):
    """One proxy process. Call ``start`` once the store is given; ``accept`` for every client connection."""

    def __init__(
        self,
        reactor: Reactor,
        upstream: Sequence[Address],
        *,
        cluster: str,
        report: Report,
        random_bytes: Callable[[int], bytes],
        wall_clock_ms: Callable[[], int],
        caps: Caps | None = None,
        on_brokers: Callable[[Mapping[int, BrokerAddress]], None] = lambda _brokers: None,
        on_ready: Callable[[], None] = lambda: None,
        on_refused: Callable[[Broker], None] = lambda _broker: None,
        shares_store: bool = True,
        for_clients: Reactor | None = None,
    ) -> None:
        """``shares_store``: other proxies may use the store as well. ``on_brokers``: listeners are wanted for these.
        ``on_refused``: a broker cannot be served, for another reason than before.
        ``for_clients``: opens connections to brokers that belong to one client; None: ``reactor`` does."""
        super().__init__(caps or Caps())
        self.reactor = reactor
        self.for_clients = for_clients or reactor
        self.now: Callable[[], float] = reactor.now
        self.report = report
        self.loop_budget = LoopBudget(reactor)
        self.long_work = LongWork(reactor, self.loop_budget)
        self.is_draining = False
        self.why_ending = ""
        """What was found that ends the process; empty when nothing was."""
        self.shared = Shared(cluster, report, random_bytes(INCARNATION_BYTES))
        self.shared.wall_clock_ms = wall_clock_ms
        self.shared.hold_bytes = self.hold_bytes
        self.shared.has_no_room = lambda: self.is_full
        self.shared.is_pass_long = lambda: self.loop_budget.is_long
        self.runner = FlowRunner(self._handlers())
        self.topology = Topology(
            reactor,
            upstream,
            may_send=self.may_send,
            report=report,
            on_brokers=self._brokers_changed,
            on_ready=self._broker_ready,
            lanes_max=lambda: self.caps.lanes_per_broker_max,
            on_refused=on_refused,
            long_work=self.long_work,
        )
        self._on_ready = on_ready
        self.shared.leader_of = self.topology.leader_of
        self.shared.is_reachable = lambda broker_id: self.target(broker_id) is not None
        self.sessions: set[Hosted] = set()
        self._places = IdleEviction(lambda: self.sessions, reactor.now, report)
        self.pass_through_lanes: dict[LanePool, None] = {}
        """Each belongs to one client; with a produce out it outlives his session."""
        self.requests_by_key: dict[int, int] = {}
        self.sessions_accepted = 0
        self._idle_look_at = 0.0
        self._random_bytes = random_bytes
        self._shares_store = shares_store
        self._on_brokers = on_brokers
        self._sequencers = _Sequencers(self.caps.producers_max, report)
        sweeper = Sweeper(reactor.now, reactor.later)
        self.sweep: Callable[[ProduceCall, Sequence[Part]], None] = sweeper.add
        """Answer this request in time."""
        self.swept: Callable[[ProduceCall], None] = sweeper.remove
        """It is answered."""
        self.fallback_cluster_id = synthetic_cluster_id(cluster)
        self._metadata_answers = MetadataAnswers(reactor, self.fallback_cluster_id)
        self._store: LeasedStore | None = None
        self._producer_ids: ProducerIds | None = None
        self._advertised: dict[int, tuple[int, int]] | None = None

    def start(self, store: LeasedStore) -> None:
        """Begin to look for brokers. ``store``: was made with ``shared.incarnation``, and calls ``new_generation`` and
        ``lease_lost``."""
        self._store = store
        self._producer_ids = ProducerIds(self.shared, store, self._random_bytes, self.report)
        self.report(IncarnationBegun(self.shared.incarnation))
        self.topology.open()
        self._tick()

    def _tick(self) -> None:
        now = self.shared.recent_time = self.reactor.now()
        self.shared.checkpoints.take(now, self.shared.bounds)
        if now >= self._idle_look_at:
            self._idle_look_at = now + limits.IDLE_LOOK_SECONDS
            for session in list(self.sessions):
                session.look_whether_idle()
        self.reactor.later(limits.SETTLE_SECONDS, self._tick)

    def set_caps(self, caps: Caps) -> None:
        """Other limits from now on; what is open goes on under those it began with."""
        self.caps = caps
        self._sequencers.entries_max = caps.producers_max

    def accept(
        self,
        broker_id: int | None,
        place_of: PlaceOf,
        principal: str | None = None,
        make: MakeSession = Session,
        admitted: AdmittedConnection | None = None,
    ) -> Session | None:
        """The endpoint of a new client connection, None when there are too many. ``place_of``: where clients of its
        listener reach each broker. ``principal``: the name of who is there, if he has shown it. ``admitted``: what the
        door keeps of the connection."""
        ending = ("draining", "the proxy is ending") if self.is_draining else None
        if refusal := ending or self._places.refusal(self.caps.connections_max):
            self.report(ConnectionRefused("a client" if admitted is None else admitted.address, *refusal))
            return None
        self.sessions_accepted += 1
        session = make(self, broker_id, place_of, principal_of(principal), admitted)
        self.sessions.add(session)
        return session

    @property
    def own_connections_max(self) -> int:
        """So many connections to brokers the proxy may open for itself, rather than for one client."""
        per_broker = self.caps.lanes_per_broker_max + limits.DESCRIPTORS_KEPT_PER_BROKER
        return per_broker * len(self.topology.cluster.brokers)

    def make_room(self, reason: str, why: str) -> bool:
        """Close the connection of the client that has been quiet for longest. False: none has been for long enough."""
        return self._places.make_room(reason, why)

    # ------------------------------------------------------------------ the store's life
    # R10 lives here: the data in Redis have begun a new life.
    def new_generation(self, generation: bytes) -> None:
        """The data of the store has begun a new life: every entry is suspect until the log was read (rule R10)."""
        first = self.shared.era == 0
        self.shared.generation = generation
        self.report(GenerationChanged(generation))
        if first:
            self.shared.era = 1
            if self._shares_store:
                self._wait_for_old_leases()
            return
        self._begin_era()

    def lease_lost(self) -> None:
        """The lease ran out or its registration is gone: others may have taken over what was open (rules R1, R10)."""
        self.report(OperatorMessage("warning", "the lease was lost: a new incarnation begins"))
        self._begin_era()

    def _begin_era(self) -> None:
        assert self._store is not None
        assert self._producer_ids is not None
        self.shared.era += 1
        self.shared.earlier_incarnations.append(self.shared.incarnation)
        self.shared.incarnation = self._random_bytes(INCARNATION_BYTES)
        self.report(IncarnationBegun(self.shared.incarnation))
        self._producer_ids.forget()
        self._wait_for_old_leases()
        self._store.begin_incarnation(self.shared.incarnation, self._wait_for_old_leases)
        for session in list(self.sessions):
            if session.is_idempotent:
                session.abort("the state has begun a new life")
        self.reset_busy("a new incarnation begins")

    def reset_busy(self, reason: str) -> None:
        """Reset every connection over which an append is out: what of it has not left never does (rule R4)."""
        for broker in self.topology.brokers:
            broker.pool.give_up_busy(reason)
        for lanes in list(self.pass_through_lanes):
            lanes.give_up_busy(reason)

    def _wait_for_old_leases(self) -> None:
        """What was granted under a lost state may still be on its way: those leases have to run out first (rule R10).
        Until we are registered the state may be lost once more, unnoticed: from then on it counts anew."""
        self.shared.grace_until = self.reactor.now() + limits.LEASE_SECONDS + limits.LEASE_MARGIN_SECONDS

    def may_send(self) -> bool:
        """Does the lease still allow to send (rule R4)?"""
        return self._store is not None and self._store.lease.may_send(self.reactor.now())

    # ------------------------------------------------------------------ what sessions and produce calls need
    def advertised(self) -> Mapping[int, tuple[int, int]]:
        """API versions as clients are told: from memory, so also while brokers are away."""
        if self._advertised is None:
            ranges = [broker.ranges for broker in self.topology.brokers if broker.ranges]
            if not ranges and self.topology.bootstrap.ranges:
                ranges = [self.topology.bootstrap.ranges]
            self._advertised = advertised(ranges)
        return self._advertised

    def addresses(self, place_of: PlaceOf, local_host: str) -> Addresses:
        """Where a client that reached us at this address reaches each broker; brokers that it can not reach are left
        out."""
        places = ((broker_id, place_of(broker_id, local_host)) for broker_id in self.topology.cluster.brokers)
        return {broker_id: place for broker_id, place in places if place is not None}

    def target(self, broker_id: int | None) -> Broker | None:
        """The broker that a listener stands for; any one for the bootstrap port. None while it is away."""
        if broker_id is None:
            return self.topology.any_broker()
        broker = self.topology.broker(broker_id)
        return broker if broker is not None and broker.is_ready else None

    def sequencer(self, producer_id: int, topic: str, partition: int) -> Sequencer | None:
        """The one place where a producer's batches of a partition are worked on. None: too many are at work at once."""
        if self.loop_budget.is_too_long:
            return None
        key = (producer_id, topic, partition)
        return self._sequencers.get(key, lambda: Sequencer(self.shared, self.runner, *key))

    @property
    def sequencers(self) -> Collection[Sequencer]:
        """All that are in memory, least recently used first; for looking only."""
        return self._sequencers.all

    def has_partition(self, topic: str, partition: int) -> bool:
        """Does the cluster have it, as last seen?"""
        return self.topology.has_partition(topic, partition)

    def look_for_topic(self, topic: str, done: Callable[[], None]) -> None:
        """Look whether there is such a topic, without creating it, and which partitions it has."""
        self.topology.look_for(topic, done)

    def topics_changed(self, gone: Collection[str] = ()) -> None:
        """A client has had topics created, enlarged or deleted: they are asked for anew. ``gone``: those that he has
        had deleted."""
        self.topology.changed(gone)

    def init_producer_id(
        self, request: InitProducerIdRequest, principal: bytes, done: Callable[[int, int], None]
    ) -> None:
        """Hand out a producer id."""
        assert self._producer_ids is not None
        self._producer_ids.answer(request, principal, done)

    def metadata(
        self, version: int, question: ClientQuestion, addresses: Callable[[], Addresses], done: Callable[[bytes], None]
    ) -> None:
        """Answer Metadata from memory, after a short look whether it is still true."""

        def answer() -> None:
            self._metadata_answers.tell(version, self.topology.cluster, question.topics, addresses(), done)

        self.topology.refresh_if_stale(question.topics, question.allow_auto_topic_creation, answer)

    def session_ended(self, session: Hosted) -> None:
        """A client has gone."""
        self.sessions.discard(session)

    def count_request(self, api_key: int) -> None:
        """A request came in."""
        counts = self.requests_by_key
        counts[api_key] = counts.get(api_key, 0) + 1

    def _broker_ready(self) -> None:
        self._advertised = None
        self._on_ready()

    def _brokers_changed(self, brokers: Mapping[int, BrokerAddress]) -> None:
        self._advertised = None
        self._on_brokers(brokers)

    # ------------------------------------------------------------------ drain
    # R15 lives here: what is in flight is finished, intents and lease are given back.
    def drain(self, drained: Callable[[], None]) -> None:
        """Rule R15: take nothing new, finish and write what is there, then call back."""
        self.is_draining = self.shared.is_draining = True
        self._drain_step(drained)

    def _drain_step(self, drained: Callable[[], None]) -> None:
        busy = self._sequencers.any_busy
        waiting = any(session.has_produce_in_flight for session in self.sessions)
        if busy or waiting:
            self.reactor.later(limits.COMMIT_IDLE_SECONDS, lambda: self._drain_step(drained))
            return
        for session in list(self.sessions):
            session.close()
        drained()

    def close(self) -> None:
        """Drop every connection at once."""
        for session in list(self.sessions):
            session.abort("the proxy ends")
        for lanes in list(self.pass_through_lanes):
            lanes.close()
        self.topology.close()

    # ------------------------------------------------------------------ effects
    def _handlers(self) -> dict[type, Callable[[Any, Resume], None]]:
        turn = self.loop_budget.in_turn  # what a flow does next may be to convert a batch
        return {
            effects.Read: lambda e, resume: self._stored().read(e.key, turn(resume)),
            effects.Swap: lambda e, done: self._stored().swap(e.key, e.expected_version, e.value, e.ttl_ms, turn(done)),
            effects.MemberAlive: lambda e, resume: self._stored().member_alive(e.incarnation, turn(resume)),
            effects.Append: lambda e, resume: self._append(e, turn(resume)),
            effects.Ask: lambda e, resume: self.topology.ask(e.broker_id, e.question, turn(resume)),
            effects.Leader: lambda e, resume: self.topology.leader(e.topic, e.partition, e.refresh, turn(resume)),
            effects.Replicas: lambda e, resume: resume(self.topology.replicas_of(e.topic, e.partition)),
            effects.Wait: lambda e, resume: self.reactor.later(e.seconds, lambda: turn(resume)(None)),
            effects.Pause: self._pause,
            effects.Work: lambda e, resume: self.long_work.add(e.start, e.sender, resume),
            effects.Now: lambda _, resume: resume(self.reactor.now()),
        }

    def _stored(self) -> LeasedStore:
        assert self._store is not None
        return self._store

    def _append(self, effect: Append, resume: Resume) -> None:
        def ended(outcome: Outcome) -> None:
            if not isinstance(outcome, NotSent) and outcome.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.topology.doubt(effect.topic)
            resume(outcome)

        if effect.way is not None:
            effect.way.append(effect, ended)
            return
        broker = self.topology.broker(effect.broker_id)
        if broker is None or not broker.is_ready:
            self.reactor.later(0, lambda: resume(NotSent("the broker is away")))
        else:
            broker.pool.append(effect, ended)

    def _pause(self, effect: effects.Pause, resume: Resume) -> None:
        bell = effect.bell
        if bell.rung:
            bell.rung = False
            resume(True)
            return

        def ring() -> None:
            bell.listener = None
            timer.cancel()
            resume(True)

        def time_out() -> None:
            bell.listener = None
            resume(False)

        timer = self.reactor.later(effect.seconds, time_out)
        bell.listener = ring
