"""Producers that are forgotten: by the store after a time, from memory when there are many. What is open never is."""

from collections import Counter

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.events import EntryEvicted, EntryLoaded
from idemproxy.proxy.flow.effects import Read, Swap
from idemproxy.proxy.settings.config import Caps, ConfigError, Settings
from idemproxy.proxy.settings.load import load
from idemproxy.state.entry import unpack
from testkit.stage.sequencer import KEY, NEXT_INSTANCE_ID, Client, Stage
from testkit.virtual.world import TOPIC, World, WorldSettings

EXPIRY_MS = 50_000
HELD_BACK, OUT_OF_ORDER, DUPLICATE, INVALID = 19, 45, 46, 87


def expiring() -> Stage:
    """A stage on which the wall clock advances as well."""
    stage = Stage()
    stage.context.instance.expiry_ms = EXPIRY_MS
    stage.context.instance.wall_clock_ms = lambda: round(stage.now * 1000)
    return stage


# ---------------------------------------------------------------------- in the store
def test_an_entry_expires_much_later_while_something_is_open_in_it() -> None:
    stage = expiring()
    later_ms = stage.context.instance.ids_ttl_ms
    assert later_ms > limits.NAME_EXPIRY_SECONDS * 1000
    written: list[tuple[bool, int]] = []
    stage.before[Swap] = lambda swap: written.append((unpack(swap.value).has_open_intent, swap.ttl_ms))
    client = Client()
    stage.send(client, 0)
    stage.outcomes.append(stage.loses_request)
    stage.send(client, 1)
    stage.run(30)
    assert Counter(written)[(True, later_ms)] >= 3
    assert set(written) == {(True, later_ms), (False, EXPIRY_MS)}


@pytest.mark.parametrize("is_old", [False, True])
def test_only_an_id_that_was_issued_long_ago_may_have_expired(is_old: bool) -> None:
    stage = expiring()
    if is_old:
        stage.run(EXPIRY_MS / 1000 - stage.now + 1000)
    else:
        stage.now = 1.0
    client = Client()
    assert stage.send(client, 5).code == (HELD_BACK if is_old else OUT_OF_ORDER)
    answer = stage.send(client, 5)
    stage.run(1)
    assert answer.code == (0 if is_old else OUT_OF_ORDER)


@pytest.mark.promise("expired-producer")
def test_what_comes_before_the_batch_with_which_an_expired_producer_begins_is_waited_for() -> None:
    """Its first batch fails, and the ones after it are no beginning. The retries come in order."""
    stage, client = expiring(), Client()
    stage.run(EXPIRY_MS / 1000 - stage.now + 1000)
    stage.outcomes.append(stage.refuses(6))
    first = [stage.send(client, sequence) for sequence in (0, 1, 2)]
    stage.run(1)
    assert [one.code for one in first] == [6, HELD_BACK, HELD_BACK]
    again = [stage.send(client, sequence) for sequence in (0, 1, 2)]
    stage.run(1)
    assert [one.code for one in again] == [0, 0, 0]
    assert stage.stored_values() == [b"value 0", b"value 1", b"value 2"]


@pytest.mark.promise("expired-producer")
def test_nor_does_it_begin_after_a_batch_that_fails_again_and_again() -> None:
    stage, client = expiring(), Client()
    stage.run(EXPIRY_MS / 1000 - stage.now + 1000)
    for codes in ([6, HELD_BACK], [6, HELD_BACK], [0, 0]):
        if codes[0]:
            stage.outcomes.append(stage.refuses(codes[0]))
        both = [stage.send(client, sequence) for sequence in (0, 1)]
        stage.run(1)
        assert [one.code for one in both] == codes
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_nor_after_one_that_failed_for_good_as_a_new_epoch_follows() -> None:
    stage, client = expiring(), Client()
    stage.run(EXPIRY_MS / 1000 - stage.now + 1000)
    for codes in ([6, HELD_BACK], [INVALID, OUT_OF_ORDER]):
        stage.outcomes.append(stage.refuses(codes[0]))
        both = [stage.send(client, sequence) for sequence in (0, 1)]
        stage.run(1)
        assert [one.code for one in both] == codes
    newer = stage.send(client, 0, b"value 1", epoch=1)
    stage.run(1)
    assert newer.code == 0
    assert stage.stored_values() == [b"value 1"]


