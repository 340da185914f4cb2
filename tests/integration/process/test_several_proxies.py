"""Two proxies on one Redis: a client may come to either of them at any time, and one copy of each batch is in the log.

What the broker answered, or what it was asked, is kept back by a relay, so that a batch is open for as long as a test
wants it to be.
"""

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

import pytest

from idemproxy.demo.fault_relay import FaultKind, FaultPlan
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.state.store import entry_key
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.clients.two_proxies_client import RETRIABLE, Load, Place, RovingProducer
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies, stop_before
from testkit.real.proxies.two_proxies_program import STOP_BEFORE_APPEND, STOP_BEFORE_WRITE
from testkit.real.proxies.two_proxies_relays import Keeping
from testkit.real.store.two_proxies_redis import ExternalRedis

CONNECTION_LOST = -1
LEASE_SECONDS = 6.0
TAKEOVER_SECONDS_MAX = 20.0
QUIET_SECONDS = 1.0
PARTITIONS = 24
FAULTS_MIN = 5
"""That the walk at random meets; requests are fewer where a slow machine lets batches gather."""


@pytest.fixture(scope="module")
def pair(legacy_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoProxies]:
    legacy_broker.create_topic("several", PARTITIONS)
    with TwoProxies(tmp_path_factory.mktemp("several"), legacy_broker, stoppable=True) as running:
        yield running
        assert running.errors_of_ours() == []


@pytest.fixture(scope="module")
def partitions() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def place(partitions: Iterator[int]) -> Place:
    """A partition that no other test uses."""
    return "several", next(partitions)


@pytest.fixture
def producer(pair: TwoProxies, place: Place) -> Iterator[RovingProducer]:
    """It has a batch in the log, by the first proxy, and is judged in the end."""
    one = RovingProducer(place)
    one.connect(pair.addresses[0])
    try:
        one.add(1)
        one.insist(lambda: pair.addresses[0])
        pair.redis.wait_until_quiet(place=place)
        yield one
    finally:  # what a test that failed has left does not fail the next one
        one.hang_up()
        for relay in pair.relays:
            relay.let_go()
        for proxy in pair.proxies:
            with suppress(AssertionError):  # it does not run
                proxy.signal(signal.SIGCONT)
    pair.redis.wait_until_quiet(place=place)
    assert one.complaints(pair.stored([place])[place]) == []
    assert one.unanswered == {}


def twin_of(producer: RovingProducer) -> RovingProducer:
    """The same client on another connection: what the first one has not heard of, it sends again."""
    twin = RovingProducer(producer.place)
    twin.name, twin.producer_id = producer.name, producer.producer_id
    twin.values, twin.unanswered = producer.values, dict(producer.unanswered)
    return twin


def stored_count(pair: TwoProxies, producer: RovingProducer) -> int:
    return len(pair.stored([producer.place])[producer.place])


def is_reserved(pair: TwoProxies, producer: RovingProducer) -> bool:
    entry = pair.redis.entries().get(entry_key("default", producer.producer_id, *producer.place))
    return entry is not None and entry.has_open_intent


@pytest.mark.promise("client-moves")
@pytest.mark.parametrize("hangs_up", [False, True], ids=["both_wait", "the_first_hung_up"])
def test_a_retry_at_the_other_proxy_waits_and_gets_the_same_offset(
    pair: TwoProxies, producer: RovingProducer, hangs_up: bool
) -> None:
    pair.relays[0].keep(Keeping.ANSWERS)
    (sequence,) = producer.add(1)
    producer.send()
    wait_until(lambda: pair.relays[0].kept > 0, "the broker's answer is kept")
    twin = twin_of(producer)
    if hangs_up:
        producer.hang_up()
    twin.connect(pair.addresses[1])
    twin.send()
    assert twin.is_silent(LEASE_SECONDS + 1), "its owner lives, so it waits longer than a lease"
    begun = time.monotonic()
    pair.relays[0].let_go()
    twin.take()
    assert time.monotonic() - begun < LEASE_SECONDS - 1, "it looks once a second"
    assert (dict(twin.codes), twin.told) == ({0: 1}, {sequence: 1})
    if not hangs_up:
        producer.take()
        assert producer.told[sequence] == 1
    producer.insist(lambda: pair.addresses[1])
    twin.hang_up()


