"""A batch as it is appended where its leader stores format v2: its batch marker is of the producer that it is appended
for, which its bytes do not always name."""

from __future__ import annotations

import pytest

from idemproxy.codecs.batch_marker import Identity
from idemproxy.codecs.header_marker import header_marker_of
from idemproxy.codecs.logged import LoggedBatch, iterate_logged
from idemproxy.codecs.record_batch import Record, encode_batch, parse_single_batch
from idemproxy.codecs.steps import at_once
from idemproxy.proxy.flow.form import Form
from idemproxy.proxy.flow.recent_time import RecentTime
from idemproxy.proxy.partition_log.topic_facts import TopicFacts
from idemproxy.proxy.producer.batch import Batch
from idemproxy.proxy.producer.grouping import EXPECTED_OFFSET_HEADER, Target, WrapperOptions
from idemproxy.state.conditional import CONDITIONAL_EPOCH
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.producer_ids import CONDITIONAL_ID


def hold(_bytes: int) -> None:
    """The memory budget's."""


@pytest.mark.promise("conditional")
@pytest.mark.parametrize("written", [(-1, -1, -1), (17, 0, 5)])
def test_a_batch_that_says_its_offset_in_a_header_has_the_marker_of_that_offset(written: tuple[int, int, int]) -> None:
    producer_id, epoch, sequence = written
    record = Record(0, 1, None, b"value", ((EXPECTED_OFFSET_HEADER, b"3"),))
    records = memoryview(encode_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence))
    header = parse_single_batch(records)._replace(
        producer_id=CONDITIONAL_ID, producer_epoch=CONDITIONAL_EPOCH, base_sequence=3
    )
    batch = Batch(BatchIdentity(CONDITIONAL_EPOCH, 3, 1), records, header, 1000, 0.0, expected_offset=3)
    target = Target(TopicFacts(RecentTime()), WrapperOptions(), hold, CONDITIONAL_ID, "topic", keeps_whole=True)
    (wrapper,) = at_once(target.sending_whole(batch, Form.MARKED_V2))
    (stored,) = iterate_logged(wrapper.message_set)
    assert isinstance(stored, LoggedBatch)
    assert stored.marker == header_marker_of(Identity(CONDITIONAL_ID, CONDITIONAL_EPOCH, 3, 1))
