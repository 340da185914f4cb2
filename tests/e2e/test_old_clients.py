"""Who has no producer id passes unharmed (rule R20): old clients, new ones without idempotence, and groups of both."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from idemproxy.codecs.compression import Codec
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.fault_relay import FaultPlan, FaultRelay
from testkit.real.brokers.kafka_cluster import (
    codecs_by_name,
    fresh_topic,
    librdkafka_settings,
    produce,
    stored,
    told,
    verdict,
)
from testkit.real.clients.client_runs import (
    IDEMPOTENT_CLIENTS,
    OLD_CLIENTS,
    OLD_PYTHON,
    start_producer,
    start_reader,
)
from testkit.real.proxies.proxy_process import wait_until

from .conftest import QuietPair

PARTITIONS = 3
RECORDS = 300
JOIN_SECONDS_MAX = 90
STORED_CODECS = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4}
"""Nothing is wrapped that the producer did not compress."""


def produce_plainly(
    quiet: QuietPair,
    children: ChildProcesses,
    directory: Path,
    client: str,
    codecs: Mapping[str, Codec],
    settings: Mapping[str, object] | None = None,
) -> set[tuple[int, int]]:
    """One producer per codec, all to one topic. Return the (API key, version) of all that was asked of the proxy."""
    topic = fresh_topic(quiet.cluster, PARTITIONS)
    names = {f"{client}-{compression}": compression for compression in codecs}
    with FaultRelay(quiet.proxy.address, rewrite_addresses=True, plan=FaultPlan(faults_max=0)) as relay:
        programs = {
            name: start_producer(
                children,
                directory,
                client,
                bootstrap=relay.address,
                topic=topic,
                partitions=PARTITIONS,
                records=RECORDS,
                name=name,
                compression=compression,
                idempotent=False,
                settings=settings,
            )
            for name, compression in names.items()
        }
        acknowledged: dict[tuple[str, int, int], int] = {}
        for name, program in programs.items():
            outcome = program.wait()
            assert (outcome["acked"], outcome["errors"]) == (RECORDS, []), name
            assert client != OLD_PYTHON or outcome["version"] == "1.4.7"
            assert outcome["offsets_known"]
            assert outcome["offsets_in_order"]
            acknowledged |= told(name, program.acknowledged())
        assert relay.init_producer_id_requests == 0
        assert relay.producer_ids == set()
        requests = set(relay.requests)
    result = verdict(quiet.cluster, topic, PARTITIONS, acknowledged)
    assert result.is_exactly_once, result
    assert result.stored == RECORDS * len(names)
    log = stored(quiet.cluster, topic, PARTITIONS)
    assert all(record.batch_marker is None for records in log.values() for record in records)
    for name, seen in codecs_by_name(log).items():
        # Clients leave a batch as it is when compression would make it larger, as it does for one short record.
        assert codecs[names[name]] in seen <= {codecs[names[name]], Codec.NONE}, name
    return requests


@pytest.mark.promise("old-producers", "compared-4")
@pytest.mark.parametrize("client", OLD_CLIENTS)
def test_an_old_producer_is_stored_as_it_sent_with_every_codec(
    quiet: QuietPair, children: ChildProcesses, tmp_path: Path, client: str
) -> None:
    produce_plainly(quiet, children, tmp_path, client, STORED_CODECS)


def test_an_old_producer_configured_with_its_brokers_version_sends_message_format_v1(
    quiet: QuietPair, children: ChildProcesses, tmp_path: Path
) -> None:
    settings = {"api_version": [0, 10]}
    requests = produce_plainly(quiet, children, tmp_path, OLD_PYTHON, STORED_CODECS, settings)
    assert {version for key, version in requests if key == 0} == {2}


@pytest.mark.promise("without-idempotence")
@pytest.mark.parametrize("client", IDEMPOTENT_CLIENTS)
def test_a_new_producer_without_idempotence_is_converted_and_gets_no_batch_marker(
    quiet: QuietPair, children: ChildProcesses, tmp_path: Path, client: str
) -> None:
    requests = produce_plainly(quiet, children, tmp_path, client, {"none": Codec.NONE, "lz4": Codec.LZ4})
    assert max(version for key, version in requests if key == 0) >= 3


@pytest.mark.promise("consumers")
@pytest.mark.parametrize("client", [*OLD_CLIENTS, *IDEMPOTENT_CLIENTS])
def test_a_group_reads_commits_and_resumes_where_it_stopped(
    quiet: QuietPair, children: ChildProcesses, tmp_path: Path, client: str
) -> None:
    cluster = quiet.cluster
    address = "{}:{}".format(*quiet.proxy.address)
    topic = fresh_topic(cluster, PARTITIONS)
    seen: list[tuple[int, int, bytes]] = []
    for turn in (1, 2):
        produce(librdkafka_settings(address, enable_idempotence=True), topic, PARTITIONS, RECORDS, f"turn-{turn}")
        reader = start_reader(
            children,
            tmp_path,
            client,
            bootstrap=address,
            topic=topic,
            partitions=PARTITIONS,
            records=RECORDS,
            group=f"readers-of-{topic}",
            name=f"reader-{turn}",
        )
        outcome = reader.wait()
        each = turn * RECORDS // PARTITIONS
        assert outcome["records"] == RECORDS
        assert outcome["committed"] == {str(partition): each for partition in range(PARTITIONS)}
        seen += [(one.partition, one.offset, one.value.encode()) for one in reader.consumed()]
    assert sorted(seen) == [
        (partition, record.offset, record.value)
        for partition, log in stored(cluster, topic, PARTITIONS).items()
        for record in log
    ]


def test_old_members_of_two_languages_share_the_partitions_of_a_topic(
    quiet: QuietPair, children: ChildProcesses, tmp_path: Path
) -> None:
    address = "{}:{}".format(*quiet.proxy.address)
    topic = fresh_topic(quiet.cluster, 2)
    group = f"both-read-{topic}"
    for client in OLD_CLIENTS:
        start_reader(
            children, tmp_path, client, bootstrap=address, topic=topic, partitions=2, records=RECORDS, group=group
        )
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    shares: list[list[int]] = []

    def look() -> bool:
        found = admin.describe_consumer_groups([group])[group].result()
        shares[:] = [[one.partition for one in member.assignment.topic_partitions] for member in found.members]
        return found.state == ConsumerGroupState.STABLE and len(shares) == len(OLD_CLIENTS)

    wait_until(look, "both members are in the group", JOIN_SECONDS_MAX)
    assert sorted(shares) == [[0], [1]]
