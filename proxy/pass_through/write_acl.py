"""What a broker has said that one client may do, topic by topic, and who waits to hear it. Sans-IO.

A yes is believed for some seconds where it only lets a batch in: what is appended the broker judges once more. What is
told from memory needs a yes to something that was asked after the request had come. Asks through a function; knows no
request and no batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from .. import limits

DENIED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""The second one is for topics that he may not even know of."""


def _ask_nobody(_topics: Mapping[str, int]) -> None:
    """He has gone."""


@dataclass(slots=True)
class _Waiting:
    """Somebody who wants to hear what the broker says of a topic at ``since`` or later."""

    topic: str
    partition: int
    since: float
    then: Callable[[int], None]


class WriteAcl:
    """Of one client. ``ask``: puts the question whether he may write to these topics, at one partition of each;
    ``answered`` is to be called then."""

    def __init__(self, now: Callable[[], float], ask: Callable[[Mapping[str, int]], None]) -> None:
        self._now = now
        self._ask = ask
        self._known: dict[str, tuple[int, float]] = {}
        """Error code of a produce to the topic, 0 for none, and when that was asked."""
        self._wanted: dict[str, int] = {}
        self._waiting: list[_Waiting] = []
        self._asked: frozenset[str] = frozenset()
        self._asked_at = 0.0
        self._is_over = False

    def missing(self, topics: Mapping[str, int]) -> Mapping[str, int]:
        """Return those of which nothing is known that is still believed."""
        now = self._now()
        missing = {topic: partition for topic, partition in topics.items() if not self._is_believed(topic, now)}
        if missing and len(self._known) > limits.PASS_THROUGH_TOPICS_MAX:
            self._known.clear()
            return topics
        return missing

    def code_of(self, topic: str) -> int:
        """Return the error code that a produce to a topic would get, 0 for none. Something has to be known of it."""
        return self._known[topic][0]

    def want(self, topics: Mapping[str, int]) -> None:
        """Have the broker asked about these."""
        self._wanted |= topics
        self._ask_more()

    def confirm(self, topic: str, partition: int, since: float, then: Callable[[int], None]) -> None:
        """Tell ``then`` the error code of the topic, as the broker said it to something that was asked at ``since``
        (reactor seconds) or later; at once, if it has."""
        known = self._known.get(topic)
        if self._is_over:
            then(0)  # nobody listens
        elif known is not None and known[1] >= since:
            then(known[0])
        else:
            self._waiting.append(_Waiting(topic, partition, since, then))
            self._ask_more()

    def told(self, topic: str, code: int, asked_at: float) -> None:
        """The broker has said it without a question of ours: it took an append that left at ``asked_at``, or refused
        it."""
        known = self._known.get(topic)
        if known is None or known[1] <= asked_at:
            self._known[topic] = (code, asked_at)

    def answered(self, codes: Mapping[str, int]) -> None:
        """The broker's answer to the question that was put last. Raises WireError if it leaves a topic out."""
        if self._asked - codes.keys():
            raise WireError("the broker's answer leaves a topic out")
        for topic in self._asked:
            self.told(topic, codes[topic] if codes[topic] in DENIED else 0, self._asked_at)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            self.confirm(one.topic, one.partition, one.since, one.then)
        self._asked = frozenset()  # only now: those who still wait are put into one question
        self._ask_more()

    def end(self) -> None:
        """He has gone: whoever waits may come to his end, and nothing more is asked."""
        self._is_over = True
        self._ask = _ask_nobody  # or it and its client would hold each other
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
