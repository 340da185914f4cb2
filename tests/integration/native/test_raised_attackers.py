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
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy.versions import ApiKey
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.process_memory import peak_bytes, resident_bytes
from testkit.real.proxies import measured_proxy
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

pytestmark = pytest.mark.long

TOPIC, WITNESS = "large", "witness"
LARGE_BYTES = 64 << 20
BATCH_BYTES = 900_000
ASKED_PARTITIONS = 60_000
ATTACK_SECONDS = 15
FETCHERS = 12
MEMORY_BYTES_MAX = 1200 << 20
"""Requests and answers may take 256 MiB each; answers that are lowered are there twice."""
STEP_CPU_SECONDS_MAX = 0.1
"""Of one step of the event loop: twice what no input may exceed, as two threads that share a core are slower."""
MEDIAN_TIMES_MAX = 6
"""The median of the produce requests, in those of what they consist of: their broker's time, and two passes of the
loop."""
LATE_SECONDS = 0.1
UNEXPLAINED_SECONDS_MAX = 1.0
"""Of a produce request while neither its broker nor the loop kept others waiting for so long."""
HELD_METRIC = "idemproxy_request_memory_used_bytes"
UNKNOWN_VERSION = 99
UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


@dataclass
class World:
    proxy: ProxyProcess
    admin: str
    broker: tuple[str, int]

    def client(self, client_id: str) -> RawClient:
        host, port = self.proxy.address
        return RawClient((host, port + 1), client_id=client_id)

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=20) as answer:
            (line,) = [one for one in answer.read().decode().splitlines() if one.startswith(name + " ")]
        return float(line.split()[1])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("attackers")
    (port,) = free_ports(1)
    admin = f"{HOST}:{port}"
    one_thread = {"num.network.threads": 1}  # so what one connection waits for, all do
    with KraftCluster(
        directory / "kafka", auto_create_topics=False, heap_mb=384, broker_settings=one_thread
    ) as cluster:
        for topic in (TOPIC, WITNESS):
            cluster.create_topic(topic, 1)
        with RawClient(cluster.address(0)) as direct:
            for _ in range(LARGE_BYTES // BATCH_BYTES):
                assert direct.produce_one(TOPIC, 0, batch([bytes(BATCH_BYTES // 9)] * 9)).error_code == 0
        proxy = ProxyProcess(
            directory / "proxy",
            cluster.address(0),
            options=("--admin-bind", admin),
            program=measured_proxy.__file__,
        )
        with proxy:
            yield World(proxy, admin, cluster.address(0))


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


class Witness:
    """Asks for one thing after the other until the attack is over, and notes when it asked and was answered."""

    def __init__(self, client: RawClient, ask: Callable[[RawClient], None]) -> None:
        self.spans: list[tuple[float, float]] = []
        self.error: BaseException | None = None
        self._client = client
        self._ask = ask

    def run(self, is_over: threading.Event) -> None:
        with self._client:
            try:
                while not is_over.is_set():  # without a pause, in which nothing would be seen
                    begun = time.monotonic()
                    self._ask(self._client)
                    self.spans.append((begun, time.monotonic()))
            except BaseException as error:
                self.error = error

    @property
    def seconds(self) -> list[float]:
        return [ended - begun for begun, ended in self.spans]

    def slow_between(self, begun: float, ended: float) -> float:
        """For how much of this time it waited for an answer that came late."""
        late = [one for one in self.spans if one[1] - one[0] > LATE_SECONDS and one[0] < ended and one[1] > begun]
        return sum(min(end, ended) - max(start, begun) for start, end in late)


def produce(client: RawClient) -> None:
    assert client.produce_one(WITNESS, 0, batch([b"x"])).error_code == 0


def ask_the_proxy_itself(client: RawClient) -> None:
    """What it answers without its broker: a version that it does not know."""
    assert client.call(ApiKey.API_VERSIONS, UNKNOWN_VERSION, b"")[:2] == UNSUPPORTED


def test_attackers_with_old_requests_neither_delay_others_nor_leave_anything(world: World) -> None:
    is_over = threading.Event()
    attackers = [ask_for_offsets, ask_for_offsets, write_garbage, write_garbage, *[read_nothing] * FETCHERS]
    producing = Witness(world.client("witness"), produce)
    of_broker = Witness(RawClient(world.broker), produce)
    of_loop = Witness(world.client("asks the proxy"), ask_the_proxy_itself)
    witnesses = [producing, of_broker, of_loop]
    threads = [threading.Thread(target=attack, args=(world, one, is_over), daemon=True) for one in attackers]
    threads += [threading.Thread(target=one.run, args=(is_over,), daemon=True) for one in witnesses]
    before = resident_bytes(world.proxy.pid)
    for thread in threads:
        thread.start()
    time.sleep(ATTACK_SECONDS)
    peak, step = peak_bytes(world.proxy.pid), world.metric(measured_proxy.METRIC)
    is_over.set()
    for thread in threads:
        thread.join(30)
    assert [one.error for one in witnesses] == [None] * 3
    median, broker_median, loop_median = (statistics.median(one.seconds) for one in witnesses)
    unexplained = max(
        ended - begun - of_broker.slow_between(begun, ended) - of_loop.slow_between(begun, ended)
        for begun, ended in producing.spans
    )
    figures = (
        f"median {median:.3f} s of {len(producing.spans)}, broker {broker_median:.3f} s, loop {loop_median:.3f} s; "
    )
    figures += "worst {:.3f} s, broker {:.3f} s, loop {:.3f} s; ".format(*(max(one.seconds) for one in witnesses))
    figures += f"unexplained {unexplained:.3f} s; CPU of a step {step:.3f} s; "
    figures += f"memory {before >> 20} MiB, at most {peak >> 20} MiB"
    print(figures)
    assert step < STEP_CPU_SECONDS_MAX, figures
    assert median < MEDIAN_TIMES_MAX * (broker_median + loop_median), figures
    assert unexplained < UNEXPLAINED_SECONDS_MAX, figures
    assert peak < MEMORY_BYTES_MAX, figures
    # Those that have closed their side still get their answers, of 50 MB each: 7 s of CPU.
    wait_until(lambda: world.metric(HELD_METRIC) == 0, "nothing is held", 300)
    assert "Traceback" not in world.proxy.log
