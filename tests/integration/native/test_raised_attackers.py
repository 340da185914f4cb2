"""Attackers with old requests beside a modern client on the same proxy: its answers stay quick, the proxy's memory is
bounded, and once they have gone nothing of them is left."""

from __future__ import annotations

import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.compression import Codec, compress
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.process_memory import peak_bytes, resident_bytes
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

TOPIC, WITNESS = "large", "witness"
LARGE_BYTES = 64 << 20
BATCH_BYTES = 900_000
ASKED_PARTITIONS = 60_000
ATTACK_SECONDS = 15
FETCHERS = 12
MEMORY_BYTES_MAX = 1200 << 20
"""Requests and answers may take 256 MiB each; answers that are lowered are there twice."""
MEDIAN_SECONDS_MAX, WORST_SECONDS_MAX = 0.25, 3.0
"""On a machine that others use as well; alone it is some milliseconds."""
METRIC = "idemproxy_request_memory_used_bytes"


@dataclass
class World:
    proxy: ProxyProcess
    admin: str

    def client(self, client_id: str) -> RawClient:
        host, port = self.proxy.address
        return RawClient((host, port + 1), client_id=client_id)

    def held_bytes(self) -> float:
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=20) as answer:
            (line,) = [one for one in answer.read().decode().splitlines() if one.startswith(METRIC + " ")]
        return float(line.split()[1])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("attackers")
    (port,) = free_ports(1)
    admin = f"{HOST}:{port}"
    with KraftCluster(directory / "kafka", auto_create_topics=False, heap_mb=384) as cluster:
        for topic in (TOPIC, WITNESS):
            cluster.create_topic(topic, 1)
        with RawClient(cluster.address(0)) as direct:
            for _ in range(LARGE_BYTES // BATCH_BYTES):
                assert direct.produce_one(TOPIC, 0, batch([bytes(BATCH_BYTES // 9)] * 9)).error_code == 0
        with ProxyProcess(directory / "proxy", cluster.address(0), options=("--admin-bind", admin)) as proxy:
            yield World(proxy, admin)


def ask_for_offsets(world: World) -> None:
    """Endlessly, of 60,000 partitions, by time: each is three requests of the broker's."""
    asked = [{"partition_index": number, "timestamp": 5, "max_num_offsets": 2} for number in range(ASKED_PARTITIONS)]
    body = messages.encode_request(ApiKey.LIST_OFFSETS, 0, replica_id=-1, topics=[{"name": TOPIC, "partitions": asked}])
    with world.client("asks for offsets") as client:
        while True:
            client.send_together(*[(int(ApiKey.LIST_OFFSETS), 0, body)] * 2)
            for _ in range(2):
                client.answer()


def write_garbage(world: World) -> None:
    """What unpacks to a thousand times as much, of garbage, of one record and of many."""
    plain = encode_set([(None, bytes(100 << 20), 0)], magic=0)
    many = encode_set([(None, b"", 0)], magic=0) * 2_000_000
    bombs = [compress(Codec.GZIP, one, magic=0) for one in (bytes(100 << 20), plain, many)]
    sets = [encode_message(None, bomb, magic=0, codec=Codec.GZIP, timestamp=0) for bomb in bombs]
    bodies = [RawClient.produce_body([(TOPIC, 0, one)] * 3, version=0, acks=1, timeout_ms=1000) for one in sets]
    while True:
        with world.client("writes garbage") as client, suppress(ConnectionError):
            for body in bodies:
                client.send(ApiKey.PRODUCE, 0, body)
            client.answer()


def read_nothing(world: World) -> None:
    """Ask for all of it, and take none of the answers."""
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 50 << 20}
    body = messages.encode_request(
        ApiKey.FETCH,
        0,
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        topics=[{"topic": TOPIC, "partitions": [part]}],
    )
    while True:
        with world.client("reads nothing") as client:
            client.send_together(*[(int(ApiKey.FETCH), 0, body)] * 3)
            time.sleep(3)


def attack(world: World, attacker: Callable[[World], None], is_over: threading.Event) -> None:
    while not is_over.is_set():
        with suppress(OSError):
            attacker(_Until(world, is_over))  # type: ignore[arg-type]


class _Until:
    """The world until the attack is over: then the next connection, or request, ends the attacker."""

    def __init__(self, world: World, is_over: threading.Event) -> None:
        self._world, self._is_over = world, is_over

    def client(self, client_id: str) -> RawClient:
        if self._is_over.is_set():
            raise OSError("the attack is over")
        client = self._world.client(client_id)
        threading.Thread(target=self._close, args=(client,), daemon=True).start()
        return client

    def _close(self, client: RawClient) -> None:
        self._is_over.wait()
        with suppress(OSError):
            client._socket.shutdown(2)


def test_attackers_with_old_requests_neither_delay_others_nor_leave_anything(world: World) -> None:
    is_over = threading.Event()
    attackers = [ask_for_offsets, ask_for_offsets, write_garbage, write_garbage, *[read_nothing] * FETCHERS]
    threads = [threading.Thread(target=attack, args=(world, one, is_over), daemon=True) for one in attackers]
    before = resident_bytes(world.proxy.pid)
    seconds: list[float] = []
    with world.client("witness") as witness:
        for thread in threads:
            thread.start()
        end = time.monotonic() + ATTACK_SECONDS
        while time.monotonic() < end:
            begun = time.monotonic()
            assert witness.produce_one(WITNESS, 0, batch([b"x"])).error_code == 0
            seconds.append(time.monotonic() - begun)
            time.sleep(0.02)
    peak = peak_bytes(world.proxy.pid)
    is_over.set()
    for thread in threads:
        thread.join(30)
    figures = f"median {statistics.median(seconds):.3f} s, worst {max(seconds):.3f} s of {len(seconds)}; "
    figures += f"memory {before >> 20} MiB, at most {peak >> 20} MiB"
    print(figures)
    assert statistics.median(seconds) < MEDIAN_SECONDS_MAX, figures
    assert max(seconds) < WORST_SECONDS_MAX, figures
    assert peak < MEMORY_BYTES_MAX, figures
    wait_until(lambda: world.held_bytes() == 0, "nothing is held", 60)
    assert "Traceback" not in world.proxy.log
