"""What failed on one client connection and will be sent again, so that what follows it there is no gap (rule R11).
Pure: told of every answer, asked before a refusal.

Nothing is kept of a batch that got through or failed for good; a producer that goes on sending clears its own notes."""

from __future__ import annotations

from .decide import BatchIdentity
from .sequence import is_ahead

Key = tuple[int, str, int]
"""Producer id, topic, partition."""


class Behind:
    """The notes of one connection."""

    __slots__ = ("_ended", "_failed")

    def __init__(self) -> None:
        self._ended: dict[Key, int] = {}
        """The epoch of which a batch failed for good last, until one of a newer epoch got through."""
        self._failed: dict[Key, dict[tuple[int, int], None]] = {}
        """Epoch and base sequence of what failed retriably and did not get through since, the latest failure last."""

    def note(self, key: Key, identity: BatchIdentity, error_code: int, retriable: bool) -> None:
        """Remember a retriable failure; forget it when the batch failed for good, or when it or a later one got
        through, perhaps over another connection."""
        epoch, sequence = identity.producer_epoch, identity.base_sequence
        if error_code and retriable:
            failures = self._failed.setdefault(key, {})
            failures.pop((epoch, sequence), None)
            failures[epoch, sequence] = None
            return
        if error_code:
            self._ended[key] = epoch
        elif self._ended.get(key, epoch) < epoch:
            del self._ended[key]
        failed = self._failed.get(key)
        if failed is None:
            return
        failed.pop((epoch, sequence), None)
        if not error_code:
            is_left = [one for one in failed if one[0] > epoch or (one[0] == epoch and is_ahead(sequence, one[1]))]
            failed = dict.fromkeys(is_left)
        elif sequence == 0:  # what an older epoch left was sent again as this one, or will not be
            failed = dict.fromkeys(one for one in failed if one[0] >= epoch)
        if failed:
            self._failed[key] = failed
        else:
            del self._failed[key]

    def has_failed_before(self, key: Key, identity: BatchIdentity) -> bool:
        """Did something fail that has to come before this batch, and was not sent again? A lower sequence of its epoch,
        retriably; or anything of an older epoch: a client sends what is unfinished again as the first batches of the
        new one, before which nothing comes.

        What is sent again comes in its order. So if this batch has failed here too and comes again, what failed before
        it did and has not come is given up, and is waited for no longer."""
        epoch, sequence = identity.producer_epoch, identity.base_sequence
        failed = iter(self._failed.get(key, ()))
        if (epoch, sequence) not in self._failed.get(key, ()):
            if sequence != 0 and self._ended.get(key, epoch) < epoch:
                return True
        else:
            while next(failed) != (epoch, sequence):
                pass
        return any(
            (one[0] == epoch and is_ahead(one[1], sequence)) or (one[0] < epoch and sequence != 0) for one in failed
        )

    def has_ended_older(self, key: Key, producer_epoch: int) -> bool:
        """Was a batch of an older epoch sent over this connection, and failed for good, and was the first one of the
        newer epoch not answered here yet? Then that epoch began after this connection did: it was never sent before."""
        is_answered = (producer_epoch, 0) in self._failed.get(key, ())
        return not is_answered and self._ended.get(key, producer_epoch) < producer_epoch
