"""A part of ``make matrix``: the brokers and clients that no other test has under faults, each client at one broker.

A client produces while answers are lost and connections are cut on both sides of the proxy, and reads what it has
produced as a member of a group. The five clients of ``test_clients.py`` do that there, at 0.10.2.2; two of them produce
to a 3.9.1 in ``test_native_faults.py``.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from idemproxy.demo.fault_relay import FaultKind, FaultPlan
from runs.matrix_brokers import BROKERS, BrokerKind
from runs.native import has_one_batch_in_mind, not_native
from testkit.real.brokers.kraft_cluster import NEWEST
from testkit.real.clients.client_runs import (
    FRANZ,
    JAVA_1,
    JAVA_2,
    KAFKAJS,
    LIBRDKAFKA,
    PLATFORMATIC,
    SARAMA,
)
from testkit.real.scenes.faulty import BREAKING_KINDS, FaultyScene

PAIRS: Mapping[str, tuple[str, ...]] = {
    "0.10.0.1": (f"{LIBRDKAFKA}-2.8.0", JAVA_2),
    "0.10.1.1": (FRANZ,),
    "0.11.0.3": (KAFKAJS,),
    "1.1.1, old format": (SARAMA, JAVA_1),
    "2.8.2": (f"{LIBRDKAFKA}-2.0.2",),
    NEWEST: (PLATFORMATIC,),
}
"""Broker -> clients, all at the same time."""
PARTITIONS, RECORDS = 3, 1800
SECONDS_MAX = 240
CLIENT_SIDE = FaultPlan(seed=284, kinds=(FaultKind.LOST_ANSWER, FaultKind.CUT), every_nth_produce=6, evenly=True)
"""By turns, first of all: some clients send a few dozen requests only, and each has to meet both. Every sixth, as none
has more than five in flight, so that a fault does not end the connection before the one before it has happened."""
BROKER_SIDE = FaultPlan(seed=11, kinds=BREAKING_KINDS, every_nth_produce=7)
"""Another beat: an answer that is lost here does not come to where it could be lost again."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize("broker", [one for one in BROKERS if one.name in PAIRS], ids=lambda one: one.name)
def test_clients_produce_once_in_order_and_read_in_a_group_under_faults(broker: BrokerKind, tmp_path: Path) -> None:
    clients = PAIRS[broker.name]
    with FaultyScene(tmp_path, BROKER_SIDE, broker.version, broker_settings=broker.settings) as scene:
        found = scene.run(
            clients,
            partitions=PARTITIONS,
            records=RECORDS,
            plan=CLIENT_SIDE,
            seconds_max=SECONDS_MAX,
            one_in_flight=has_one_batch_in_mind(broker.version),
            in_group=True,
        )
        complaints = {client: one.complaints(ids_are_ours=not broker.is_native) for client, one in found.items()}
        assert complaints == {client: [] for client in clients}
        assert sum(scene.broker_relay.counts.values()) > 0
        assert not broker.is_native or not_native(scene.proxy.log) == []
        assert "internal error" not in scene.proxy.log
