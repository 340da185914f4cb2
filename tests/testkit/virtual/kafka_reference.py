"""What a Kafka broker decides about a batch: its ProducerStateEntry and ProducerAppendInfo (2.5 to 3.9), plainly.

For comparison with ``idemproxy.state.decide``. Where the proxy answers differently, it does so on purpose:

1. A producer of which nothing is known starts at any sequence in Kafka (KIP-360); here at 0 only, unless its state has
   expired: that nothing is known may mean that Redis lost it.
2. A batch that lies wholly below the last five is out of order in Kafka (since 1.1); here the log is searched, and it
   is a duplicate (46) if it is found there with the same content.
3. A batch that was stored in parts, for the broker's size limit, is several batches of the window; sent again as a
   whole it is a duplicate.
4. The epoch changes when a batch is reserved, not when it is appended (rule R12): an old epoch is fenced from then on
   even if the broker refuses that batch.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

SEQUENCE_MAX = 2**31 - 1
BATCHES_RETAINED = 5


class Batch(NamedTuple):
    """One batch that was appended; sequences are inclusive."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class Appended(NamedTuple):
    """Error 0. ``is_duplicate``: nothing was written, the offset is the old one."""

    base_offset: int
    is_duplicate: bool


class Failed(NamedTuple):
    """45 OUT_OF_ORDER_SEQUENCE_NUMBER or 47 INVALID_PRODUCER_EPOCH."""

    error_code: int


class ReferenceProducer:
    """The state of one producer id on one partition of a broker."""

    def __init__(self) -> None:
        self.epoch = -1
        self.batches: deque[Batch] = deque(maxlen=BATCHES_RETAINED)

    def append(self, epoch: int, base_sequence: int, record_count: int, next_offset: int) -> Appended | Failed:
        """Take a batch that would get ``next_offset``, or say why not."""
        last_sequence = increment(base_sequence, record_count - 1)
        if epoch == self.epoch:
            for known in self.batches:
                if (known.first_sequence, known.last_sequence) == (base_sequence, last_sequence):
                    return Appended(known.base_offset, True)
        if epoch < self.epoch:
            return Failed(47)
        if self.epoch >= 0 and epoch > self.epoch:
            if base_sequence != 0:
                return Failed(45)
        elif self.batches and not in_sequence(self.batches[-1].last_sequence, base_sequence):
            return Failed(45)
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
        self.batches.append(Batch(base_sequence, last_sequence, next_offset))
        return Appended(next_offset, False)


def increment(sequence: int, by: int) -> int:
    """DefaultRecordBatch.incrementSequence, in its own words."""
    if sequence > SEQUENCE_MAX - by:
        return by - (SEQUENCE_MAX - sequence) - 1
    return sequence + by


def in_sequence(last_sequence: int, next_sequence: int) -> bool:
    """ProducerAppendInfo.inSequence."""
    return next_sequence == last_sequence + 1 or (next_sequence == 0 and last_sequence == SEQUENCE_MAX)
