"""Three brokers 0.10.2.2 that become 2.8.2 and 3.9.1 one by one, on their data directories, while clients produce and
read in groups through two proxies on one Redis, of which one is killed in each round.

Faults hit produce requests on both sides of the proxies. Each client has one address for both proxies, as behind a load
balancer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from idemproxy.demo.fault_relay import FaultPlan
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import stored_texts
from testkit.real.clients.client_runs import read_plainly
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.proxies.two_proxies_relays import SpreadingRelay

from .faulty import BREAKING_KINDS
from .followed_clients import AT_FIRST, FollowedClients

BROKERS = 3
OLD, MIDDLE, NEW = "0.10.2.2", "2.8.2", "3.9.1"
RECORDS_WHILE_AWAY = 9
"""Of each client, while a broker is away."""
AWAY_SECONDS_MAX = 45
"""Then a broker returns all the same. A leader of 2.8 whose in-sync replicas shrink looks at its high watermark only
when the next batch comes (KAFKA-13091): a producer that waits for its only batch waits until the broker is back."""
_SETTINGS: Mapping[str, str | int] = {"min.insync.replicas": 2, "auto.leader.rebalance.enable": "false"}


@dataclass(frozen=True, slots=True)
class Round:
    """What each broker becomes, one after the other."""

    what: str
    version: str
    settings: Mapping[str, str]
    raises_format: bool
    """To v2. A broker that led with v2, and follows a leader with v1 since, never gets in sync (it asks for the end of
    an epoch, and format v1 keeps none), so no broker is killed in such a round."""


def _round(version: str, protocol: str, message_format: str = "", *, raises_format: bool = False) -> Round:
    settings = {"inter.broker.protocol.version": protocol}
    what = f"{version}, protocol {protocol}"
    if message_format:
        settings["log.message.format.version"] = message_format
        what += f", message format {message_format}"
    return Round(what, version, settings, raises_format)


_FIRST = _round(MIDDLE, "0.10.2", "0.10.2")
UPGRADES: Mapping[str, Sequence[Round]] = {
    "one-by-one": (
        _FIRST,
        _round(MIDDLE, "2.8", "0.10.2"),
        _round(MIDDLE, "2.8", "2.8", raises_format=True),
        _round(NEW, "2.8", "2.8"),
        _round(NEW, "3.9"),
    ),
    "together": (
        _FIRST,
        _round(MIDDLE, "2.8", "2.8", raises_format=True),
        _round(NEW, "2.8", "2.8"),
        _round(NEW, "3.9"),
    ),
    "format-last": (
        _FIRST,
        _round(MIDDLE, "2.8", "0.10.2"),
        _round(NEW, "2.8", "0.10.2"),
        _round(NEW, "3.9", raises_format=True),
    ),
}
"""When the message format is raised: after the protocol, with it, or by protocol 3.9, whatever its setting says.
``together`` is what upgrade-brokers.md warns of."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Which produce requests have a fault, on each side of the proxies: every n-th; 0 for none."""

    at_clients: int = 0
    at_brokers: int = 0
    seed: int = 1
    kills: bool = field(default=False, kw_only=True)
    """In each round a proxy is killed while a broker is away, and starts again when that is back; and the first broker
    is killed when it has become what the others are not yet."""

    def plan(self, every_nth: int) -> FaultPlan:
        """The plan of one relay."""
        if not every_nth:
            return FaultPlan(faults_max=0)
        return FaultPlan(seed=self.seed, kinds=BREAKING_KINDS, every_nth_produce=every_nth)


class UpgradedCluster(FollowedClients):
    """``proxies``: the two of them, for what they say."""

    def __init__(self, directory: Path, clients: Sequence[str], faults: Faults) -> None:
        cluster = LegacyCluster(
            directory / "cluster",
            version=OLD,
            brokers=BROKERS,
            auto_create_topics=False,
            broker_settings=_SETTINGS,
            session_timeout_ms=6000,
        )
        super().__init__(directory, clients, cluster)
        self.proxy_kills = [0, 0]
        self.starts = self.broker_kills = 0
        """Of brokers."""
        self.stalls = 0
        """How often a client had to wait for the broker that was away."""
        self._faults = faults
        self.proxies = TwoProxies(directory / "proxies", cluster, plan=faults.plan(faults.at_brokers))

    def _open(self, started: ExitStack) -> None:
        # The compiled parser of aiokafka 0.14.0 takes the format of a response's first batch for that of all: where v2
        # follows v1, it raises CorruptRecordException. The one in Python reads both.
        os.environ["AIOKAFKA_NO_EXTENSIONS"] = "1"
        started.enter_context(self.cluster)
        started.enter_context(self.proxies)
        plan = self._faults.plan(self._faults.at_clients)
        for number, client in enumerate(self.clients):
            relay = SpreadingRelay(self.proxies.addresses, seed=self._faults.seed + number, plan=plan)
            self._relays[client] = started.enter_context(relay)

    @property
    def _proxy_logs(self) -> str:
        return "\n".join(proxy.log[-1500:] for proxy in self.proxies.proxies)

    # ------------------------------------------------------------------ the upgrade
    def upgrade(self, number: int, chosen: Round, records: int, say: Callable[[str], None]) -> None:
        """Let all brokers become that, one by one. In between each client has so many more records stored."""
        for broker in self.cluster.broker_ids:
            victim = number % 2 if self._faults.kills and broker == number % BROKERS else None
            self.cluster.stop_broker(broker)
            if victim is not None:
                self.proxies.proxies[victim].kill()
                self.proxy_kills[victim] += 1
            self._come_back(broker, chosen)
            self.wait_for_more(records)
            if victim is not None:
                self.proxies.proxies[victim].start()
                self.wait_for_more(records)
            say(f"broker {broker}: {chosen.what}{'' if victim is None else f', proxy {victim} was killed'}")
            if self._faults.kills and broker == 0 and not chosen.raises_format:
                self.cluster.kill_broker(broker)
                self.broker_kills += 1
                self._come_back(broker, chosen)
                self.wait_for_more(records)
                say(f"broker {broker}: killed, and back")

    def _come_back(self, broker: int, chosen: Round) -> None:
        """A broker that has ended starts, and leads what it led."""
        try:
            self.wait_for_more(RECORDS_WHILE_AWAY, AWAY_SECONDS_MAX)
        except AssertionError:
            self.stalls += 1
        self.cluster.become(chosen.version, {**_SETTINGS, **chosen.settings})
        self.cluster.start_broker(broker)
        self.starts += 1
        for topic in self.topics.values():
            self.cluster.wait_in_sync(topic, self.partitions)
        self.elect_preferred(AT_FIRST)

    # ------------------------------------------------------------------ what came of it
    def faults_of(self, client: str) -> Mapping[str, int]:
        """Those between this client and the proxies, by kind."""
        return {kind.value: count for kind, count in self._relays[client].counts.items() if count}

    @property
    def faults_at_brokers(self) -> Mapping[str, int]:
        """Those between the proxies and the brokers, by kind."""
        first, second = (relay.counts for relay in self.proxies.relays)
        return {kind.value: first[kind] + second[kind] for kind in first if first[kind] + second[kind]}

    def read_whole(self, client: str) -> bool:
        """Does a plain consumer at the brokers read what is in the segment files?"""
        topic = self.topics[client]
        there = stored_texts(self.cluster, topic, self.partitions)
        read = read_plainly(
            self._children,
            self.directory,
            bootstrap=self.cluster.bootstrap,
            topic=topic,
            partitions=self.partitions,
            records=len(there),
            name=f"{client}-checked",
        )
        return read == sorted(there)
