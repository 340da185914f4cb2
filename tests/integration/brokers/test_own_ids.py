"""Batches that keep their producer ids, at a real broker that checks them: lost answers, a broker that was started
again, one that has less of an epoch than the log, and records that did not come through the proxy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies import own_ids_program
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.lossy import LossyScene, insist, resolved_in, told_in_the_end

FENCED, INVALID_RECORD = 47, 87
PRODUCER_ID, PRODUCER_ID_END, SIZE_AT, SIZE_END, OVERHEAD = 43, 51, 8, 12, 12
Place = tuple[str, int]


class OwnIdsProxy(ProxyProcess):
    """It can be started as one that leaves producer ids out, too."""

    def __init__(self, directory: Path, upstream: tuple[str, int]) -> None:
        settings = "upstream:\n  idempotence: proxy\n"
        super().__init__(directory, upstream, program=own_ids_program.__file__, settings=settings)

    def leave_ids_out(self) -> None:
        """From the next start on."""
        self._command[2:3] = ["-m", "idemproxy"]

    def keep_ids(self) -> None:
        """From the next start on."""
        self._command[2:4] = [own_ids_program.__file__]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyScene]:
    with LossyScene(tmp_path_factory.mktemp("own"), version="3.9.1", make_proxy=OwnIdsProxy) as running:
        yield running


def stored_ids(scene: LossyScene, place: Place) -> list[int]:
    """The producer ids of the batches in the log."""
    with RawClient(scene.cluster.address(0)) as client:
        data = client.fetch(*place)
    found = []
    while data:
        found.append(int.from_bytes(data[PRODUCER_ID:PRODUCER_ID_END], "big", signed=True))
        data = data[OVERHEAD + int.from_bytes(data[SIZE_AT:SIZE_END], "big") :]
    return found


def test_a_lost_answer_is_found_by_the_numbers_of_the_batch(scene: LossyScene) -> None:
    place = (fresh_topic(scene.cluster, 1), 0)
    with RawClient(scene.proxy.address) as client:
        producer_id = client.new_producer_id()
        insist(client, place, batch([b"0"], producer_id=producer_id))
        scene.lose_answer(client, place, batch([b"1"], producer_id=producer_id, sequence=1))
    assert [one.result for one in resolved_in(scene.proxy.log) if one.producer_id == producer_id] == ["found"]
    assert stored_ids(scene, place) == [producer_id] * 2


def test_a_broker_that_has_less_of_an_epoch_gets_the_rest_without_its_numbers(scene: LossyScene) -> None:
    place, proxy = (fresh_topic(scene.cluster, 1), 0), scene.proxy
    assert isinstance(proxy, OwnIdsProxy)
    with RawClient(proxy.address) as client:
        producer_id = client.new_producer_id()
        insist(client, place, batch([b"0"], producer_id=producer_id))
    for begin, sequence in ((proxy.leave_ids_out, 1), (proxy.keep_ids, 2)):
        proxy.stop()
        begin()
        proxy.start()
        with RawClient(proxy.address) as client:
            answer = insist(client, place, batch([b"%d" % sequence], producer_id=producer_id, sequence=sequence))
            assert answer.base_offset == sequence
    with RawClient(proxy.address) as client:
        assert insist(client, place, batch([b"3"], producer_id=producer_id, sequence=3)).base_offset == 3
        assert insist(client, place, batch([b"4"], producer_id=producer_id, epoch=1)).base_offset == 4
    assert stored_ids(scene, place) == [producer_id, -1, -1, -1, producer_id]


def test_what_did_not_come_through_the_proxy_is_refused_by_name(scene: LossyScene) -> None:
    place = (fresh_topic(scene.cluster, 1), 0)
    with RawClient(scene.proxy.address) as client, RawClient(scene.cluster.address(0)) as past:
        producer_id = client.new_producer_id()
        insist(client, place, batch([b"0"], producer_id=producer_id))
        more = batch([b"other", b"others"], producer_id=producer_id, sequence=1)
        assert past.produce_one(*place, more).error_code == 0
        answer = told_in_the_end(client, place, batch([b"1"], producer_id=producer_id, sequence=1))
        assert answer.error_code == INVALID_RECORD
        newer = batch([b"newer"], producer_id=producer_id, epoch=5)
        assert past.produce_one(*place, newer).error_code == 0
        answer = told_in_the_end(client, place, batch([b"again"], producer_id=producer_id, epoch=1))
        assert answer.error_code == FENCED


def test_an_older_batch_is_answered_though_its_broker_has_forgotten_it(scene: LossyScene) -> None:
    place = (fresh_topic(scene.cluster, 1), 0)
    with RawClient(scene.proxy.address) as client:
        producer_id = client.new_producer_id()
        batches = [batch([b"%d" % number], producer_id=producer_id, sequence=number) for number in range(9)]
        for one in batches:
            insist(client, place, one)
        scene.cluster.kill_broker(0)
        scene.cluster.start_broker(0)
        scene.cluster.wait_for_leaders(place[0])
        answers = [told_in_the_end(client, place, batches[number]) for number in (5, 8)]
        assert [(one.error_code, one.base_offset) for one in answers] == [(0, 5), (0, 8)]
        assert insist(client, place, batch([b"9"], producer_id=producer_id, sequence=9)).base_offset == 9
