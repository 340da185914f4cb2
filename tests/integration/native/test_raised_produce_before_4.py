"""Message sets of old clients, and batches of clients without idempotence, at the first real broker that knows producer
ids: where the switch is made before the brokers are upgraded."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.record_batch import iterate_records, iterate_stored
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.fault_relay import FaultPlan, FaultRelay
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports
from idemproxy.producing.numbered_batch import Place
from testkit.real.brokers.kafka_cluster import told, verdict
from testkit.real.clients.client_runs import KAFKA_GO, start_producer
from testkit.real.clients.raised_producer import RaisedProducer, Shared
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.scenes.faulty import BREAKING_KINDS

pytestmark = pytest.mark.long

FIRST_WITH_IDS = "0.11.0.3"
PRODUCE_VERSION_MAX = 3
TIMESTAMP = 1_700_000_000_000
OUTPUT_BYTES_MAX = 16 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    directory: Path = tmp_path_factory.mktemp("first")
    with LegacyCluster(directory, version=FIRST_WITH_IDS, auto_create_topics=False) as running:
        yield running


def stored(cluster: LegacyCluster, topic: str) -> list[bytes | None]:
    with RawClient(cluster.address(0)) as reader:
        end = reader.end_offset(topic, 0)
        found: list[bytes | None] = []
        while len(found) < end:
            for one in iterate_stored(reader.fetch(topic, 0, len(found))):
                found += [record.value for record in iterate_records(one.records, one.header, OUTPUT_BYTES_MAX)]
        return found


def test_sets_whose_answers_are_lost_are_stored_once_and_in_order(cluster: LegacyCluster) -> None:
    cluster.create_topic("lost")
    lost = itertools.count(1)
    sent: list[bytes] = []
    with RaisedProducer(
        {0: cluster.address(0)}, loses=lambda _: not next(lost) % 3, produce_version_max=PRODUCE_VERSION_MAX
    ) as producer:
        for number in range(100):
            values = [b"%d-%d" % (number, index) for index in range(3)]
            message_set = encode_set([(None, value, TIMESTAMP) for value in values], magic=number % 2)
            assert producer.produce_one("lost", message_set, version=2).base_offset == len(sent)
            sent += values
    assert stored(cluster, "lost") == sent


def test_batches_whose_answers_are_lost_are_stored_once_and_in_order(cluster: LegacyCluster) -> None:
    cluster.create_topic("batches")
    lost = itertools.count(1)
    sent: list[bytes] = []
    with RaisedProducer(
        {0: cluster.address(0)}, loses=lambda _: not next(lost) % 3, produce_version_max=PRODUCE_VERSION_MAX
    ) as producer:
        for number in range(100):
            values = [b"%d-%d" % (number, index) for index in range(3)]
            answer = producer.produce_one("batches", batch(values), version=PRODUCE_VERSION_MAX)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, len(sent))
            sent += values
    assert stored(cluster, "batches") == sent


def test_a_real_client_without_idempotence_has_it_through_the_proxy(cluster: LegacyCluster, tmp_path: Path) -> None:
    cluster.create_topic("kafka-go")
    (port,) = free_ports(1)
    plan = FaultPlan(kinds=BREAKING_KINDS, every_nth_produce=4, evenly=True)
    with FaultRelay(cluster.address(0), plan=plan, rewrite_addresses=True, port=port) as relay:
        settings = {
            "upstream": {"bootstrap": [f"{HOST}:{port}"]},
            "producers": {"upstream_idempotence": ["*"]},
        }
        with ConfiguredProxy(tmp_path / "proxy", settings, listener={}) as proxy, ChildProcesses() as children:
            program = start_producer(
                *(children, tmp_path, KAFKA_GO),
                bootstrap="{}:{}".format(*proxy.address),
                topic="kafka-go",
                partitions=1,
                records=600,
                idempotent=False,
            )
            outcome = program.wait(120)
        found = verdict(cluster, "kafka-go", 1, told(KAFKA_GO, program.acknowledged()))
    assert (outcome["acked"], outcome["failed"]) == (600, 0)
    assert relay.faults > 3
    assert found.is_exactly_once, found


def test_an_unfinished_id_continues_in_its_next_epoch_and_what_comes_late_is_refused(cluster: LegacyCluster) -> None:
    cluster.create_topic("unfinished")
    shared = Shared()
    with RaisedProducer(
        {0: cluster.address(0)}, shared=shared, loses=lambda _: True, produce_version_max=PRODUCE_VERSION_MAX
    ) as producer:
        first = encode_set([(None, b"first", TIMESTAMP)], magic=1)
        assert producer.produce_one("unfinished", first, version=2, timeout_ms=1_000).error_code == 7
        lent = shared.pools.by_name.lend(producer.client, [Place("unfinished", 0)])
        assert lent is not None
        assert lent.producer_id.epoch == 1
        shared.pools.by_name.give_back(lent)
    with RaisedProducer({0: cluster.address(0)}, shared=shared, produce_version_max=PRODUCE_VERSION_MAX) as producer:
        second = encode_set([(None, b"second", TIMESTAMP)], magic=1)
        assert producer.produce_one("unfinished", second, version=2).error_code == 0
    with RawClient(cluster.address(0)) as raw:
        late = batch([b"late"], producer_id=lent.number, epoch=0, sequence=1)
        assert raw.produce_one("unfinished", 0, late).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert stored(cluster, "unfinished") == [b"first", b"second"]
