"""A cluster of brokers on the virtual network: partitions, leaders, lagging replication, crashes, elections, upgrades.

Owns what is true of the cluster as a whole and how an append is carried out and waited for (acks=-1). The bytes and the
faults of single requests are in ``broker``. Elections are clean, and nothing below the high watermark is lost,
but for what is asked for by name: an unclean one, retention, compaction, a topic that is deleted and made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from idemproxy.reactor import Address
from testkit.virtual.broker import BrokerConnection
from testkit.virtual.broker_faults import BrokerFaultRates, FaultChoice, ProduceSeen, seeded_choice
from testkit.virtual.kafka_bytes import ProduceBody
from testkit.virtual.log import PartitionLog, Refusal
from testkit.virtual.network import Network, VirtualReactor
from testkit.virtual.releases import OLD, Release

NOT_LEADER, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, TIMED_OUT = 6, 3, 5, 7


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """How the cluster behaves when nothing fails. Pairs are (least, most), in seconds."""

    replication_lag: tuple[float, float] = (0.000_5, 0.01)
    stall_chance: float = 0.0
    """Of an append after which replication stands still for a while."""
    stall_duration: tuple[float, float] = (0.1, 8.0)
    election_duration: tuple[float, float] = (0.05, 2.0)
    restart_duration: tuple[float, float] = (0.2, 4.0)


@dataclass(slots=True)
class Part:
    """One partition's share of a produce request that waits for replication."""

    topic: str
    partition: int
    required: int
    error_code: int
    base_offset: int
    is_done: bool


@dataclass(slots=True)
class Partition:
    """One partition, as its present leader has it."""

    log: PartitionLog
    replicas: tuple[int, ...]
    leader: int | None
    leader_epoch: int = 0
    stalled_until: float = 0.0
    is_deleted: bool = False
    met: set[str] = field(default_factory=set)
    """What happened to its log that no election or crash does; the code that does it writes it down."""
    waiting: list[tuple[Part, Callable[[], None]]] = field(default_factory=list)


class Broker:
    """One broker over all its lives."""

    def __init__(self, cluster: VirtualCluster, number: int, address: tuple[str, int], release: Release) -> None:
        self.cluster = cluster
        self.number = number
        self.release = release
        """What it is in this life."""
        self.next_release = release
        """What it will be when it is started next."""
        self.address = address
        """What the cluster tells of it."""
        self.addresses = address, (f"{address[0]}-other", address[1])
        """It can be reached at both."""
        self.lives = 0
        self.host: VirtualReactor
        self.start()

    @property
    def is_up(self) -> bool:
        """It runs and takes connections."""
        return self.host.alive

    def start(self) -> None:
        """Start the broker."""
        self.lives += 1
        self.release = self.next_release
        self.host = self.cluster.network.host(f"broker-{self.number}" + (f".{self.lives}" if self.lives > 1 else ""))
        for address in self.addresses:
            self.cluster.network.listen(self.host, address, lambda: BrokerConnection(self.cluster, self))

    def change_address(self) -> None:
        """The cluster names the other one from now on. Connections are unaffected."""
        self.address = next(other for other in self.addresses if other != self.address)


FIRST_OWN_PRODUCER_ID = 1000