@pytest.mark.promise("client-moves")
@pytest.mark.parametrize("keeping", [Keeping.ANSWERS, Keeping.REQUESTS], ids=["in_the_log", "not_in_the_log"])
def test_after_a_proxy_died_the_other_answers_retries_with_the_stored_offset(
    pair: TwoProxies, producer: RovingProducer, keeping: Keeping
) -> None:
    resolved = pair.proxies[1].log.count("resolved as ")
    pair.relays[0].keep(keeping)
    producer.add(3)
    producer.send()
    wait_until(lambda: pair.relays[0].kept > 0, "it is out")
    time.sleep(0.2)
    pair.proxies[0].kill()
    begun = time.monotonic()
    try:
        producer.hang_up()
        producer.insist(lambda: pair.addresses[1])
        assert time.monotonic() - begun < TAKEOVER_SECONDS_MAX
        assert [producer.told[sequence] for sequence in range(4)] == [0, 1, 2, 3]
        assert producer.codes.keys() <= {0, *RETRIABLE}
    finally:
        pair.relays[0].let_go()
        pair.proxies[0].start()
    assert pair.proxies[1].log.count("resolved as ") > resolved


@pytest.mark.promise("client-moves")
def test_a_client_that_moves_amid_a_pipeline_gets_all_offsets_in_order(
    pair: TwoProxies, producer: RovingProducer
) -> None:
    pair.relays[0].keep(Keeping.ANSWERS)
    producer.add(5)
    producer.send()
    wait_until(lambda: pair.relays[0].kept > 0, "the first one, or some, are in the log")
    producer.connect(pair.addresses[1])  # the first proxy has the others in its queue
    producer.send()
    assert producer.is_silent(QUIET_SECONDS)
    pair.relays[0].let_go()
    producer.take()
    assert [producer.told[sequence] for sequence in range(6)] == list(range(6))
    assert producer.codes.keys() <= {0, *RETRIABLE}
    assert producer.unanswered == {}


@pytest.mark.promise("client-moves")
def test_a_client_that_returns_before_its_retry_is_answered_gets_the_offset(
    pair: TwoProxies, producer: RovingProducer
) -> None:
    pair.relays[0].keep(Keeping.ANSWERS)
    (sequence,) = producer.add(1)
    producer.send()
    wait_until(lambda: pair.relays[0].kept > 0, "the broker's answer is kept")
    producer.connect(pair.addresses[1])
    producer.send()
    assert producer.is_silent(QUIET_SECONDS)
    producer.connect(pair.addresses[0])
    producer.send()
    assert producer.is_silent(QUIET_SECONDS)
    pair.relays[0].let_go()
    producer.take()
    assert producer.told[sequence] == 1


@pytest.mark.promise("long-pause")
def test_a_proxy_that_slept_past_its_lease_between_reserve_and_send_sends_nothing(
    pair: TwoProxies, producer: RovingProducer
) -> None:
    sleeper = pair.proxies[0]
    losses = sleeper.log.count("the lease was lost")
    stop_before(sleeper, STOP_BEFORE_APPEND)
    (sequence,) = producer.add(1)
    producer.send()
    wait_until(lambda: is_reserved(pair, producer), "it is reserved")
    producer.connect(pair.addresses[1])
    producer.insist(lambda: pair.addresses[1])
    assert producer.told[sequence] == 1
    sleeper.signal(signal.SIGCONT)
    wait_until(lambda: sleeper.log.count("the lease was lost") > losses, "it sees that its lease has ended")
    producer.connect(pair.addresses[0])
    producer.add(1)
    producer.insist(lambda: pair.addresses[0])
    assert producer.told[sequence + 1] == 2


@pytest.mark.promise("intent-without-client")
def test_an_open_batch_of_a_dead_proxy_and_departed_client_blocks_nobody(
    pair: TwoProxies, producer: RovingProducer
) -> None:
    """The client abandoned the batch and continues under a new producer id; others' batches never wait for it."""
    other = RovingProducer(producer.place)
    pair.relays[0].keep(Keeping.REQUESTS)
    producer.add(1)
    producer.send()
    wait_until(lambda: is_reserved(pair, producer), "it is reserved")
    pair.proxies[0].kill()
    try:
        other.connect(pair.addresses[1])
        other.add(1)
        begun = time.monotonic()
        other.insist(lambda: pair.addresses[1])
        assert time.monotonic() - begun < LEASE_SECONDS - 1.5, "another producer's unknown outcome is not its own"
        producer.hang_up()
        producer.insist(lambda: pair.addresses[1])
    finally:
        pair.relays[0].let_go()
        pair.proxies[0].start()
    other.hang_up()
    assert other.complaints(pair.stored([producer.place])[producer.place]) == []


