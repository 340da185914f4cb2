"""A log that nobody needs any more, a proxy that comes back to its data directory, and a Redis that has lost
everything: what is read, and who is served (rule R10)."""

from __future__ import annotations

import pytest
from simulation.oracle import Oracle

from testkit.virtual.world import TOPIC, World, WorldSettings

HORIZON_SECONDS = 300.0
OLD_BATCHES = 60
CANNOT_BE_TOLD = "code 87"


def an_old_log_with_a_gap() -> tuple[World, Oracle]:
    """Client 1 has filled partition 0, where compaction has left a gap since, and all are idle for longer than anybody
    retries; client 2 has only written elsewhere, but for its last batches."""
    world = World(3, WorldSettings(partitions=2, clients=3, horizon_seconds=HORIZON_SECONDS))
    oracle = Oracle(world.cluster, world.clients)
    world.start()
    first, second, third = world.clients
    for client in (second, third):
        client.send(TOPIC, 1)
    for _ in range(OLD_BATCHES):
        first.send(TOPIC, 0, 3)
        assert world.network.run(30, lambda: world.is_done)
    log = world.cluster.log(TOPIC, 0)
    assert all(log.compact(index, [0, 1]) for index in range(5, 20))
    world.cluster.partitions[TOPIC, 0].met.add("compaction")
    for _ in range(4):
        world.network.run(HORIZON_SECONDS / 2)
        second.send(TOPIC, 0)
        assert world.network.run(30, lambda: world.is_done)
    return world, oracle


def everything_is_lost(world: World) -> None:
    """The proxy dies and comes back, to a Redis that is empty."""
    (proxy,) = world.proxies
    proxy.crash(down_seconds=0.5)
    world.redis.flush()
    assert world.network.run(30, lambda: proxy.lives == 2 and proxy.is_listening)


def bytes_read(world: World) -> list[int]:
    """Of every unknown outcome that the second proxy instance has decided."""
    return [
        event.bytes_read
        for _, instance, event in world.proxies[0].events
        if instance == 2 and type(event).__name__ == "UnknownOutcomeResolved"
    ]


def log_bytes(world: World) -> int:
    """What can be read of partition 0."""
    return sum(len(stored.message.data) for stored in world.cluster.log(TOPIC, 0).messages)


@pytest.mark.parametrize("newcomer", [1, 2])
def test_checkpoints_in_the_data_directory_spare_active_producers_reading_the_old_log(newcomer: int) -> None:
    world, oracle = an_old_log_with_a_gap()
    everything_is_lost(world)
    client = world.clients[newcomer]
    client.send(TOPIC, 0)
    assert world.network.run(60, lambda: client.is_done)
    assert client.batches[-1].failed is None
    assert max(bytes_read(world)) < log_bytes(world) / 4
    assert oracle.finish(state_was_lost=True) == []


def test_a_producer_idle_for_longer_is_looked_for_in_the_whole_log() -> None:
    """No mark says what is due of him. The gap lies before his last batch and is in nobody's way."""
    world, oracle = an_old_log_with_a_gap()
    everything_is_lost(world)
    client = world.clients[0]
    client.send(TOPIC, 0)
    assert world.network.run(60, lambda: client.is_done)
    assert client.batches[-1].failed is None
    assert max(bytes_read(world)) > log_bytes(world) / 2
    assert oracle.finish(state_was_lost=True) == []


def test_without_checkpoints_the_gap_is_in_the_way_of_a_newcomer() -> None:
    """The control: it is the marks that spare the others this."""
    world, oracle = an_old_log_with_a_gap()
    world.proxies[0].checkpoints = None
    everything_is_lost(world)
    client = world.clients[2]
    client.send(TOPIC, 0)
    assert world.network.run(90, lambda: client.is_done)
    assert client.batches[-1].failed is not None
    assert client.batches[-1].failed[1] == CANNOT_BE_TOLD
    assert oracle.finish(state_was_lost=True) == []
