"""Batches that unpack to many times their size, as Java fills them by their estimated compressed size: what brokers
take from such a producer gets through the proxy, whole or split, and no record is dropped. How long that takes depends
on what else the machine does: a batch that is answered with a retriable code (rule R18) is sent again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.demo.child_processes import ChildProcesses
from idemproxy.proxy import limits
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.java_clients import LAST_3X_CLIENT, start_group_reader, start_producer
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.scenes.lossy import LossyScene, insist, told_in_the_end

MIB = 1 << 20
MESSAGE_TOO_LARGE = 10
FILLING_BYTES = 500_000
RECORDS = 200
PATIENCE_SECONDS = 300.0


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyScene]:
    with LossyScene(tmp_path_factory.mktemp("unpacked")) as running:
        yield running


@pytest.mark.promise("compression-bombs")
@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_java_producer_whose_batches_unpack_to_much_loses_no_record(
    scene: LossyScene, tmp_path: Path, is_idempotent: bool
) -> None:
    topic = fresh_topic(scene.cluster, 1)
    with ChildProcesses() as children:
        program = start_producer(
            children,
            tmp_path,
            version=LAST_3X_CLIENT,
            bootstrap="{}:{}".format(*scene.proxy.address),
            topic=topic,
            partitions=1,
            records=RECORDS,
            compression="zstd",
            filling_bytes=FILLING_BYTES,
            # More than one wrapper may hold, from the first batch on, and to split one would not help.
            settings={
                "enable.idempotence": str(is_idempotent).lower(),
                "batch.size": "24000000",
                "linger.ms": "3000",
                "max.request.size": "25000000",
                "buffer.memory": "60000000",
                "request.timeout.ms": "120000",
                "delivery.timeout.ms": str(int(PATIENCE_SECONDS * 1000)),
                "max.block.ms": str(int(PATIENCE_SECONDS * 1000)),
            },
        )
        last = program.wait(PATIENCE_SECONDS)
    assert (last["acked"], last["failed"], last["errors"]) == (RECORDS, 0, [])
    with RawClient(scene.cluster.address(0)) as direct:
        assert direct.end_offset(topic, 0) == RECORDS


CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@pytest.mark.promise("compression-bombs")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("mebibytes", [17, 66, 130, 260])
def test_a_batch_is_taken_whatever_it_unpacks_to_up_to_the_limit(
    scene: LossyScene, codec: Codec, mebibytes: int
) -> None:
    topic = fresh_topic(scene.cluster, 1, config={"max.message.bytes": 20_000_000})
    with RawClient(scene.proxy.address, PATIENCE_SECONDS) as client:
        records = batch([b"a" * MIB] * mebibytes, producer_id=client.new_producer_id(), codec=codec)
        answer = told_in_the_end(client, (topic, 0), records, version=8)
        is_taken = mebibytes * MIB <= limits.UNPACKED_BYTES_MAX
        assert (answer.error_code, answer.base_offset) == ((0, 0) if is_taken else (MESSAGE_TOO_LARGE, -1))
        assert client.end_offset(topic, 0) == (mebibytes if is_taken else 0)
        if is_taken:
            again = told_in_the_end(client, (topic, 0), records, version=8)
            assert (again.error_code, again.base_offset) == (0, 0), "a retry"
            assert client.end_offset(topic, 0) == mebibytes


@pytest.mark.promise("compression-bombs")
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
@pytest.mark.parametrize("mebibytes", [17, 60, 66])
def test_so_is_one_without_a_producer_id_up_to_what_one_wrapper_may_hold(
    scene: LossyScene, codec: Codec, mebibytes: int
) -> None:
    topic = fresh_topic(scene.cluster, 1)
    with RawClient(scene.proxy.address, PATIENCE_SECONDS) as client:
        answer = client.produce_one(topic, 0, batch([b"a" * MIB] * mebibytes, codec=codec), version=8)
        is_taken = mebibytes * MIB <= limits.DECOMPRESSED_BYTES_MAX
        assert answer.error_code == (0 if is_taken else MESSAGE_TOO_LARGE)
        assert client.end_offset(topic, 0) == (mebibytes if is_taken else 0)


@pytest.mark.promise("compression-bombs")
def test_a_consumer_of_0_10_reads_every_record_of_such_a_batch(scene: LossyScene, tmp_path: Path) -> None:
    """It holds all messages of a wrapper in memory; its heap is small."""
    topic, count = fresh_topic(scene.cluster, 1), 600_000
    values = [b"java:0:%d" % number for number in range(count)]
    with RawClient(scene.proxy.address, PATIENCE_SECONDS) as client, ChildProcesses() as children:
        records = batch(values, producer_id=client.new_producer_id(), codec=Codec.GZIP)
        assert insist(client, (topic, 0), records).base_offset == 0
        reader = start_group_reader(
            children, tmp_path, bootstrap=scene.cluster.bootstrap, topic=topic, group="old", records=count
        )
        assert reader.wait()["records"] == count
    assert [(one.offset, one.value.encode()) for one in reader.consumed()] == list(enumerate(values))
