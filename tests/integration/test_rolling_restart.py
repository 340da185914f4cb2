"""Both proxies are restarted, one after the other, under clients that go on: no error, no doubt, one copy (R15)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.java_clients import MODERN_CLIENT, start_producer
from testkit.kafka_cluster import told, verdict
from testkit.proxy_process import wait_until
from testkit.two_proxies import TwoProxies
from testkit.two_proxies_load import ClientLoad, KafkaPythonClient, LibrdkafkaClient
from testkit.two_proxies_relays import SpreadingRelay

TOPIC, PARTITIONS = "rolling", 3
RESTARTS_MIN = 2
"""While all three clients produce."""
JAVA_RECORDS, JAVA_RECORDS_PER_SECOND = 12_000, 600
DOUBTS = ("in doubt: producer ", "open intent", "resolved as ", "intents_taken_over_total", "reforwards_total")
HAND_OVER_SECONDS_MAX = 10.0
"""Clients wait before they connect again, by settings of their own; the proxies' part is far below a second."""


@pytest.fixture
def pair(legacy_broker: LegacyCluster, tmp_path: Path) -> Iterator[TwoProxies]:
    legacy_broker.create_topic(TOPIC, PARTITIONS)
    with TwoProxies(tmp_path, legacy_broker) as running:
        yield running


def test_a_rolling_restart_under_load_leaves_no_doubt_behind_and_reaches_no_user(
    pair: TwoProxies, tmp_path: Path
) -> None:
    doubts: list[str] = []
    with SpreadingRelay(pair.addresses, seed=3) as relay, ChildProcesses() as children:
        java = start_producer(
            children,
            tmp_path,
            version=MODERN_CLIENT,
            bootstrap=relay.address,
            topic=TOPIC,
            partitions=PARTITIONS,
            records=JAVA_RECORDS,
            records_per_second=JAVA_RECORDS_PER_SECOND,
        )
        clients = [
            LibrdkafkaClient("librdkafka", relay.address, TOPIC, PARTITIONS),
            KafkaPythonClient("kafkapython", relay.address, TOPIC, PARTITIONS),
        ]
        with ClientLoad(clients) as load:
            load.all_go_on()
            wait_until(lambda: java.progress().get("acked", 0) > 0, "the Java client produces", 30.0)
            restarts = 0
            while java.process.exit_code is None:
                proxy = pair.proxies[restarts % 2]
                assert proxy.stop() == 0
                doubts += [line for line in proxy.log.splitlines() if any(word in line for word in DOUBTS)]
                assert pair.redis.intents_of_the_dead() == []
                assert load.all_go_on() < HAND_OVER_SECONDS_MAX
                restarts += java.process.exit_code is None
                proxy.start()
                time.sleep(1.0)
        outcome = java.wait()
        assert min(relay.taken) > 0
    assert restarts >= RESTARTS_MIN
    for proxy in pair.proxies:
        assert proxy.stop() == 0
        doubts += [line for line in proxy.log.splitlines() if any(word in line for word in DOUBTS)]
    assert doubts == [], "a proxy that was asked to end left something open"
    assert (load.errors(), outcome["errors"]) == ([], [])
    acknowledged = {**load.acknowledged(), **told("java", java.acknowledged())}
    judged = verdict(pair.cluster, TOPIC, PARTITIONS, acknowledged)
    assert judged.is_exactly_once, judged
    assert judged.stored == len(acknowledged) == load.sent + JAVA_RECORDS
    assert pair.errors_of_ours() == []
