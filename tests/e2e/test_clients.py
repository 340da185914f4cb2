"""Real clients that produce idempotently through the proxy to a real 0.10.2.2: under faults, every codec, big batches.

"Exactly once" is judged twice: by a plain consumer at the broker, and by the segment files.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.demo.fault_relay import FaultPlan, FaultRelay
from testkit.real.brokers.kafka_cluster import codecs_by_name, fresh_topic, stored, told, verdict
from testkit.real.clients.client_runs import IDEMPOTENT_CLIENTS, LIBRDKAFKA, start_producer, start_reader
from testkit.real.scenes.faulty import BREAKING_KINDS, ClientResult, FaultyScene

from .conftest import QuietPair

PARTITIONS = 3
RECORDS_UNDER_FAULTS = 3000
RECORDS_PER_CODEC = 300
RUN_SECONDS_MAX = 240
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
STORED_CODECS = {"none": Codec.GZIP, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4}
"""What a batch becomes in the log: the wrapper that carries the batch marker needs a codec, and gzip stands for
none."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyScene]:
    plan = FaultPlan(seed=11, kinds=BREAKING_KINDS, every_nth_produce=7)
    with FaultyScene(tmp_path_factory.mktemp("faulty"), plan) as running:
        yield running


@pytest.fixture(scope="module")
def results(scene: FaultyScene) -> dict[str, ClientResult]:
    """All five at the same time: most of the time goes by in waiting until an unknown outcome may be resolved. Each
    reads its records as a member of a group, too."""
    plan = FaultPlan(seed=7, kinds=BREAKING_KINDS, every_nth_produce=7)
    return scene.run(
        IDEMPOTENT_CLIENTS,
        partitions=PARTITIONS,
        records=RECORDS_UNDER_FAULTS,
        plan=plan,
        seconds_max=RUN_SECONDS_MAX,
        in_group=True,
    )


@pytest.mark.promise("stored-once", "no-fault-reaches-the-user")
@pytest.mark.parametrize("client", IDEMPOTENT_CLIENTS)
def test_records_are_stored_once_in_order_and_no_fault_reaches_the_user(
    scene: FaultyScene, results: dict[str, ClientResult], client: str
) -> None:
    result = results[client]
    assert result.complaints() == []
    (producer_id,) = result.producer_ids
    assert scene.unknown_outcomes(producer_id) > 0


def test_the_same_faults_without_the_proxy_store_records_twice(
    scene: FaultyScene, children: ChildProcesses, tmp_path: Path
) -> None:
    topic = fresh_topic(scene.cluster, PARTITIONS)
    program = start_producer(
        children,
        tmp_path,
        LIBRDKAFKA,
        bootstrap=scene.broker_relay.address,
        topic=topic,
        partitions=PARTITIONS,
        records=RECORDS_UNDER_FAULTS,
        idempotent=False,
    )
    assert program.wait(RUN_SECONDS_MAX)["acked"] == RECORDS_UNDER_FAULTS
    result = verdict(scene.cluster, topic, PARTITIONS, told(LIBRDKAFKA, program.acknowledged()))
    assert result.duplicates > 0
    assert result.lost == 0


def test_every_kind_of_fault_hit_both_sides_without_a_proxy_error(
    scene: FaultyScene, results: dict[str, ClientResult]
) -> None:
    for kind in BREAKING_KINDS:
        assert scene.broker_relay.counts[kind] > 0
        assert sum(result.faults[kind] for result in results.values()) > 0
    assert "resolved as found" in scene.proxy.log
    assert "resolved as not_found" in scene.proxy.log
    assert "resolved as unrecoverable" not in scene.proxy.log
    assert "internal error" not in scene.proxy.log


@pytest.mark.parametrize("client", IDEMPOTENT_CLIENTS)
def test_every_codec_arrives_and_is_read_back_by_the_same_client(
    quiet: QuietPair, children: ChildProcesses, tmp_path: Path, client: str
) -> None:
    cluster = quiet.cluster
    topic = fresh_topic(cluster, PARTITIONS)
    with FaultRelay(quiet.proxy.address, rewrite_addresses=True, plan=FaultPlan(faults_max=0)) as relay:
        names = {f"{client}-{compression}": compression for compression in STORED_CODECS}
        programs = {
            name: start_producer(
                children,
                tmp_path,
                client,
                bootstrap=relay.address,
                topic=topic,
                partitions=PARTITIONS,
                records=RECORDS_PER_CODEC,
                name=name,
                compression=compression,
            )
            for name, compression in names.items()
        }
        acknowledged: dict[tuple[str, int, int], int] = {}
        for name, program in programs.items():
            outcome = program.wait()
            assert (outcome["acked"], outcome["errors"]) == (RECORDS_PER_CODEC, []), name
            acknowledged |= told(name, program.acknowledged())
        assert len(relay.producer_ids) == relay.init_producer_id_requests == len(names)
    records = RECORDS_PER_CODEC * len(names)
    result = verdict(cluster, topic, PARTITIONS, acknowledged)
    assert result.is_exactly_once, result
    assert result.stored == records
    log = stored(cluster, topic, PARTITIONS)
    for name, codecs in codecs_by_name(log).items():
        # Clients leave a batch as it is when compression would make it larger, as it does for one short record.
        assert STORED_CODECS[names[name]] in codecs <= {STORED_CODECS[names[name]], STORED_CODECS["none"]}, name

    reader = start_reader(
        children,
        tmp_path,
        client,
        bootstrap="{}:{}".format(*quiet.proxy.address),
        topic=topic,
        partitions=PARTITIONS,
        records=records,
    )
    outcome = reader.wait()
    assert outcome["beginning"] == {str(partition): 0 for partition in range(PARTITIONS)}
    assert outcome["end"] == {str(partition): len(kept) for partition, kept in log.items()}
    assert sorted((one.partition, one.offset, one.value.encode()) for one in reader.consumed()) == [
        (partition, record.offset, record.value) for partition, kept in log.items() for record in kept
    ]


def test_default_librdkafka_batches_work_though_message_format_v1_makes_them_too_large(
    quiet: QuietPair, children: ChildProcesses, tmp_path: Path
) -> None:
    records, name = 40_000, "x" * 92  # with its numbers a value has about 100 bytes
    topic = fresh_topic(quiet.cluster, 1)
    with FaultRelay(quiet.proxy.address, rewrite_addresses=True, plan=FaultPlan(faults_max=0)) as relay:
        program = start_producer(
            children,
            tmp_path,
            LIBRDKAFKA,
            bootstrap=relay.address,
            topic=topic,
            partitions=1,
            records=records,
            name=name,
            # Its own defaults: a batch ends at 10,000 records or 1,000,000 bytes. The wait lets it grow so far.
            settings={"batch.num.messages": 10_000, "batch.size": 1_000_000, "linger.ms": 30_000},
        )
        outcome = program.wait()
        assert (outcome["acked"], outcome["errors"]) == (records, [])
        assert len(relay.producer_ids) == 1
        assert relay.produce_requests <= records // 8000
    result = verdict(quiet.cluster, topic, 1, told(name, program.acknowledged()))
    assert result.is_exactly_once, result
    assert result.stored == records
