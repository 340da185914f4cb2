"""Old clients through the proxy to three brokers of Kafka 4, with faults, leaders that move and a broker that is killed
in between: each record is stored once and in order. ``make old-clients`` is the same with 60,000 records."""

from __future__ import annotations

from pathlib import Path

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from testkit.real.clients.client_runs import OLD_JAVA, OLD_PYTHON
from testkit.real.scenes.old_producers import RAW, RAW_WITHOUT_ISR, RETRIED, OldProducersScene

pytestmark = pytest.mark.long

RECORDS = {OLD_JAVA: 800, OLD_PYTHON: 800, RAW: 4000, RAW_WITHOUT_ISR: 800}


def test_each_record_of_old_clients_is_stored_once_and_in_order_under_faults(tmp_path: Path) -> None:
    def trouble(scene: OldProducersScene) -> None:
        scene.move_leaders()
        scene.kill_and_restart(1)

    with OldProducersScene(tmp_path, every_nth_produce=8, seed=3) as scene:
        ended = scene.run(RECORDS, trouble)
        faults, log = scene.faults, scene.proxy.log
    assert [line for one in ended for line in one.complaints()] == []
    assert sum(faults.values()) > 40
    assert all(set(one.codes) <= {ErrorCode.NONE, *RETRIED} for one in ended), "an outcome is unknown"
    assert "Traceback" not in log
