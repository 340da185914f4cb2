"""What is left of a record batch whose first records are stored already, and the digests to compare contents by.

Source of the need: a batch that is too large for a broker is stored in parts, and a doubt may end
with some of them."""

from __future__ import annotations

from .convert import part_of
from .marker import content_digest
from .record_batch import iterate_records, parse_single_batch


def rest_of_batch(batch: memoryview, records_stored: int, *, output_bytes_max: int) -> memoryview:
    """Return a batch with the records from ``records_stored`` on; its base sequence is advanced. Raises WireError."""
    header = parse_single_batch(batch)
    assert 0 < records_stored < header.record_count
    records = list(iterate_records(batch, header, output_bytes_max))
    return part_of(header, records, records_stored, header.record_count)


def content_digests(batch: memoryview, *, output_bytes_max: int) -> list[bytes]:
    """Return the digest of every record's key and value, in order. Raises WireError."""
    header = parse_single_batch(batch)
    return [content_digest(record.key, record.value) for record in iterate_records(batch, header, output_bytes_max)]