def test_an_expired_producer_continues_after_a_duplicate_sequence_number() -> None:
    """That error is no failure to a client: it begins no epoch after it."""
    stage, client = expiring(), Client()
    for sequence in range(7):
        stage.send(client, sequence)
        stage.run(1)
    again = stage.send(client, 0)
    stage.run(1)
    assert again.code == DUPLICATE
    stage.run(EXPIRY_MS / 1000 + 1000)
    del stage.values[KEY]
    answers = [stage.send(client, 7)]
    stage.run(1)
    answers.append(stage.send(client, 7))
    stage.run(1)
    assert [one.code for one in answers] == [HELD_BACK, 0]
    assert stage.stored_values() == [b"value %d" % sequence for sequence in range(8)]


@pytest.mark.promise("expired-producer")
def test_it_does_not_begin_with_what_overtakes_its_first_batch_over_another_connection() -> None:
    """A partition's leader moves, and with it the port that the client sends to."""
    stage, to_one, to_another = expiring(), Client(), Client()
    stage.run(EXPIRY_MS / 1000 - stage.now + 1000)
    overtaking = stage.send(to_another, 1)
    first = stage.send(to_one, 0)
    stage.run(1)
    assert (overtaking.code, first.code) == (HELD_BACK, 0)
    again = stage.send(to_another, 1)
    stage.run(1)
    assert again.code == 0
    assert stage.stored_values() == [b"value 0", b"value 1"]


@pytest.mark.parametrize("reads", range(1, 6))
def test_while_its_age_cannot_be_read_an_expired_producer_is_not_refused(reads: int) -> None:
    """The store goes away after some of the reads that one decision takes."""
    stage, client = expiring(), Client()
    stage.run(EXPIRY_MS / 1000 - stage.now + 1000)
    left = iter(range(reads))

    def go_away(_read: Read) -> None:
        stage.store_away = next(left, None) is None

    stage.before[Read] = go_away
    answers = [stage.send(client, 5)]
    stage.run(10)
    del stage.before[Read]
    stage.store_away = False
    for _ in range(2):
        answers.append(stage.send(client, 5))
        stage.run(10)
    assert OUT_OF_ORDER not in [answer.code for answer in answers]
    assert answers[-1].code == 0
    assert stage.stored_values() == [b"value 5"]


def test_a_refused_beginning_in_mid_epoch_does_not_decide_what_is_due() -> None:
    """It was reserved and refused; what comes before it arrives after it, over another connection."""
    stage, client = expiring(), Client()
    stage.run(EXPIRY_MS / 1000 - stage.now + 1000)
    stage.send(client, 3)
    stage.outcomes.append(stage.refuses(6))
    refused = stage.send(client, 3)
    stage.run(1)
    assert refused.code == 6
    first = stage.send(Client(), 0)
    stage.run(1)
    assert first.code == 0
    assert stage.stored_values() == [b"value 0"]


@pytest.mark.promise("expired-state")
def test_a_version_from_before_the_expiry_fits_no_entry_that_began_after_it_elsewhere() -> None:
    """A day later the store has forgotten the producer, the proxy remembers it, and another proxy has begun again."""
    stage, other, client = expiring(), expiring(), Client()
    stage.send(Client(), 0)
    stage.run(EXPIRY_MS / 1000 + 100)
    del stage.values[KEY]
    other.values, other.log, other.now = stage.values, stage.log, stage.now
    other.context.time.now, other.context.instance.instance_id = other.now, NEXT_INSTANCE_ID
    for code in (HELD_BACK, 0):
        elsewhere = other.send(client, 1)
        other.run(1)
        assert elsewhere.code == code
    stage.run(1)
    retry = stage.send(Client(), 1)
    stage.run(1)
    assert (retry.code, retry.offset) == (0, elsewhere.offset)
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_an_expired_producer_begins_anywhere_also_in_a_new_data_generation() -> None:
    stage = expiring()
    client = Client()
    for sequence in (0, 1):
        stage.send(client, sequence)
        stage.run(1)
    stage.run(EXPIRY_MS / 1000)
    del stage.values[KEY]
    stage.log.messages.clear()
    stage.earliest = stage.log.end_offset  # retention
    stage.begin_lease_epoch()
    client = Client()
    for code in (HELD_BACK, 0):
        answer = stage.send(client, 2)
        stage.run(30)
        assert answer.code == code
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


def test_idle_producers_among_many_are_dropped_from_memory_and_continue_later() -> None:
    world = World(1, WorldSettings(brokers=1, partitions=4))
    world.start()
    world.proxies[0].engine.set_caps(Caps(producers_max=2))
    (client,) = world.clients
    for partition in (0, 1, 2, 3, 0, 1, 2, 3):
        client.send(TOPIC, partition)
        assert world.network.run(10, lambda: client.is_done)
        world.network.run(1)
    assert counted(world, EntryLoaded) - counted(world, EntryEvicted) == 2
    assert counted(world, EntryEvicted) == 6
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
        most = max(most, counted(world, EntryLoaded) - counted(world, EntryEvicted))
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
