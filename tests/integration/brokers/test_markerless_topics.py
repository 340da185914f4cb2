"""Topics whose compression.type is not the producer's, on a real broker: is the batch marker kept, and what of an
unknown outcome?"""

from collections.abc import Iterator

import pytest

from testkit.real.brokers.kafka_cluster import fresh_topic, stored_values
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.scenes.lossy import LossyScene, insist, resolved_in

UNDECIDABLE = 87


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyScene]:
    with LossyScene(tmp_path_factory.mktemp("unmarked")) as running:
        yield running


def results(scene: LossyScene, producer_id: int) -> list[str]:
    return [one.result for one in resolved_in(scene.proxy.log) if one.producer_id == producer_id]


@pytest.mark.promise("no-markers")
@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4"])
def test_a_compressed_topic_keeps_lost_answers_findable_from_the_second_append_on(
    scene: LossyScene, compression: str
) -> None:
    place = (fresh_topic(scene.cluster, 1, config={"compression.type": compression}), 0)
    with RawClient(scene.proxy.address) as client:
        producer_id = client.new_producer_id()
        insist(client, place, batch([b"first"], producer_id=producer_id))
        if compression != "gzip":
            scene.proxy.wait_for_log(f"topic {place[0]} is compressed with {compression} from now on")
        insist(client, place, batch([b"second"], producer_id=producer_id, sequence=1))
        scene.lose_answer(client, place, batch([b"third"], producer_id=producer_id, sequence=2))
    assert results(scene, producer_id) == ["found"]
    assert [value for _, value in stored_values(scene.cluster, place)] == [b"first", b"second", b"third"]


def test_an_uncompressed_topic_is_logged_and_a_lost_answer_fails_for_good(scene: LossyScene) -> None:
    place = (fresh_topic(scene.cluster, 1, config={"compression.type": "uncompressed"}), 0)
    with RawClient(scene.proxy.address) as client:
        producer_id = client.new_producer_id()
        insist(client, place, batch([b"first"], producer_id=producer_id))
        scene.proxy.wait_for_log(f"topic {place[0]} keeps no batch markers")
        answer = scene.lose_undecidably(client, place, producer_id)
        assert (answer.error_code, answer.base_offset) == (UNDECIDABLE, -1)
        assert insist(client, place, batch([b"third"], producer_id=producer_id, epoch=1)).base_offset == 2
    assert [value for _, value in stored_values(scene.cluster, place)] == [b"first", b"second", b"third"]