@pytest.mark.promise("client-moves")
def test_simultaneous_batches_at_both_proxies_are_stored_once_with_equal_offsets(
    pair: TwoProxies, producer: RovingProducer
) -> None:
    """An old connection's requests may still be read by one proxy when the client is at the other one already."""
    dice = Random(3)
    for _ in range(12):
        producer.add(dice.randint(1, 5), dice)
        wanted = sorted(producer.unanswered)
        twin = twin_of(producer)
        twin.connect(pair.addresses[1])
        racers = [producer, twin]
        dice.shuffle(racers)
        for racer in racers:
            racer.send()
        for racer in racers:
            racer.take()
        twin.insist(lambda: pair.addresses[1])
        producer.insist(lambda: pair.addresses[0])
        assert [twin.told[sequence] for sequence in wanted] == [producer.told[sequence] for sequence in wanted]
        assert twin.codes.keys() <= {0, *RETRIABLE}
        twin.hang_up()


@pytest.mark.promise("epoch-waits")
@pytest.mark.parametrize("keeping", [Keeping.ANSWERS, Keeping.REQUESTS], ids=["in_the_log", "not_in_the_log"])
@pytest.mark.parametrize("dies", [False, True], ids=["its_proxy_lives", "its_proxy_died"])
def test_a_new_epoch_at_the_other_proxy_follows_the_open_batch(
    pair: TwoProxies, producer: RovingProducer, dies: bool, keeping: Keeping
) -> None:
    """The client has abandoned the batch: it is stored at most once, and nothing of it comes after the new epoch."""

    def epoch_1(sequence: int) -> tuple[int, int]:
        records = batch([b"new:%d" % sequence], producer_id=producer.producer_id, epoch=1, sequence=sequence)
        with RawClient(pair.addresses[1], LEASE_SECONDS * 4) as client:
            answer = client.produce_one(*producer.place, records, timeout_ms=30_000)
        return answer.error_code, answer.base_offset

    pair.relays[0].keep(keeping)
    (given_up,) = producer.add(1)
    producer.send()
    wait_until(lambda: pair.relays[0].kept > 0, "it is out")
    producer.hang_up()
    del producer.unanswered[given_up]
    if dies:
        pair.proxies[0].kill()
    lets_go = threading.Timer(2.0, pair.relays[0].let_go)
    lets_go.start()
    in_log = keeping is Keeping.ANSWERS
    try:
        assert epoch_1(0) == (0, 1 + in_log)
    finally:
        lets_go.join()
        if dies:
            pair.proxies[0].start()
    assert epoch_1(1) == (0, 2 + in_log)
    time.sleep(QUIET_SECONDS)
    old = producer.values[given_up] if in_log else []
    values = [value for _, value in pair.stored([producer.place])[producer.place]]
    assert values == [*producer.values[0], *old, b"new:0", b"new:1"]


# ---------------------------------------------------------------------- and Redis in trouble at the same time
def empty(redis: ExternalRedis) -> None:
    assert redis.call("FLUSHALL") == b"OK"


def restart_without_the_last_writes(redis: ExternalRedis) -> None:
    redis.kill()
    redis.forget_tail(5000)
    redis.start()


@pytest.mark.promise("redis-loses-writes")
@pytest.mark.parametrize("forgets", [empty, restart_without_the_last_writes])
def test_a_dead_proxys_batch_is_found_although_redis_lost_the_intent(
    pair: TwoProxies, producer: RovingProducer, forgets: Callable[[ExternalRedis], None]
) -> None:
    pair.relays[0].keep(Keeping.ANSWERS)
    producer.add(2)
    producer.send()
    wait_until(lambda: pair.relays[0].kept > 0, "the broker's answer is kept")
    pair.proxies[0].kill()
    forgets(pair.redis)
    try:
        assert not is_reserved(pair, producer), "Redis still knows of it"
        producer.hang_up()
        producer.insist(lambda: pair.addresses[1])
    finally:
        pair.relays[0].let_go()
        pair.proxies[0].start()
    assert [producer.told[sequence] for sequence in range(3)] == [0, 1, 2]
    assert producer.codes.keys() <= {0, CONNECTION_LOST, *RETRIABLE}


