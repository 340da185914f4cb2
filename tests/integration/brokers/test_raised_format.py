"""A broker from 0.11 on behind the proxy that keeps message format v1, single topics in its own: also when the format
of one is raised and lowered under a proxy that runs. There our wrappers are stored without their key: the batch marker
is gone."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess
from testkit.real.scenes.lossy import LossyScene, insist, resolved_in

BROKER = {"log.message.format.version": "0.10.2"}
OLD_FORMAT = {"message.format.version": "0.10.2"}
NEW_FORMAT = {"message.format.version": "1.1"}
SAID_SECONDS_MAX = 30.0
NOTICED_SECONDS_MAX = 60.0
UNDECIDABLE = 87
LOOK_SECONDS = 0.2
PROGRAM = f"""
import sys
from idemproxy.proxy import limits, main
limits.BATCH_MARKER_PROBE_SECONDS = {LOOK_SECONDS}
sys.exit(main.main())
"""
"""As shipped, but for how often it looks whether the batch marker is kept."""


class AttentiveProxy(ProxyProcess):
    """Looks again soon."""

    def __init__(self, directory: Path, upstream: tuple[str, int]) -> None:
        super().__init__(directory, upstream)
        python, *module = self._command[:4]
        assert (python, module) == (sys.executable, ["-P", "-m", "idemproxy"])
        self._command[:4] = [python, "-P", "-c", PROGRAM]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LossyScene]:
    directory = tmp_path_factory.mktemp("raised")
    with LossyScene(directory, BROKER, version="1.1.1", make_proxy=AttentiveProxy) as running:
        yield running


def results(scene: LossyScene, producer_id: int) -> list[str]:
    return [one.result for one in resolved_in(scene.proxy.log) if one.producer_id == producer_id]


def values(scene: LossyScene, place: tuple[str, int]) -> list[bytes]:
    """What a consumer of today finds that reads from the broker itself, in whatever format it is stored."""
    settings = {"bootstrap.servers": scene.cluster.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(*place, 0)])
    found = []
    try:
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append(message.value())
    finally:
        consumer.close()
    return found


def lines(scene: LossyScene, text: str) -> int:
    return sum(text in line for line in scene.proxy.log.splitlines())


def test_message_format_v1_keeps_batch_markers_and_a_lost_answer_is_found(scene: LossyScene) -> None:
    place = (fresh_topic(scene.cluster, 1, config=OLD_FORMAT), 0)
    with RawClient(scene.proxy.address) as client:
        producer_id = client.new_producer_id()
        insist(client, place, batch([b"first"], producer_id=producer_id))
        scene.lose_answer(client, place, batch([b"second"], producer_id=producer_id, sequence=1))
    assert results(scene, producer_id) == ["found"]
    assert values(scene, place) == [b"first", b"second"]
    assert lines(scene, f"topic {place[0]} keeps") == 0


@pytest.mark.promise("raised-format")
def test_message_format_v2_is_logged_at_once_and_a_lost_answer_fails(
    scene: LossyScene,
) -> None:
    place = (fresh_topic(scene.cluster, 1, config=NEW_FORMAT), 0)
    with RawClient(scene.proxy.address) as client:
        producer_id = client.new_producer_id()
        insist(client, place, batch([b"first"], producer_id=producer_id))
        assert "format v2" in scene.proxy.wait_for_log(f"topic {place[0]} keeps no batch markers", SAID_SECONDS_MAX)
        answer = scene.lose_undecidably(client, place, producer_id)
        assert (answer.error_code, answer.base_offset) == (UNDECIDABLE, -1)
        assert insist(client, place, batch([b"third"], producer_id=producer_id, epoch=1)).base_offset == 2
    assert values(scene, place) == [b"first", b"second", b"third"]
    assert lines(scene, f"topic {place[0]} keeps") == 1


@pytest.mark.promise("raised-format")
def test_a_raised_message_format_is_noticed_while_running_and_its_return_too(scene: LossyScene) -> None:
    place = (fresh_topic(scene.cluster, 1, config=OLD_FORMAT), 0)
    with RawClient(scene.proxy.address) as client:
        producer_id = client.new_producer_id()
        sent = 0

        def send_one() -> None:
            nonlocal sent
            insist(client, place, batch([b"%d" % sent], producer_id=producer_id, sequence=sent))
            sent += 1

        def send_until(text: str) -> None:
            end = time.monotonic() + NOTICED_SECONDS_MAX
            while not lines(scene, text):
                assert time.monotonic() < end, scene.proxy.log[-2000:]
                send_one()
                time.sleep(LOOK_SECONDS / 2)

        send_one()
        scene.cluster.alter_topic_config(place[0], NEW_FORMAT)
        send_until(f"topic {place[0]} keeps no batch markers")
        scene.cluster.alter_topic_config(place[0], OLD_FORMAT)
        send_until(f"topic {place[0]} keeps batch markers again")
        send_one()  # from here on the log need not be read below it
        scene.lose_answer(client, place, batch([b"last"], producer_id=producer_id, sequence=sent))
        assert scene.told == sent
    assert results(scene, producer_id) == ["found"]
    assert values(scene, place) == [*(b"%d" % number for number in range(sent)), b"last"]
    assert lines(scene, f"topic {place[0]} keeps") == 2
