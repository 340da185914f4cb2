"""A store that is there and does not do what it should: nothing is forwarded, clients are answered in time, it is said
once, and everything continues afterwards (rule R2)."""

import pytest

from idemproxy.proxy.events import OperatorMessage
from idemproxy.proxy.flow.effects import Read, Swap
from idemproxy.state.store import StoreLost
from testkit.stage.sequencer import KEY, Client, Stage
from testkit.virtual.redis import RedisFaultRates
from testkit.virtual.redis_connection import RedisFault
from testkit.virtual.world import TOPIC, World, WorldSettings

TIMED_OUT = 7
DAMAGED = [b"", b"\x01", b"\x09" + bytes(80), bytes(200)]


def complaints(stage: Stage) -> int:
    return sum(isinstance(event, OperatorMessage) and event.level == "error" for event in stage.events)


@pytest.mark.parametrize("value", DAMAGED)
@pytest.mark.parametrize("is_in_memory", [False, True])
def test_an_unreadable_value_stops_its_producer_and_is_reported_once(value: bytes, is_in_memory: bool) -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    good = stage.values[KEY]
    if not is_in_memory:
        stage.sequencer = stage.new_sequencer()
    stage.values[KEY] = value
    asked: list[object] = []
    for kind in (Read, Swap):
        stage.before[kind] = asked.append
    request = stage.send(client, 1)
    stage.run(20)
    assert request.code == TIMED_OUT
    assert len(stage.sent) == 1
    assert complaints(stage) == 1
    assert len(asked) < 220, "the store is not asked in a loop"
    stage.values[KEY] = good
    assert [stage.send(client, sequence).code for sequence in (1, 2)] == [0, 0]
    stage.values[KEY] = value
    stage.stream.held.forget()
    stage.send(client, 3)
    stage.run(10)
    assert complaints(stage) == 2, "another time is told again"


def test_a_producer_is_answered_in_time_and_continues_after_redis_refused_writes() -> None:
    stage = Stage()
    client = Client()
    stage.send(client, 0)
    stage.run(1)
    stage.store_away = True
    began = stage.now
    request = stage.send(client, 1)
    stage.run(60, until=lambda: request.code is not None)
    assert request.code == TIMED_OUT
    assert stage.now - began < 8.2
    assert len(stage.sent) == 1
    stage.run(30)
    stage.store_away = False
    again = stage.send(client, 1)
    stage.run(1)
    assert again.offset == 1
    assert stage.stored_values() == [b"value 0", b"value 1"]


@pytest.mark.promise("redis-slow")
@pytest.mark.parametrize("stands_still", [True, False])
def test_a_store_that_is_slow_for_less_than_two_seconds_delays_and_nothing_else(stands_still: bool) -> None:
    """Its whole process stands still, or each of its answers comes late."""
    world = World(1, WorldSettings(brokers=1, redis_faults=RedisFaultRates(slow_seconds=(1.8, 1.8))))
    world.start()
    (client,) = world.clients
    client.send(TOPIC, 0)
    assert world.network.run(30, lambda: client.is_done)
    world.network.run(1)
    if stands_still:
        world.redis.host.pause(1.8)
    else:
        world.redis.choose_fault = lambda _number, name, rest: (
            RedisFault.SLOW if name == b"EVALSHA" and b":member:" not in rest[2] else RedisFault.NONE
        )
    connections = client.connections_opened
    batch = client.send(TOPIC, 0)
    assert world.network.run(10, lambda: client.is_done)
    (answer,) = batch.answers
    assert answer.error_code == 0
    assert answer.at - batch.created_at > 1.7
    world.network.run(10)
    assert client.connections_opened == connections
    assert not any(isinstance(event, StoreLost) for _, _, event in world.proxies[0].events)
    assert len(world.cluster.log(TOPIC, 0).messages) == 2
    assert world.errors() == []
