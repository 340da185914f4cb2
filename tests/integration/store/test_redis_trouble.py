"""Redis in trouble under two proxies: nothing twice, nothing lost, and every producer continues afterwards.

Each trouble happens to a real server while producers of both proxies are at work. None of them gets an error that is
not retriable, and while the server takes no writes nothing is forwarded.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST
from idemproxy.proxy.partition_log.offset_checkpoints import OffsetCheckpoints
from idemproxy.state.store import entry_key
from testkit.real.brokers.forwarder import Forwarder
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.clients.two_proxies_client import RETRIABLE, Load, Place
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.store.two_proxies_redis import ExternalRedis

CONNECTION_LOST, NO_ANSWER = -1, -2
PRODUCERS = 4
LEASE_SECONDS = 6.0
BACK_SECONDS_MAX = 90.0
UNDER_WAY_SECONDS = 1.0
LOOK_SECONDS, LOOKS_MAX = 0.1, 10
"""What was reserved before the trouble is in the log by then."""
APPEND_SECONDS = 0.5
LONG_BYTES, LONG_SET_BYTES = 50_000_000, 500_000


@pytest.fixture(scope="module")
def redis() -> Iterator[ExternalRedis]:
    with ExternalRedis() as server:
        yield server


@pytest.fixture(scope="module")
def door(redis: ExternalRedis) -> Iterator[Forwarder]:
    """The address that the proxies know."""
    with Forwarder(HOST, redis.address) as one:
        yield one


@pytest.fixture(scope="module")
def pair(
    legacy_broker: LegacyCluster, redis: ExternalRedis, door: Forwarder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TwoProxies]:
    legacy_broker.create_topic("trouble", PRODUCERS)
    directory = tmp_path_factory.mktemp("trouble")
    with TwoProxies(directory, legacy_broker, redis=redis, redis_address=door.address) as running:
        yield running
        assert running.errors_of_ours() == []


@contextmanager
def load(pair: TwoProxies) -> Iterator[Load]:
    """Producers on both proxies, two of them on one partition; judged in the end."""
    places: list[Place] = [("trouble", number) for number in (0, 1, 2, 0)]
    earlier = {place: len(records) for place, records in pair.stored(places).items()}
    with Load(places, lambda index: pair.addresses[index % 2], timeout_ms=6000) as running:
        running.all_go_on(10)
        yield running
        running.all_go_on(10, BACK_SECONDS_MAX)
    time.sleep(APPEND_SECONDS)
    stored = {place: records[earlier[place] :] for place, records in pair.stored(places).items()}
    assert running.complaints(stored) == []
    assert running.codes().keys() <= {0, CONNECTION_LOST, *RETRIABLE}
    # The writes that Redis loses may be the last ones of an earlier test's producers, which never come back.
    pair.redis.wait_until_quiet(keys={entry_key("default", one.producer_id, *one.place) for one in running.producers})


@contextmanager
def nothing_is_forwarded(pair: TwoProxies) -> Iterator[None]:
    """Once what was under way has arrived, nothing comes to the log during the block."""
    time.sleep(UNDER_WAY_SECONDS)
    with RawClient(pair.cluster.address(0)) as direct:
        before = direct.end_offsets({"trouble": PRODUCERS})
        for _ in range(LOOKS_MAX):
            time.sleep(LOOK_SECONDS)
            earlier, before = before, direct.end_offsets({"trouble": PRODUCERS})
            if earlier == before:
                break
        yield
        assert direct.end_offsets({"trouble": PRODUCERS}) == before


def set_config(redis: ExternalRedis, name: str, value: str | int) -> None:
    assert redis.call("CONFIG", "SET", name, value) == b"OK"


def lives(pair: TwoProxies) -> list[int]:
    """How many data generations each proxy has seen."""
    return [proxy.log.count("Redis has data generation") for proxy in pair.proxies]


def versions(redis: ExternalRedis) -> dict[bytes, int]:
    """How often each entry was written."""
    return {key: entry.version for key, entry in redis.entries().items()}


def lags(redis: ExternalRedis, known: dict[bytes, int]) -> bool:
    """Does it have an older value of an entry than was known, or none?"""
    there = versions(redis)
    return any(there.get(key, 0) < version for key, version in known.items())


def wait_for_a_new_life(pair: TwoProxies, before: list[int]) -> None:
    wait_until(
        lambda: all(now > then for now, then in zip(lives(pair), before, strict=True)), "a new data generation is seen"
    )


# ---------------------------------------------------------------------- slow
@pytest.mark.promise("redis-slow")
@pytest.mark.parametrize("seconds", [2.0, LEASE_SECONDS + 2], ids=["within_the_lease", "longer_than_the_lease"])
def test_a_redis_that_stands_still_delays_and_nothing_else(
    pair: TwoProxies, redis: ExternalRedis, seconds: float
) -> None:
    with load(pair):
        redis.pause()
        try:
            with nothing_is_forwarded(pair):
                time.sleep(seconds - UNDER_WAY_SECONDS)
        finally:
            redis.go_on()


@pytest.mark.promise("redis-slow")
def test_a_redis_that_holds_writes_back_delays_and_nothing_else(pair: TwoProxies, redis: ExternalRedis) -> None:
    with load(pair) as running:
        assert redis.call("CLIENT", "PAUSE", 60_000, "WRITE") == b"OK"
        try:
            with nothing_is_forwarded(pair):
                time.sleep(1.0)
        finally:
            assert redis.call("CLIENT", "UNPAUSE") == b"OK"
        assert running.all_go_on(3) < 30, "not as long as it was to hold them back"


# ---------------------------------------------------------------------- no writes
def make_read_only(redis: ExternalRedis) -> None:
    assert redis.call("REPLICAOF", "127.0.0.1", 1) == b"OK"


def make_master(redis: ExternalRedis) -> None:
    assert redis.call("REPLICAOF", "NO", "ONE") == b"OK"


def fill_memory(redis: ExternalRedis) -> None:
    set_config(redis, "maxmemory", 1)


def free_memory(redis: ExternalRedis) -> None:
    set_config(redis, "maxmemory", 0)


def break_snapshots(redis: ExternalRedis) -> None:
    """As on a disk that is full or read-only: the next snapshot fails, and no write is taken until one succeeds."""
    gone = redis.directory / "gone"
    gone.mkdir()
    set_config(redis, "dir", os.fspath(gone))
    gone.rmdir()
    set_config(redis, "save", "3600 1")
    redis.call("BGSAVE")
    wait_until(lambda: b"rdb_last_bgsave_status:err" in redis.call("INFO", "persistence"), "a snapshot has failed")


def fix_snapshots(redis: ExternalRedis) -> None:
    set_config(redis, "dir", os.fspath(redis.directory))
    redis.call("BGSAVE")
    wait_until(lambda: b"rdb_last_bgsave_status:ok" in redis.call("INFO", "persistence"), "a snapshot has succeeded")
    set_config(redis, "save", "")


@pytest.mark.promise("redis-takes-no-writes")
@pytest.mark.parametrize("seconds", [2.0, LEASE_SECONDS + 2], ids=["for_a_moment", "longer_than_the_lease"])
@pytest.mark.parametrize(
    ("breaks", "fixes", "says"),
    [
        pytest.param(make_read_only, make_master, b"READONLY", id="a_replica"),
        pytest.param(fill_memory, free_memory, b"OOM", id="out_of_memory"),
        pytest.param(break_snapshots, fix_snapshots, b"MISCONF", id="disk_full"),
    ],
)
def test_a_redis_that_takes_no_writes_stops_producers_until_it_does(
    pair: TwoProxies,
    redis: ExternalRedis,
    breaks: Callable[[ExternalRedis], None],
    fixes: Callable[[ExternalRedis], None],
    says: bytes,
    seconds: float,
) -> None:
    with load(pair):
        breaks(redis)
        try:
            assert says in str(redis.call("SET", "probe", "1")).encode()
            with nothing_is_forwarded(pair):
                time.sleep(seconds - UNDER_WAY_SECONDS)
        finally:
            fixes(redis)


# ---------------------------------------------------------------------- other data generations
def test_a_redis_that_is_restarted_costs_a_look_at_the_log_and_nothing_else(
    pair: TwoProxies, redis: ExternalRedis
) -> None:
    before = lives(pair)
    with load(pair):
        redis.stop()
        redis.start()
        wait_for_a_new_life(pair, before)


@pytest.mark.promise("redis-loses-writes")
def test_a_redis_that_restarts_without_its_last_writes_makes_no_duplicate(
    pair: TwoProxies, redis: ExternalRedis
) -> None:
    before = lives(pair)
    with load(pair):
        assert redis.call("CLIENT", "PAUSE", 60_000, "WRITE") == b"OK"  # nothing more is written until it dies
        known = versions(redis)
        redis.kill()
        redis.forget_tail(6000)
        redis.start()
        assert lags(redis, known), "nothing was lost"
        wait_for_a_new_life(pair, before)


@pytest.mark.promise("redis-loses-writes")
def test_a_failover_to_a_replica_that_missed_the_last_writes_makes_no_duplicate(
    pair: TwoProxies, redis: ExternalRedis, door: Forwarder
) -> None:
    before = lives(pair)
    with ExternalRedis() as replica, load(pair) as running:
        assert replica.call("REPLICAOF", *redis.address) == b"OK"
        wait_until(lambda: b"master_link_status:up" in replica.call("INFO", "replication"), "the replica is in sync")
        running.all_go_on(5)
        make_master(replica)  # it is promoted, and for a moment the old one is still written to
        missed = running.progress()
        running.all_go_on(3)
        assert all(now > then for now, then in zip(running.progress(), missed, strict=True))
        wait_until(lambda: lags(replica, versions(redis)), "something is written that the replica misses")
        redis.kill()
        door.move(replica.address)
        wait_for_a_new_life(pair, before)
        running.all_go_on(10, BACK_SECONDS_MAX)
        # Back again, as the next tests want it: the old server begins with the data of the new one.
        before = lives(pair)
        redis.start()
        assert redis.call("REPLICAOF", *replica.address) == b"OK"
        wait_until(lambda: b"master_link_status:up" in redis.call("INFO", "replication"), "the old one is in sync")
        replica.kill()
        make_master(redis)
        door.move(redis.address)
        wait_for_a_new_life(pair, before)


@pytest.mark.promise("redis-loses-writes")
def test_a_redis_that_was_emptied_makes_no_duplicate(pair: TwoProxies, redis: ExternalRedis) -> None:
    with load(pair):
        assert redis.call("FLUSHALL") == b"OK"


@pytest.fixture
def long_partition(legacy_broker: LegacyCluster) -> Place:
    """50 MB that others have written, and a last record of theirs."""
    place = ("long", 0)
    legacy_broker.create_topic(place[0], 1)
    with RawClient(legacy_broker.address(0)) as direct:
        for _ in range(LONG_BYTES // LONG_SET_BYTES):
            plain = encode_set([(None, os.urandom(LONG_SET_BYTES // 10), 0)] * 10, magic=1)
            assert direct.produce_one(*place, plain, version=2).error_code == 0
        assert direct.produce_one(*place, encode_set([(None, b"last", 0)], magic=1), version=2).error_code == 0
    return place


@pytest.mark.promise("rebuild-recent-log")
def test_after_redis_was_emptied_a_checkpoint_of_an_earlier_instance_limits_reading(
    legacy_broker: LegacyCluster, redis: ExternalRedis, long_partition: Place, tmp_path: Path
) -> None:
    host, port = redis.address
    options = ("--redis", f"redis://{host}:{port}/0", "--cluster-name", "long", "--client-retry-seconds-max", "120")
    with ProxyProcess(tmp_path, legacy_broker.address(0), options=options) as proxy:
        with RawClient(proxy.address) as client:
            old_id = client.new_producer_id()
            first = client.produce_one(*long_partition, batch([b"old"], producer_id=old_id))
        assert proxy.stop() == 0
        let_checkpoints_be_older(proxy.data_directory / "checkpoints", 121)
        proxy.start()
        with RawClient(proxy.address) as client:
            known = [client.new_producer_id() for _ in range(2)]
            stored = client.produce_one(*long_partition, batch([b"lately"], producer_id=known[0]))
        assert redis.call("FLUSHALL") == b"OK"
        proxy.kill()  # nor does a proxy remember anything
        proxy.start()
        again = ask_until_told(proxy, long_partition, batch([b"lately"], producer_id=known[0]))
        new = ask_until_told(proxy, long_partition, batch([b"new"], producer_id=known[1]))
        assert again.base_offset == stored.base_offset == first.base_offset + 1
        assert new.base_offset == stored.base_offset + 1
        assert 0 < bytes_read(proxy) < LONG_BYTES / 10
        idle = ask_until_told(proxy, long_partition, batch([b"idle"], producer_id=old_id, sequence=1))
        assert idle.base_offset == new.base_offset + 1
        assert bytes_read(proxy) > LONG_BYTES, "who was idle is looked for"
        assert proxy.stop() == 0  # the others' Redis has nothing of it that is open


def ask_until_told(proxy: ProxyProcess, place: Place, records: bytes) -> PartitionAnswer:
    """Send it again, as clients do, until the answer is not to send it again."""
    end = time.monotonic() + BACK_SECONDS_MAX
    while True:
        assert time.monotonic() < end
        with suppress(OSError), RawClient(proxy.address) as client:  # a new data generation ends connections
            answer = client.produce_one(*place, records)
            if answer.error_code not in RETRIABLE:
                assert answer.error_code == 0, answer
                return answer
        time.sleep(APPEND_SECONDS)


def bytes_read(proxy: ProxyProcess) -> int:
    """By all that was looked for in this life."""
    return sum(int(found) for found in re.findall(r"resolved as .* (\d+) bytes read", proxy.log))


def let_checkpoints_be_older(path: Path, seconds: int) -> None:
    """As if the last life had ended so long ago."""
    checkpoints = OffsetCheckpoints()
    checkpoints.unpack(path.read_bytes(), 0, time.time_ns() // 1_000_000)
    path.write_bytes(checkpoints.pack(0, time.time_ns() // 1_000_000 - seconds * 1000))


# ---------------------------------------------------------------------- damaged values
@pytest.mark.promise("entry-unreadable")
def test_a_damaged_value_stops_only_its_producer_until_it_is_restored(pair: TwoProxies, redis: ExternalRedis) -> None:
    with load(pair) as running:
        victim = running.producers[0]
        key = entry_key("default", victim.producer_id, *victim.place)
        sound = redis.call("GET", key)
        assert redis.call("SET", key, b"\x07damaged") == b"OK"
        wait_until(lambda: victim.codes[7] + victim.codes[NO_ANSWER] > 0, "its producer is told to try again")
        told = len(victim.told)
        others = running.progress()[1:]
        time.sleep(2.0)
        wait_until(
            lambda: all(now > then + 3 for now, then in zip(running.progress()[1:], others, strict=True)),
            "the others go on",
        )
        assert len(victim.told) == told
        assert redis.call("SET", key, sound) == b"OK"
