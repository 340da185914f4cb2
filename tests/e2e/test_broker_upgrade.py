"""A real broker gets its own message format while real clients produce through the proxy: they go on, with the ids and
sequences that they have (rule R21).

Three brokers, all stages from 0.10.2 on, five clients: ``make upgrade``."""

from pathlib import Path

import pytest

from idemproxy.demo.fault_relay import FaultKind, FaultPlan
from testkit.real.clients.client_runs import JAVA_3, KAFKA_PYTHON
from testkit.real.scenes.faulty import BREAKING_KINDS
from testkit.real.scenes.upgrade import HANDED_OVER, STAGES, UpgradeScene

SECONDS_MAX = 600
pytestmark = pytest.mark.timeout(1200)


def test_clients_go_on_when_the_format_is_raised_with_no_duplicate_no_loss_and_no_reorder(tmp_path: Path) -> None:
    plan = FaultPlan(seed=5, kinds=BREAKING_KINDS, every_nth_produce=8)
    clients = (KAFKA_PYTHON, JAVA_3)
    with UpgradeScene(tmp_path, clients, brokers=1, plan=plan, starts_with=len(STAGES) - 1) as scene:
        scene.start_clients(seconds_max=SECONDS_MAX)
        scene.wait_for_more(30, SECONDS_MAX)
        assert HANDED_OVER not in scene.proxies[0].log
        for _, version, settings in scene.stages:
            scene.become(0, version, settings)
        scene.wait_until_handed_over(SECONDS_MAX)
        scene.wait_for_more(60, SECONDS_MAX)
        scene.wait_for_faults(SECONDS_MAX)
        found = {client: result.complaints() for client, result in scene.results(seconds_max=SECONDS_MAX).items()}
        assert found == {client: [] for client in clients}
        assert scene.broker_relays[0].counts[FaultKind.LOST_ANSWER] > 0
        assert not scene.internal_errors
