"""Real clients at real brokers, to which the engine appends what they send with their own producer ids, with faults
before and after the proxy, two brokers' versions, and a broker that is killed."""

from pathlib import Path

import pytest

from idemproxy.demo.fault_relay import FaultKind, FaultPlan
from testkit.real.brokers.kraft_cluster import NEWEST
from testkit.real.clients.client_runs import FRANZ, JAVA_4, KAFKAJS, LIBRDKAFKA, SARAMA
from testkit.real.clients.raw_client import RawClient
from testkit.real.proxies import own_ids_program
from testkit.real.scenes.faulty import BREAKING_KINDS, FaultyScene

CLIENTS = LIBRDKAFKA, JAVA_4, FRANZ, KAFKAJS, SARAMA
RECORDS, PARTITIONS = 2_000, 2
SECONDS_MAX = 240
PRODUCER_AT = slice(43, 51)
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize("version", ["3.9.1", NEWEST])
def test_lost_answers_on_both_sides_leave_no_duplicate_no_loss_and_no_reorder(version: str, tmp_path: Path) -> None:
    plan = FaultPlan(seed=5, kinds=BREAKING_KINDS, every_nth_produce=7)
    client_side = FaultPlan(seed=284, kinds=(FaultKind.LOST_ANSWER, FaultKind.CUT), every_nth_produce=6, evenly=True)
    with FaultyScene(tmp_path, plan, version, proxy_program=own_ids_program.__file__) as scene:
        found = scene.run(CLIENTS, partitions=PARTITIONS, records=RECORDS, plan=client_side, seconds_max=SECONDS_MAX)
        complaints = {client: result.complaints() for client, result in found.items()}
        assert complaints == {client: [] for client in CLIENTS}
        assert scene.broker_relay.counts[FaultKind.LOST_ANSWER] > 0
        assert scene.broker_relay.counts[FaultKind.CUT] > 0
        assert "resolved as found" in scene.proxy.log
        assert "resolved as not_found" in scene.proxy.log
        assert "internal error" not in scene.proxy.log
        (topic, *_) = scene.topics
        with RawClient(scene.cluster.address(0)) as client:
            stored = client.fetch(topic, 0)
        (producer_id,) = found[CLIENTS[0]].producer_ids
        assert int.from_bytes(stored[PRODUCER_AT], "big") == producer_id
