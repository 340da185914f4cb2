"""A crowd that wants more connections than the proxy has file descriptors, on real sockets: the links to Redis and to
the brokers come back when they are cut, the lease is kept, and producers continue."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.lease import LEASE_SECONDS
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until
from testkit.virtual.line import request

TOPIC = "few"
DESCRIPTORS = 140
CROWD = 200
"""More than are left, with or without a connection to the broker for each."""
FIND_COORDINATOR = request(1, ApiKey.FIND_COORDINATOR, body=b"\x00\x05group")
"""The proxy passes it to the broker, over a connection that belongs to this client alone."""


class Crowd:
    """Connections that come again whenever they are closed, each with something to say or without."""

    def __init__(self, address: tuple[str, int], says: bytes) -> None:
        self._address = address
        self._says = says
        self._open: list[socket.socket] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._press)
        self.refused = 0

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()
        for one in self._open:
            one.close()

    def _press(self) -> None:
        while not self._is_over.is_set():
            for one in [one for one in self._open if self._has_ended(one)]:
                one.close()
                self._open.remove(one)
                self.refused += 1
            while len(self._open) < CROWD:
                one = socket.create_connection(self._address, 60)
                self._open.append(one)
                one.sendall(self._says)
            self._is_over.wait(0.02)

    def _has_ended(self, one: socket.socket) -> bool:
        one.setblocking(False)
        try:
            while data := one.recv(4096):
                if data:
                    one.sendall(self._says)  # it is never quiet
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


def in_use(proxy: ProxyProcess) -> int:
    """Descriptors of the process."""
    return len(os.listdir(f"/proc/{proxy.pid}/fd"))


@contextmanager
def scene(directory: Path) -> Iterator[ProxyProcess]:
    with ExitStack() as stack:
        cluster = stack.enter_context(LegacyCluster(directory / "kafka", auto_create_topics=False))
        cluster.create_topic(TOPIC)
        settings = {
            "upstream": {"bootstrap": ["{}:{}".format(*cluster.address(0))]},
            "limits": {"connections_per_ip_max": 0, "connection_creation_rate_max": 0},
        }
        proxy = stack.enter_context(ConfiguredProxy(directory / "proxy", settings, listener={}))
        resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        yield proxy


def values_at(proxy: ProxyProcess) -> list[bytes | None]:
    """What a new client reads. It comes again, as clients do, if its connection is closed while descriptors are few."""
    end = time.monotonic() + 30
    while True:
        try:
            with RawClient(proxy.address) as reader:
                return list(reader.values(TOPIC, 0))
        except ConnectionError:
            assert time.monotonic() < end, "nobody is served"
            time.sleep(0.1)


@pytest.mark.promise("descriptors")
@pytest.mark.parametrize("says", [b"", FIND_COORDINATOR], ids=["silent", "with a broker connection each"])
def test_the_links_to_redis_and_the_broker_come_back_while_clients_want_every_descriptor(
    tmp_path: Path, says: bytes
) -> None:
    with scene(tmp_path) as proxy, RawClient(proxy.address) as producer:
        producer_id = producer.new_producer_id()

        def produce(sequence: int) -> None:
            records = batch([b"%d" % sequence], producer_id=producer_id, sequence=sequence)
            answer = producer.produce_one(TOPIC, 0, records)
            assert (answer.error_code, answer.base_offset) == (0, sequence)

        produce(0)
        with Crowd((proxy.address[0], proxy.address[1] + 1), says) as crowd:
            wait_until(lambda: crowd.refused > 0, "there are more clients than descriptors")
            most = 0
            for _ in range(3):
                proxy.redis("CLIENT", "KILL", "TYPE", "normal")  # answers nobody: this connection is one of them
                end = time.monotonic() + 1.0
                while time.monotonic() < end:
                    most = max(most, in_use(proxy))
                    time.sleep(0.05)
            assert most < DESCRIPTORS - 10, "some are free for what is ours"
            produce(1)
            time.sleep(LEASE_SECONDS + 1)
            produce(2)

            assert "lease was lost" not in proxy.log
            proxy.kill_redis()
            lives = "Redis has data generation"
            wait_until(lambda: proxy.log.count(lives) >= 1, "the private Redis is started again, and is used", 40)
        proxy.wait_for_log(r"file descriptors are in use, and the last \d+ are kept for Redis and the brokers")
        wait_until(lambda: in_use(proxy) < DESCRIPTORS // 2, "the clients that have gone leave their descriptors")
        assert values_at(proxy) == [b"0", b"1", b"2"]
