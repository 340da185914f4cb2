"""Which brokers there are and which one leads what, kept in memory and asked for when it is out of date. Sans-IO.

Clients are answered from here, also while brokers are away. Metadata is asked for by topic when a topic is wanted, and
as a whole by age; equal questions at the same time are asked once. A topic is named to a broker only where it may be
created or is surely there, because brokers before 0.11 create what is named."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from ...codecs.error_codes import ErrorCode
from ...codecs.steps import Steps
from ...reactor import Address, Reactor
from .. import limits
from ..admission.long_work import LongWork
from ..admission.turns import in_turns
from ..bridge.asks import EarliestOffset, FetchRecords, LatestOffset, Question
from ..bridge.cluster import BrokerAddress, Cluster, Topic
from ..bridge.metadata import TOPIC_NAME
from ..events import OperatorMessage, Report
from ..flow.effects import Unanswered
from ..partition_log.log_chunk import ReadLog
from .broker import BOOTSTRAP_ID, Broker, BrokerStatistics, OneCluster
from .metadata_age import MetadataAge
from .metadata_refresh import MetadataRefresh, Topics
from .mode import Mode
from .probed import Probed
from .served import Idempotence, choose

Done = Callable[[], None]
_OF_A_TOPIC = (LatestOffset, EarliestOffset, FetchRecords, ReadLog)


@dataclass(frozen=True, slots=True)
class TopologyStatistics:
    """The cluster at one moment. ``is_known``: a broker has reported which brokers there are; before that
    ``asked_first`` are the configured addresses. ``brokers``: by id."""

    is_known: bool
    brokers: tuple[BrokerStatistics, ...]
    asked_first: tuple[BrokerStatistics, ...]


class Topology:
    """The cluster as last learned."""

    def __init__(
        self,
        reactor: Reactor,
        bootstrap: Sequence[Address],
        *,
        may_send: Callable[[], bool],
        report: Report,
        on_brokers: Callable[[Mapping[int, BrokerAddress]], None],
        on_ready: Callable[[], None],
        produce_connections_max: Callable[[], int] = lambda: limits.PRODUCE_CONNECTIONS_PER_BROKER,
        on_refused: Callable[[Broker], None] = lambda _broker: None,
        long_work: LongWork | None = None,
        mode: Mode | None = None,
        on_mode: Callable[[], None] = lambda: None,
    ) -> None:
        """``bootstrap``: all addresses are connected to at once, so that one that is away delays nothing.
        ``on_brokers``: the set of brokers changed. ``on_ready``: the first answer is there, clients can be served.
        ``on_refused``: a broker cannot be served, for another reason than before. ``long_work`` runs what takes many
        steps, such as reading logs; None: each broker has its own. ``mode``: who gives idempotence; None: the proxy.
        ``on_mode``: its ``by_brokers`` is known now, or a broker has to be probed."""
        self.cluster = Cluster(None, None)
        self.is_known = False
        self._reactor = reactor
        self._may_send = may_send
        self._report = report
        self._produce_connections_max = produce_connections_max
        self._on_brokers = on_brokers
        self._on_ready = on_ready
        self._on_refused = on_refused
        self._long_work = long_work
        self._mode = mode or Mode(Idempotence.PROXY)
        self._on_mode = on_mode
        self._one_cluster = OneCluster()
        self._brokers: dict[int, Broker] = {}
        self._bootstrap = [self._new_broker(BOOTSTRAP_ID, address) for address in bootstrap]
        self._freshness = MetadataAge()
        self._refreshes = MetadataRefresh(reactor, self.any_broker, lambda: self.cluster.topics, self._learn)
        self._turn = 0

    def open(self) -> None:
        """Start: connect to the bootstrap addresses, and look again by age."""
        for broker in self._bootstrap:
            broker.open()
        self._reactor.later(limits.METADATA_AGE_SECONDS, self._age)
        self._reactor.later(limits.LEFT_LOOK_SECONDS, self._look_who_has_left)

    def close(self) -> None:
        """Drop all connections to brokers."""
        for broker in (*self._bootstrap, *self._brokers.values()):
            broker.close()

    @property
    def brokers(self) -> Sequence[Broker]:
        """All brokers of the cluster."""
        return list(self._brokers.values())

    def statistics(self) -> TopologyStatistics:
        """Return the state of the brokers at this moment."""
        brokers = tuple(broker.statistics() for broker in sorted(self.brokers, key=lambda broker: broker.id))
        asked_first = brokers if self.is_known else tuple(broker.statistics() for broker in self._bootstrap)
        return TopologyStatistics(self.is_known, brokers, asked_first)

    @property
    def asked_first(self) -> Sequence[Broker]:
        """All brokers of the cluster; before any is known, all configured addresses."""
        return self.brokers if self.is_known else list(self._bootstrap)

    @property
    def bootstrap(self) -> Broker:
        """Return a configured address: the first one that answers, if any does."""
        return next((broker for broker in self._bootstrap if broker.is_ready), self._bootstrap[0])

    def broker(self, broker_id: int) -> Broker | None:
        """The broker with this id, None if the cluster has none (any more)."""
        return self._brokers.get(broker_id)

    def any_broker(self) -> Broker | None:
        """Return a broker that can be asked now, None if there is none; another one at each call, because a broker that
        the controller no longer reaches still answers, with metadata that is out of date. One that is not listed in
        Metadata comes last."""
        listed = [broker for id_, broker in self._brokers.items() if broker.is_ready and id_ in self.cluster.brokers]
        if listed:
            self._turn += 1
            return listed[self._turn % len(listed)]
        return next((broker for broker in (*self._bootstrap, *self._brokers.values()) if broker.is_ready), None)

    def leader_of(self, topic: str, partition: int) -> int | None:
        """The leader as last learned."""
        seen = self.cluster.topics.get(topic)
        leader = None if seen is None else seen.rows.leaders.get(partition)
        return leader if leader in self._brokers else None

    def replicas_of(self, topic: str, partition: int) -> Collection[int]:
        """The brokers that have a replica, as last learned."""
        seen = self.cluster.topics.get(topic)
        return next((one.replicas for one in seen.rows if one.index == partition), ()) if seen else ()

    def has_partition(self, topic: str, partition: int) -> bool:
        """Is there such a partition, as last learned?"""
        seen = self.cluster.topics.get(topic)
        return seen is not None and partition in seen.rows.leaders

    def leader(self, topic: str, partition: int, refresh: bool, done: Callable[[int | None], None]) -> None:
        """Call back with the leader, None if none is known. Asks again before if none is known or with ``refresh``,
        unless the last answer is younger than ``PROBE_SECONDS``."""
        known, now = self.leader_of(topic, partition), self._reactor.now()
        age = self._freshness.age_of(topic, now)
        if age < limits.PROBE_SECONDS or (known is not None and not refresh):
            done(known)
        elif self._may_be_named(topic):
            self.refresh((topic,), lambda: done(self.leader_of(topic, partition)))
        elif self._freshness.may_look_in_all(topic, now):
            self.refresh(None, lambda: done(self.leader_of(topic, partition)))
        else:
            done(known)

    def refresh(self, topics: Topics, done: Done) -> None:
        """Ask for some topics, or for all (None), and call back when all was answered, or soon in any case."""
        self._refreshes.ask(topics, done)

    def changed(self, gone: Collection[str] = ()) -> None:
        """Topics were created or deleted: what was asked before this moment is out of date. ``gone``: those that may be
        deleted now."""
        self._freshness.changed(self._reactor.now())
        self._refreshes.forget()
        for name in gone:
            self.distrust(name)

    def distrust(self, topic: str) -> None:
        """A broker does not know a topic that it should have: the topic may have been deleted."""
        if topic in self.cluster.topics:
            self._freshness.distrust(topic, self._reactor.now())

    def _may_be_named(self, topic: str) -> bool:
        """Is the topic surely there, so that naming it creates nothing?"""
        return topic in self.cluster.topics and not self._freshness.is_distrusted(topic)

    def refresh_if_stale(self, topics: Sequence[str] | None, may_create: bool, done: Done) -> None:
        """For a client's Metadata: what was learned in the last second is fresh enough, unless something is missing
        (``metadata_age.py``)."""
        now, freshness = self._reactor.now(), self._freshness
        if topics is None:
            done() if freshness.is_all_fresh(now) else self.refresh(None, done)
            return
        if len(topics) > limits.METADATA_TOPICS_PER_QUESTION_MAX:
            self._refresh_many(topics, may_create, done)
            return
        topics = [name for name in topics if TOPIC_NAME.fullmatch(name)]  # no other one is asked for, or remembered
        if not may_create and self._looks_in_all(topics, now):
            self.refresh(None, done)
            return
        wanted = {name for name in topics if (may_create or self._may_be_named(name)) and self._is_due(name, now)}
        if wanted:
            self.refresh(tuple(sorted(wanted)), done)
        else:
            done()

    def _refresh_many(self, topics: Sequence[str], may_create: bool, done: Done) -> None:
        """The same for many topics: they are not checked one by one, and the client sees the whole cluster as it was a
        second ago. Of the topics that are not there, as many are named as one question can hold."""
        now, known, freshness = self._reactor.now(), self.cluster.topics, self._freshness
        unknown = (name for name in topics if name not in known and TOPIC_NAME.fullmatch(name))
        missing = (name for name in unknown if freshness.may_name(name, now))
        named = tuple(islice(missing, limits.METADATA_TOPICS_PER_QUESTION_MAX)) if may_create else ()
        if not freshness.is_all_fresh(now):
            self.refresh(None, _nothing if named else done)
        elif not named:
            done()
        if named:
            self.refresh(named, done)

    def _looks_in_all(self, topics: Sequence[str], now: float) -> bool:
        """Is one of these to be looked for by asking for the whole cluster, without its name?"""
        for name in topics:
            if not self._may_be_named(name):
                if self._freshness.may_look_in_all(name, now):
                    return True
            elif not self._freshness.is_large and self._is_due(name, now):
                return True
        return False

    def look_for(self, topic: str, done: Done) -> None:
        """A partition of a topic is not known: ask again, unless that was done a moment ago. Never creates a topic."""
        if not self._may_be_named(topic):
            self.refresh_if_stale((topic,), False, done)
        elif self._freshness.may_look_for_leader(topic, self._reactor.now()):
            self.refresh((topic,) if self._freshness.is_large else None, done)
        else:
            done()

    def _is_due(self, name: str, now: float) -> bool:
        topic = self.cluster.topics.get(name)
        if topic is None:
            return self._freshness.may_name(name, now)
        if not self._freshness.is_fresh(name, now):
            return True
        return not topic.has_leaders and self._freshness.may_look_for_leader(name, now)

    def ask(self, broker_id: int, question: Question[Any], done: Callable[[Any], None]) -> None:
        """Ask one broker."""
        broker = self._brokers.get(broker_id)
        if broker is None:
            self._reactor.later(0, lambda: done(Unanswered("the cluster has no such broker")))
            return

        def answered(answer: Any) -> None:
            code = getattr(answer, "error_code", ErrorCode.NONE)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and isinstance(question, _OF_A_TOPIC):
                self.distrust(question.topic)
            done(answer)

        broker.ask(question, answered)

    # ------------------------------------------------------------------ inside
    def _learn(self, topics: Topics, asked_at: float, known_then: Mapping[str, Topic], answer: Cluster) -> None:
        """Take over what an answer names and what is new in it, and touch nothing else. ``known_then``: the topics that
        were known when the question was asked."""
        if not answer.brokers:
            return
        before, freshness = self.cluster, self._freshness
        if freshness.is_overtaken(asked_at):
            answer = replace(before, topics=answer.topics)  # more is known of the brokers than this answer says
        made = set() if topics is None else self._made_by(asked_at, known_then, answer)
        for name in made:  # not named until an answer that was not overtaken tells of them
            self._freshness.distrust(name, self._reactor.now())
        after = replace(answer, topics=self._topics_after(topics, asked_at, answer, made))
        if topics is None:
            partitions = sum(len(topic.rows.leaders) for topic in after.topics.values())
            freshness.learned_all(partitions, asked_at, self._reactor.now())
        else:
            freshness.learned(topics, asked_at, self._reactor.now())
        if after.topics is not before.topics or replace(after, topics={}) != replace(before, topics={}):
            self.cluster = after  # else the answers that were made of it for clients hold on
        if dict(after.brokers) != dict(before.brokers):
            self._update_brokers(after.brokers)
        if not self.is_known:
            self.is_known = True
            self._on_ready()

    def _made_by(self, asked_at: float, known_then: Mapping[str, Topic], answer: Cluster) -> set[str]:
        """Return the topics of an overtaken answer that its question may have created, as brokers do with what is
        named. The later answer came from a broker that had not heard of them; or they are gone again."""
        known = self.cluster.topics
        new = [name for name, topic in answer.topics.items() if name not in known_then and _is_there(topic)]
        return {name for name in new if name not in known and self._freshness.is_topic_overtaken(name, asked_at)}

    def _topics_after(
        self, topics: Topics, asked_at: float, answer: Cluster, made: Collection[str]
    ) -> Mapping[str, Topic]:
        """Return the known topics with what an answer says of them; the same object if that is nothing new.

        ``made``: topics that it is believed to tell of, though it was overtaken."""
        known, reported, is_old = self.cluster.topics, answer.topics, self._freshness.is_topic_overtaken
        for name in reported:
            if name not in known:
                self._freshness.appeared(name)
        changed = {name: topic for name, topic in reported.items() if _is_there(topic) and known.get(name) is not topic}
        changed = {name: topic for name, topic in changed.items() if name in made or not is_old(name, asked_at)}
        if topics is None:
            gone = [name for name in known if not _is_there(reported.get(name))]
        else:
            gone = [
                name for name, topic in reported.items() if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            ]
        gone = [name for name in gone if name in known and not is_old(name, asked_at)]
        if not changed and not gone:
            return known
        after = {**known, **changed}
        for name in gone:
            del after[name]
        return after

    def _update_brokers(self, brokers: Mapping[int, BrokerAddress]) -> None:
        for broker_id, broker in list(self._brokers.items()):
            there = brokers.get(broker_id)
            # A broker that is down is left out of Metadata; its connection keeps trying, unknown outcomes may wait
            # for it (``_look_who_has_left``).
            if there is not None and broker.address != (there.host, there.port):
                broker.close()
                del self._brokers[broker_id]
        for broker_id, place in brokers.items():
            if broker_id not in self._brokers:
                self._brokers[broker_id] = self._new_broker(broker_id, (place.host, place.port))
                self._brokers[broker_id].open()
        self._on_brokers(brokers)
        self._choose_mode()

    def _new_broker(self, broker_id: int, address: Address) -> Broker:
        return Broker(
            self._reactor,
            broker_id,
            address,
            may_send=self._may_send,
            admits=self._one_cluster.admits,
            on_ready=self._broker_ready,
            report=self._report,
            produce_connections_max=self._produce_connections_max,
            on_refused=self._on_refused,
            long_work=self._long_work,
            mode=self._mode,
            on_judged=self._choose_mode,
        )

    def _choose_mode(self) -> None:
        """Note as what the listed brokers can be served, if what they have reported decides it (``served.choose``)."""
        listed = [broker for id_, broker in self._brokers.items() if id_ in self.cluster.brokers]
        self._mode.by_brokers = choose([broker.judgement for broker in listed])
        if self._mode.by_brokers is not None or self.unprobed:
            self._on_mode()

    def all_take_ids(self) -> Steps[bool]:
        """Do all brokers take unknown producer ids with any sequence, also those that have a replica and are down?"""
        seen, known = 0, {id_: broker.judgement for id_, broker in self._brokers.items()}
        if not known or any(one is None or not one.takes_ids for one in known.values()):
            return False
        for topic in tuple(self.cluster.topics.values()):
            for partition in topic.rows:
                if not known.keys() >= {*partition.replicas}:
                    return False
                seen += 1
                if seen % limits.METADATA_ROWS_PER_STEP == 0:
                    yield
        return True

    @property
    def unprobed(self) -> Sequence[Broker]:
        """The brokers that have to be probed."""
        return [broker for broker in self._brokers.values() if broker.awaits_probe]

    def probed(self, probed: Probed | None) -> None:
        """This is known of brokers that do not show that they are Kafka: those that wait for it are judged. None:
        nothing is known any more, and those that connect next wait."""
        self._mode.probed = probed
        for broker in self.brokers:
            broker.judge_by_probe()

    def serve_as(self, chosen: Idempotence) -> None:
        """From now on the proxy gives idempotence, or the brokers do; each broker is served accordingly."""
        self._mode.chosen = chosen
        for broker in self.brokers:
            broker.serve_or_refuse()

    def _broker_ready(self, broker: Broker) -> None:
        if broker.remark:
            self._report(OperatorMessage("warning", f"broker {broker.id} {broker.remark}"))
        if broker.id == BOOTSTRAP_ID or not self.is_known:
            self.refresh(None, lambda: None)
        else:
            self._on_ready()

    def _age(self) -> None:
        if self._freshness.age_of_all(self._reactor.now()) > limits.METADATA_AGE_SECONDS / 2:
            self.refresh(None, lambda: None)
        self._reactor.later(limits.METADATA_AGE_SECONDS, self._age)

    def _look_who_has_left(self) -> None:
        """Stop connecting to a broker that is not listed, has no replica any more, and has been away for so long that
        no unknown outcome waits for it (rule R6). When it is listed again it is a new one."""
        for broker in self.brokers:
            if self._may_have_left(broker):
                in_turns(self._reactor, self._has_replica(broker.id), partial(self._forget_unless, broker))
        self._reactor.later(limits.LEFT_LOOK_SECONDS, self._look_who_has_left)

    def _may_have_left(self, broker: Broker) -> bool:
        if broker.id in self.cluster.brokers or broker.away_since is None:
            return False
        return self._reactor.now() - broker.away_since >= limits.LEADER_GONE_SECONDS

    def _has_replica(self, broker_id: int) -> Steps[bool]:
        seen = 0
        for topic in tuple(self.cluster.topics.values()):
            for partition in topic.rows:
                if broker_id in partition.replicas:
                    return True
                seen += 1
                if seen % limits.METADATA_ROWS_PER_STEP == 0:
                    yield
        return False

    def _forget_unless(self, broker: Broker, has_replica: bool) -> None:
        if has_replica or self._brokers.get(broker.id) is not broker or not self._may_have_left(broker):
            return
        broker.close()
        del self._brokers[broker.id]
        self._report(OperatorMessage("info", f"{broker.name} has left the cluster: its connections are closed"))
        self._on_brokers(self.cluster.brokers)


def _is_there(topic: Topic | None) -> bool:
    return topic is not None and topic.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)


def _nothing() -> None:
    """Nothing waits for this answer."""
