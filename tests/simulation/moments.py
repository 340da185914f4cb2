"""Troubles that wait for a moment of the protocol: a reserve, an append, an unknown outcome, a request that leaves a
client.

What happens at any time meets such a moment rarely; these aim at it. The moments are seen from outside: effects and
events of a proxy, bytes on the network, requests that reach a broker. Owns how each is done; ``troubles`` plans them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from idemproxy.codecs.batch_marker import parse_batch_marker
from idemproxy.codecs.message_set import iterate_shallow
from idemproxy.state.entry import unpack
from idemproxy.state.store import entry_key
from testkit.virtual.batches import is_batch
from testkit.virtual.broker_faults import BrokerFault, ProduceSeen
from testkit.virtual.client import VirtualClient
from testkit.virtual.cluster import Partition
from testkit.virtual.connection import Connection, Direction, FramePart
from testkit.virtual.proxy import CLUSTER_NAME, VirtualProxy
from testkit.virtual.world import World

MOMENT_TROUBLES = {
    "pause before the append": 1.5,
    "move while it is appended": 1.5,
    "leader there and back": 1.5,
    "lease ends before the append": 1.0,
    "loss behind a commit": 1.5,
    "cleaning in an unknown outcome": 1.5,
    "giving up in an unknown outcome": 2.0,
    "late request": 2.0,
    (IN_PARTS := "lost part"): 1.5,
}
"""Kind -> how many are set up at most in the time of chaos."""
TURN, TURN_IN_TAKEOVER = "other leader named", "other leader named in a takeover"
TURNS = {TURN: 12.0, TURN_IN_TAKEOVER: 6.0}
"""Producers hear of other leaders while batches are in flight."""
BREAK_OFF = "unknown outcome broken off"
BREAK_OFF_MAX = 3.0
CLEAN_THE_LOG = "cleaning in an unknown outcome"
LOSE_WRITES_TOO = "loss behind a commit"
LOSE_WRITES_OWNED = "loss under an append reservation"
OWNED_TROUBLES = {
    "crash under an append reservation": 3.0,
    "pause under an append reservation": 1.5,
    "move under an append reservation": 3.0,
    "silence under an append reservation": 2.0,
    LOSE_WRITES_OWNED: 2.0,
}
"""The same, where proxies take append reservations."""
RESERVE, APPEND, UNKNOWN_OUTCOME, APPEND_RESERVATION = "reserve", "append", "doubt", "append without a swap"
REBUILD = "rebuild"
BATCHES_BEHIND = 7
"""More than a window holds."""
SMALL_MESSAGES_BYTES = (260, 400)
LARGE_BATCH_RECORDS = 16
PART_FAULTS = (BrokerFault.LOST_REQUEST, BrokerFault.LOST_ANSWER, BrokerFault.STRAGGLER, BrokerFault.CRASH)


@dataclass(frozen=True, slots=True)
class Moment:
    """What is known of it: at which proxy, and the effect or event itself."""

    proxy: VirtualProxy
    what: Any


class Moments:
    """Sets them up in one world. ``acts``: kind -> what sets one up; it happens later, if its moment comes."""

    def __init__(
        self, world: World, random: Random, done: Callable[[str], None], clean: Callable[[Partition], bool]
    ) -> None:
        """``done``: called with the kind of what has happened. ``clean``: deletes or compacts something of a log."""
        self.world = world
        self.random = random
        self._done = done
        self._clean = clean
        self._armed: dict[str, list[tuple[str, Callable[[Moment], bool]]]] = {
            RESERVE: [],
            APPEND: [],
            UNKNOWN_OUTCOME: [],
            APPEND_RESERVATION: [],
            REBUILD: [],
        }
        """Moment -> kinds with what is to be done then; that returns False when there is nothing to do just then."""
        self._late_seconds: list[float] = []
        self._parts_to_lose = 0
        self._is_watching = False
        self._acts_ended = 0
        at: dict[str, tuple[str, Callable[[Moment], bool]]] = {
            "pause before the append": (RESERVE, self._pause_before_append),
            "move while it is appended": (APPEND, self._move_while_appended),
            "leader there and back": (APPEND, self._leader_there_and_back),
            "lease ends before the append": (APPEND, self._lease_ends),
            LOSE_WRITES_TOO: (APPEND, self._loss_behind_commit),
            CLEAN_THE_LOG: (UNKNOWN_OUTCOME, self._cleaning),
            BREAK_OFF: (UNKNOWN_OUTCOME, self._break_off),
            "giving up in an unknown outcome": (APPEND, self._giving_up),
            "crash under an append reservation": (APPEND_RESERVATION, self._crash_owned),
            "pause under an append reservation": (APPEND_RESERVATION, self._pause_before_append),
            "move under an append reservation": (APPEND_RESERVATION, self._move_owned),
            "silence under an append reservation": (APPEND_RESERVATION, self._silence_owned),
            LOSE_WRITES_OWNED: (APPEND_RESERVATION, self._loss_behind_commit),
        }
        self.acts: dict[str, Callable[[], bool]] = {
            kind: lambda kind=kind, moment=moment, act=act: self._arm(kind, moment, act)  # type: ignore[misc]
            for kind, (moment, act) in at.items()
        }
        self.acts |= {"late request": self._late_request, IN_PARTS: self._lost_part}
        self.acts |= {TURN: self._other_leader, TURN_IN_TAKEOVER: self._takeover_of_a_busy_one}

    def end(self) -> None:
        """Nothing that was set up happens any more."""
        for armed in self._armed.values():
            armed.clear()
        self._late_seconds.clear()
        self._acts_ended += 1
        self._parts_to_lose = 0

    # ------------------------------------------------------------------ moments
    def _arm(self, kind: str, moment: str, act: Callable[[Moment], bool]) -> bool:
        """False: nothing has happened yet."""
        self._watch()
        self._armed[moment].append((kind, act))
        return False

    def _watch(self) -> None:
        if self._is_watching:
            return
        self._is_watching = True
        for proxy in self.world.proxies:
            proxy.watch_effects(self._on_effect)
            proxy.on_event.append(self._on_event)
        self.world.network.watchers.append(self._on_bytes)
        choose = self.world.cluster.choose_fault
        self.world.cluster.choose_fault = lambda seen: self._fault_of_part(seen) or choose(seen)

    def _on_effect(self, proxy: VirtualProxy, effect: Any) -> None:
        kind = type(effect).__name__  # of a patched copy it is another class
        if kind == "Append" and self._armed[APPEND_RESERVATION] and self._is_append_reserved(proxy, effect):
            self._comes(APPEND_RESERVATION, Moment(proxy, effect))
        elif kind == "Append" and self._armed[APPEND]:
            self._comes(APPEND, Moment(proxy, effect))
        elif kind == "Swap" and b":{" in effect.key and (self._armed[RESERVE] or self._armed[REBUILD]):
            entry = unpack(effect.value)
            intent = entry.intent
            if intent is not None and intent.batches and not intent.is_unrecoverable:
                self._comes(RESERVE, Moment(proxy, effect))
            elif entry.is_rebuilt:
                self._comes(REBUILD, Moment(proxy, effect))

    def _on_event(self, proxy: VirtualProxy, event: Any) -> None:
        if self._armed[UNKNOWN_OUTCOME] and type(event).__name__ == "UnknownOutcomeOpened":
            self._comes(UNKNOWN_OUTCOME, Moment(proxy, event))

    def _comes(self, name: str, moment: Moment) -> None:
        armed = self._armed[name]
        for kind, act in armed:
            if act(moment):
                self._done(kind)
                armed.remove((kind, act))
                return

    def _clients_at(self, proxy: VirtualProxy) -> list[VirtualClient]:
        return [
            client
            for client in self.world.clients
            if client.connection is not None and client.connection.address in proxy.addresses
        ]

    def _within(self, seconds: float, act: Callable[[], Any]) -> None:
        """Some time in so many seconds, outside of all hosts."""
        self.world.network.schedule(self.random.uniform(0, seconds), act)

    def _send_in(self, seconds: float, client: VirtualClient, place: tuple[str, int], record_count: int) -> None:
        """Unless all is calm by then."""
        act = self._acts_ended

        def send() -> None:
            if self._acts_ended == act:
                client.send(*place, record_count)

        self.world.network.schedule(seconds, send)

    def _move_clients(self, proxy: VirtualProxy, seconds: float) -> None:
        """They move to other proxies; of some the proxy does not learn that they have gone."""
        for client in self._clients_at(proxy):
            if self.random.random() < 0.7:
                self._within(seconds, lambda client=client: self._move(client, unseen=self.random.random() < 0.4))  # type: ignore[misc]

    @staticmethod
    def _move(client: VirtualClient, *, unseen: bool) -> None:
        connection = client.connection
        if unseen and connection is not None:
            connection.half_open()
        client.move()

    # ------------------------------------------------------------------ proxies and leases
    def _pause_before_append(self, moment: Moment) -> bool:
        """It is written what will be appended, and the proxy stands still: its lease lives on, or ends, or nearly."""
        moment.proxy.host.pause(self.random.uniform(2.5, 9.0))
        self._move_clients(moment.proxy, 3.0)
        return True

    def _move_while_appended(self, moment: Moment) -> bool:
        """The broker takes its time, and the client asks another proxy meanwhile: the first one lives and works."""
        self.world.cluster.brokers[moment.what.broker_id].host.pause(self.random.uniform(1.5, 3.0))
        self._move_clients(moment.proxy, 1.5)
        return True

    def _lease_ends(self, moment: Moment) -> bool:
        """The append finds no connection, and the lease is not renewed while it waits for one."""
        network, seconds = self.world.network, self.random.uniform(3.0, 7.5)
        addresses = {address for broker in self.world.cluster.brokers.values() for address in broker.addresses}
        for address in sorted(addresses):
            network.take_no_connections(address, seconds, silently=False)
        for connection in network.open_connections(moment.proxy.host):
            if connection.address in addresses:
                network.schedule(0.0, connection.cut)
        self.world.redis.leases_lost_until = network.now + self.random.uniform(5.0, 8.0)
        self._move_clients(moment.proxy, seconds)
        return True

    @staticmethod
    def _is_append_reserved(proxy: VirtualProxy, effect: Any) -> bool:
        """Does it leave under an append reservation?"""
        known = proxy.engine.known_sequencer
        streams = [known((one.producer_id, effect.topic, effect.partition)) for one in effect.identities]
        return any(one is not None and one.stream.held.append_reservation is not None for one in streams)

    def _crash_owned(self, moment: Moment) -> bool:
        """What the proxy has appended since its last write is known to the log alone. It may be gone before the broker
        has this batch, or some time after."""
        proxy = moment.proxy
        half_open, down = self.random.random() < 0.3, self.random.choice((0.05, 0.5, 3.0, 8.0))
        self._within(0.06, lambda: proxy.crash(down_seconds=down, half_open=half_open))
        self._move_clients(proxy, 3.0)
        return True

    def _move_owned(self, moment: Moment) -> bool:
        """Its clients move to other proxies, some under a new epoch: the owner lives, and is asked for the entry."""
        for client in self._clients_at(moment.proxy):
            if client.settings.delivery is not None and self.random.random() < 0.5:
                self._within(0.5, client.give_up_all)
        self._move_clients(moment.proxy, 0.5)
        for client in self.world.clients:
            for _ in range(self.random.randrange(3)):
                self._send_in(self.random.uniform(0, 1), client, (moment.what.topic, moment.what.partition), 1)
        return True

    def _silence_owned(self, moment: Moment) -> bool:
        """Redis says nothing for a while, and what is appended meanwhile is not written."""
        self.world.redis.host.pause(self.random.choice((0.2, 0.9, 2.0, 4.0)))
        if self.random.random() < 0.5:
            self._crash_owned(moment)
        return True

    # ------------------------------------------------------------------ Redis and clients
    def _loss_behind_commit(self, moment: Moment) -> bool:
        """The answer does not reach the client, and Redis forgets what was written of the batch."""
        for client in self._clients_at(moment.proxy):
            if client.connection is not None:
                client.connection.cut_next_frame(1, self.random.choice((FramePart.BEFORE, FramePart.LAST_BYTE)))
        redis, lost, fails_over = self.world.redis, self.random.randrange(1, 5), self.random.random() < 0.5
        if fails_over:
            self._within(0.3, lambda: redis.fail_over(lose_last_writes=lost))
        else:
            self._within(0.3, lambda: redis.restart(lose_last_writes=lost))
        return True

    def _giving_up(self, moment: Moment) -> bool:
        """The answer is lost, and the producer of what is in doubt then gives it up and begins a new epoch."""
        producers = {identity.producer_id for identity in moment.what.identities}
        for client in self.world.clients:
            if client.settings.delivery is not None and client.producer.producer_id in producers:
                self._cut_produce_connections(moment, 0.02)
                self._within(1.0, client.give_up_all)
                for _ in range(self.random.randrange(1, 4)):
                    place = moment.what.topic, moment.what.partition
                    self._send_in(1.0, client, place, self.random.randrange(1, 4))
                return True
        return False

    def _cut_produce_connections(self, moment: Moment, seconds: float) -> None:
        addresses = self.world.cluster.brokers[moment.what.broker_id].addresses
        for connection in self.world.network.open_connections(moment.proxy.host):
            if connection.address in addresses:
                self._within(seconds, connection.cut)

    def _other_leader(self) -> bool:
        """A client sends some batches, hears of another leader before they are answered, and sends more over another
        connection; so once, or several times."""
        client, random = self.random.choice(self.world.clients), self.random
        place, at, act = random.choice(list(self.world.cluster.partitions)), 0.0, self._acts_ended
        for _ in range(random.choice((1, 1, 2, 3))):
            for _ in range(random.randint(1, 6)):
                self._send_in(at, client, place, 1)
            at += random.choice((0.003, 0.03, 0.3))
            self.world.network.schedule(at, lambda: client.turn() if self._acts_ended == act else None)
        for _ in range(random.randint(1, 3)):
            self._send_in(at, client, place, 1)
        return True

    def _takeover_of_a_busy_one(self) -> bool:
        """A client sends so much that its proxy takes an append reservation. It turns to another proxy, and the first
        one dies with its append reservation. So what the client sends waits until the log has been read. Then it turns
        again, and sends more over another connection before that is appended."""
        client, random = self.random.choice(self.world.clients), self.random
        place, pause = random.choice(list(self.world.cluster.partitions)), random.choice((0.005, 0.015))
        for number in range(random.randint(8, 16)):
            self._send_in(number * pause, client, place, 1)
        self._arm(TURN_IN_TAKEOVER, APPEND_RESERVATION, partial(self._crash_and_turn, client, place))
        return False

    def _crash_and_turn(self, client: VirtualClient, place: tuple[str, int], moment: Moment) -> bool:
        if client not in self._clients_at(moment.proxy) or (moment.what.topic, moment.what.partition) != place:
            return False
        assert client.connection is not None
        wire, until = client.connection.ends[0], self.world.network.now + self.random.choice((0.02, 0.5))
        down = self.random.choice((0.05, 3.0, 8.0))

        def crash_when_answered() -> None:
            is_unanswered = any(wire is waiting for waiting, _ in client.oldest_unanswered())
            if is_unanswered and self.world.network.now < until:
                self.world.network.schedule(0.005, crash_when_answered)  # sooner than the append reservation ends
                return
            moment.proxy.crash(down_seconds=down)
            for _ in range(self.random.randrange(6)):
                self._send_in(self.random.uniform(0, 0.3), client, place, 1)

        self.world.network.schedule(0.0, client.turn)
        self.world.network.schedule(0.005, crash_when_answered)
        self._armed[REBUILD].append((TURN, partial(self._turn_after_rebuild, client, place)))
        return True

    def _turn_after_rebuild(self, client: VirtualClient, place: tuple[str, int], moment: Moment) -> bool:
        key = entry_key(CLUSTER_NAME, client.producer.producer_id, *place)
        if moment.what.key != key or not client.oldest_unanswered():
            return False
        moment.proxy.host.pause(self.random.choice((0.0, 0.3, 1.0, 2.0)))
        seconds = self.random.uniform(0, 0.3)
        self.world.network.schedule(seconds, client.turn)
        for _ in range(self.random.randint(1, 3)):
            self._send_in(seconds, client, place, 1)
        return True

    def _late_request(self) -> bool:
        """What a client sends next is held on the way while the client continues over another connection."""
        self._watch()
        self._late_seconds.append(self.random.choice((0.3, 1.5, 4.0, 8.0)))
        return False

    def _on_bytes(self, direction: Direction, data: bytes) -> None:
        if not self._late_seconds:
            return
        for client in self.world.clients:
            connection = client.connection
            if connection is not None and direction is connection.directions[0] and client.producer.partitions:
                self._done("late request")
                self._hold(client, connection, self._late_seconds.pop())
                return

    def _hold(self, client: VirtualClient, connection: Connection, seconds: float) -> None:
        place = self.random.choice(list(client.producer.partitions))
        self.world.network.schedule(0.0, lambda: connection.strand(seconds))
        for number in range(BATCHES_BEHIND):
            self._send_in(seconds * number / BATCHES_BEHIND, client, place, 1)

    # ------------------------------------------------------------------ brokers and logs
    def _leader_there_and_back(self, moment: Moment) -> bool:
        """The broker stands still with the request, another one leads meanwhile, and then it leads again."""
        cluster, topic, number = self.world.cluster, moment.what.topic, moment.what.partition
        old = cluster.brokers[moment.what.broker_id]
        others = [broker.number for broker in cluster.brokers.values() if broker.is_up and broker is not old]
        if cluster.partitions[topic, number].leader != old.number or not others:
            return False
        other, asleep = self.random.choice(others), self.random.uniform(2.0, 6.0)
        if self.random.random() < 0.5:
            self._cut_produce_connections(moment, 0.5)

        def move(leads: int | None, leader: int) -> None:
            if cluster.partitions[topic, number].leader == leads and cluster.brokers[leader].is_up:
                cluster.move_leader(topic, number, leader)

        self.world.network.schedule(0.01, lambda: old.host.pause(asleep))
        self.world.network.schedule(0.02, lambda: move(old.number, other))
        self.world.network.schedule(self.random.uniform(0.5, asleep + 1.0), lambda: move(other, old.number))
        return True

    def _cleaning(self, moment: Moment) -> bool:
        """Retention or compaction comes to where the log is about to be read."""
        partition = self.world.cluster.partitions[moment.what.topic, moment.what.partition]
        self._within(2.0, lambda: self._clean(partition))
        return True

    def _break_off(self, moment: Moment) -> bool:
        """A proxy that is about to read the log does not come to the end of it, and another proxy instance continues
        with what it wrote of it: another proxy, this one after a restart, or this one with a new lease."""
        proxy, random = moment.proxy, self.random
        how = random.choice(("crash", "crash", "drain", "lease"))
        if how == "crash":
            half_open, down = random.random() < 0.3, random.choice((0.05, 0.5, 3.0))
            self._within(2.0, lambda: proxy.crash(down_seconds=down, half_open=half_open))
        elif how == "drain":
            self._within(2.0, proxy.drain)
        else:
            self.world.redis.leases_lost_until = self.world.network.now + random.uniform(5.0, 8.0)
        self._move_clients(proxy, 3.0)
        return True

    def _lost_part(self) -> bool:
        """For some seconds the topic takes only small messages, and a part of a batch gets lost then."""
        self._watch()
        self._parts_to_lose += 1
        small, seconds = self.random.choice(SMALL_MESSAGES_BYTES), self.random.uniform(2.0, 6.0)
        for partition in self.world.cluster.partitions.values():
            partition.log.message_bytes_max = min(small, partition.log.message_bytes_max)

        def large_again() -> None:
            for partition in self.world.cluster.partitions.values():
                partition.log.message_bytes_max = self.world.settings.message_bytes_max

        self.world.network.schedule(seconds, large_again)
        place = self.random.choice(list(self.world.cluster.partitions))
        self._send_in(0.0, self.random.choice(self.world.clients), place, LARGE_BATCH_RECORDS)
        return False

    def _fault_of_part(self, seen: ProduceSeen) -> BrokerFault | None:
        if not self._parts_to_lose or not self._has_part(seen) or self.random.random() < 0.3:
            return None
        self._parts_to_lose -= 1
        self._done("lost part")
        return self.random.choice(PART_FAULTS)

    def _has_part(self, seen: ProduceSeen) -> bool:
        """Is there a piece of a batch in it, not the whole of one?"""
        whole = {
            (name.producer_id, name.producer_epoch, name.base_sequence, name.record_count)
            for client in self.world.clients
            for batch in client.leaves
            for name in batch.sent_as
        }
        return any(
            (one.producer_id, one.producer_epoch, one.base_sequence, one.record_count) not in whole
            for _, _, message_set in seen.body.partitions
            if not is_batch(message_set or b"")
            for message in iterate_shallow(message_set or b"")
            for one in parse_batch_marker(message.key) or ()
        )
