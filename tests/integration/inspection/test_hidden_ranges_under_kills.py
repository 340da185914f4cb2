"""Consumers of two libraries, with old and new Fetch, read a log with named copies through two proxies that are killed
in turn: each of them gets every other record once, in order, and none that was named."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as LibrdkafkaPartition

from idemproxy.codecs.compression import Codec
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic, stored_values
from testkit.real.clients.programs import kafka_python_partition
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.scenes.hidden_ranges import append, hide, read
from testkit.real.store.inspecting import Place

pytestmark = pytest.mark.long

BATCHES, PER_BATCH, KILLS = 60, 20, 8
COPIES = ((3, 1), (10, 4), (30, 12), (50, 2))
"""After which batch duplicates lie, and of how many batches."""
FETCH_BYTES = 3_000
READ_SECONDS_MAX = 60.0

Reading = Callable[[str, str, int], Iterator[bytes]]
"""Bootstrap servers, topic, how many records -> their values, from the start on."""


def by_librdkafka(**settings: object) -> Reading:
    def read_all(bootstrap: str, topic: str, count: int) -> Iterator[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "max.partition.fetch.bytes": FETCH_BYTES,
                "log_level": 0,
                **settings,
            }
        )
        consumer.assign([LibrdkafkaPartition(topic, 0, 0)])
        until, found = time.monotonic() + READ_SECONDS_MAX, 0
        while found < count and time.monotonic() < until:
            for message in consumer.consume(50, 0.2):
                if message.error() is None:
                    found += 1
                    yield message.value() or b""
        consumer.close()

    return read_all


def by_kafka_python(version: str) -> Reading:
    def read_all(bootstrap: str, topic: str, count: int) -> Iterator[bytes]:
        program = [
            sys.executable,
            kafka_python_partition.__file__,
            bootstrap,
            topic,
            str(count),
            str(FETCH_BYTES),
            version,
        ]
        done = subprocess.run(program, capture_output=True, timeout=2 * READ_SECONDS_MAX, check=False)
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        yield from done.stdout.splitlines()

    return read_all


CLIENTS: dict[str, Reading] = {
    "librdkafka, Fetch 4": by_librdkafka(),
    "librdkafka, Fetch 2": by_librdkafka(**{"api.version.request": False, "broker.version.fallback": "0.10.0"}),
    "kafka-python, Fetch 4": by_kafka_python("0.11"),
    "kafka-python, Fetch 2": by_kafka_python("0.10.0"),
}


class Reader(threading.Thread):
    """Reads the topic from its start again and again, until nobody is killed any more."""

    def __init__(self, read_all: Reading, pair: TwoProxies, topic: str, wanted: list[bytes]) -> None:
        super().__init__(daemon=True)
        self.is_over = threading.Event()
        self.readings = 0
        self.wrong: list[object] = []
        self._read_all, self._topic, self._values = read_all, topic, wanted
        self._servers = ",".join(f"{host}:{port}" for host, port in pair.addresses)

    def run(self) -> None:
        while not (self.is_over.is_set() or self.wrong):
            values = list(self._read_all(self._servers, self._topic, len(self._values)))
            self.readings += 1
            if values != self._values:
                pairs = enumerate(zip(values, self._values, strict=False))
                first = next((at for at, (got, wanted) in pairs if got != wanted), "the end")
                self.wrong.append((len(values), len(self._values), first))


def fill(producer: RawClient, log: Place) -> tuple[list[bytes], list[tuple[int, int]]]:
    """Write batches, some of them twice. Returns the values without duplicates, and where these lie."""
    wanted: list[bytes] = []
    copies: list[tuple[int, int]] = []
    behind = dict(COPIES)
    batches = [[b"%d/%d" % (number, at) + b"." * 80 for at in range(PER_BATCH)] for number in range(BATCHES)]
    producer_id = producer.new_producer_id()
    for number, values in enumerate(batches):
        if number % 3:
            append(producer, log, *values, codec=(Codec.NONE, Codec.GZIP)[number % 2])
        else:  # through the proxy, with a batch marker
            base_sequence = number // 3 * PER_BATCH
            data = batch(values, producer_id=producer_id, sequence=base_sequence)
            assert producer.produce_one(*log, data).error_code == 0
        wanted += values
        if number in behind:
            again = batches[number - behind[number] + 1 : number + 1]
            firsts = [append(producer, log, *values, codec=Codec.GZIP) for values in again]
            copies.append((firsts[0], firsts[-1] + PER_BATCH - 1))
    return wanted, copies


def knows(client: RawClient, log: Place, wanted: list[bytes]) -> bool:
    return read(client, log, len(wanted)) == wanted


@pytest.mark.promise("hidden-ranges")
@pytest.mark.timeout(400)
def test_consumers_get_all_but_what_was_named_while_proxies_are_killed(
    legacy_broker: LegacyCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    log = fresh_topic(legacy_broker, 1), 0
    with TwoProxies(tmp_path_factory.mktemp("killed"), legacy_broker) as pair:
        with RawClient(pair.addresses[0]) as producer:
            wanted, copies = fill(producer, log)
        for first, last in copies:
            hide(pair.redis_url, log, first, last)
        for address in pair.addresses:
            with RawClient(address) as client:
                wait_until(partial(knows, client, log, wanted), "the proxy knows what was named", 30)
        readers = {name: Reader(read_all, pair, log[0], wanted) for name, read_all in CLIENTS.items()}
        for reader in readers.values():
            reader.start()
        for number in range(KILLS):
            time.sleep(1.0)
            pair.proxies[number % 2].kill()
            time.sleep(0.3)
            pair.proxies[number % 2].start()
        for reader in readers.values():
            reader.is_over.set()
        for reader in readers.values():
            reader.join(READ_SECONDS_MAX + 10)
        assert {name: reader.wrong for name, reader in readers.items() if reader.wrong} == {}
        assert all(reader.readings for reader in readers.values()), "each has read it all at least once"
        hidden = sum(last - first + 1 for first, last in copies)
        assert len(stored_values(legacy_broker, log)) == len(wanted) + hidden, "the log stays as it was"
        assert pair.errors_of_ours() == []
