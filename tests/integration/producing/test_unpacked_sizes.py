"""Batches that unpack to many times their size, as Java fills them by their estimated compressed size: what brokers
take from such a producer gets through the proxy, whole or split, and no record is dropped."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.child_processes import ChildProcesses
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.java_clients import LAST_3X_CLIENT, start_producer
from testkit.real.clients.raw_client import RawClient
from testkit.real.scenes.lossy import LossyScene

FILLING_BYTES = 500_000
RECORDS = 600


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyScene]:
    with LossyScene(tmp_path_factory.mktemp("unpacked")) as running:
        yield running


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
            # The estimate begins at 1:1, and falls by half a percent with each batch: 16.5 MB are 17 soon.
            settings={
                "enable.idempotence": str(is_idempotent).lower(),
                "batch.size": "16500000",
                "linger.ms": "3000",
                "max.request.size": "17000000",
                "buffer.memory": "40000000",
                "request.timeout.ms": "30000",
            },
        )
        last = program.wait()
    assert (last["acked"], last["failed"], last["errors"]) == (RECORDS, 0, [])
    with RawClient(scene.cluster.address(0)) as direct:
        assert direct.end_offset(topic, 0) == RECORDS
