"""Producers without idempotence through the proxy to three brokers of Kafka 4, with faults, leaders that move and a
broker that is killed in between: each record is stored once and in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from testkit.real.clients.client_runs import KAFKA_GO, KAFKAJS
from testkit.real.scenes.old_producers import RAW_BATCHES, RAW_BATCHES_WITHOUT_ISR, RETRIED, OldProducersScene

pytestmark = pytest.mark.long

RECORDS = {KAFKAJS: 3000, KAFKA_GO: 3000, RAW_BATCHES: 4000, RAW_BATCHES_WITHOUT_ISR: 800}


def test_each_record_is_stored_once_and_in_order_under_faults(tmp_path: Path) -> None:
    def trouble(scene: OldProducersScene) -> None:
        scene.move_leaders()
        scene.kill_and_restart(1)

    with OldProducersScene(tmp_path, every_nth_produce=8, seed=3, upstream_idempotence=["*"]) as scene:
        ended = scene.run(RECORDS, trouble)
        faults, log = scene.faults, scene.proxy.log
    assert [line for one in ended for line in one.complaints()] == []
    assert sum(faults.values()) > 40
    assert all(set(one.codes) <= {ErrorCode.NONE, *RETRIED} for one in ended), "an outcome is unknown"
    assert "Traceback" not in log
