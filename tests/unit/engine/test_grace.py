"""After a loss of the state the leases of before have to run out (rule R10). A state that is lost while nobody here is
registered is lost unnoticed, so this counts from the registration. Registrations may be lost alone: who has lost his
own takes no stranger's intent over meanwhile (rule R1)."""

from collections.abc import Callable
from typing import Any

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.settings.config import Caps
from idemproxy.state.commit import reserved
from idemproxy.state.entry import NO_ANCHOR, NOBODY, Intent, IntentBatch
from testkit.stage.sequencer import DATA_GENERATION, INSTANCE_ID, Client, Stage
from testkit.stage.store import StoreScene
from testkit.virtual.proxy import VirtualProxy
from testkit.virtual.world import REDIS_ADDRESS, TOPIC, World, WorldSettings

GRACE_SECONDS = limits.LEASE_SECONDS + limits.LEASE_MARGIN_SECONDS


class Cut:
    """A proxy that cannot reach Redis for a while."""

    def __init__(self, world: World, proxy: VirtualProxy) -> None:
        self._network, self._host = world.network, proxy.host
        self._connect = self._network.connect
        self.last: tuple[float, Any] | None = None
        """The newest try: when, and of what."""
        self._network.connect = self._hold  # type: ignore[method-assign]
        for connection in self._network.open_connections(proxy.host):
            if world.redis.host in (end.host for end in connection.ends):
                connection.cut()

    def _hold(self, host: Any, address: Any, endpoint: Any) -> None:
        if host is self._host and address == REDIS_ADDRESS:
            self.last = (self._network.now, endpoint)
        else:
            self._connect(host, address, endpoint)

    def fix(self) -> None:
        """What it tries last gets through."""
        self._network.connect = self._connect  # type: ignore[method-assign]
        assert self.last is not None
        self._connect(self._host, REDIS_ADDRESS, self.last[1])


def behind_a_slow_follower(world: World, is_time: Callable[[], bool] = lambda: True) -> None:
    """The first client's batch is reserved by the first proxy, whose next heartbeat is far, and waits for a produce
    connection: its partition is slow, and all produce connections that it may have are busy. The client's connection
    ends unseen, and it continues at the second proxy."""
    network, (one, two) = world.network, world.proxies
    client, *others = world.clients
    beats = one.store._beats

    def has_just_beaten() -> bool:
        nonlocal beats
        before, beats = beats, one.store._beats
        return beats != before and is_time()

    assert network.run(60, has_just_beaten)
    world.cluster.partitions[TOPIC, 1].stalled_until = network.now + 1.9
    one.engine.set_caps(Caps(produce_connections_per_broker_max=1))
    pool = one.engine.topology.broker(1).pool
    for other in others[:3]:
        other.send(TOPIC, 1)
        network.run(0.02)
    assert network.run(0.5, lambda: pool.busy_produce_connections == 1 + limits.SLOW_PRODUCE_CONNECTIONS_PER_BROKER)
    assert pool.slow_partitions == 1
    reserved: list[float] = []

    def look(_proxy: VirtualProxy, effect: Any) -> None:
        if isinstance(effect, Append) and effect.partition == 1:
            reserved.append(network.now)

    one.watch_effects(look)
    client.send(TOPIC, 1)
    assert network.run(0.2, lambda: bool(reserved))
    network.run(0.005)
    assert pool.waiting_appends == 1
    assert client.connection is not None
    client.connection.half_open()
    client.addresses = [two.address]
    client.disconnect()


def two_proxies() -> World:
    """Everybody is at the first one."""
    world = World(1, WorldSettings(proxies=2, brokers=1, partitions=2, clients=6))
    world.start()
    for client in world.clients:
        client.addresses = [world.proxies[0].address]
        client.send(TOPIC, 0)
    assert world.network.run(20, lambda: all(client.is_done for client in world.clients))
    return world