@pytest.mark.promise("redis-loses-writes")
def test_the_other_proxy_waits_for_a_late_write_without_its_intent(pair: TwoProxies, producer: RovingProducer) -> None:
    """It sleeps between its look at the lease and the write, for less than the lease; meanwhile Redis is emptied."""
    sleeper = pair.proxies[0]
    stop_before(sleeper, STOP_BEFORE_WRITE)
    (sequence,) = producer.add(1)
    producer.send()
    wait_until(lambda: is_reserved(pair, producer), "it is reserved")
    time.sleep(0.3)
    empty(pair.redis)
    producer.connect(pair.addresses[1])
    producer.send()
    time.sleep(1.0)  # the other proxy sees that its own lease is gone, too, and closes the connection
    assert stored_count(pair, producer) == 1
    sleeper.signal(signal.SIGCONT)
    wait_until(lambda: stored_count(pair, producer) == 2, "the sleeper has written it")
    producer.insist(lambda: pair.addresses[1])
    assert producer.told[sequence] == 1
    producer.connect(pair.addresses[0])
    producer.add(1)
    producer.insist(lambda: pair.addresses[0])


@pytest.mark.promise("client-moves")
@pytest.mark.parametrize("keeping", [Keeping.ANSWERS, Keeping.REQUESTS], ids=["in_the_log", "not_in_the_log"])
def test_the_other_proxy_resolves_a_batch_whose_living_owner_lost_its_lease(
    pair: TwoProxies, producer: RovingProducer, keeping: Keeping
) -> None:
    pair.relays[0].keep(keeping)
    producer.add(2)
    producer.send()
    wait_until(lambda: pair.relays[0].kept > 0, "it is out")
    losses = [proxy.log.count("the lease was lost") for proxy in pair.proxies]
    pair.redis.pause()
    try:
        time.sleep(LEASE_SECONDS + 1)
    finally:
        pair.redis.go_on()
    try:
        producer.hang_up()
        producer.insist(lambda: pair.addresses[1])
    finally:
        pair.relays[0].let_go()
    assert [producer.told[sequence] for sequence in range(3)] == [0, 1, 2]
    assert producer.codes.keys() <= {0, CONNECTION_LOST, *RETRIABLE}
    wait_until(
        lambda: all(
            proxy.log.count("the lease was lost") > before for proxy, before in zip(pair.proxies, losses, strict=True)
        ),
        "both have seen that they had lost it",
    )


@pytest.mark.promise("client-moves", "compared-14")
def test_clients_that_switch_proxies_under_lost_answers_store_each_batch_once(
    legacy_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    legacy_broker.create_topic("random-walk", 3)
    places = [("random-walk", number) for number in (0, 1, 2, 0)]
    kinds = (FaultKind.LOST_ANSWER, FaultKind.CUT, FaultKind.HALF_REQUEST)
    plan = FaultPlan(seed=7, kinds=kinds, every_nth_produce=12, faults_max=8)
    dice, lock = Random(7), threading.Lock()
    with TwoProxies(tmp_path_factory.mktemp("walk"), legacy_broker, plan=plan) as pair:

        def either(_index: int) -> tuple[str, int]:
            with lock:
                return dice.choice(pair.addresses)

        with Load(places, either, seed=7, hang_up_share=0.2) as load:
            load.all_go_on(60)
            while sum(relay.faults for relay in pair.relays) <= FAULTS_MIN:
                load.all_go_on(10)
        faults = sum(relay.faults for relay in pair.relays)
        time.sleep(QUIET_SECONDS)
        assert load.complaints(pair.stored(places)) == []
        assert load.codes().keys() <= {0, -1, *RETRIABLE}
        assert faults > FAULTS_MIN
        assert pair.redis.intents_of_the_dead() == []
        assert pair.errors_of_ours() == []
