"""Brokers that die and come back, and leaders that move, under a real idempotent producer: all acknowledged, once, in
order.

Three real brokers behind one proxy. One partition is replicated, so its leader moves; the other has one replica, so it
is away as long as its broker is.
"""

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.verdict import Position, value_of
from testkit.real.brokers.kafka_cluster import librdkafka_settings, verdict
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

pytestmark = pytest.mark.long

TOPIC, PARTITIONS = "moving", 2
ASSIGNMENT = [[0, 1, 2], [1]]
DOWN_SECONDS = 4.0
"""Longer than a broker's ZooKeeper session here (1.5 s), so another replica leads meanwhile."""
LEADER_SECONDS_MAX = 60.0
PAUSED_SECONDS = 0.3
"""Before a broker dies it hangs for so long: something has been sent to it for certain that it does not answer."""
PACE_SECONDS = 0.001


class SteadyProducer(threading.Thread):
    """Sends numbered records to all partitions in turn until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[Position, int] = {}
        self.errors: list[str] = []
        self.sent = 0
        self._producer = Producer(librdkafka_settings(bootstrap, enable_idempotence=True))
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(PACE_SECONDS):
            partition, number = self.sent % PARTITIONS, self.sent // PARTITIONS
            try:
                self._producer.produce(
                    TOPIC, value_of("p", partition, number), partition=partition, on_delivery=self._delivered
                )
                self.sent += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)

    def finish(self) -> int:
        """Stop, and return how many records are still under way when their time is over."""
        self._stopping.set()
        self.join(10)
        return int(self._producer.flush(60))

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value, offset = message.value(), message.offset()
        if error is not None or value is None or offset is None:
            self.errors.append(str(error))
            return
        partition, number = (int(part) for part in value.decode().split(":")[1:])
        self.acknowledged["p", partition, number] = offset


def has_other_leader(cluster: LegacyCluster, broker: int) -> bool:
    """Does another broker lead the partition that moves?"""
    return cluster.leader(TOPIC, 0) not in (-1, broker)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path / "cluster", brokers=3, auto_create_topics=False, session_timeout_ms=1500) as running:
        running.create_topic(TOPIC, assignment=ASSIGNMENT)
        running.wait_in_sync(TOPIC, PARTITIONS)
        yield running


@pytest.mark.promise("broker-restarts", "compared-7")
def test_broker_deaths_and_leader_moves_neither_lose_nor_duplicate_a_record(
    cluster: LegacyCluster, tmp_path: Path
) -> None:
    leaders = [cluster.leader(TOPIC, 0)]
    with ProxyProcess(tmp_path / "proxy", cluster.address(2), brokers=3) as proxy:
        producer = SteadyProducer("{}:{}".format(*proxy.address))
        producer.start()
        for broker in (0, 1):
            time.sleep(1.5)
            cluster.pause_broker(broker)
            time.sleep(PAUSED_SECONDS)
            cluster.kill_broker(broker)
            time.sleep(DOWN_SECONDS)
            wait_until(partial(has_other_leader, cluster, broker), "another leader", LEADER_SECONDS_MAX)
            leaders.append(cluster.leader(TOPIC, 0))
            cluster.start_broker(broker)
            cluster.wait_until_ready()
            cluster.wait_in_sync(TOPIC, PARTITIONS)
        time.sleep(1)
        assert producer.finish() == 0
        log = proxy.log
    assert producer.errors == []
    assert len(producer.acknowledged) == producer.sent > 1000
    assert leaders[0] == 0
    assert len(set(leaders)) > 1, "the leader moved"
    result = verdict(cluster, TOPIC, PARTITIONS, producer.acknowledged)
    assert result.is_exactly_once, result
    assert result.stored == producer.sent
    assert "in doubt: " in log
    assert "resolved as unrecoverable" not in log
    assert "internal error" not in log
