"""``idemproxy run`` with ``auto`` in front of services that speak Kafka's protocol: it probes them once for all
proxies, and what it saw decides who gives idempotence, or why the start is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from idemproxy.demo.fault_relay import FaultKind, FaultPlan, FaultRelay
from idemproxy.demo.ports import HOST
from idemproxy.proxy import limits
from idemproxy.proxy.probing.cluster_probe import TOPIC_PREFIX
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.store import verdict_key
from testkit.real.brokers.kafka_cluster import fresh_topic, librdkafka_settings, stored_texts
from testkit.real.brokers.kraft_cluster import KraftCluster
from testkit.real.brokers.service_relay import (
    ChecksIds,
    CreatesNoTopics,
    Fails,
    IgnoresIds,
    ListsNoIds,
    Rebuilds,
    ReturnsNoOffset,
    Service,
    ServiceRelay,
)
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.store.two_proxies_redis import ExternalRedis

RECORDS, PARTITIONS = 1_000, 2
ENDED_SECONDS_MAX = 90.0
BREAKING = (FaultKind.LOST_ANSWER, FaultKind.CUT)
KEY = verdict_key("default")
REMARK = "may be another service"
NATIVE = "upstream.idempotence: native"
PROBES = "what they do with batches is probed"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftCluster]:
    """A broker of 3.9.1."""
    with KraftCluster(tmp_path_factory.mktemp("kafka"), version="3.9.1", auto_create_topics=False) as running:
        yield running


def name_of(service: Service) -> str:
    return type(service).__name__


def proxy_of(directory: Path, address: tuple[str, int], *, idempotence: str = "auto", **more: Any) -> ConfiguredProxy:
    upstream = {"bootstrap": ["{}:{}".format(*address)], "idempotence": idempotence}
    return ConfiguredProxy(directory, {"upstream": upstream, **more}, listener={})


def produce(bootstrap: str, topic: str) -> list[str]:
    """Send numbered records with idempotence to all partitions; return the errors that the user sees."""
    errors: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            errors.append(str(error))

    producer = Producer(librdkafka_settings(bootstrap, enable_idempotence=True, batch_num_messages=10))
    for number in range(RECORDS):
        value, partition = f"{number}", number % PARTITIONS
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(120) == 0
    return errors


def assert_each_once_in_order(kafka: KraftCluster, topic: str) -> None:
    stored = defaultdict(list)
    for partition, _, text in sorted(stored_texts(kafka, topic, PARTITIONS)):
        stored[partition].append(int(text))
    assert stored == {one: list(range(one, RECORDS, PARTITIONS)) for one in range(PARTITIONS)}


@contextmanager
def faulty_service(kafka: KraftCluster, service: Service) -> Iterator[tuple[FaultRelay, ServiceRelay]]:
    """A service whose responses get lost once ``set_faults`` was called."""
    plan = FaultPlan(seed=5, kinds=BREAKING, every_nth_produce=7)
    with FaultRelay(kafka.address(0), rewrite_addresses=True, plan=plan) as faults:
        faults.set_faults(False)
        with ServiceRelay((HOST, faults.port), service) as relay:
            yield faults, relay


def write_under_faults(kafka: KraftCluster, proxy: ConfiguredProxy, faults: FaultRelay) -> None:
    """Lost answers on both sides of the proxy cost nothing: 1,000 records, each once, in order, without an error."""
    topic = fresh_topic(kafka, PARTITIONS)
    faults.set_faults(True)
    plan = FaultPlan(seed=3, kinds=BREAKING, every_nth_produce=6)
    with FaultRelay(proxy.address, rewrite_addresses=True, plan=plan) as in_front:
        assert produce(in_front.address, topic) == []
        assert in_front.counts[FaultKind.LOST_ANSWER] > 0
    assert faults.counts[FaultKind.LOST_ANSWER] > 0
    assert_each_once_in_order(kafka, topic)
    assert "internal error" not in proxy.log


@pytest.mark.parametrize("service", [IgnoresIds(), ListsNoIds()], ids=name_of)
def test_a_service_without_idempotence_gets_it_from_the_proxy(
    kafka: KraftCluster, tmp_path: Path, service: Service
) -> None:
    with faulty_service(kafka, service) as (faults, relay), proxy_of(tmp_path, relay.address) as proxy:
        assert proxy.log.count(PROBES) == 1
        assert "the brokers were probed: v2, marked" in proxy.log
        assert "message format v2" in proxy.log
        assert REMARK not in proxy.log
        relay.requests.clear()  # the probe had producer ids
        relay.producer_ids.clear()
        write_under_faults(kafka, proxy, faults)
        assert relay.requests[ApiKey.PRODUCE] > 0
        assert relay.requests[ApiKey.INIT_PRODUCER_ID] == 0
        assert relay.producer_ids == set(), "nothing that is ours goes there"


def test_a_service_that_checks_ids_gives_idempotence_itself(kafka: KraftCluster, tmp_path: Path) -> None:
    with faulty_service(kafka, ChecksIds()) as (faults, relay), proxy_of(tmp_path, relay.address) as proxy:
        assert "the brokers were probed: v2, own ids" in proxy.log
        assert NATIVE in proxy.log
        assert REMARK not in proxy.log
        assert not (proxy.data_directory / "redis").exists(), "nothing is kept, so nothing is needed"
        write_under_faults(kafka, proxy, faults)
        assert relay.requests[ApiKey.INIT_PRODUCER_ID] > 0


@pytest.mark.parametrize(
    ("service", "because"),
    [
        (Rebuilds(), "batch borders: lost: batches are merged or split"),
        (ReturnsNoOffset(), "base offset in responses: -1"),
    ],
    ids=["Rebuilds", "ReturnsNoOffset"],
)
def test_a_service_that_cannot_be_served_is_refused_with_what_was_seen(
    kafka: KraftCluster, tmp_path: Path, service: Service, because: str
) -> None:
    with ServiceRelay(kafka.address(0), service) as relay:
        assert_refused(proxy_of(tmp_path, relay.address), "cannot be served: a probe has seen: ", because)


def test_where_no_topic_can_be_created_the_setting_is_named_and_decides(kafka: KraftCluster, tmp_path: Path) -> None:
    with ServiceRelay(kafka.address(0), CreatesNoTopics()) as relay:
        refused = proxy_of(tmp_path / "auto", relay.address)
        assert_refused(refused, "the server lists no CreateTopics", "set upstream.idempotence", "idemproxy probe")
        relay.requests.clear()
        for idempotence, said in (("native", NATIVE), ("proxy", "message format v2")):
            with proxy_of(tmp_path / idempotence, relay.address, idempotence=idempotence) as proxy:
                proxy.wait_for_log(REMARK)
                assert said in proxy.log
                assert PROBES not in proxy.log
        assert relay.requests[ApiKey.PRODUCE] == 0


def test_a_proxy_that_is_stopped_while_it_probes_deletes_its_topic(kafka: KraftCluster, tmp_path: Path) -> None:
    with ServiceRelay(kafka.address(0), Fails(ApiKey.PRODUCE, "hangs")) as relay:
        proxy = proxy_of(tmp_path, relay.address)
        proxy.launch()
        try:
            wait_until(lambda: relay.requests[ApiKey.PRODUCE] > 0, "it probes")
            assert topics_of_probes(kafka)
            assert proxy.stop() == 0
        finally:
            proxy.__exit__()
        wait_until(lambda: not topics_of_probes(kafka), "its topic is deleted")


def topics_of_probes(kafka: KraftCluster) -> list[str]:
    with RawClient(kafka.address(0)) as client:
        names = [one.name for one in client.ask(ApiKey.METADATA, 1, topics=None).topics]
    return [name for name in names if name.startswith(TOPIC_PREFIX)]


def test_a_check_says_that_a_service_is_going_to_be_probed_and_probes_nothing(
    kafka: KraftCluster, tmp_path: Path
) -> None:
    with ServiceRelay(kafka.address(0), IgnoresIds()) as relay:
        proxy = proxy_of(tmp_path, relay.address)
        command = [sys.executable, "-m", "idemproxy", "check", str(proxy.file), "--connect"]
        said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False).stdout
        assert re.search(r"warning broker 0 at .*does not show that it is Kafka: `idemproxy run` probes", said), said
        assert relay.requests[ApiKey.CREATE_TOPICS] == 0


def assert_refused(proxy: ConfiguredProxy, *words: str) -> None:
    proxy.launch()
    try:
        assert proxy.wait(ENDED_SECONDS_MAX) == 2
        (error,) = [line for line in proxy.log.splitlines() if " ERROR " in line]
        assert [word for word in words if word not in error] == [], error
    finally:
        proxy.__exit__()


def test_one_probe_is_enough_until_brokers_list_other_versions(kafka: KraftCluster, tmp_path: Path) -> None:
    with ExternalRedis() as redis, ServiceRelay(kafka.address(0), IgnoresIds()) as relay:
        shared: dict[str, Any] = {"redis": {"url": "redis://{}:{}/0".format(*redis.address)}}
        for number, probes in enumerate((1, 0)):
            with proxy_of(tmp_path / f"proxy-{number}", relay.address, **shared) as proxy:
                assert proxy.log.count(PROBES) == probes, proxy.log
        assert 0 < redis.call("TTL", KEY) <= limits.PROBE_KEPT_SECONDS
        kept = redis.call("GET", KEY)
        with (
            ServiceRelay(kafka.address(0), ListsNoIds()) as another,
            proxy_of(tmp_path / "another", another.address, **shared) as proxy,
        ):
            assert proxy.log.count(PROBES) == 1
            assert "the brokers were probed: v2, marked" in proxy.log
        assert redis.call("GET", KEY) != kept
