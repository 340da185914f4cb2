"""A broker that has a batch's numbers answers with an old offset, and with the newest timestamp of that batch as if it
were a time of its own, whatever the topic's settings (rule R9)."""

from __future__ import annotations

import pytest

from idemproxy.codecs.record_batch import LOG_APPEND_TIME_FLAG, Record, encode_batch
from idemproxy.proxy.flow.form import Form
from testkit.stage.bursts import OUTCOMES
from testkit.stage.sequencer import PRODUCER_ID, Client, Stage, batch_of
from testkit.virtual.batches import MAGIC


@pytest.mark.parametrize("is_stamped", [False, True], ids=["CreateTime", "LogAppendTime"])
def test_an_old_offset_has_a_log_append_time_only_where_the_broker_sets_timestamps(is_stamped: bool) -> None:
    stage, client = Stage(), Client()
    stage.store_v2()
    stage.outside.leader.form = Form.OWN_IDS
    first = stage.send(client, 0)
    stage.run(12)
    assert first.code == 0
    record, attributes = Record(0, 1_700_000_000_000, None, b"value 1", ()), LOG_APPEND_TIME_FLAG * is_stamped
    own = encode_batch([record], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=1, attributes=attributes)
    stage.log.append(own, stage.now, stores=MAGIC)
    stage.log.append(bytes(batch_of([b"another's"], 0, producer_id=7)), stage.now, stores=MAGIC)
    stage.log.advance(stage.log.end_offset)
    stage.run(12)
    stage.outcomes.append(OUTCOMES["appended at a time of the broker"](stage))
    request = stage.send(client, 1)
    stage.run(30)
    (answer,) = request.answers
    assert (answer.error_code, answer.base_offset) == (0, 1)
    assert (answer.log_append_time_ms != -1) == is_stamped
    assert stage.log.end_offset == 3
    assert stage.failures() == []
