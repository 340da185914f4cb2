"""One proxy and the other is restarted, killed, or stands still, under real clients: no error of the user, one copy.

Each connection of a client goes to either proxy, as behind a balancer that only knows who listens.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import told, verdict
from testkit.real.clients.java_clients import MODERN_CLIENT, start_producer
from testkit.real.clients.two_proxies_load import ClientLoad, KafkaPythonClient, LibrdkafkaClient
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.two_proxies import TwoProxies
from testkit.real.proxies.two_proxies_relays import SpreadingRelay

pytestmark = pytest.mark.long

PARTITIONS = 3
RESTARTS_MIN = 2
"""While all three clients produce."""
JAVA_RECORDS, JAVA_RECORDS_PER_SECOND = 12_000, 400
PAST_THE_LEASE_SECONDS = 8.0
CAUGHT_UP_SECONDS_MAX = 90.0
APPEND_SECONDS = 0.5
UNKNOWN_OUTCOMES = (
    "in doubt: producer ",
    "open intent",
    "resolved as ",
    "intents_taken_over_total",
    "appends_sent_again_total",
)
HAND_OVER_SECONDS_MAX = 20.0
"""Clients wait before they connect again, by settings of their own; the proxies' part is far below a second."""


@pytest.fixture
def pair(legacy_broker: LegacyCluster, topic: str, tmp_path: Path) -> Iterator[TwoProxies]:
    with TwoProxies(tmp_path, legacy_broker) as running:
        yield running
        assert running.errors_of_ours() == []


@pytest.fixture(scope="module")
def topics(legacy_broker: LegacyCluster) -> Iterator[str]:
    names = [f"rolling-{number}" for number in range(3)]
    for name in names:
        legacy_broker.create_topic(name, PARTITIONS)
    return iter(names)


@pytest.fixture
def topic(topics: Iterator[str]) -> str:
    """One that no other test uses; it is there before the proxies start."""
    return next(topics)


@pytest.mark.promise("rolling-restart", "compared-6")
def test_a_rolling_restart_under_load_leaves_no_unknown_outcome_or_user_error(
    pair: TwoProxies, topic: str, tmp_path: Path
) -> None:
    """Rule R15."""
    unknown_outcomes: list[str] = []
    with SpreadingRelay(pair.addresses, seed=3) as relay, ChildProcesses() as children:
        java = start_producer(
            children,
            tmp_path,
            version=MODERN_CLIENT,
            bootstrap=relay.address,
            topic=topic,
            partitions=PARTITIONS,
            records=JAVA_RECORDS,
            records_per_second=JAVA_RECORDS_PER_SECOND,
        )
        clients = [
            LibrdkafkaClient("librdkafka", relay.address, topic, PARTITIONS),
            KafkaPythonClient("kafkapython", relay.address, topic, PARTITIONS),
        ]
        with ClientLoad(clients) as load:
            load.all_go_on()
            wait_until(lambda: java.progress().get("acked", 0) > 0, "the Java client produces", 120.0)
            restarts = 0
            while java.process.exit_code is None:
                proxy = pair.proxies[restarts % 2]
                assert proxy.stop() == 0
                unknown_outcomes += [
                    line for line in proxy.log.splitlines() if any(word in line for word in UNKNOWN_OUTCOMES)
                ]
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
        unknown_outcomes += [line for line in proxy.log.splitlines() if any(word in line for word in UNKNOWN_OUTCOMES)]
    assert unknown_outcomes == [], "a proxy that was asked to end left something open"
    assert (load.errors(), outcome["errors"]) == ([], [])
    acknowledged = {**load.acknowledged(), **told("java", java.acknowledged())}
    judged = verdict(pair.cluster, topic, PARTITIONS, acknowledged)
    assert judged.is_exactly_once, judged
    assert judged.stored == len(acknowledged) == load.sent + JAVA_RECORDS


@pytest.mark.promise("client-moves")
@pytest.mark.parametrize("ends", [signal.SIGKILL, signal.SIGSTOP], ids=["is_killed", "stands_still"])
def test_a_proxy_that_is_killed_or_stands_still_past_its_lease_reaches_no_user(
    pair: TwoProxies, topic: str, ends: signal.Signals
) -> None:
    with SpreadingRelay(pair.addresses, seed=5) as relay:
        clients = [
            LibrdkafkaClient("one", relay.address, topic, PARTITIONS),
            LibrdkafkaClient("two", relay.address, topic, PARTITIONS),
            KafkaPythonClient("three", relay.address, topic, PARTITIONS),
        ]
        with ClientLoad(clients) as load:
            load.all_go_on()
            for proxy in pair.proxies:
                proxy.signal(ends)
                time.sleep(PAST_THE_LEASE_SECONDS)
                if ends is signal.SIGKILL:
                    proxy.wait()
                    proxy.start()
                else:
                    proxy.signal(signal.SIGCONT)
                load.all_catch_up(CAUGHT_UP_SECONDS_MAX)
    time.sleep(APPEND_SECONDS)
    assert load.errors() == []
    judged = verdict(pair.cluster, topic, PARTITIONS, load.acknowledged())
    assert judged.is_exactly_once, judged
    assert judged.stored == load.sent == len(load.acknowledged())
    wait_until(lambda: pair.redis.intents_of_the_dead() == [], "nothing of the dead is open")