def copies(world: World) -> int:
    """Of the first client's last record, in the end."""
    world.network.run(20)
    (value,) = world.clients[0].batches[-1].values
    messages = [stored.message for stored in world.cluster.log(TOPIC, 1).messages]
    return sum(record.value == value for message in messages for record in message.records)


def test_after_state_loss_a_cut_off_proxy_counts_grace_from_its_registration() -> None:
    world = two_proxies()
    network, (_, two), client = world.network, world.proxies, world.clients[0]
    cut = Cut(world, two)
    network.run(16)
    assert two.engine.context.instance.grace_until < two.host.now(), "what counts from the loss of the lease is over"
    behind_a_slow_follower(world, lambda: cut.last is not None and network.now - cut.last[0] < 1.0)
    world.redis.flush()
    cut.fix()
    assert network.run(0.2, lambda: two.store.data_generation is not None)
    registered_at = network.now
    assert network.run(60, lambda: client.is_done)
    assert network.now - registered_at > GRACE_SECONDS - 0.2
    assert copies(world) == 1


def test_later_registrations_are_reported_once_each_and_the_first_is_not() -> None:
    scene = StoreScene(renews=True).ready()
    assert scene.registrations == []
    scene.redis.host.pause(20)
    scene.until(lambda: bool(scene.losses))
    lost_at = scene.losses[-1]
    scene.network.run(3)
    assert scene.registrations == [], "it cannot be reached"
    scene.until(scene.may_send)
    assert [at > lost_at + 3 for at in scene.registrations] == [True]
    scene.network.run(20)
    scene.redis.end_leases()
    scene.until(lambda: len(scene.registrations) == 2)
    scene.network.run(20)
    assert len(scene.registrations) == len(scene.losses) == 2


# ---------------------------------------------------------------------- registrations that are lost alone
@pytest.mark.promise("flushall")
def test_who_has_lost_his_registration_robs_nobody_who_may_have_lost_his_too() -> None:
    world = two_proxies()
    client = world.clients[0]
    behind_a_slow_follower(world)
    world.redis.end_leases()
    ended_at = world.network.now
    assert world.network.run(60, lambda: client.is_done)
    assert world.network.now - ended_at > GRACE_SECONDS - 0.2
    assert copies(world) == 1


def left_open(owner: bytes) -> tuple[Stage, Client]:
    """An intent that its owner has left, and nothing of it in the log."""
    stage, client = Stage(), Client()
    stage.send(client, 0)
    stage.run(1)
    stage.put(reserved(stage.entry(), Intent(owner, 0, (IntentBatch(1, 1, b"digest-0"),), 0, NO_ANCHOR, bytes(8), 1)))
    stage.stream.held.forget()
    return stage, client


def test_a_strangers_intent_is_taken_over_after_grace_even_without_its_client() -> None:
    stage, client = left_open(b"stranger")
    stage.begin_lease_epoch(DATA_GENERATION)
    stage.send(client, 1, b"of another client")
    stage.run(3)
    client.is_closed = True
    stage.run(stage.context.instance.grace_until - stage.now - 0.1)
    intent = stage.entry().intent
    assert intent is not None
    assert intent.owner == b"stranger"
    stage.run(10)
    assert stage.entry().intent is None
    assert stage.sequencer.is_idle


@pytest.mark.parametrize(("owner", "has_lost"), [(INSTANCE_ID, True), (NOBODY, True), (b"stranger", False)])
def test_own_and_nobodys_intents_and_any_in_the_first_epoch_skip_grace(owner: bytes, has_lost: bool) -> None:
    stage, client = left_open(owner)
    if has_lost:
        stage.begin_lease_epoch(DATA_GENERATION)
    else:
        stage.context.instance.grace_until = stage.now + GRACE_SECONDS  # as others use the store
    request = stage.send(client, 1)
    stage.run(2)
    assert request.code == 0
    assert stage.stored_values() == [b"value 0", b"value 1"]
