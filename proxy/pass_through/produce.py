"""A produce request of a client that authenticates at the broker: what it may not write, and what it may learn. Adds to
``session/produce.py`` what the broker says of the client's rights; sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..producer import answers
from ..producer.batch import Answer
from ..session.produce import Part, ProduceCall
from .write_acl import WriteAcl


class PassThroughProduce(ProduceCall):
    """One request of such a client. No answer that reveals state is given before the broker has shown that the client
    may write there, by something that was sent after the request came: an append of this client that it accepted, or an
    answer to ``WriteAcl``."""

    def judge(self, write_acl: WriteAcl, denied: Mapping[str, int], came_at: float) -> None:
        """Set what is known of the client's rights. ``denied``: topics that it may not write to, with their error
        codes. ``came_at``: when the request came, in reactor seconds. To be called before ``starting``."""
        self._write_acl = write_acl
        self.denied = denied
        self._came_at = came_at
        self._unconfirmed: dict[int, Part] = {}
        """Parts that are done, and wait for the broker's word on the client's rights."""

    def part_answered(self, index: int, part: Part, answer: Answer) -> None:
        """One partition is done."""
        item = self.request.partitions[index]
        if not part.is_named or not answers.reveals_state(answer.error_code):
            super().part_answered(index, part, answer)
            return
        self._unconfirmed[index] = part
        self._write_acl.confirm(
            item.topic, item.partition, self._came_at, lambda code: self._heard(index, answer, code)
        )

    def time_is_up(self, parts: Sequence[Part]) -> None:
        """Rule R18: what waits for the broker's word is answered, too."""
        super().time_is_up(parts)
        for index in sorted(self._unconfirmed):
            self._tell(index, answers.in_doubt("the broker has not said yet whether this client may write here"))

    def _heard(self, index: int, answer: Answer, code: int) -> None:
        if index not in self._unconfirmed:
            return
        if code:
            self._tell(index, answers.denied(code))
        else:
            super().part_answered(index, self._unconfirmed.pop(index), answer)

    def _tell(self, index: int, answer: Answer) -> None:
        """Give another answer than the one that was found."""
        part = self._unconfirmed.pop(index)
        part.note(answer.error_code)
        super().part_answered(index, part, answer)
