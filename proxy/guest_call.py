"""A produce request of a client who shows the broker himself who he is: what he may not do, and what he may hear.

Adds to ``produce.py`` what the broker says of him; sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..codecs.error_codes import ErrorCode
from ..codecs.produce import PartitionRecords
from .batch import Answer
from .guest_lane import GuestLanes
from .produce import Part, ProduceCall
from .rights import Rights

_CLOSED = "the broker does not let this client write here"
_TELLS_OF_STATE = (
    ErrorCode.NONE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_RECORD,
)
"""Whoever is told one of these learns something of what others have written, or of what he has written before."""


class GuestCall(ProduceCall):
    """A request of his. ``denied``: topics that are closed to him, with the code that he gets. Nothing is told from
    memory before the broker has said that he may write there, to something that was asked after the request came: an
    append of it that the broker took, or a question."""

    def judge(self, rights: Rights, lanes: GuestLanes, denied: Mapping[str, int], came_at: float) -> None:
        """Say what is known of him. ``came_at``: when the request came, in reactor seconds. To be called first."""
        self._rights = rights
        self._lanes = lanes
        self._denied = denied
        self._came_at = came_at

    def start(self) -> None:
        """Check every partition and send it on its way."""
        if self.request.acks == 0:
            self._lanes.count_silent(1)
        super().start()

    def part_answered(self, index: int, answer: Answer) -> None:
        """One partition is done."""
        item = self.request.partitions[index]
        if not self._parts[index].is_named or answer.error_code not in _TELLS_OF_STATE:
            super().part_answered(index, answer)
            return

        def go_on(code: int) -> None:
            told = answer if code == 0 else Answer(code, message=_CLOSED)
            super(GuestCall, self).part_answered(index, told)

        self._rights.confirm(item.topic, item.partition, self._came_at, go_on)

    def _finish(self) -> None:
        super()._finish()
        if self.request.acks == 0:
            self._lanes.count_silent(-1)

    def _start_part(
        self,
        item: PartitionRecords,
        part: Part,
        timeout_ms: int,
        now: float,
        plain: list[tuple[PartitionRecords, Callable[[Answer], None]]],
    ) -> None:
        code = self._denied.get(item.topic)
        if code is None:
            super()._start_part(item, part, timeout_ms, now, plain)
        else:
            self._refuse(part, item, Answer(code, message=_CLOSED))
