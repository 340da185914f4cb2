"""What failed on one client connection and will be sent again, so that what follows it there is no gap (rule R11).
Pure: told of every answer, asked before a refusal.

A batch that got through, or failed for good, leaves no note; of those that a client gave up the latest few are kept.
Nor does one for a name that no topic can have: all that follows it there is refused like it."""

from __future__ import annotations

from ...state.decide import BatchIdentity
from ...state.sequence import is_ahead
from .. import limits
from ..bridge.metadata import TOPIC_NAME

Key = tuple[int, str, int]
"""Producer id, topic, partition."""
NOTES_MAX = 16
"""Of one producer on one partition: more than a client has in flight, retries included."""


def comes_before(epoch: int, sequence: int, batch: BatchIdentity) -> bool:
    """Has the batch with this epoch and base sequence to come before ``batch``? A lower sequence of its epoch; or
    anything of an older epoch: a client sends what is unfinished again as the first batches of the new one, before
    which nothing comes."""
    if epoch == batch.producer_epoch:
        return is_ahead(sequence, batch.base_sequence)
    return epoch < batch.producer_epoch and batch.base_sequence != 0


class RetryNotes:
    """The notes of one connection."""

    __slots__ = ("_ended", "_failed", "_held", "is_empty", "requests")

    def __init__(self) -> None:
        self.requests = 0
        """The number of the last request that came."""
        self.is_empty = True
        """Nothing has failed, or all of it was forgotten: a batch that gets through changes nothing here."""
        self._ended: dict[Key, int] = {}
        """The epoch of which a batch failed for good last, until one of a newer epoch got through."""
        self._failed: dict[Key, dict[tuple[int, int], int]] = {}
        """Epoch and base sequence of what failed retriably and did not get through since, and in which request on this
        connection it did so last."""
        self._held: dict[Key, list[tuple[int, int]]] = {}
        """Epoch and base sequence of what has come and is not with its producer's other batches yet."""

    def request_number(self) -> int:
        """Return the number of a request that comes now."""
        self.requests += 1
        return self.requests

    def hold(self, key: Key, identity: BatchIdentity) -> None:
        """The batch waits before it comes to the others of its producer: what is sent behind it may overtake it."""
        self._held.setdefault(key, []).append((identity.producer_epoch, identity.base_sequence))

    def let_go(self, key: Key, identity: BatchIdentity) -> None:
        """It waits no longer."""
        held = self._held[key]
        held.remove((identity.producer_epoch, identity.base_sequence))
        if not held:
            del self._held[key]

    def note(self, key: Key, identity: BatchIdentity, has_failed: bool, will_be_retried: bool, request: int) -> None:
        """Remember a failure after which the client sends it again; forget it when the batch got through or failed for
        good. Of other batches of its epoch that says nothing. ``has_failed``: its client takes the answer as a failure,
        as it does not where it is told that the batch is stored (``answers.is_failure``)."""
        if (has_failed or not self.is_empty) and TOPIC_NAME.fullmatch(key[1]):
            self._note(key, identity, has_failed, will_be_retried, request)
            self.is_empty = not (self._failed or self._ended)

    def _note(self, key: Key, identity: BatchIdentity, has_failed: bool, will_be_retried: bool, request: int) -> None:
        epoch, sequence = identity.producer_epoch, identity.base_sequence
        if has_failed and will_be_retried:
            failures = self._failed.setdefault(key, {})
            failures[epoch, sequence] = max(request, failures.get((epoch, sequence), 0))
            if len(failures) > NOTES_MAX:
                del failures[min(failures, key=failures.__getitem__)]
            return
        if has_failed:
            self._ended[key] = epoch
        elif self._ended.get(key, epoch) < epoch:
            del self._ended[key]
        failed = self._failed.get(key)
        if failed is None:
            return
        failed.pop((epoch, sequence), None)
        if not has_failed or sequence == 0:  # what an older epoch left was sent again as this one, or will not be
            failed = self._failed[key] = {one: number for one, number in failed.items() if one[0] >= epoch}
        if not failed:
            del self._failed[key]

    def has_failed_before(self, key: Key, identity: BatchIdentity) -> bool:
        """Did something fail here that has to come before this batch, and comes again? Or has it come, and waits?

        What is sent again comes in its order. So if this batch has failed here too and comes again, what was sent last
        before it was is given up, and is waited for no longer."""
        epoch, sequence = identity.producer_epoch, identity.base_sequence
        if self._held and any(comes_before(*one, identity) for one in self._held.get(key, ())):
            return True
        failed = self._failed.get(key, {})
        own_request = failed.get((epoch, sequence), 0)
        if not own_request and sequence != 0 and self._ended.get(key, epoch) < epoch:
            return True
        return any(number > own_request and comes_before(*one, identity) for one, number in failed.items())

    def has_ended(self, key: Key, producer_epoch: int) -> bool:
        """Did a batch of this epoch fail for good here, and was no newer epoch seen since? Its client begins one."""
        return self._ended.get(key) == producer_epoch

    def has_failed(self, key: Key, identity: BatchIdentity) -> bool:
        """Did this batch itself fail here, so that it comes again behind what comes before it?"""
        return (identity.producer_epoch, identity.base_sequence) in self._failed.get(key, ())

    def has_ended_older(self, key: Key, producer_epoch: int) -> bool:
        """Was a batch of an older epoch sent over this connection, and failed for good, and was the first one of the
        newer epoch not answered here yet? Then that epoch began after this connection did: it was never sent before."""
        is_answered = (producer_epoch, 0) in self._failed.get(key, ())
        return not is_answered and self._ended.get(key, producer_epoch) < producer_epoch

    @property
    def are_too_many(self) -> bool:
        """Are they more than any client has at work? Producers and partitions may be named there without end."""
        return len(self._failed) + len(self._ended) > limits.FAILURES_NOTED_MAX
