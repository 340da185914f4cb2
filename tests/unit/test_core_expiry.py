"""Producers that are forgotten: by the store after a time, from memory when there are many. What is open never is."""

from collections import Counter

import pytest

from idemproxy.proxy.effects import Swap
from idemproxy.proxy.events import ProducerDropped, ProducerMet
from idemproxy.proxy.settings.config import Caps, ConfigError, Settings
from idemproxy.proxy.settings.load import load
from idemproxy.state.entry import unpack
from testkit.staged_sequencer import KEY, Client, Stage
from testkit.virtual_world import TOPIC, World, WorldSettings

EXPIRY_MS = 50_000
OUT_OF_ORDER, HELD_BACK = 45, 19


def expiring() -> Stage:
    """A stage on which the wall clock goes on as well."""
    stage = Stage()
    stage.shared.expiry_ms = EXPIRY_MS
    stage.shared.wall_clock_ms = lambda: round(stage.now * 1000)
    return stage


# ---------------------------------------------------------------------- in the store
def test_an_entry_expires_unless_something_is_open_in_it() -> None:
    stage = expiring()
    written: list[tuple[bool, int]] = []
    stage.before[Swap] = lambda swap: written.append((unpack(swap.value).has_open_intent, swap.ttl_ms))
    client = Client()
    stage.send(client, 0)
    stage.outcomes.append(stage.loses_request)
    stage.send(client, 1)
    stage.run(30)
    assert Counter(written)[(True, 0)] >= 3
    assert set(written) == {(True, 0), (False, EXPIRY_MS)}


@pytest.mark.parametrize("is_old", [False, True])
def test_only_an_id_that_was_issued_long_ago_may_have_expired(is_old: bool) -> None:
    stage = expiring()
    if is_old:
        stage.run(EXPIRY_MS / 1000 - stage.now + 1000)
    else:
        stage.now = 1.0
    answer = stage.send(Client(), 5)
    stage.run(1)
    assert answer.code == (0 if is_old else OUT_OF_ORDER)


def test_a_producer_that_has_expired_begins_anywhere_also_after_a_new_life_of_the_store() -> None:
    stage = expiring()
    client = Client()
    for sequence in (0, 1):
        stage.send(client, sequence)
        stage.run(1)
    stage.run(EXPIRY_MS / 1000)
    del stage.values[KEY]
    stage.log.messages.clear()
    stage.earliest = stage.log.end_offset  # retention
    stage.begin_era()
    answer = stage.send(Client(), 2)
    stage.run(30)
    assert answer.code == 0
    next_one = stage.send(Client(), 3)
    stage.run(1)
    assert next_one.code == 0
    assert stage.send(Client(), 9).code is not None


def test_a_producer_whose_epoch_is_known_does_not_begin_anywhere() -> None:
    stage = expiring()
    stage.outcomes.append(stage.refuses(10))
    stage.send(Client(), 0, epoch=3)
    stage.run(EXPIRY_MS / 1000 + 1)
    assert stage.send(Client(), 7, epoch=3).code == OUT_OF_ORDER
    assert stage.send(Client(), 0, epoch=2).code == 47


# ---------------------------------------------------------------------- in memory
def counted(world: World, kind: type) -> int:
    return sum(isinstance(event, kind) for _, _, event in world.proxies[0].events)


def test_of_many_producers_the_idle_ones_are_dropped_from_memory_and_go_on() -> None:
    world = World(1, WorldSettings(brokers=1, partitions=4))
    world.start()
    world.proxies[0].engine.set_caps(Caps(producers_max=2))
    (client,) = world.clients
    for partition in (0, 1, 2, 3, 0, 1, 2, 3):
        client.send(TOPIC, partition)
        assert world.network.run(10, lambda: client.is_done)
        world.network.run(1)
    assert counted(world, ProducerMet) - counted(world, ProducerDropped) == 2
    assert counted(world, ProducerDropped) == 6
    assert [len(world.cluster.log(TOPIC, number).messages) for number in range(4)] == [2, 2, 2, 2]
    assert world.errors() == []


def test_more_producers_than_there_is_room_for_wait_for_their_turn() -> None:
    world = World(1, WorldSettings(brokers=1, partitions=3))
    world.start()
    world.proxies[0].engine.set_caps(Caps(producers_max=1))
    (client,) = world.clients
    for partition in (0, 1, 2):
        client.send(TOPIC, partition)
    world.network.run(0.01)
    most = 0

    def look() -> bool:
        nonlocal most
        most = max(most, counted(world, ProducerMet) - counted(world, ProducerDropped))
        return client.is_done

    assert world.network.run(30, look)
    assert most == 1
    assert [len(world.cluster.log(TOPIC, number).messages) for number in range(3)] == [1, 1, 1]
    assert world.errors() == []


# ---------------------------------------------------------------------- the setting
def settings(expiry: str | None) -> Settings:
    return load(None, {"upstream": "broker:9092", "producer_expiry_seconds": expiry})


def test_the_expiry_is_a_day_unless_it_is_set() -> None:
    assert settings(None).producer_expiry_seconds == 86_400
    assert settings("7200").producer_expiry_seconds == 7200


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "a day", "", "99999999999", "²"])
def test_an_expiry_that_is_no_number_of_seconds_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--producer-expiry-seconds"):
        settings(text)
