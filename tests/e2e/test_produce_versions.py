"""What Produce 7 and 8 are offered for: zstd, and error messages that reach the user. And who must not be offered 8."""

from pathlib import Path

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.demo.child_processes import ChildProcesses
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
    AIOKAFKA,
    JAVA_3,
    JAVA_4,
    KAFKA_PYTHON,
    OLD_AIOKAFKA,
    start_producer,
    start_reader,
)

from .conftest import QuietPair

PARTITIONS = 2
RECORDS = 300


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("client", [JAVA_3, JAVA_4, KAFKA_PYTHON])
def test_why_a_header_is_refused_is_in_the_clients_own_error(
    quiet: QuietPair, children: ChildProcesses, tmp_path: Path, client: str, idempotent: bool
) -> None:
    topic = fresh_topic(quiet.cluster, PARTITIONS)
    program = start_producer(
        children,
        tmp_path,
        client,
        bootstrap="{}:{}".format(*quiet.proxy.address),
        topic=topic,
        partitions=PARTITIONS,
        records=1,
        header="tenant",
        idempotent=idempotent,
    )
    outcome = program.wait()
    assert (outcome["acked"], outcome["failed"]) == (0, 1)
    (error,) = outcome["errors"]
    assert f"record header 'tenant' cannot be stored in topic {topic}" in error
    assert "--dropped-headers" in error


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("client", [JAVA_3, JAVA_4, AIOKAFKA])
def test_zstd_is_taken_and_stored_as_gzip(
    quiet: QuietPair, children: ChildProcesses, tmp_path: Path, client: str, idempotent: bool
) -> None:
    topic = fresh_topic(quiet.cluster, PARTITIONS)
    program = start_producer(
        children,
        tmp_path,
        client,
        bootstrap="{}:{}".format(*quiet.proxy.address),
        topic=topic,
        partitions=PARTITIONS,
        records=RECORDS,
        compression="zstd",
        idempotent=idempotent,
    )
    outcome = program.wait()
    assert (outcome["acked"], outcome["errors"]) == (RECORDS, [])
    assert verdict(quiet.cluster, topic, PARTITIONS, told(client, program.acknowledged())).is_exactly_once
    assert Codec.GZIP in codecs_by_name(stored(quiet.cluster, topic, PARTITIONS))[client]


@pytest.mark.parametrize("client", [AIOKAFKA, OLD_AIOKAFKA])
def test_who_infers_a_release_from_single_versions_joins_groups_as_with_kafka_0_11(
    quiet: QuietPair, children: ChildProcesses, tmp_path: Path, client: str
) -> None:
    """From Produce 8 they infer Kafka 2.4, which has JoinGroup 5."""
    topic = fresh_topic(quiet.cluster, PARTITIONS)
    address = "{}:{}".format(*quiet.proxy.address)
    produce(librdkafka_settings(address, enable_idempotence=True), topic, PARTITIONS, RECORDS)
    reader = start_reader(
        children,
        tmp_path,
        client,
        bootstrap=address,
        topic=topic,
        partitions=PARTITIONS,
        records=RECORDS,
        group=f"{topic}-{client}",
    )
    assert reader.wait()["records"] == RECORDS
