"""The proxy without sockets and trio: wires store, topology, flows and sessions on a reactor. The simulation runs
this very class.

Takes connections, answers what sessions ask for, ends in order (R15); proxy instances are in ``proxy_instances.py``,
effects in ``perform.py``. Decides nothing about a batch."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import starmap

from ...codecs.convert import HeaderPolicy
from ...codecs.error_codes import ErrorCode
from ...codecs.steps import Steps
from ...reactor import Address, Reactor
from ...state.producer_ids import pack_block
from .. import limits
from ..admission.connection_quotas import AdmittedConnection
from ..admission.idle_eviction import IdleEviction
from ..admission.init_pace import InitPace
from ..admission.long_work import LongWork
from ..admission.loop_budget import LoopBudget
from ..admission.memory_budget import MemoryBudget
from ..admission.noted_failures import NotedFailures
from ..admission.turns import in_turns
from ..bridge.base import Addresses
from ..bridge.cluster import BrokerAddress
from ..bridge.init_producer_id import InitProducerIdRequest
from ..bridge.metadata import ClientQuestion, synthetic_cluster_id
from ..broker.broker import BOOTSTRAP_ID, Broker
from ..broker.mode import Mode
from ..broker.produce_connection_pool import NO_PRODUCE_CONNECTIONS, ProduceConnectionStatistics
from ..broker.served import Idempotence
from ..broker.topic_names import TopicNames
from ..broker.topology import Topology
from ..connection.handler import Handler
from ..connection.shell import ConnectionShell
from ..events import ClientRefused, ConnectionRefused, InternalError, Report
from ..flow.runner import FlowRunner
from ..hidden_ranges.known import KnownHiddenRanges
from ..hidden_ranges.topic import HiddenRangesTopic
from ..hidden_ranges.upkeep import HiddenRangesUpkeep
from ..native.old_producers import OldProducers
from ..old_clients.watch import OldClientWatch
from ..pass_through.produce_connections import ClientProduceConnections
from ..producer.batch import Answer
from ..producer.context import Context
from ..producer.ids_in_use import IdsInUse
from ..producer.proxy_instance import ProxyInstance
from ..producer.registry import Sequencers
from ..producer.sequencer import ProducerStatistics, Sequencer
from ..session.conditional_topics import ConditionalTopics
from ..session.describe_producers import DescribeProducers
from ..session.init_producer import ProducerIds
from ..session.name_patterns import matching
from ..session.names import Names, NamesClient
from ..session.new_topics import NewTopics
from ..session.routing import BatchKind, Way, way_of
from ..session.session import Session
from ..session.sweeper import Sweeper
from ..settings.addresses import PlaceOf
from ..settings.config import Caps, OldClientSettings, TopicDefaults
from ..versions import BrokerRanges, advertised, in_both, native
from .metadata_answers import MetadataAnswers
from .outside import EngineOutside
from .perform import effect_handlers
from .proxy_instances import LeasedStore, ProxyInstances
from .snapshot import OpenUnknownOutcome, Statistics

_ABORTED_PER_STEP = 250
"""Some 5 ms."""


def _aborting(sessions: Sequence[ConnectionShell], reason: str) -> Steps[None]:
    for number, session in enumerate(sessions, 1):
        session.abort(reason)
        if number % _ABORTED_PER_STEP == 0:
            yield


MakeHandler = Callable[..., Handler]
"""Makes the handler of a new connection, of the engine and the connection's shell."""


