"""Old clients at three real brokers of Kafka 4 that are killed, with answers that are lost and requests that are cut
off on the way: each record is in the log once, in its order."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.record_batch import iterate_records, iterate_stored
from idemproxy.producing.cluster import METADATA, Cluster, cluster_of, metadata_fields
from idemproxy.producing.numbered_batch import Place
from idemproxy.proxy.bridge.upward.departed_clients import ClientIdentity
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.clients.raised_producer import RaisedProducer, Shared
from testkit.real.clients.raw_client import RawClient

TOPIC, PARTITIONS = "raised", 3
CLIENTS, SETS, RECORDS = 6, 400, 20
METADATA_VERSION = 4
TIMEOUT_MS = 60_000
OUTPUT_BYTES_MAX = 16 << 20
SECONDS_MAX = 240
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


class OldClient:
    """A producer that asks who leads, sends set after set, and sends again what it is asked to."""

    def __init__(self, number: int, addresses: dict[int, tuple[str, int]]) -> None:
        self.number = number
        self.addresses = addresses
        self.random = Random(number)
        self.sent: dict[Place, list[bytes]] = defaultdict(list)
        self.codes: dict[int, int] = defaultdict(int)
        self.upstream = 0
        self._shared = Shared()
        self._producers: dict[int, RaisedProducer] = {}
        self._leaders: dict[Place, int] = {}

    def run(self, pause: threading.Event) -> OldClient:
        for number in range(SETS):
            place = Place(TOPIC, self.random.randrange(PARTITIONS))
            values = [b"%d-%d-%d" % (self.number, number, index) for index in range(RECORDS)]
            self._send(place, encode_set([(None, value, 1_700_000_000_000) for value in values], magic=number % 2))
            self.sent[place] += values
            pause.wait(0.03)
        for producer in self._producers.values():
            self.upstream += len(producer.sent)
            producer.__exit__(None, None, None)
        return self

    def _send(self, place: Place, message_set: bytes) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            leader = self._leaders.get(place)
            if leader is None:
                self._leaders = dict(self._cluster().leaders)
                time.sleep(0.1)
                continue
            answer = self._producer(leader).produce([(*place, message_set)], version=2, timeout_ms=TIMEOUT_MS)[place]
            self.codes[answer.error_code] += 1
            if answer.error_code == ErrorCode.NONE:
                return
            self._leaders.clear()
        raise AssertionError(f"{place}: no end")

    def _producer(self, broker: int) -> RaisedProducer:
        if broker not in self._producers:
            self._producers[broker] = RaisedProducer(
                self.addresses,
                broker,
                self._shared,
                client=ClientIdentity("127.0.0.1", f"old-{self.number}"),
                loses=lambda _: self.random.random() < 0.08,
                cuts=lambda _: self.random.random() < 0.03,
            )
        return self._producers[broker]

    def _cluster(self) -> Cluster:
        for address in self.addresses.values():
            with suppress(OSError):
                return cluster_of(metadata(address))
        return Cluster({}, {}, {}, {})


def metadata(address: tuple[str, int]) -> Any:
    with RawClient(address) as asked:
        return asked.ask(METADATA, METADATA_VERSION, **metadata_fields([TOPIC]))


def wait_in_sync(cluster: KraftCluster) -> None:
    """Until each partition has all replicas again."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        (topic,) = metadata(cluster.address(0)).topics
        if all(len(one.isr_nodes) == len(cluster.broker_ids) for one in topic.partitions):
            return
        assert time.monotonic() < deadline
        time.sleep(0.5)


def stored(cluster: KraftCluster, partition: int) -> list[bytes]:
    leader = cluster_of(metadata(cluster.address(0))).leaders[Place(TOPIC, partition)]
    with RawClient(cluster.address(leader)) as reader:
        found: list[bytes] = []
        offset, end = 0, reader.end_offset(TOPIC, partition)
        while offset < end:
            for batch in iterate_stored(reader.fetch(TOPIC, partition, offset)):
                records = iterate_records(batch.records, batch.header, OUTPUT_BYTES_MAX, is_stored=True)
                found += [one.value or b"" for one in records]
                offset = batch.base_offset + batch.header.last_offset_delta + 1
        return found


def test_each_record_is_stored_once_and_in_order_while_brokers_are_killed(tmp_path: Path) -> None:
    with KraftCluster(tmp_path, brokers=3, auto_create_topics=False, broker_settings=SETTINGS) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": 2})
        addresses = {broker: cluster.address(broker) for broker in cluster.broker_ids}
        pause = threading.Event()
        with ThreadPoolExecutor(CLIENTS) as threads:
            running = [threads.submit(OldClient(number, addresses).run, pause) for number in range(CLIENTS)]
            for victim in (1, 2):
                time.sleep(3)
                cluster.kill_broker(victim)
                time.sleep(5)
                cluster.start_broker(victim)
                wait_in_sync(cluster)
            clients = [one.result() for one in running]
        codes: dict[int, int] = defaultdict(int)
        for client in clients:
            for code, count in client.codes.items():
                codes[code] += count
        assert codes[ErrorCode.NONE] == CLIENTS * SETS
        assert set(codes) <= {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}, "an outcome is unknown, or worse"
        assert sum(client.upstream for client in clients) > CLIENTS * SETS * 1.05
        for partition in range(PARTITIONS):
            values = stored(cluster, partition)
            assert len(values) == len(set(values)), "a record is there twice"
            for client in clients:
                mine = [value for value in values if value.startswith(b"%d-" % client.number)]
                assert mine == client.sent[Place(TOPIC, partition)]
