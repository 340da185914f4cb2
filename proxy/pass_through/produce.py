"""A produce request of a client that authenticates at the broker: what it may not write, and what it may learn. Adds to
``session/produce.py`` what the broker says of the client's rights; sends nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ..bridge.metadata import TOPIC_NAME
from ..producer import answers
from ..producer.batch import Answer
from ..session.produce import Part, ProduceCall
from .write_acl import WriteAcl


class PassThroughProduce(ProduceCall):
    """One request of such a client. No answer that reveals state is given before the broker has shown that the client
    may write there, by something that was sent after the request came: an append of this client that it accepted, or an
    answer to ``WriteAcl``."""

    def wait(self, write_acl: WriteAcl) -> None:
        """It waits until it is known what the client may write."""
        self.counted()
        places = dict(self.prefix.places)
        self.topics: Mapping[str, int] = {topic: places[topic] for topic in places if TOPIC_NAME.fullmatch(topic)}
        """One partition of each topic in it whose name is possible. The broker is not asked about others: there nothing
        can be appended, and no state can be reported."""
        self._write_acl = write_acl
        self._came_at = self.host.now()
        self._unconfirmed: dict[int, tuple[Part, Answer]] = {}
        """Parts that are done, and wait for the broker's word on the client's rights, with what they are answered if it
        may write."""

    def begin(self) -> None:
        """Begin it, now that it is known what the client may write."""
        if self.denied:
            self.begin_in_turns()
        else:
            super().begin()

    def answer(self, answer: Answer) -> None:
        """Take the answer of its only partition; ignored when there was one."""
        if not self.is_done:
            self.part_answered(self, self.noted(answer))

    def appended(self, base_offset: int, log_append_time_ms: int) -> None:
        """The batch of its only partition is in the log."""
        self.answer(answers.appended(base_offset, log_append_time_ms))

    def part_answered(self, part: Part, answer: Answer) -> None:
        """One partition is done."""
        if part.key is None or not answers.reveals_state(answer.error_code):
            super().part_answered(part, answer)
            return
        index = part.index
        self._unconfirmed[index] = part, answer
        self._write_acl.confirm(*self.prefix.places[index], self._came_at, partial(self._heard, index))

    def time_is_up(self, parts: Sequence[Part]) -> None:
        """Rule R18: what waits for the broker's word is answered, too."""
        super().time_is_up(parts)
        for index in sorted(self._unconfirmed):
            self._tell(index, answers.in_doubt("the broker has not said yet whether this client may write here"))

    def _heard(self, index: int, code: int) -> None:
        if index not in self._unconfirmed:
            return
        if code:
            self._tell(index, answers.denied(code))
        else:
            super().part_answered(*self._unconfirmed.pop(index))

    def _tell(self, index: int, answer: Answer) -> None:
        """Give another answer than the one that was found."""
        part, _ = self._unconfirmed.pop(index)
        part.note(answer.error_code)
        super().part_answered(part, answer)
