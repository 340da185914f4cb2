"""Compressed records in every shape: what a broker of 0.10.2.2 and one of 3.9.1 take, the proxy takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from idemproxy.codecs.compression import Codec
from idemproxy.codecs.message_set import encode_message, encode_set
from idemproxy.codecs.record_batch import BATCH_OVERHEAD_BYTES, SIZE_FIELDS_BYTES, Record, encode_batch
from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, resigned
from testkit.real.scenes.lossy import LossyScene
from testkit.stage.compressed_shapes import OTHER_RECORDS, REFUSED_BY_BROKERS, TAKEN_BY_BROKERS, Make

SHAPES = {**TAKEN_BY_BROKERS, **REFUSED_BY_BROKERS}
VALUES = [b"%d " % number * 40 for number in range(500)]
INVALID_RECORD = 87


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyScene]:
    with LossyScene(tmp_path_factory.mktemp("decoders")) as running:
        yield running


@pytest.fixture(scope="module")
def modern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LegacyCluster]:
    with LegacyCluster(tmp_path_factory.mktemp("modern"), version="3.9.1") as running:
        yield running


def batch_in(codec: Codec, make: Make, producer_id: int = -1) -> bytes:
    """A batch whose records are compressed so."""
    records = [Record(index, 1_700_000_000_000, None, value) for index, value in enumerate(VALUES)]
    number = 0 if producer_id >= 0 else -1
    plain = encode_batch(records, producer_id=producer_id, producer_epoch=number, base_sequence=number)
    header, payload = bytearray(plain[:BATCH_OVERHEAD_BYTES]), make(plain[BATCH_OVERHEAD_BYTES:])
    header[8:12] = (len(header) + len(payload) - SIZE_FIELDS_BYTES).to_bytes(4, "big")
    return resigned(bytes(header) + payload, 21, bytes((0, codec)))


def wrapper_in(codec: Codec, make: Make) -> bytes:
    """The same records as an old producer sends them."""
    inner = encode_set([(None, value, 1_700_000_000_000) for value in VALUES], magic=1)
    offset = len(VALUES) - 1
    return encode_message(None, make(inner), magic=1, offset=offset, timestamp=1_700_000_000_000, codec=codec)


@pytest.mark.promise("compressed-as-brokers")
def test_both_brokers_take_what_the_list_says(scene: LossyScene, modern: LegacyCluster) -> None:
    old_topic, new_topic = fresh_topic(scene.cluster, 1), fresh_topic(modern, 1)
    taken: dict[str, bool] = {}
    with RawClient(scene.cluster.address(0)) as old, RawClient(modern.address(0)) as new:
        for shape, (codec, make) in SHAPES.items():
            answers = [new.produce_one(new_topic, 0, batch_in(codec, make), version=7)]
            if codec is not Codec.ZSTD:
                answers.append(old.produce_one(old_topic, 0, wrapper_in(codec, make), version=2))
            assert len({answer.error_code == 0 for answer in answers}) == 1, f"{shape}: the brokers differ"
            taken[shape] = answers[0].error_code == 0
    assert taken == {shape: shape in TAKEN_BY_BROKERS for shape in SHAPES}


@pytest.mark.promise("compressed-as-brokers")
@pytest.mark.parametrize("producer", ["idempotent", "plain"])
def test_the_proxy_takes_what_both_brokers_take(scene: LossyScene, producer: str) -> None:
    topic = fresh_topic(scene.cluster, len(SHAPES))
    with RawClient(scene.proxy.address) as client:
        for partition, (shape, (codec, make)) in enumerate(SHAPES.items()):
            producer_id = client.new_producer_id() if producer == "idempotent" else -1
            answer = client.produce_one(topic, partition, batch_in(codec, make, producer_id), version=8)
            stored = client.values(topic, partition)
            expected = (0, VALUES) if shape in TAKEN_BY_BROKERS else (INVALID_RECORD, [])
            assert (answer.error_code, stored) == expected, shape
        for shape, (codec, make, _) in OTHER_RECORDS.items():
            assert client.produce_one(topic, 0, batch_in(codec, make), version=8).error_code == INVALID_RECORD, shape
