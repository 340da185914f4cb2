"""Redis's memory goes back in time, while its run_id and its master_replid stay: a real server loads an older dump."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.state.lease import RENEW_SECONDS
from idemproxy.state.redis_bulk import Access, BulkStore, StoreEnded, Swap
from idemproxy.state.redis_facts import RedisAddress, script_sha, swap_script
from idemproxy.state.store import DATA_COUNT_BITS, data_number_key
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.store.inspecting import Place, send
from testkit.real.store.two_proxies_redis import ExternalRedis

RETRIABLE = (6, 7, 19)
ANSWER_SECONDS_MAX = 60.0


@pytest.fixture
def redis() -> Iterator[ExternalRedis]:
    with ExternalRedis("--enable-debug-command", "local") as running:
        yield running


def answer_of(address: tuple[str, int], place: Place, producer_id: int, sequence: int) -> tuple[int, int]:
    """Code and offset of a batch that is sent until the answer says how it ended, over new connections."""
    end = time.monotonic() + ANSWER_SECONDS_MAX
    while time.monotonic() < end:
        try:
            with RawClient(address) as client:
                code, offset = send(client, place, producer_id, sequence)
        except OSError:
            code, offset = 7, -1
        if code not in RETRIABLE:
            return code, offset
        time.sleep(0.1)
    raise AssertionError("no answer says how it ended")


def test_a_retry_of_what_redis_has_forgotten_is_answered_from_the_log(
    legacy_broker: LegacyCluster, redis: ExternalRedis, tmp_path: Path
) -> None:
    place = (fresh_topic(legacy_broker), 0)
    with TwoProxies(tmp_path, legacy_broker, redis=redis) as pair:
        with RawClient(pair.addresses[0]) as client:
            producer_id = client.new_producer_id()
            assert [send(client, place, producer_id, sequence) for sequence in (0, 2)] == [(0, 0), (0, 2)]
            time.sleep(0.5)  # its commit is written
            assert redis.call("SAVE") == b"OK"
            time.sleep(2 * RENEW_SECONDS + 0.5)
            assert [send(client, place, producer_id, sequence) for sequence in (4, 6)] == [(0, 4), (0, 6)]
        time.sleep(0.5)
        run_id = redis.call("INFO", "server").split(b"run_id:")[1].split()[0]
        assert redis.call("DEBUG", "RELOAD", "NOSAVE") == b"OK"
        assert run_id == redis.call("INFO", "server").split(b"run_id:")[1].split()[0]
        answers = [answer_of(pair.addresses[1], place, producer_id, sequence) for sequence in (4, 6, 8)]
        stored = pair.stored([place])[place]
        wait_until(lambda: any("went back in time" in proxy.log for proxy in pair.proxies), "it is told")
    assert answers == [(0, 4), (0, 6), (0, 8)]
    assert [offset for offset, _ in stored] == list(range(10))


@pytest.mark.parametrize(("registered", "named", "is_stored"), [(5, 5, True), (4, 5, False), (None, 5, False)])
def test_a_swap_that_names_a_later_registration_is_refused(
    redis: ExternalRedis, registered: int | None, named: int, is_stored: bool
) -> None:
    text = swap_script(bytes(16))
    redis.call("SCRIPT", "LOAD", text)
    if registered is not None:
        redis.call("SET", "member", b"%d" % registered, "PX", 60_000)
    reply = redis.call("EVALSHA", script_sha(text), 2, "key", "member", bytes(8), b"value", 0, b"%d" % named)
    assert (reply == 1) is is_stored
    assert is_stored or "NOMEMBER" in str(reply)
    assert redis.call("EXISTS", "key") == is_stored


def test_a_bulk_rebuild_ends_when_another_data_generation_has_begun(redis: ExternalRedis) -> None:
    """What it writes would be of an earlier data generation, so no proxy would believe it."""
    one = Swap(b"key", 0, b"\x01" + bytes(7) + b"\x01", 0)
    with BulkStore(Access(RedisAddress(redis.address), "default")) as store:
        registration = store.register()
        redis.call("INCRBY", data_number_key("default"), 1)  # a proxy's heartbeat
        store.renew(registration)
        redis.call("INCRBY", data_number_key("default"), 1 << DATA_COUNT_BITS)
        with pytest.raises(StoreEnded, match="another data generation"):
            store.renew(registration)
        with pytest.raises(StoreEnded):
            store.swap(registration, [one])
    assert redis.call("EXISTS", "key") == 0
