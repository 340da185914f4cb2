"""What ``idemproxy run`` does about its surroundings: a Redis that dies or is emptied."""

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports
from idemproxy.proxy import limits
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.real.store.redis_process import RedisProcess

REDIS_BACK_SECONDS_MAX = 90.0
TRIES_MAX = 6


def test_a_start_that_waits_for_redis_names_it_and_shows_no_password(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    options = ("--redis", f"redis://me:secret@127.0.0.1:{port}/3")
    proxy = ProxyProcess(tmp_path, legacy_broker.address(0), options=options)
    proxy.launch()
    try:
        line = proxy.wait_for_log("still waiting for")
        why = "Redis is away: cannot connect: connection refused: nothing listens there"
        where = f"redis://me:***@127.0.0.1:{port}/3; {why}"
        assert f"still waiting for Redis after 5 s ({where})" in line
        assert "secret" not in proxy.log
        for offset in range(2):  # the bootstrap port, and that of broker 0, which clients may know from before
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((proxy.address[0], proxy.address[1] + offset), 5)
    finally:
        proxy.__exit__()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("requirepass", "other", ": give its user and password: redis.username and redis.password_file, or in the URL"),
        ("maxmemory", "1", ": is it full (maxmemory)? `idemproxy check --connect` tells"),
    ],
)
def test_a_start_that_waits_for_redis_says_what_to_do(
    legacy_broker: LegacyCluster, tmp_path: Path, option: str, value: str, said: str
) -> None:
    (port,) = free_ports(1)
    proxy = ProxyProcess(tmp_path, legacy_broker.address(0), options=("--redis", f"redis://127.0.0.1:{port}"))
    with RedisProcess(tmp_path, f"--{option}", value, port=port):
        proxy.launch()
        try:
            assert f"{said})" in proxy.wait_for_log("still waiting for Redis")
        finally:
            proxy.__exit__()


def test_a_start_that_waits_for_a_broker_says_why_it_is_not_there(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    proxy = ProxyProcess(tmp_path, ("127.0.0.1", port))
    proxy.launch()
    try:
        line = proxy.wait_for_log("still waiting for a broker")
        assert f"(upstream 127.0.0.1:{port}: cannot connect: connection refused: nothing listens there)" in line
    finally:
        proxy.__exit__()


def test_an_unknown_host_name_is_reported_in_words(tmp_path: Path) -> None:
    proxy = ProxyProcess(tmp_path, ("no.such.host.invalid", 9092))
    proxy.launch()
    try:
        line = proxy.wait_for_log("is away: ")
        assert "no.such.host.invalid has no address: " in line
        assert "Errno" not in line
    finally:
        proxy.__exit__()


@pytest.mark.promise("private-redis")
def test_a_private_redis_that_dies_is_restarted_and_its_producers_continue(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    legacy_broker.create_topic("redis-dies", 1, 1)
    with ProxyProcess(tmp_path, legacy_broker.address(0)) as proxy, RawClient(proxy.address) as client:
        producer_id = client.new_producer_id()
        records = [batch([b"%d" % number], producer_id=producer_id, sequence=number) for number in range(7)]
        for number in range(6):
            assert client.produce_one("redis-dies", 0, records[number]).base_offset == number
        proxy.kill_redis()
        killed = time.monotonic()
        wait_until(lambda: proxy.log.count("Redis is ready") > 1, "it is started again", REDIS_BACK_SECONDS_MAX)
        ready = time.monotonic()

        def goes_on() -> bool:
            try:
                with RawClient(proxy.address) as again:
                    answer = again.produce_one("redis-dies", 0, records[6])
            except OSError:
                return False
            assert answer.error_code in (0, 7, 19), "never 45 in doubt"
            return answer.base_offset == 6

        wait_until(goes_on, "the producer goes on", REDIS_BACK_SECONDS_MAX)
        print(f"back after {ready - killed:.1f} s, resumed after {time.monotonic() - ready:.1f} s")
        assert time.monotonic() - ready < limits.LEASE_SECONDS, "nobody waits for leases: no other proxy has one"
        with RawClient(proxy.address) as again:
            retries = [again.produce_one("redis-dies", 0, records[number]) for number in range(2, 7)]
        assert [(one.error_code, one.base_offset) for one in retries] == [(0, number) for number in range(2, 7)]
        assert client_end(proxy) == 7


@pytest.mark.promise("flushall")
def test_an_emptied_store_is_noticed_and_a_producer_continues_without_duplicates(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    legacy_broker.create_topic("emptied", 1, 1)
    with ExitStack() as connections, ProxyProcess(tmp_path, legacy_broker.address(0)) as proxy:

        def connect() -> RawClient:
            return connections.enter_context(RawClient(proxy.address))

        client = connect()
        producer_id = client.new_producer_id()

        def send(sequence: int) -> tuple[int, int]:
            """Try until there is an answer for good, as clients do: once the loss is noticed their connections are
            closed, and leases of the lost data generation are waited for."""
            nonlocal client
            records = batch([b"%d" % sequence], producer_id=producer_id, sequence=sequence)
            for _ in range(TRIES_MAX):
                try:
                    answer = client.produce_one("emptied", 0, records)
                except ConnectionError:
                    client = connect()
                    continue
                if answer.error_code != ErrorCode.REQUEST_TIMED_OUT:
                    return answer.error_code, answer.base_offset
            raise AssertionError("no try was answered for good")

        assert [send(sequence) for sequence in range(3)] == [(0, 0), (0, 1), (0, 2)]
        assert len(proxy.entries()) == 1
        proxy.redis("FLUSHALL")
        assert [send(sequence) for sequence in (3, 4, 3)] == [(0, 3), (0, 4), (0, 3)]
        assert "was lost" in proxy.log
        assert client.end_offset("emptied", 0) == 5


def client_end(proxy: ProxyProcess) -> int:
    """The end of the topic's log."""
    with RawClient(proxy.address) as client:
        return client.end_offset("redis-dies", 0)
