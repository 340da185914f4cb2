"""Clients that authenticate at brokers of Kafka 4, which have no Produce before version 3."""

from testkit.virtual.releases import RAISED_4_3
from testkit.virtual.world import TOPIC, World, WorldSettings


def test_a_client_that_may_write_is_served_at_kafka_4() -> None:
    world = World(1, WorldSettings(has_principals=True, has_pass_through=True, release=RAISED_4_3, brokers=1))
    world.start()
    batch = world.clients[0].send(TOPIC, 0, 3)
    assert world.network.run(10, lambda: batch.acknowledged is not None)
    assert world.errors() == []
    assert world.cluster.all_violations() == []
