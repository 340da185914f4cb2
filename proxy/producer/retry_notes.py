"""What failed on one client connection and will be sent again, so that what follows it there is no gap (rule R11); and
which batch a conditional one follows there (rule R23). Pure: called for every answer, asked before a refusal.

A batch that got through, or failed for good, leaves no note here; of batches that a client has abandoned the latest few
are kept. A topic name that no topic can have leaves none either: everything for it is refused alike. How many notes all
connections have is bounded (``admission/noted_failures.py``)."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from ...state.conditional import Ahead
from ...state.decide import BatchIdentity
from ...state.sequence import advance, is_ahead
from ..bridge.metadata import TOPIC_NAME

Key = tuple[int, str, int]
"""Producer id, topic, partition."""
NOTES_MAX = 16
"""Notes of one producer on one partition: more than a client has in flight, retries included."""


def comes_before(epoch: int, sequence: int, batch: BatchIdentity) -> bool:
    """Has the batch with this epoch and base sequence to come before ``batch``? One with a lower sequence of the same
    epoch has; and any batch of an older epoch, unless ``batch`` is the first of its own: the client sends unfinished
    batches again as the first ones of the new epoch."""
    if epoch == batch.producer_epoch:
        return is_ahead(sequence, batch.base_sequence)
    return epoch < batch.producer_epoch and batch.base_sequence != 0


@dataclass(slots=True, eq=False)
class Link:
    """A conditional batch in the pipeline of one connection. ``end``: the sequence after its last record. ``before``:
    the batch that it follows; None: it is the first, or has its answer. ``fate``: its own, for the batch after it."""

    end: int
    before: Link | None
    fate: Ahead = Ahead.OPEN

    @property
    def ahead(self) -> Ahead:
        """What became of the batch before it."""
        return Ahead.NOTHING if self.before is None else self.before.fate


class _Failure(NamedTuple):
    """A batch that failed retriably on this connection, for the last time in the request with this number."""

    epoch: int
    sequence: int
    request: int


class RetryNotes:
    """The notes of one connection."""

    __slots__ = ("_ended", "_failed", "_has_ended", "_held", "_last", "_links", "count", "is_empty", "requests")

    def __init__(self) -> None:
        self.requests = 0
        """The number of the last request that came."""
        self.count = 0
        """How many notes there are, links of conditional batches included."""
        self._has_ended = False
        self.is_empty = True
        """Nothing has failed, or all of it was forgotten: a batch that gets through changes nothing here."""
        self._ended: dict[Key, int] = {}
        """The epoch of the last batch that failed for good, until a batch of a newer epoch gets through."""
        self._failed: dict[Key, tuple[_Failure, ...]] = {}
        """The batches that failed and have not got through since. Not a dict for each key: it takes 250 bytes more, and
        a client that invents producer ids has thousands of keys with one failure."""
        self._last: dict[Key, tuple[int, int]] = {}
        """The epoch of the last batch that came again and then got through or failed for good, and the number of the
        last such request of that epoch; until a batch that did not come again does so in a later request."""
        self._held: dict[Key, list[tuple[int, int]]] = {}
        """Epoch and base sequence of batches that have arrived, and wait before they join the queue of their
        producer."""

        self._links: dict[Key, dict[int, Link]] = {}
        """The latest conditional batches that came for a partition and are not in the log, by the sequence after their
        last record. Not the very last one alone: one that failed may come again before what follows another one."""

    # ------------------------------------------------------------------ pipelines of conditional batches
    def link(self, key: Key, identity: BatchIdentity, *, says_it_follows: bool) -> Link:
        """Return the link of a conditional batch that has come. It follows the one that ends where it begins if its
        client says so; or if that one has no answer yet, so that its client cannot know of a conflict. A batch that a
        client sends after a conflict, for the offset in the answer, is the first of a pipeline."""
        links = self._links.get(key, {})
        before = links.get(identity.base_sequence)
        is_behind = before is not None and (says_it_follows or before.fate is Ahead.OPEN)
        link = Link(advance(identity.base_sequence, identity.record_count), before if is_behind else None)
        if TOPIC_NAME.fullmatch(key[1]):
            before_count = len(links)
            links.pop(link.end, None)
            self._links.setdefault(key, links)[link.end] = link
            if len(links) > NOTES_MAX:
                del links[next(iter(links))]
            self.count += len(links) - before_count
        return link

    def end_link(self, key: Key, link: Link, has_failed: bool, will_be_retried: bool) -> None:
        """Note the answer to the batch of a link. A batch after one that is to be sent again is held back once: its
        client sends both in order, or the first one has got through over another connection."""
        before, link.before = link.before, None
        link.fate = Ahead.NOTHING if not has_failed else Ahead.AGAIN if will_be_retried else Ahead.REFUSED
        self._forget(key, link if not has_failed else before if before and before.fate is Ahead.AGAIN else None)

    def _forget(self, key: Key, link: Link | None) -> None:
        links = self._links.get(key, {})
        if link is not None and links.get(link.end) is link:
            del links[link.end]
            self.count -= 1
            if not links:
                del self._links[key]

    # ------------------------------------------------------------------ failures
    def request_number(self) -> int:
        """Return the number of a request that comes now."""
        self.requests += 1
        return self.requests

    def hold(self, key: Key, identity: BatchIdentity) -> None:
        """The batch has to wait before it joins its producer's queue: batches that were sent later may overtake it."""
        self._held.setdefault(key, []).append((identity.producer_epoch, identity.base_sequence))

    def let_go(self, key: Key, identity: BatchIdentity) -> None:
        """It waits no longer."""
        held = self._held[key]
        held.remove((identity.producer_epoch, identity.base_sequence))
        if not held:
            del self._held[key]

    def note(self, key: Key, identity: BatchIdentity, has_failed: bool, will_be_retried: bool, request: int) -> None:
        """Remember a failure after which the client sends the batch again; forget it when the batch got through or
        failed for good. That says nothing of other batches of its epoch. ``has_failed``: does the client take the
        answer as a failure (``answers.is_failure``)? ``request``: the number of the batch's request."""
        if (has_failed or not self.is_empty) and not self._has_ended and TOPIC_NAME.fullmatch(key[1]):
            before = self._count_of(key)
            self._note(key, identity, has_failed, will_be_retried, request)
            self.count += self._count_of(key) - before
            self.is_empty = not (self._failed or self._ended or self._last)

    def _count_of(self, key: Key) -> int:
        return len(self._failed.get(key, ())) + (key in self._ended) + (key in self._last)

    def all_answered(self) -> None:
        """No request of the connection is without an answer: what was sent again, and has its end, has no unanswered
        request before it."""
        if self._last:
            self.count -= len(self._last)
            self._last.clear()
            self.is_empty = not (self._failed or self._ended)

    def end(self) -> None:
        """The connection has ended, and so have its notes: of what its client sent over it nothing comes again there.
        What is answered later leaves none."""
        self._has_ended = self.is_empty = True
        self.count = 0
        for notes in (self._failed, self._ended, self._last, self._links):
            notes.clear()

    def _note(self, key: Key, identity: BatchIdentity, has_failed: bool, will_be_retried: bool, request: int) -> None:
        epoch, sequence = identity.producer_epoch, identity.base_sequence
        failed_in = self._failed_in(key, epoch, sequence)
        others = [one for one in self._failed.get(key, ()) if (one.epoch, one.sequence) != (epoch, sequence)]
        if has_failed and will_be_retried:
            failed = [*others, _Failure(epoch, sequence, max(request, failed_in))]
            if len(failed) > NOTES_MAX:
                failed.remove(min(failed, key=attrgetter("request")))
            self._failed[key] = tuple(failed)
            return
        if has_failed:
            self._ended[key] = epoch
        elif self._ended.get(key, epoch) < epoch:
            del self._ended[key]
        last_epoch, last = self._last.get(key, (epoch, 0))
        if failed_in:
            self._last[key] = epoch, max(request, last) if last_epoch == epoch else request
        elif request > last:
            self._last.pop(key, None)
        if not has_failed or sequence == 0:  # what failed in older epochs is sent again in this one, or never
            others = [one for one in others if one.epoch >= epoch]
        if others:
            self._failed[key] = tuple(others)
        else:
            self._failed.pop(key, None)

    def _failed_in(self, key: Key, epoch: int, sequence: int) -> int:
        """Return the number of the request in which this batch failed last, 0 if it did not fail."""
        for one in self._failed.get(key, ()):
            if one.epoch == epoch and one.sequence == sequence:
                return one.request
        return 0

    def has_failed_before(self, key: Key, identity: BatchIdentity, request: int) -> bool:
        """Did a batch fail here that has to come before this one, and will be sent again? Or has one arrived that waits
        (``hold``)? Or was one sent again, after this one had come with ``request``, and has been answered for good?
        Answers leave in the order of the requests, so its client learns of that after the answer to this batch; if the
        connection breaks in between, it does not.

        A client resends in order. So if this batch has failed here, too, and comes again, a lower one that last failed
        before it did was not resent ahead of it: its client has abandoned that one, and it is not waited for."""
        epoch, sequence = identity.producer_epoch, identity.base_sequence
        if self._held and any(comes_before(*one, identity) for one in self._held.get(key, ())):
            return True
        last_epoch, last = self._last.get(key, (epoch, 0))
        if last_epoch == epoch and request < last:
            return True
        own_request = self._failed_in(key, epoch, sequence)
        if not own_request and sequence != 0 and self._ended.get(key, epoch) < epoch:
            return True
        return any(
            one.request > own_request and comes_before(one.epoch, one.sequence, identity)
            for one in self._failed.get(key, ())
        )

    def has_ended(self, key: Key, producer_epoch: int) -> bool:
        """Did a batch of this epoch fail for good here, with no newer epoch since? Then the client begins a new one."""
        return self._ended.get(key) == producer_epoch

    def has_failed(self, key: Key, identity: BatchIdentity) -> bool:
        """Did this batch itself fail here, so that lower ones have come again before it?"""
        return self._failed_in(key, identity.producer_epoch, identity.base_sequence) > 0

    def has_ended_older(self, key: Key, producer_epoch: int) -> bool:
        """Did a batch of an older epoch fail for good on this connection, and has the first batch of ``producer_epoch``
        not failed here yet? Then that epoch began on this connection, and nothing of it was sent before."""
        is_answered = self._failed_in(key, producer_epoch, 0) > 0
        return not is_answered and self._ended.get(key, producer_epoch) < producer_epoch
