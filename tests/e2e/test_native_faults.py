"""Two real clients at a real 3.9 broker, which gives idempotence itself, with faults before and behind the proxy.

All clients at brokers of five versions, and more records: ``make native``."""

from pathlib import Path

import pytest

from idemproxy.demo.fault_relay import FaultKind, FaultPlan
from testkit.real.clients.client_runs import JAVA_4, LIBRDKAFKA
from testkit.real.scenes.faulty import BREAKING_KINDS, FaultyScene

RECORDS, PARTITIONS = 3_000, 3
SECONDS_MAX = 180
pytestmark = pytest.mark.timeout(600)


def test_lost_answers_on_both_sides_leave_no_duplicate_no_loss_and_no_reorder(tmp_path: Path) -> None:
    plan = FaultPlan(seed=3, kinds=BREAKING_KINDS, every_nth_produce=5)
    with FaultyScene(tmp_path, plan, "3.9.1") as scene:
        found = scene.run(
            (LIBRDKAFKA, JAVA_4), partitions=PARTITIONS, records=RECORDS, plan=plan, seconds_max=SECONDS_MAX
        )
        complaints = {client: result.complaints(ids_are_ours=False) for client, result in found.items()}
        assert complaints == {LIBRDKAFKA: [], JAVA_4: []}
        assert scene.broker_relay.counts[FaultKind.LOST_ANSWER] > 0
        assert scene.broker_relay.counts[FaultKind.CUT] > 0
        assert "upstream.idempotence: native" in scene.proxy.log
        assert "internal error" not in scene.proxy.log
