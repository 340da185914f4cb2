"""Sees whether brokers are awake, for all who wait for that (rule R6): each broker is asked one question at a time,
however many batches are in doubt there. Sans-IO. Concludes nothing about a batch.

The times of question and answer are taken here, where the answer arrives. If each flow took them, a flow that resumes
after thousands of others would take its own waiting for a late answer of the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...reactor import Reactor
from ...state.quiescence import QuiescenceAnswers
from .. import limits
from ..admission.turns import tell_all
from ..bridge.asks import HIGH_WATERMARK_REPLICA_ID, LatestOffset, Question
from ..flow.effects import Unanswered

Seen = Callable[[bool | Unanswered], None]
Ask = Callable[[int, Question[Any], Callable[[Any], None]], None]


class _Group:
    """Those that began to wait between two questions to one broker. ``asked_about``: topic and partition that the
    question is about."""

    __slots__ = ("answers", "asked_about", "began_at", "waiting")

    def __init__(self, asked_about: tuple[str, int], now: float) -> None:
        self.asked_about = asked_about
        self.answers = QuiescenceAnswers()
        self.began_at = now
        self.waiting: list[Seen] = []


class _Watched:
    """One broker. ``fresh``: the group that has seen no question leave yet."""

    __slots__ = ("fresh", "groups")

    def __init__(self) -> None:
        self.groups: list[_Group] = []
        self.fresh: _Group | None = None


class QuiescenceWatch:
    """All brokers of one proxy."""

    def __init__(self, reactor: Reactor, ask: Ask) -> None:
        """``ask``: asks one broker, and calls back with the answer or Unanswered."""
        self._reactor = reactor
        self._ask = ask
        self._watched: dict[int, _Watched] = {}

    def when_quiescent(self, broker_id: int, topic: str, partition: int, seen: Seen) -> None:
        """Call back with True when the broker has passed the quiescence check for one second from now on. If it was not
        seen to be quiescent within ``QUIESCENCE_WAIT_SECONDS``: with Unanswered if it cannot be asked, with False if it
        answers too late. Never from inside this call. ``topic``, ``partition``: a partition whose high watermark it can
        be asked for."""
        watched = self._watched.get(broker_id)
        if watched is None:
            watched = self._watched[broker_id] = _Watched()
            self._reactor.later(limits.QUIESCENCE_GATHER_SECONDS, lambda: self._probe(broker_id))
        if watched.fresh is None:
            watched.fresh = _Group((topic, partition), self._reactor.now())
        watched.fresh.waiting.append(seen)

    def _probe(self, broker_id: int) -> None:
        watched, now = self._watched[broker_id], self._reactor.now()
        if watched.fresh is not None:
            watched.groups.append(watched.fresh)
            watched.fresh = None
        if not watched.groups:
            del self._watched[broker_id]
            return
        question = LatestOffset(*watched.groups[-1].asked_about, HIGH_WATERMARK_REPLICA_ID)
        try:
            self._ask(broker_id, question, lambda answer: self._ended(broker_id, now, answer, limits.PROBE_SECONDS))
        except Exception:  # which the reactor reports; those who wait get an answer
            self._ended(broker_id, now, Unanswered("an internal error"), limits.QUIESCENCE_SECONDS)
            raise

    def _ended(self, broker_id: int, asked_at: float, answer: object, pause_seconds: float) -> None:
        watched, now = self._watched[broker_id], self._reactor.now()
        going_on: list[_Group] = []
        ended: list[tuple[_Group, bool | Unanswered]] = []
        for group in watched.groups:
            if group.answers.saw(asked_at, now, is_answered=not isinstance(answer, Unanswered)):
                ended.append((group, True))
            elif not group.answers.is_seen and now - group.began_at >= limits.QUIESCENCE_WAIT_SECONDS:
                ended.append((group, answer if isinstance(answer, Unanswered) else False))
            else:
                going_on.append(group)
        watched.groups = going_on
        self._reactor.later(pause_seconds, lambda: self._probe(broker_id))
        for group, result in ended:
            tell_all(self._reactor, group.waiting, result)