class Engine:
    """One proxy process. Call ``start`` once the store is given; ``accept`` for every client connection."""

    is_draining: bool = False
    why_ending: str = ""
    """What was found that ends the process; empty when nothing was."""
    _sessions_accepted: int = 0
    _is_dropping: bool = False
    """All connections are cut off, and about to be ended."""
    _producer_ids: ProducerIds | None = None
    _engine_topics: re.Pattern[str] | None = None
    _advertised: dict[int, tuple[int, int]] | None = None
    _native_ranges: BrokerRanges | None = None
    _engine_ranges: BrokerRanges | None = None
    refuses_all: Callable[[], tuple[str, str] | None] = staticmethod(lambda: None)
    """Why no client is admitted: one of ``metric_names.REFUSALS`` and a sentence; None: they are."""
    topic_defaults = TopicDefaults()
    """Partitions and replicas of topics that are created with -1."""
    old_client_settings = OldClientSettings()
    """What is done for clients of versions that Kafka 4 lacks."""
    upstream_idempotence: re.Pattern[str] | None = None
    """Client ids of producers whose batches without a producer id get one; None: nobody's do."""
    conditional_topics = ConditionalTopics()
    """The topics that take only conditional publishes. Set before clients come."""

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
        mode: Mode | None = None,
        on_mode: Callable[[], None] = lambda: None,
    ) -> None:
        """``mode``: who gives idempotence; None: the proxy. ``on_mode``: called when that was chosen by what the
        brokers are. ``on_brokers``: called with the brokers for which listeners are wanted. ``on_ready``: a broker can
        be used, or the hidden ranges were read. ``on_refused``: a broker cannot be served, for another reason than
        before.
        ``shares_store``: other proxies may use the store as well. ``for_clients``: opens the connections to brokers
        that belong to one client; None: ``reactor`` does."""
        self.caps = caps or Caps()
        self.memory = MemoryBudget(self.caps)
        self.noted_failures = NotedFailures(self._counts_addresses)
        self.reactor = reactor
        self.for_clients = for_clients or reactor
        self.now: Callable[[], float] = reactor.now
        self.report = report
        self.loop_budget = LoopBudget(reactor)
        self.long_work = LongWork(reactor, self.loop_budget)
        instance = ProxyInstance(cluster, wall_clock_ms)
        instance_ids = self._instance_ids = ProxyInstances(
            reactor, instance, random_bytes, report, shares_store=shares_store, begun=self._instance_begun
        )
        self.new_data_generation, self.lease_lost = instance_ids.new_data_generation, instance_ids.lease_lost
        self.begin_instance = instance_ids.begin
        self.may_send = instance_ids.may_send
        self.mode = mode or Mode(Idempotence.PROXY)
        self.topology = self._new_topology(upstream, on_refused, on_mode)
        handlers = effect_handlers(reactor, self.topology, instance_ids.stored, self.loop_budget, self.long_work)
        self.runner = FlowRunner(handlers)
        self._on_ready = on_ready
        self.context = self._new_context(instance)
        self.context.outside = EngineOutside(reactor, self.topology, instance_ids.stored, self.runner, self.loop_budget)
        self.names = Names(instance, self.runner, random_bytes, report)
        self.recent_time, self.hidden_ranges = self.context.time, KnownHiddenRanges(reactor.now)
        self.topic_names = TopicNames(reactor)
        self.sessions: set[ConnectionShell] = set()
        """The connections of clients."""
        self._idle_eviction = IdleEviction(lambda: self.sessions, reactor.now, report)
        self.pass_through_produce_connections: dict[ClientProduceConnections, None] = {}
        """Each belongs to one client; with a produce out it outlives the session."""
        self.requests_by_key: dict[int, int] = defaultdict(int)
        """Requests that came in, by API key."""
        self.old_clients = OldClientWatch(wall_clock_ms, report)
        self.old_producers = OldProducers(wall_clock_ms, self._counts_addresses)
        self.measure_request: Callable[[int, float], None] | None = None
        self._random_bytes = random_bytes
        self._on_brokers = on_brokers
        self._sequencers = Sequencers(self.caps.producers_max, report)
        self._ids_in_use, self._init_pace = IdsInUse(instance, self._sequencers.written_since), InitPace()
        self.known_sequencer = self._sequencers.known
        """The one with this key (producer id, topic, partition), if it is there."""
        self.describe_producers = self._new_describe_producers().answer
        """Tell where producers stopped."""
        self.sweeper = sweeper = Sweeper(reactor)
        self.sweep, self.swept = sweeper.add, sweeper.remove
        """``sweep``: have this request answered in time (rule R18); ``swept``: it was answered."""
        self.fallback_cluster_id = synthetic_cluster_id(cluster)
        self._metadata_answers, self.new_topics = MetadataAnswers(reactor, self.fallback_cluster_id), NewTopics()

    def _new_topology(
        self, upstream: Sequence[Address], on_refused: Callable[[Broker], None], on_mode: Callable[[], None]
    ) -> Topology:
        return Topology(
            self.reactor,
            upstream,
            may_send=self.may_send,
            report=self.report,
            on_brokers=self._brokers_changed,
            on_ready=self._broker_ready,
            produce_connections_max=lambda: self.caps.produce_connections_per_broker_max,
            on_refused=on_refused,
            long_work=self.long_work,
            mode=self.mode,
            on_mode=on_mode,
        )

    def _new_context(self, instance: ProxyInstance) -> Context:
        return Context(
            *(instance, self.report, self.memory),
            leader_of=self.topology.leader_of,
            is_reachable=self._is_reachable,
            is_pass_long=self.loop_budget.looks_long,
            drop_unknown=lambda key: self._sequencers.drop(key),
            counts_addresses=self._counts_addresses,
        )

    def _new_describe_producers(self) -> DescribeProducers:
        return DescribeProducers(
            *(self.context.instance, self.runner, self.report),
            sequencer=self.sequencer,
            known_on=self._sequencers.ids_on,
            has_partition=self.has_partition,
            look_for_topics=lambda topics, done: self.topology.refresh_if_stale(topics, False, done),
        )

    def _counts_addresses(self) -> bool:
        return self.caps.connections_per_ip_max > 0

    def _is_reachable(self, broker_id: int) -> bool:
        broker = self.topology.broker(broker_id)
        return broker is not None and broker.takes_batches

    def serve_as(self, chosen: Idempotence) -> None:
        """From now on the proxy gives idempotence on all topics or, where brokers give it, on the engine topics."""
        self.context.instance.brokers_issue_ids = chosen is Idempotence.NATIVE
        self.topology.serve_as(chosen)

    def look_for_brokers(self) -> None:
        """Begin to look for brokers; serves nothing yet."""
        self.topology.open()
        self._tick()

    def start(self, store: LeasedStore) -> None:
        """Use the store that the proxies share, and begin to look for brokers. See ``give_idempotence``."""
        self.give_idempotence(store)
        self.look_for_brokers()

    def give_idempotence(self, store: LeasedStore) -> None:
        """Use the store that the proxies share; needed unless the brokers give idempotence. ``store``: was made with
        ``instance.instance_id``, and calls ``new_data_generation`` and ``lease_lost``."""
        self._producer_ids = ProducerIds(self.context.instance, store, self._random_bytes, self.report)
        self._instance_ids.start(store)

        def failed(error: Exception) -> None:
            self.report(InternalError("ids in use", error))

        self.reactor.later(0, lambda: self.runner.start(self._ids_in_use.run(), failed=failed))

    def keep_hidden_ranges(self, topic: str | None = None) -> None:
        """From now on fetches leave out the active hidden ranges. ``topic``: the compacted topic that gets a copy of
        them."""
        instance = self.context.instance
        common = self.report, instance.wall_clock_ms

        def failed(error: Exception) -> None:
            self.report(InternalError("hidden ranges", error))

        others = self._on_ready, lambda: self.topology.is_known
        if topic is None:
            upkeep = HiddenRangesUpkeep(self.hidden_ranges, instance.cluster, *common, *others)
        else:
            copy = HiddenRangesTopic(
                topic, self.hidden_ranges, *common, by=lambda: f"proxy {instance.instance_id.hex()}"
            )
            self.runner.start(copy.run(), failed=failed)
            upkeep = HiddenRangesUpkeep(self.hidden_ranges, instance.cluster, *common, *others, stored=copy.stored)
        self.runner.start(upkeep.run(), failed=failed)

    def _tick(self) -> None:
        now = self.context.time.now = self.reactor.now()
        bounds = self.context.bounds
        if bounds.are_checkpoints_due(now):
            in_turns(self.reactor, bounds.taking_checkpoints(self.reactor.now), lambda _: None)
        self._idle_eviction.close_idle(now)
        self.reactor.later(limits.QUIESCENCE_SECONDS, self._tick)

    def set_caps(self, caps: Caps) -> None:
        """Use other limits from now on. What is open already is not closed for them."""
        self.caps = self.memory.caps = caps
        self._sequencers.entries_max = caps.producers_max

    def accept(
        self,
        broker_id: int | None,
        place_of: PlaceOf,
        principal: str | None = None,
        make: MakeHandler = Session,
        admitted: AdmittedConnection | None = None,
    ) -> ConnectionShell | None:
        """Return the endpoint of a new client connection; None when it is refused: the process drains, refuses all, or
        has too many. ``make``: makes its handler. ``place_of``: where clients of its listener reach each broker.
        ``principal``: the client's name, if it has authenticated. ``admitted``: what the quotas keep of the
        connection."""
        ending = ("draining", "the proxy is ending") if self.is_draining else self.refuses_all()
        if refusal := ending or self._idle_eviction.refusal(self.caps.connections_max):
            self.report(ConnectionRefused("a client" if admitted is None else admitted.address, *refusal))
            return None
        self._sessions_accepted += 1
        shell = ConnectionShell(self, broker_id, place_of, principal, admitted)
        shell.handler = make(self, shell)
        self.sessions.add(shell)
        return shell

    @property
    def own_connections_max(self) -> int:
        """So many connections to brokers the proxy may open for itself, rather than for one client."""
        per_broker = self.caps.produce_connections_per_broker_max + limits.DESCRIPTORS_KEPT_PER_BROKER
        return per_broker * len(self.topology.cluster.brokers)

    def make_room(self, reason: str, why: str) -> bool:
        """Close the connection of the client that has been quiet for longest. False: none has been for long enough."""
        return self._idle_eviction.make_room(reason, why)

    def _instance_begun(self) -> None:
        """A new proxy instance has begun, not the first one: clients of the last one are disconnected (rule R10)."""
        assert self._producer_ids is not None
        self._producer_ids.forget()
        self.context.left_out_ids.forget()
        old: list[ConnectionShell] = []
        for session in self.sessions:
            if session.is_idempotent:
                session.forsake()  # some hundred ns, where a reset takes 20 us
                old.append(session)
        self.reset_busy("a new proxy instance begins")
        in_turns(self.reactor, _aborting(old, "the state has a new data generation"), lambda _none: None)

    def drop_clients(self, reason: str) -> None:
        """Disconnect all clients: no byte leaves for them from here on, also of answers that are ready. May be called
        in the middle of anything; the sessions end a moment later."""
        if self._is_dropping or not self.sessions:
            return
        self._is_dropping = True
        for session in self.sessions:
            session.cut_off()

        def end_them() -> None:
            self._is_dropping = False
            for session in list(self.sessions):
                session.abort(reason)

        self.reactor.later(0, end_them)

    def reset_busy(self, reason: str) -> None:
        """Reset every connection on which an append is unanswered: bytes of it that have not left never do (rule
        R4)."""
        for broker in self.topology.brokers:
            broker.pool.give_up_busy(reason)
        for produce_connections in list(self.pass_through_produce_connections):
            produce_connections.give_up_busy(reason)

    # ------------------------------------------------------------------ what sessions and produce calls need
    def advertised(self) -> Mapping[int, tuple[int, int]]:
        """API versions as the proxy reports them to clients: from memory, so also while brokers are away."""
        if self._advertised is None:
            ranges = [broker.ranges for broker in self.topology.brokers if broker.ranges]
            if not ranges and self.topology.bootstrap.ranges:
                ranges = [self.topology.bootstrap.ranges]
            self._advertised = advertised(ranges)
        return self._advertised

    def native_ranges(self) -> Mapping[int, tuple[int, int]]:
        """The same for clients of brokers that give idempotence themselves."""
        if self._native_ranges is None:
            self._native_ranges = native(
                broker.ranges for broker in self.topology.brokers if broker.ranges and broker.refusal is None
            )
        return self._native_ranges

    def engine_ranges(self) -> Mapping[int, tuple[int, int]]:
        """The same for clients of brokers that store format v2, where the proxy gives idempotence. While a cluster is
        upgraded, what clients of its other brokers get as well: some clients ask one broker for all."""
        if self._engine_ranges is None:
            known = [broker for broker in self.topology.brokers if broker.ranges and broker.refusal is None]
            own = native(broker.ranges for broker in known if broker.form.is_v2)
            if any(not broker.form.is_v2 for broker in known):
                own = in_both(own, self.advertised())
            self._engine_ranges = own
        return self._engine_ranges

    def stores_batches(self, broker_id: int | None) -> bool:
        """Does the broker of a listener store format v2? For one that is not known yet, and for the bootstrap port: do
        all brokers?"""
        broker = None if broker_id is None else self.topology.broker(broker_id)
        if broker is not None and broker.ranges:
            return broker.form.is_v2
        known = [one for one in self.topology.brokers if one.ranges and one.refusal is None]
        return bool(known) and all(one.form.is_v2 for one in known)

    def addresses(self, place_of: PlaceOf, local_host: str) -> Addresses:
        """Where a client that reached us at this address reaches each broker; brokers that it cannot reach are left
        out."""
        places = ((broker_id, place_of(broker_id, local_host)) for broker_id in self.topology.cluster.brokers)
        return {broker_id: place for broker_id, place in places if place is not None}

    def target(self, broker_id: int | None) -> Broker | None:
        """The broker that a listener stands for; any one for the bootstrap port. None while it is away."""
        if broker_id is None:
            broker = self.topology.any_broker()
            is_judged = broker is None or broker.id != BOOTSTRAP_ID or not self.mode.is_native
            return broker if is_judged else None
        broker = self.topology.broker(broker_id)
        return broker if broker is not None and broker.is_ready else None

    def sequencer(self, producer_id: int, topic: str, partition: int) -> Sequencer | None:
        """The one place where a producer's batches of a partition are worked on. None: this pass has taken too long, or
        there are too many producers and none of those looked at is idle."""
        if self.loop_budget.is_too_long:
            return None
        key = (producer_id, topic, partition)
        return self._sequencers.get(key, lambda: Sequencer(self.context, self.runner, *key))

    def way_of(self, topic: str, kind: BatchKind) -> Way | Answer:
        """Return where a batch for this topic goes, or its refusal (``routing.py``)."""
        if self._engine_topics is None:
            self._engine_topics = matching(self.mode.engine_topics)
        matches, is_conditional = self._engine_topics.fullmatch(topic) is not None, self.conditional_topics.has(topic)
        return way_of(self.mode.chosen, matches=matches, is_conditional=is_conditional, kind=kind)

    @property
    def brokers_issue_ids(self) -> bool:
        """Do producers without a name have their ids from the brokers?"""
        return self.mode.is_native

    @property
    def policy(self) -> HeaderPolicy:
        """What becomes of headers, as the configuration says."""
        return self.context.options.policy

    def has_partition(self, topic: str, partition: int) -> bool:
        """Does the cluster have it, as last seen?"""
        return self.topology.has_partition(topic, partition)

    def look_for_topic(self, topic: str, done: Callable[[], None]) -> None:
        """Look whether there is such a topic, without creating it, and which partitions it has."""
        self.topology.look_for(topic, done)

    def topics_changed(self, gone: Collection[str] = (), created: Collection[str] = ()) -> None:
        """A client has created, enlarged or deleted topics: metadata is asked for again. ``gone``: those that were
        deleted; ``created``: those that exist now."""
        self.new_topics.changed(created, gone, self.reactor.now())
        self.topology.changed(gone)

    def init_producer_id(
        self,
        request: InitProducerIdRequest,
        version: int,
        client_id: str | None,
        client: NamesClient,
        done: Callable[[int, int, int], None],
    ) -> None:
        """Answer InitProducerId. ``done`` gets (error code, producer id, epoch), -1 for both with an error."""

        def refuse() -> None:
            done(int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), -1, -1)

        if self._producer_ids is None:  # a client that came back at once, while Redis is being started
            refuse()
            return
        producer_ids = self._producer_ids

        def issue() -> None:
            name = self.names.of(request, client_id)
            if client.is_closed:
                refuse()
            elif name is not None:
                self.names.answer(name, request, version, client, done)
            else:
                producer_ids.answer(client.principal, lambda error, issued: done(error, issued, -1 if error else 0))

        per_ip, wait = self.caps.connections_per_ip_max, None
        if not per_ip or (wait := self._init_pace.wait_seconds(client.address, per_ip, self.now())) == 0:
            issue()
        elif wait is not None:
            self.reactor.later(wait, issue)
        else:
            self.report(ClientRefused(client.address, "asks for producer ids too often: it gets a retriable error"))
            self.reactor.later(limits.INIT_PRODUCER_ID_REFUSAL_SECONDS, refuse)

    def note_issued(self, producer_id: int, client: NamesClient, done: Callable[[], None]) -> None:
        """Note in Redis that a broker has just issued this producer id, before its client learns of it: then nothing
        of it is in any log (rule R10). ``done``: it is noted, or cannot be, and the log is read for its batches."""
        store, instance, per_ip = self._instance_ids.stored(), self.context.instance, self.caps.connections_per_ip_max
        data_generation = store.data_generation
        if data_generation is None or (
            per_ip and self._init_pace.wait_seconds(client.address, per_ip, self.now()) != 0
        ):
            done()
            return
        value = pack_block(data_generation, instance.wall_clock_ms(), client.principal)
        store.claim(instance.issue_key(producer_id), value, instance.issue_ttl_ms(producer_id), lambda _result: done())

    def metadata(
        self, version: int, question: ClientQuestion, addresses: Callable[[], Addresses], done: Callable[[bytes], None]
    ) -> None:
        """Answer Metadata from memory, which is refreshed first if it is too old. ``done`` gets the body."""

        def answer() -> None:
            cluster = self.topology.cluster
            new = self.new_topics.not_listed(cluster.topics, question.topics, self.reactor.now())
            self._metadata_answers.tell(version, cluster, question.topics, addresses(), new, done)

        self.topology.refresh_if_stale(question.topics, question.allow_auto_topic_creation, answer)

    def statistics(self) -> Statistics:
        """Return what is under way now. Other threads may ask: what is iterated over is copied first."""
        client_produce_connections: dict[int, ProduceConnectionStatistics] = {}
        for pool in (pools := list(self.pass_through_produce_connections)):
            client_produce_connections[pool.broker_id] = (
                client_produce_connections.get(pool.broker_id, NO_PRODUCE_CONNECTIONS) + pool.statistics()
            )
        return Statistics(
            at=self.now(),
            cluster=self.context.instance.cluster,
            idempotence=self.mode.chosen,
            engine_topics=self.mode.engine_topics,
            instance_id=self.context.instance.instance_id,
            data_generation=self.context.instance.data_generation,
            is_draining=self.is_draining,
            why_ending=self.why_ending,
            connections=len(self.sessions),
            connections_max=self.caps.connections_max,
            connections_accepted=self._sessions_accepted,
            requests_by_key=self.requests_by_key.copy(),
            memory=self.memory.statistics(),
            entries=len(self._sequencers),
            entries_max=self.caps.producers_max,
            unknown_outcomes=tuple(starmap(OpenUnknownOutcome, list(self.context.observers.unknown_outcomes.values()))),
            topology=self.topology.statistics(),
            client_produce_connections=client_produce_connections,
            client_pools=len(pools),
        )

    def producers(self, producer_id: int | None, topic: str | None, count: int) -> list[ProducerStatistics]:
        """Return how it stands with producers on partitions that are in memory. See ``Sequencers.statistics``."""
        return self._sequencers.statistics(producer_id, topic, count)

    def producers_of(
        self, producer_ids: Collection[int], count_each: int
    ) -> Mapping[int, Sequence[ProducerStatistics]]:
        """Return the same of these producer ids, so many of each."""
        return self._sequencers.of_ids(producer_ids, count_each)

    def session_ended(self, session: ConnectionShell) -> None:
        """A client has gone."""
        self.sessions.discard(session)
        self.sweeper.has_left = True

    def count_request(self, api_key: int) -> None:
        """A request came in."""
        self.requests_by_key[api_key] += 1

    def _broker_ready(self) -> None:
        self._advertised = self._native_ranges = self._engine_ranges = None
        self._on_ready()

    def _brokers_changed(self, brokers: Mapping[int, BrokerAddress]) -> None:
        self._advertised = self._native_ranges = self._engine_ranges = None
        self._on_brokers(brokers)

    # ------------------------------------------------------------------ drain
    # R15 lives here: what is in flight is finished, intents and lease are given back.
    def drain(self, drained: Callable[[], None]) -> None:
        """Rule R15: take nothing new, finish and write what is there, then call back."""
        self.is_draining = self.context.instance.is_draining = True
        for session in list(self.sessions):
            session.drain_begins()
        self._drain_step(drained)

    def _drain_step(self, drained: Callable[[], None]) -> None:
        if self._has_produce_in_flight():
            self.reactor.later(limits.COMMIT_IDLE_SECONDS, lambda: self._drain_step(drained))
        else:
            in_turns(self.reactor, self._sequencers.looking_for_busy(), lambda busy: self._drain_ends(busy, drained))

    def _has_produce_in_flight(self) -> bool:
        """Also one of an old client that has gone: without acks it may end right after its last request."""
        is_any_left = self.old_producers.departed.are_open
        return is_any_left or any(session.has_produce_in_flight for session in self.sessions)

    def _drain_ends(self, is_any_busy: bool, drained: Callable[[], None]) -> None:
        # Clients that have not produced yet are still read: one may have sent a batch without a producer id meanwhile.
        is_over = not is_any_busy and not self._has_produce_in_flight()
        if is_over:
            for session in list(self.sessions):
                session.close()
            is_over = not self._has_produce_in_flight()  # what waits for a fetch and wants no answer is begun now
        if is_over:
            drained()
        else:
            self.reactor.later(limits.COMMIT_IDLE_SECONDS, lambda: self._drain_step(drained))

    def close(self) -> None:
        """Drop every connection at once."""
        for session in list(self.sessions):
            session.abort("the proxy ends")
        for produce_connections in list(self.pass_through_produce_connections):
            produce_connections.drop("the proxy ends")
        self.topology.close()
