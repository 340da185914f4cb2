"""Which topics take conditional publishes only (rule R23), and at which offset a batch is expected if its client cannot
choose its sequences: its records say so in a header. Pure; large batches in steps."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...codecs.errors import Malformed
from ...codecs.record_batch import BatchHeader, iterate_large_records, reading_payload
from ...codecs.steps import STEP_RECORDS, Steps
from .. import limits
from ..producer.grouping import EXPECTED_OFFSET_HEADER
from .name_patterns import matching

_OFFSET = re.compile(rb"0|[1-9][0-9]{0,18}")
_STEP_RECORDS = STEP_RECORDS // 5  # read by code that is not compiled


class ConditionalTopics:
    """``patterns``: names of topics; * stands for any text."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        found = tuple(patterns)
        self.are_any = bool(found)
        self._pattern = matching(found)

    def has(self, topic: str) -> bool:
        """Does the topic take conditional publishes only?"""
        return self._pattern.fullmatch(topic) is not None


def reading_expected_offset(records: memoryview, header: BatchHeader) -> Steps[int | None]:
    """Return the offset at which the batch is expected, by the header of its first record; None: it has no such header.

    Raises WireError for what cannot be read, for a header that is no offset, and if a later record expects another
    offset than it would get in this batch: then the client has put records together that do not belong together.
    """
    payload = yield from reading_payload(records, header, limits.DECOMPRESSED_BYTES_MAX)
    first: int | None = None
    for index, record in enumerate(iterate_large_records(memoryview(payload), header, header.record_count)):
        said = [value for name, value in record.headers if name == EXPECTED_OFFSET_HEADER]
        if not said:
            if first is None:
                return None
            raise Malformed(f"record {index} has no header {EXPECTED_OFFSET_HEADER}, and those before it have")
        if len(said) > 1 or said[0] is None or not _OFFSET.fullmatch(said[0]) or int(said[0]) >= 1 << 63:
            raise Malformed(f"record {index}: header {EXPECTED_OFFSET_HEADER} is not one offset in decimal digits")
        if first is None:
            first = int(said[0])
        elif int(said[0]) != first + index:
            raise Malformed(f"record {index} expects offset {int(said[0])}, in a batch that begins at {first}")
        if not (index + 1) % _STEP_RECORDS:
            yield
    return first
