"""What can happen to a world apart from faults of single requests: one method for each kind that ``shape`` names.

Owns how a trouble is done, to whom, and the count of what was done. When it happens is planned by the seed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from simulation.moments import Moments
from simulation.shape import (
    BACK_IN_TIME,
    DOUBLE,
    EVICTION,
    INVENTION,
    LOG_TROUBLES,
    OLDER,
    STATE_TROUBLES,
    THEFT,
    TROUBLES,
)

from idemproxy.reactor import Address
from idemproxy.state.store import data_number_key, data_number_of
from testkit.virtual.cluster import Partition
from testkit.virtual.connection import FramePart
from testkit.virtual.producer import Identity
from testkit.virtual.proxy import CLUSTER_NAME, VirtualProxy
from testkit.virtual.redis_server import REFUSALS, RedisServer, Stored
from testkit.virtual.world import REDIS_ADDRESS, TOPIC, World

EFFECTS_AHEAD_MAX = 40
NOTICED_LOOK_SECONDS = 0.05
LONGEST_SECONDS = 8.5
"""No trouble that has begun takes longer."""


class Troubles:
    """Breaks things in one world. ``done``: kind -> how often."""

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.random = random
        self.done: dict[str, int] = {}
        self.acts: dict[str, Callable[[], bool | None]] = {
            name: getattr(self, "_" + name.replace(" ", "_"))
            for name in (
                *TROUBLES,
                BACK_IN_TIME,
                *STATE_TROUBLES,
                *LOG_TROUBLES,
                EVICTION,
                THEFT,
                OLDER,
                DOUBLE,
                INVENTION,
            )
        }
        """An act returns False when there was nothing to be done."""
        self.moments = Moments(world, random, self._count, self._clean)
        self.acts |= self.moments.acts
        self._journeys = 0
        """So often has Redis's memory gone back in time, and nobody has noticed it yet."""
        self._armed: dict[str, list[tuple[int, Callable[[VirtualProxy], None]]]] = {}

    def plan(self, name: str, rate: float, seconds: float) -> None:
        """Let it happen about ``rate`` times within so many seconds from now."""
        for _ in range(int(rate) + (self.random.random() < rate % 1)):
            self.world.network.schedule(self.random.uniform(0, seconds), lambda: self.happen(name))

    def happen(self, name: str) -> None:
        """Let it happen now, if it can."""
        self.world.network.note("chaos", name)
        if self.acts[name]() is not False:
            self._count(name)

    def _count(self, name: str) -> None:
        self.done[name] = self.done.get(name, 0) + 1

    def end(self) -> None:
        """Nothing that was set up happens from now on, and what is being refused is taken again."""
        self._armed.clear()
        self.moments.end()
        self.world.redis.server.refuses = None
        self.world.redis.leases_lost_until = 0.0
        self.world.cluster.throttle = 0.0, 0.0
        for seconds in (0.0, LONGEST_SECONDS):  # what is damaged may come back with a server that lost its last writes
            self.world.network.schedule(seconds, self.world.redis.fix)

    # ------------------------------------------------------------------ proxies
    def _proxy_crash(self) -> None:
        proxy = self.random.choice(self.world.proxies)
        proxy.crash(down_seconds=self.random.choice((0.05, 0.5, 3.0, 8.0)), half_open=self.random.random() < 0.3)

    def _drain(self) -> None:
        self.random.choice(self.world.proxies).drain()

    def _proxy_pause(self) -> None:
        self.random.choice(self.world.proxies).host.pause(self.random.choice((0.3, 2.0, 4.8, 5.5, 9.0)))

    def _crash_at_effect(self) -> None:
        half_open, down = self.random.random() < 0.3, self.random.choice((0.05, 0.5, 3.0))
        before = self.random.random() < 0.5

        def act(proxy: VirtualProxy) -> None:
            proxy.come_back(down)
            if before:
                proxy.host.crash_now(half_open=half_open)
            else:
                proxy.host.crash_after_pass(half_open=half_open)

        self._arm(act)

    def _pause_at_effect(self) -> None:
        seconds = self.random.choice((0.3, 2.0, 4.8, 5.5, 9.0))
        self._arm(lambda proxy: proxy.host.pause(seconds))

    def _arm(self, act: Callable[[VirtualProxy], None]) -> None:
        """Let it happen to a proxy in the step of one of its next effects."""
        proxy = self.random.choice(self.world.proxies)
        if self._on_effect not in proxy.on_effect:
            proxy.watch_effects(self._on_effect)
        self._armed.setdefault(proxy.name, []).append((self.random.randrange(1, EFFECTS_AHEAD_MAX), act))

    def _on_effect(self, proxy: VirtualProxy, effect: Any) -> None:
        armed = self._armed.get(proxy.name)
        if armed:
            ahead, act = armed.pop()
            if ahead > 1:
                armed.append((ahead - 1, act))
            else:
                act(proxy)

    def _proxy_takes_no_connections(self) -> None:
        self._away(self._address_of(self.random.choice(self.world.proxies)))

    def _away(self, address: Address) -> None:
        seconds, silently = self.random.choice((0.2, 1.5, 4.0)), self.random.random() < 0.5
        self.world.network.take_no_connections(address, seconds, silently=silently)

    # ------------------------------------------------------------------ Redis
    def _redis_restart(self) -> None:
        lost = self.random.choice((0, 0, 1, 2, 5))
        down, loading = self.random.choice((0.05, 1.0, 4.0)), self.random.choice((0.0, 0.0, 1.0))
        self.world.redis.restart(lose_last_writes=lost, down_seconds=down, loading_seconds=loading)

    def _redis_pause(self) -> None:
        self.world.redis.host.pause(self.random.choice((0.3, 1.5, 4.0, 6.5)))

    def _redis_failover(self) -> None:
        old = self.random.choice((None, 0.5, 5.0))
        self.world.redis.fail_over(lose_last_writes=self.random.randrange(4), old_lives_seconds=old)

    def _redis_demoted(self) -> None:
        # Shorter than a heartbeat nobody notices it: then nothing may be lost (the limit that DESIGN section 5 names).
        seconds = self.random.choice((0.3, 3.0, 5.0))
        self.world.redis.demote(seconds, lose_last_writes=self.random.randrange(4) if seconds > 2.5 else 0)

    def _redis_back_in_time(self) -> bool:
        """What Redis has in its memory now it has again some seconds later, and nothing else tells."""
        server = self.world.redis.server
        memory, identity = server.memory(), server.replication_id
        seconds = self.random.choice((4.5, 6.0, 8.0))
        self.world.network.schedule(seconds, lambda: self._put_back(server, memory, identity))
        return False  # counted when it happens

    def _put_back(self, server: RedisServer, memory: dict[bytes, Stored], identity: str) -> None:
        """Where every proxy that lives has seen more (GUARANTEES: else it may be unnoticed). One that starts has seen
        nothing, so none does until it is noticed. If all die that would have, somebody restarts Redis, as the page
        says."""
        redis, stored = self.world.redis, memory.get(data_number_key(CLUSTER_NAME))
        count = 0 if stored is None else int(stored.value)
        seen = [proxy.store.data_number.newest for proxy in self.world.proxies if proxy.is_up]

        def is_same() -> bool:
            return redis.server is server and server.host.alive and server.replication_id == identity

        is_seen = count > 0 and min(seen, default=0) > count and max(seen) >= count + 2
        if not is_same() or server.role != "master" or not is_seen:
            return
        server.go_back_to(memory)
        self._journeys += 1
        for proxy in self.world.proxies:
            proxy.may_start = lambda: not self._journeys
        self._count(BACK_IN_TIME)

        def look() -> None:
            value = server.get(data_number_key(CLUSTER_NAME))
            if not is_same() or value is None or data_number_of(value) != data_number_of(count):
                self._journeys -= 1
            elif not any(proxy.is_up and proxy.store.data_number.newest >= count + 2 for proxy in self.world.proxies):
                redis.restart()
                self._journeys -= 1
            else:
                self.world.network.schedule(NOTICED_LOOK_SECONDS, look)

        look()

    def _redis_refuses_writes(self) -> None:
        server = self.world.redis.server
        server.refuses = self.random.choice(list(REFUSALS))
        self.world.network.schedule(self.random.choice((0.5, 3.0, 8.0)), lambda: setattr(server, "refuses", None))

    def _redis_forgets_scripts(self) -> None:
        self.world.redis.server.scripts.clear()

    def _redis_takes_no_connections(self) -> None:
        self._away(REDIS_ADDRESS)

    def _leases_not_renewed(self) -> None:
        self.world.redis.leases_lost_until = self.world.network.now + self.random.choice((1.0, 3.0, 7.0))

    def _state_damaged(self) -> bool:
        return self.world.redis.damage(self.random.choice((0.5, 2.0, 5.0)))

    def _all_state_deleted(self) -> None:
        self.world.redis.flush()

    def _leases_deleted(self) -> None:
        self.world.redis.end_leases()

    # ------------------------------------------------------------------ brokers
    def _broker_crash(self) -> None:
        self.world.cluster.crash_broker(self.random.choice(list(self.world.cluster.brokers)))

    def _broker_pause(self) -> None:
        number = self.random.choice(list(self.world.cluster.brokers))
        self.world.cluster.brokers[number].host.pause(self.random.choice((0.2, 1.0, 4.0)))

    def _broker_takes_no_connections(self) -> None:
        self._away(self.random.choice(self.world.cluster.addresses))

    def _broker_address_changes(self) -> None:
        """For good; or one that is named for a moment, as by a broker that has old metadata."""
        broker, seconds = (
            self.random.choice(list(self.world.cluster.brokers.values())),
            self.random.choice((None, 0.1, 2.0)),
        )
        broker.change_address()
        if seconds is not None:
            self.world.network.schedule(seconds, broker.change_address)

    def _leader_move(self) -> bool:
        return self._move(unclean=False)

    def _quota(self) -> None:
        seconds, delay = self.random.choice((1.0, 4.0)), self.random.choice((0.2, 1.5, 8.0))
        self.world.cluster.throttle = self.world.network.now + seconds, delay

    # ------------------------------------------------------------------ logs
    def _unclean_election(self) -> bool:
        return self._move(unclean=True)

    def _move(self, *, unclean: bool) -> bool:
        cluster = self.world.cluster
        topic, number = self.random.choice(list(cluster.partitions))
        partition = cluster.partitions[topic, number]
        up = [broker for broker, one in cluster.brokers.items() if one.is_up and broker != partition.leader]
        if partition.leader is None or not up:
            return False
        truncate_to = None
        if unclean:
            ends = [stored.last_offset + 1 for stored in partition.log.history[-4:]] or [partition.log.start_offset]
            truncate_to = max(self.random.choice(ends), partition.log.start_offset)
            if truncate_to < partition.log.committed:
                partition.met.add("unclean election")
        cluster.move_leader(topic, number, self.random.choice(up), truncate_to=truncate_to, unclean=unclean)
        return True

    def _some_partition(self) -> Partition:
        return self.random.choice(list(self.world.cluster.partitions.values()))

    def _retention(self) -> bool:
        return self._retain(self._some_partition())

    def _retain(self, partition: Partition) -> bool:
        if not partition.log.messages:
            return False
        partition.log.retain(self.random.choice(partition.log.messages).first_offset)
        partition.met.add("retention")
        return True

    def _compaction(self) -> bool:
        partition = self._some_partition()
        return self._compact(partition, self.random.randrange(max(1, len(partition.log.messages))))

    def _compact(self, partition: Partition, index: int) -> bool:
        if not partition.log.messages:
            return False
        count = partition.log.messages[index].message.record_count
        removed = [number for number in range(count) if self.random.random() < 0.6]
        if not partition.log.compact(index, removed):
            return False
        partition.met.add("compaction")
        return True

    def _clean(self, partition: Partition) -> bool:
        """One or the other, near the end of the log."""
        if self.random.random() < 0.5:
            return self._retain(partition)
        count = len(partition.log.messages)
        return any([self._compact(partition, index) for index in reversed(range(max(0, count - 4), count))])

    def _producers_forgotten(self) -> bool:
        log = self._some_partition().log
        if self.random.random() < 0.3:
            log.know_producers(last_only=True)
        else:
            for producer_id in list(log.producers):
                if self.random.random() < 0.7:
                    del log.producers[producer_id]
        return True

    def _topic_recreated(self) -> None:
        for partition in self.world.cluster.partitions.values():
            partition.met.add("topic recreated")
        self.world.cluster.delete_topic(TOPIC, self.random.choice((0.2, 2.0)))

    def _compression_changed(self) -> None:
        codec = self.random.choice((None, 0, 1, 2, 3))
        for partition in self.world.cluster.partitions.values():
            partition.log.compression = codec
            partition.met.add("compression changed")

    # ------------------------------------------------------------------ connections
    def _cut(self) -> bool:
        connections = self.world.network.open_connections()
        if not connections:
            return False
        connection = self.random.choice(connections)
        if self.random.random() < 0.5:
            connection.cut()
        else:
            connection.cut_after(self.random.randrange(2), self.random.randrange(200))
        return True

    def _cut_in_frame(self) -> bool:
        connections = self.world.network.open_connections()
        if not connections:
            return False
        self.random.choice(connections).cut_next_frame(self.random.randrange(2), self.random.choice(list(FramePart)))
        return True

    def _half_open(self) -> bool:
        connections = self.world.network.open_connections()
        if not connections:
            return False
        self.random.choice(connections).half_open()
        return True

    def _client_disconnect(self) -> None:
        self.random.choice(self.world.clients).disconnect()

    def _theft(self) -> bool:
        """Another client produces with a client's producer id: what is due, what was, or what comes far later."""
        owners = [client for client in self.world.clients if client.producer.has_id()]
        if not owners:
            return False
        producer, random = self.random.choice(owners).producer, self.random
        place = random.choice(list(self.world.cluster.partitions))
        due = producer.state(place).next_sequence
        epoch = max(0, producer.producer_epoch + random.choice((-1, 0, 0, 0, 1)))
        sequence = random.choice((due, due, 0, max(0, due - 1), due + 1, due + 50))
        identity = Identity(producer.producer_id, epoch, sequence, random.choice((1, 1, 3)))
        self.world.thief.produce(self._address_of(random.choice(self.world.proxies)), place, identity)
        return True

    def _invention(self) -> bool:
        """Somebody sends batches under producer ids that nobody has issued, one or many, in the middle of an epoch."""
        random = self.random
        place = random.choice(list(self.world.cluster.partitions))
        address = self._address_of(random.choice(self.world.proxies))
        for _ in range(random.choice((1, 1, 3, 20))):
            identity = Identity(random.getrandbits(61), 0, random.choice((1, 5, 1000)), random.choice((1, 3)))
            self.world.inventor.produce(address, place, identity)
        return True

    def _older_instance(self) -> bool:
        """A client begins again, or its earlier instance continues: with what was due, or from the start."""
        client, random = self.random.choice(self.world.clients), self.random
        if not client.older_ids or random.random() < 0.4:
            return client.begin_again()
        if not client.producer.has_id():
            return False  # nobody has taken its place yet
        producer_id, epoch = random.choice(client.older_ids)
        place = random.choice(list(self.world.cluster.partitions))
        sequence = random.choice((0, 0, client.producer.state(place).next_sequence))
        identity = Identity(producer_id, epoch + random.choice((0, 0, 1)), sequence, random.choice((1, 3)))
        self.world.zombie.produce(self._address_of(random.choice(self.world.proxies)), place, identity)
        return True

    def _double(self) -> bool:
        """A second program sends other records under the numbers of a batch that was acknowledged lately."""
        client, random = self.random.choice(self.world.clients), self.random
        stored = [
            (batch.partition, answer.identity)
            for batch in client.leaves
            for answer in batch.answers
            if answer.error_code == 0
        ]
        if not stored:
            return False
        place, identity = random.choice(stored[-8:])
        self.world.double.produce(self._address_of(random.choice(self.world.proxies)), place, identity)
        return True

    def _address_of(self, proxy: VirtualProxy) -> Address:
        """One that clients come to."""
        return proxy.addresses[0] if len(proxy.addresses) == 1 else self.random.choice(proxy.addresses)

    def _slow_reader(self) -> None:
        self.random.choice(self.world.clients).read_nothing(self.random.choice((0.5, 3.0, 8.0)))
