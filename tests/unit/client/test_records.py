"""Batches that are finished first and numbered later."""

import pytest

from idemproxy.client.records import Compression, Record, finish
from idemproxy.codecs.record_batch import Record as StoredRow
from idemproxy.codecs.record_batch import iterate_records
from idemproxy.producing.numbered_batch import ProducerId, number

PRODUCER = ProducerId(2**62, 7)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_finished_batch_gets_its_numbers_and_is_not_changed_itself(compression: Compression) -> None:
    headers = (("name", b"value"), ("null", None))
    batch = finish([Record(b"v", b"k", headers, 5), Record(None)], compression=compression, now_ms=9)
    before = bytes(batch)
    numbered = number(batch, PRODUCER, 2**31 - 1)
    assert batch == before
    header = numbered.header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**62, 7, 2**31 - 1)
    assert numbered.next_sequence == 1
    rows = list(iterate_records(memoryview(numbered.data), header, 1000))
    assert rows == [StoredRow(0, 5, b"k", b"v", headers), StoredRow(1, 9, None, None)]
    assert finish([Record(b"v", b"k", headers, 5), Record(None)], compression=compression, now_ms=9) == before


def test_what_cannot_be_a_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        finish([])
    with pytest.raises(ValueError, match="record 1 has no timestamp_ms"):
        finish([Record(b"v", timestamp_ms=1), Record(b"v")])
    with pytest.raises(ValueError, match="'lz5': one of none, gzip"):
        finish([Record(b"v", timestamp_ms=1)], compression="lz5")  # type: ignore[arg-type]
