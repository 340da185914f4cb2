"""What gets producer id, epoch and sequence, and what does not."""

import pytest

from idemproxy.client.records import Record, finish
from idemproxy.codecs.record_batch import TRANSACTIONAL_FLAG, encode_batch
from idemproxy.codecs.record_batch import Record as StoredRow
from idemproxy.codecs.steps import STEP_BYTES, at_once
from idemproxy.producing.numbered_batch import ProducerId, number, numbering

PRODUCER = ProducerId(2**62, 7)


def test_what_is_no_finished_batch_gets_no_numbers() -> None:
    batch = finish([Record(b"v", timestamp_ms=1)])
    with pytest.raises(ValueError, match="more than one batch"):
        number(batch + batch, PRODUCER, 0)
    with pytest.raises(ValueError, match="CRC-32C"):
        number(batch[:-1] + b"\7", PRODUCER, 0)
    with pytest.raises(ValueError, match="31 bits"):
        number(batch, PRODUCER, 2**31)
    with pytest.raises(ValueError, match="transactions"):
        number(encode_batch([StoredRow(0, 1, None, b"v")], attributes=TRANSACTIONAL_FLAG), PRODUCER, 0)


@pytest.mark.parametrize("value_bytes", [1, STEP_BYTES, 3 * STEP_BYTES + 7])
def test_a_batch_gets_the_same_numbers_in_steps(value_bytes: int) -> None:
    batch = finish([Record(bytes(value_bytes), timestamp_ms=1)])

    assert at_once(numbering(batch, PRODUCER, 9)) == number(batch, PRODUCER, 9)
    with pytest.raises(ValueError, match="31 bits"):
        at_once(numbering(batch, PRODUCER, -1))


@pytest.mark.parametrize(("identity", "epoch"), [(-1, 0), (2**63, 0), (1, -1), (1, 2**15)])
def test_ids_that_no_server_gives_are_refused(identity: int, epoch: int) -> None:
    with pytest.raises(ValueError, match="bits"):
        ProducerId(identity, epoch)
