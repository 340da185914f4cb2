"""Lost answers and cut connections before and after the proxy, where it gives idempotence on some topics and the
brokers do on all others: no duplicate, no loss, no reorder on either kind, whichever client writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from idemproxy.demo.fault_relay import FaultKind, FaultPlan, FaultRelay
from idemproxy.demo.verdict import Position, value_of
from testkit.real.brokers.kafka_cluster import fresh_topic, librdkafka_settings, verdict
from testkit.real.clients.client_runs import JAVA_4, KAFKA_PYTHON, LIBRDKAFKA
from testkit.real.scenes.faulty import BREAKING_KINDS, FaultyScene

CLIENTS = (LIBRDKAFKA, JAVA_4, KAFKA_PYTHON)
RECORDS, PARTITIONS = 3_000, 3
SECONDS_MAX = 180
PLAN = FaultPlan(seed=5, kinds=BREAKING_KINDS, every_nth_produce=5)
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(
    scope="module",
    params=[pytest.param("2.8.2", marks=pytest.mark.long), "3.9.1", pytest.param("4.3.1", marks=pytest.mark.long)],
)
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyScene]:
    directory: Path = tmp_path_factory.mktemp("engine-topics-faults")
    with FaultyScene(directory, PLAN, request.param, settings='topics: {engine: ["orders-*"]}\n') as scene:
        yield scene
        assert scene.broker_relay.counts[FaultKind.LOST_ANSWER] > 0
        assert scene.broker_relay.counts[FaultKind.CUT] > 0
        assert "engine topics: orders-*" in scene.proxy.log
        assert "internal error" not in scene.proxy.log


@pytest.mark.parametrize("kind", ["orders", "other"])
def test_each_client_stores_its_records_once_and_in_order(scene: FaultyScene, kind: str) -> None:
    found = scene.run(CLIENTS, partitions=PARTITIONS, records=RECORDS, plan=PLAN, seconds_max=SECONDS_MAX, kind=kind)
    complaints = {client: result.complaints(ids_are_ours=False) for client, result in found.items()}
    assert complaints == {client: [] for client in CLIENTS}


def test_one_producer_stores_the_records_of_both_kinds_once_and_in_order(scene: FaultyScene) -> None:
    """Its requests name topics of both kinds."""
    topics = [fresh_topic(scene.cluster, PARTITIONS, kind=kind) for kind in ("orders", "other")]
    acknowledged: dict[str, dict[Position, int | None]] = {topic: {} for topic in topics}
    errors: list[str] = []
    with FaultRelay(scene.proxy.address, rewrite_addresses=True, plan=PLAN) as relay:
        settings = librdkafka_settings(relay.address, enable_idempotence=True, delivery_seconds=SECONDS_MAX)
        producer = Producer(settings)
        for number in range(RECORDS):
            for topic in topics:
                partition = number % PARTITIONS
                position = ("both", partition, number // PARTITIONS)

                def delivered(error: Any, message: Any, topic: str = topic, position: Position = position) -> None:
                    if error is not None:
                        errors.append(str(error))
                    acknowledged[topic][position] = message.offset()

                producer.produce(topic, value_of(*position), partition=partition, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(SECONDS_MAX) == 0
        assert relay.counts[FaultKind.LOST_ANSWER] > 0
    assert errors == []
    for topic in topics:
        found = verdict(scene.cluster, topic, PARTITIONS, acknowledged[topic])
        assert (found.stored, found.is_exactly_once) == (RECORDS, True), found
