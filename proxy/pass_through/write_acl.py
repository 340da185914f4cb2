"""The topics that one client may write to, as its broker has answered, and who waits for such an answer. Sans-IO.

A permission counts for some seconds where it only admits a batch: the broker authorizes the append once more. An answer
that reveals state needs a permission that was asked for after the request had come. Asks through a function; knows no
request and no batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from .. import limits

DENIED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The second one is for topics that the client may not even know of."""


def _ask_nobody(_topics: Mapping[str, int]) -> None:
    """Nothing to ask: the client has gone."""


@dataclass(slots=True)
class _WaitingTopic:
    """A request that waits for what the broker says of a topic at ``since`` or later."""

    topic: str
    partition: int
    since: float
    then: Callable[[int], None]


class WriteAcl:
    """The rights of one client. ``ask`` asks whether it may write to these topics, at one partition of each;
    ``answered`` is to be called then."""

    def __init__(self, now: Callable[[], float], ask: Callable[[Mapping[str, int]], None]) -> None:
        self._now = now
        self._ask = ask
        self._known: dict[str, tuple[int, float]] = {}
        """Error code of a produce to the topic, 0 for none, and when that was asked."""
        self._wanted: dict[str, int] = {}
        self._waiting: list[_WaitingTopic] = []
        self._asked: frozenset[str] = frozenset()
        self._asked_at = 0.0
        self._is_over = False

    def missing(self, topics: Mapping[str, int]) -> Mapping[str, int]:
        """Return the topics of which nothing is known that still counts."""
        now = self._now()
        missing = {topic: partition for topic, partition in topics.items() if not self._is_believed(topic, now)}
        if missing and len(self._known) > limits.PASS_THROUGH_TOPICS_MAX:
            self._known.clear()
            return topics
        return missing

    def forget_oldest(self) -> None:
        """Nothing waits for what is known of many topics: of more than ``PASS_THROUGH_TOPICS_MAX``, what was said
        first is forgotten."""
        for topic in tuple(islice(self._known, max(len(self._known) - limits.PASS_THROUGH_TOPICS_MAX, 0))):
            del self._known[topic]

    def code_of(self, topic: str) -> int:
        """Return the error code that a produce to a topic would get, 0 for none. It must be known."""
        return self._known[topic][0]

    def want(self, topics: Mapping[str, int]) -> None:
        """Have the broker asked about these topics."""
        self._wanted |= topics
        self._ask_more()

    def confirm(self, topic: str, partition: int, since: float, then: Callable[[int], None]) -> None:
        """Call ``then`` with the error code of the topic (0: none), as the broker answered something that was asked at
        ``since`` (reactor seconds) or later; at once if there is such an answer already, or if the client has gone
        (with 0)."""
        known = self._known.get(topic)
        if self._is_over:
            then(0)  # the client has gone
        elif known is not None and known[1] >= since:
            then(known[0])
        else:
            self._waiting.append(_WaitingTopic(topic, partition, since, then))
            self._ask_more()

    def reported(self, topic: str, code: int, asked_at: float) -> None:
        """The broker has said it without a question of ours: it took an append that left at ``asked_at``, or refused
        it."""
        known = self._known.get(topic)
        if known is None or known[1] <= asked_at:
            self._known.pop(topic, None)  # so that what was said last stands last
            self._known[topic] = (code, asked_at)

    def answered(self, codes: Mapping[str, int]) -> None:
        """The broker's answer to the question that was put last. Raises WireError if it leaves a topic out."""
        if self._asked - codes.keys():
            raise WireError("the broker's answer leaves a topic out")
        for topic in self._asked:
            self.reported(topic, codes[topic] if codes[topic] in DENIED else 0, self._asked_at)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self.confirm(one.topic, one.partition, one.since, one.then)
        self._asked = frozenset()  # only now: requests that still wait are put into one question
        self._ask_more()

    def end(self) -> None:
        """The client has gone: everything that waits is ended, and nothing more is asked."""
        self._is_over = True
        self._ask = _ask_nobody  # otherwise this and its client would refer to each other
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.then(0)

    def _is_believed(self, topic: str, now: float) -> bool:
        code, asked_at = self._known.get(topic, (0, float("-inf")))
        return now - asked_at < (limits.DENIAL_SECONDS if code else limits.RIGHTS_SECONDS)

    def _ask_more(self) -> None:
        if self._asked or self._is_over:
            return
        topics = self._wanted | {one.topic: one.partition for one in self._waiting}
        if topics:
            self._wanted = {}
            self._asked = frozenset(topics)
            self._asked_at = self._now()
            self._ask(topics)
