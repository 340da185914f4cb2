"""The brokers give idempotence, and on some topics the proxy does (``topics.engine``): each partition has one kind of
writer, whatever client writes to both kinds of topics, and however its requests mix them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer

from idemproxy.codecs import messages, produce_topic_ids
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.logged import LoggedBatch, iterate_logged
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.producer_ids import CONDITIONAL_ID
from idemproxy.state.store import issued_key, mode_key
from testkit.real.brokers.kafka_cluster import fresh_topic, librdkafka_settings, verdict
from testkit.real.brokers.kraft_cluster import KRAFT_FROM, KraftCluster
from testkit.real.clients.client_runs import JAVA_4, KAFKA_PYTHON, LIBRDKAFKA, start_producer
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.store.redis_process import RedisProcess

VERSIONS = ("2.8.2", "3.9.1", "4.3.1")
PARTITIONS = 3
WAIT_SECONDS = 60
NAME = "shop"
MODE = mode_key(NAME).decode()
TOPICS = {"engine": ["orders-*"], "conditional": ["wal-*"]}
STORED_MODE = b'native ["orders-*", "wal-*"]'
pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class World:
    cluster: LegacyCluster
    redis: RedisProcess
    proxy: ConfiguredProxy

    @property
    def bootstrap(self) -> str:
        return "{}:{}".format(*self.proxy.address)

    def topic(self, kind: str, partitions: int = PARTITIONS) -> str:
        """A new topic whose name begins so."""
        name = f"{kind}-{fresh_topic(self.cluster, 1)}"
        self.cluster.create_topic(name, partitions)
        return name


def proxy_of(directory: Path, cluster: LegacyCluster, redis: RedisProcess, **more: Any) -> ConfiguredProxy:
    settings = {
        "upstream": {"bootstrap": [cluster.bootstrap.split(",")[0]], "idempotence": "native"},
        "redis": {"url": f"redis://127.0.0.1:{redis.port}/0"},
        "cluster_name": NAME,
        "topics": TOPICS,
        **more,
    }
    return ConfiguredProxy(directory, settings, listener={}, brokers=1)


@pytest.fixture(scope="module", params=VERSIONS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("engine-topics")
    kind = KraftCluster if int(request.param.split(".")[0]) >= KRAFT_FROM else LegacyCluster
    transactions = {"transaction.state.log.num.partitions": 1, "transaction.state.log.replication.factor": 1}
    (port, admin) = free_ports(2)
    (directory / "redis").mkdir()
    with (
        kind(
            directory / "kafka", version=request.param, auto_create_topics=False, broker_settings=transactions
        ) as cluster,
        RedisProcess(directory / "redis", port=port) as redis,
        proxy_of(
            *(directory / "proxy", cluster, redis),
            admin={"bind": f"{HOST}:{admin}"},
            journal=os.fspath(directory / "journal"),
        ) as proxy,
    ):
        yield World(cluster, redis, proxy)


@pytest.fixture
def raw(world: World) -> Iterator[RawClient]:
    host, port = world.proxy.address
    with RawClient((host, port + 1)) as client:
        yield client


def batches(world: World, topic: str, partition: int = 0) -> list[LoggedBatch]:
    """What is stored."""
    with RawClient(world.cluster.address(0)) as direct:
        found = list(iterate_logged(direct.fetch(topic, partition, version=10)))
    assert all(isinstance(one, LoggedBatch) for one in found)
    return [one for one in found if isinstance(one, LoggedBatch)]


def journal(world: World) -> list[dict[str, Any]]:
    lines = (world.proxy.directory.parent / "journal").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_producer_writes_both_kinds_of_topics_with_an_id_of_the_broker(world: World) -> None:
    ours, theirs = world.topic("orders"), world.topic("other")
    producer = Producer(librdkafka_settings(world.bootstrap, enable_idempotence=True))
    for number in range(300):
        for topic in (ours, theirs):
            producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(WAIT_SECONDS) == 0
    mine, others = batches(world, ours), batches(world, theirs)
    assert sum(one.record_count for one in mine) == sum(one.record_count for one in others) == 300
    assert all(one.marker is not None for one in mine)
    assert all(one.marker is None and one.header.producer_id >= 0 for one in others)
    (producer_id,) = {one.header.producer_id for one in others}
    assert world.redis.call("EXISTS", issued_key(NAME, producer_id).decode()) == 1
    assert world.redis.call("GET", MODE) == STORED_MODE