class VirtualCluster:
    """Brokers, partitions, and what the checker wants to know of them."""

    def __init__(
        self,
        network: Network,
        topics: Mapping[str, int],
        *,
        broker_count: int = 2,
        settings: ClusterSettings | None = None,
        rates: BrokerFaultRates | None = None,
        release: Release = OLD,
    ) -> None:
        self.network = network
        self.settings = settings or ClusterSettings()
        self.rates = rates or BrokerFaultRates()
        self.cluster_id = "virtual-cluster"
        self.choose_fault: FaultChoice = seeded_choice(self)
        self.faults_done: dict[str, int] = {}
        self.silent_deaths_share = 0.1
        """Of broker crashes of which nobody hears who is connected (the machine's power)."""
        self.throttle: tuple[float, float] = 0.0, 0.0
        """Until when quotas are enforced, and how long each answer to a produce is held then."""
        self.users: dict[str, bool] | None = None
        """Who may write, by name, where the brokers ask who is there (SASL PLAIN); None: they do not ask."""
        self.produce_count = 0
        self.ids_issued = 0
        """Producer ids that brokers have handed out themselves."""
        self.violations: list[str] = []
        self.on_produce: list[Callable[[ProduceSeen], None]] = []
        """Called with every produce request that arrives whole, before anything is done with it."""
        self.on_produce_over: list[Callable[[ProduceSeen], None]] = []
        """Called when a request has been answered or its connection has ended."""
        self.on_brokers: list[Callable[[], None]] = []
        """Called when a broker has ended, or started again."""
        self.brokers = {
            number: Broker(self, number, (f"kafka-{number}", 9092), release) for number in range(1, broker_count + 1)
        }
        numbers = list(self.brokers)
        self.partitions: dict[tuple[str, int], Partition] = {}
        for topic, count in topics.items():
            for partition in range(count):
                leader = numbers[len(self.partitions) % len(numbers)]
                self.partitions[topic, partition] = Partition(PartitionLog(sent=network.sent), tuple(numbers), leader)

    def issue_id(self) -> int:
        """Return a producer id that nobody has."""
        self.ids_issued += 1
        return FIRST_OWN_PRODUCER_ID + self.ids_issued

    @property
    def addresses(self) -> list[Address]:
        """Where to connect."""
        return [broker.address for broker in self.brokers.values()]

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition."""
        return self.partitions[topic, partition].log

    @property
    def numbers_up(self) -> list[int]:
        """Brokers that run."""
        return [number for number, broker in self.brokers.items() if broker.is_up]

    def described(self, wanted: Sequence[str] | None) -> list[tuple[int, str, list[tuple[int, int, int, Any, Any]]]]:
        """Topics as Metadata has them: these, or all."""
        known = dict.fromkeys(topic for topic, number in self.partitions if self.find(topic, number))
        up, topics = self.numbers_up, []
        for name in list(known) if wanted is None else wanted:
            rows = []
            for (topic, number), partition in self.partitions.items():
                if topic == name and not partition.is_deleted:
                    code = LEADER_NOT_AVAILABLE if partition.leader is None else 0
                    leader = -1 if partition.leader is None else partition.leader
                    in_sync = [replica for replica in partition.replicas if replica in up]
                    rows.append((code, number, leader, partition.replicas, in_sync))
            topics.append((0 if rows else UNKNOWN_TOPIC, name, rows))
        return topics

    def is_user(self, principal: str) -> bool:
        """Is it somebody who may write, where the brokers ask?"""
        return bool((self.users or {}).get(principal))

    def user_of(self, token: bytes) -> str:
        """The name in a token of PLAIN, empty if the password is not his."""
        _, name, password = token.decode().split("\0")
        return name if name in (self.users or {}) and password == f"{name}'s secret" else ""

    def find(self, topic: str, number: int) -> Partition | None:
        """The partition, None while there is none."""
        found = self.partitions.get((topic, number))
        return None if found is None or found.is_deleted else found

    def all_violations(self) -> list[str]:
        """What no proxy may do, as far as brokers see it."""
        found = list(self.violations)
        for (topic, number), partition in self.partitions.items():
            found += [f"{topic}-{number}: {what}" for what in partition.log.violations]
        return found

    # ------------------------------------------------------------------ appends
    def append(self, broker: Broker, body: ProduceBody, done: Callable[[list[Part]], None] | None) -> list[Part]:
        """Carry out a produce request on a broker now; ``done`` is called once, with all acks or at the timeout.

        Returns the parts as they are now; they change until ``done`` is called.
        """
        parts = [self._append_part(broker, body.acks, *named) for named in body.partitions]
        waiting = [part for part in parts if not part.is_done]
        if done is None:
            return parts
        if not waiting:
            done(parts)
            return parts
        instance, is_over = broker.lives, False

        def finish() -> None:
            nonlocal is_over
            if not is_over and broker.lives == instance and broker.is_up:
                is_over = True
                for part in waiting:
                    part.is_done = True
                done(parts)

        def look() -> None:
            if all(part.is_done for part in waiting):
                finish()

        for part in waiting:
            self.partitions[part.topic, part.partition].waiting.append((part, look))
        self.network.schedule(body.timeout_ms / 1000, finish)
        return parts

    def _append_part(self, broker: Broker, acks: int, topic: str, number: int, message_set: bytes | None) -> Part:
        partition = self.find(topic, number)
        if partition is None:
            return Part(topic, number, 0, UNKNOWN_TOPIC, -1, True)
        if partition.leader != broker.number:
            return Part(topic, number, 0, NOT_LEADER, -1, True)
        if not message_set:
            return Part(topic, number, 0, 0, -1, True)
        log = partition.log
        try:
            base_offset = log.append(message_set, self.network.now, stores=broker.release.message_format)
        except Refusal as refusal:
            return Part(topic, number, 0, refusal.code, -1, True)
        self._replicate(partition)
        if acks != -1:
            return Part(topic, number, 0, 0, base_offset, True)
        # The code that it gets if replication does not come in time: as in Kafka, it keeps its base offset then.
        appended = log.was_at(base_offset)
        assert appended is not None
        return Part(topic, number, appended[0].last_offset + 1, TIMED_OUT, base_offset, False)

    def stall(self, body: ProduceBody, seconds: float) -> None:
        """Replication of these partitions stands still for so long."""
        for topic, number, _ in body.partitions:
            partition = self.partitions.get((topic, number))
            if partition is not None:
                partition.stalled_until = max(partition.stalled_until, self.network.now + seconds)

    def _replicate(self, partition: Partition) -> None:
        network, settings = self.network, self.settings
        if network.chance(settings.stall_chance):
            stall = network.between(settings.stall_duration)
            partition.stalled_until = max(partition.stalled_until, network.now + stall)
        epoch, end = partition.leader_epoch, partition.log.end_offset
        network.schedule(network.between(settings.replication_lag), lambda: self._replicated(partition, epoch, end))

    def _replicated(self, partition: Partition, epoch: int, end: int) -> None:
        if partition.leader_epoch != epoch:
            return
        if partition.stalled_until > self.network.now:
            delay = partition.stalled_until - self.network.now
            self.network.schedule(delay, lambda: self._replicated(partition, epoch, end))
            return
        partition.log.advance(end)
        waiting, partition.waiting = partition.waiting, []
        for part, look in waiting:
            if part.is_done:
                continue
            if partition.log.high_watermark >= part.required:
                part.error_code, part.is_done = 0, True
                look()
            else:
                partition.waiting.append((part, look))

    # ------------------------------------------------------------------ leaders and lives
    def move_leader(
        self,
        topic: str,
        number: int,
        leader: int | None,
        *,
        truncate_to: int | None = None,
        keep: bool = False,
        unclean: bool = False,
    ) -> None:
        """Give a partition to another broker, which may lack what was above the high watermark.

        ``truncate_to``: what the new leader has; by the seed when not given, everything with ``keep``. ``unclean``: it
        may lack what was replicated as well. Appends that wait on the old leader are answered with 6 and their base
        offset.
        """
        partition, log, random = self.partitions[topic, number], self.log(topic, number), self.network.random
        partition.leader = leader
        partition.leader_epoch += 1
        partition.stalled_until = 0.0
        if truncate_to is None:
            truncate_to = log.end_offset if keep else random.choice(log.borders())
        log.truncate(truncate_to, unclean=unclean)
        # A follower learns the high watermark one fetch later than the leader.
        log.high_watermark = random.choice([log.high_watermark, log.border_before(log.high_watermark)])
        self.network.note("cluster", f"{topic}-{number} to {leader}, ends at {log.end_offset}")
        self._end_waiting(partition, NOT_LEADER)
        self._replicate(partition)

    @staticmethod
    def _end_waiting(partition: Partition, error_code: int) -> None:
        """Every append that waits for replication gets this code with its base offset."""
        waiting, partition.waiting = partition.waiting, []
        for part, look in waiting:
            if not part.is_done:
                part.error_code, part.is_done = error_code, True
                look()

    def delete_topic(self, topic: str, seconds: float) -> None:
        """Delete a topic and make it again after some time, empty, with the same partitions on other leaders."""
        mine = [partition for (name, _), partition in self.partitions.items() if name == topic]
        if any(partition.is_deleted for partition in mine):
            return
        self.network.note("cluster", f"{topic} deleted")
        for partition in mine:
            partition.is_deleted = True
            partition.leader = None
            partition.leader_epoch += 1
            partition.log.begin_again()
            self._end_waiting(partition, UNKNOWN_TOPIC)

        def make() -> None:
            for partition in mine:
                partition.is_deleted = False
            self._elect([key for key, partition in self.partitions.items() if partition in mine])

        self.network.schedule(seconds, make)

    def upgrade_broker(
        self,
        number: int,
        release: Release,
        *,
        is_clean: bool,
        down_seconds: float | None = None,
        is_silent: bool | None = False,
    ) -> None:
        """Restart a broker as another release. ``is_clean``: it gives its partitions away first, with all that they
        have; else it is killed. ``is_silent``: as for a crash; its machine runs, mostly."""
        broker = self.brokers[number]
        broker.next_release = release
        self.network.note("cluster", f"broker {number} is to be {release.name}, format {release.message_format}")
        others = [other for other in self.numbers_up if other != number]
        if is_clean and broker.is_up and others:
            for (topic, partition), one in self.partitions.items():
                if one.leader == number:
                    self.move_leader(topic, partition, self.network.random.choice(others), keep=True)
        self.crash_broker(number, down_seconds=down_seconds, is_silent=is_silent)

    def crash_broker(self, number: int, *, down_seconds: float | None = None, is_silent: bool | None = None) -> None:
        """Kill a broker; its partitions get another leader after the election, or the same one when it is back.
        ``is_silent``: nobody hears of it who is connected; None: by the seed."""
        network, settings, broker = self.network, self.settings, self.brokers[number]
        if not broker.is_up:
            return
        broker.host.crash(half_open=network.chance(self.silent_deaths_share) if is_silent is None else is_silent)
        self._tell_of_brokers()
        led = [key for key, partition in self.partitions.items() if partition.leader == number]
        for key in led:
            partition = self.partitions[key]
            partition.leader = None
            partition.leader_epoch += 1  # what it had not replicated yet stays where it is
            partition.waiting.clear()
        network.schedule(network.between(settings.election_duration), lambda: self._elect(led))
        down = network.between(settings.restart_duration) if down_seconds is None else down_seconds

        def back() -> None:
            broker.start()
            self._tell_of_brokers()
            self._elect([key for key, partition in self.partitions.items() if partition.leader is None], number)

        network.schedule(down, back)

    def _tell_of_brokers(self) -> None:
        for tell in self.on_brokers:
            tell()

    def _elect(self, keys: Sequence[tuple[str, int]], same: int | None = None) -> None:
        for topic, number in keys:
            partition = self.partitions[topic, number]
            up = [replica for replica in partition.replicas if self.brokers[replica].is_up]
            if partition.leader is not None or partition.is_deleted or not up:
                continue
            if same is not None and up == [same]:
                self.move_leader(topic, number, same, keep=True)
            else:
                self.move_leader(topic, number, self.network.random.choice(up))
