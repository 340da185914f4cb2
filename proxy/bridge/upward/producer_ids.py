"""The producer ids under which message sets of clients without one are written. Pure: asks no broker.

An id is lent for one request of one connection, and comes back with the sequences that its next request begins with. So
connections that take turns share ids: brokers keep an entry for each id and partition for a day
(``producer.id.expiration.ms``), and there are no more ids than requests at one time.

An id of which something may still arrive comes back in its next epoch, from sequence 0: a broker that has seen the next
epoch on a partition refuses what arrives late (INVALID_PRODUCER_EPOCH). The epoch is counted here, as Kafka's own
producer does (``TransactionManager.bumpIdempotentProducerEpoch``): without a transactional id InitProducerId ignores
id and epoch, and gives another id (``TransactionCoordinator.handleInitProducerId``; so do 3.9.1 and 4.3.1).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ....producing.numbered_batch import Place, ProducerId

IDS_MAX: Final = 1_000
"""Ids of one proxy process that are known at one time. With requests of 10 ms that is 100,000 requests a second; more
wait for each other. Each may cost every partition's leader an entry of some 200 bytes for a day."""
PLACES_PER_ID_MAX: Final = 2_000
"""Partitions whose sequences are kept for an id, 200 KB in all. With more it begins its next epoch, where all are 0."""
EPOCH_MAX: Final = 2**15 - 1
"""After it an id is dropped: some 100 bytes more at each leader, after 32,000 unknown outcomes."""


@dataclass(slots=True, eq=False)
class LentId:
    """A producer id while one request has it. ``next_sequences``: of partitions that it has written; others begin with
    0."""

    producer_id: ProducerId
    next_sequences: dict[Place, int] = field(default_factory=dict)

    @property
    def number(self) -> int:
        """The producer id without its epoch."""
        return self.producer_id.number


class ProducerIdPool:
    """All producer ids of one proxy process in front of one cluster."""

    def __init__(self, ids_max: int = IDS_MAX) -> None:
        self._ids_max = ids_max
        self._idle: OrderedDict[int, LentId] = OrderedDict()
        """The last one was used last."""
        self._known = 0
        """Ids that are idle, lent, or asked for."""
        self._waiting: OrderedDict[object, Callable[[], None]] = OrderedDict()

    @property
    def known(self) -> int:
        """How many ids are idle, lent, or asked for."""
        return self._known

    def lend(self, preferred: int | None = None) -> LentId | None:
        """Return an idle id, ``preferred`` if it is idle, else the one that was used last. None: there is none."""
        if not self._idle:
            return None
        if preferred is not None and preferred in self._idle:
            return self._idle.pop(preferred)
        return self._idle.popitem()[1]

    def may_ask(self) -> bool:
        """Whether a broker is to be asked for another id; then the caller owes ``take_new`` or ``not_given``."""
        if self._known >= self._ids_max:
            return False
        self._known += 1
        return True

    def take_new(self, producer_id: ProducerId) -> LentId:
        """A broker has given an id; it is lent at once."""
        return LentId(producer_id)

    def not_given(self) -> None:
        """A broker has given none."""
        self._forget_one()

    def give_back(self, lent: LentId, *, is_outcome_open: bool) -> None:
        """A request has ended. ``is_outcome_open``: a batch of it may still reach a broker."""
        if (is_outcome_open or len(lent.next_sequences) > PLACES_PER_ID_MAX) and not self.begin_next_epoch(lent):
            return
        self._idle[lent.number] = lent
        self._wake_one()

    def begin_next_epoch(self, lent: LentId) -> bool:
        """Let all sequences begin with 0 again, in the next epoch. False: it had the last one, and was dropped."""
        if lent.producer_id.epoch >= EPOCH_MAX:
            self.drop()
            return False
        lent.producer_id = ProducerId(lent.number, lent.producer_id.epoch + 1)
        lent.next_sequences.clear()
        return True

    def drop(self) -> None:
        """An id that is lent is used no more: somebody else writes under it, or it had its last epoch."""
        self._forget_one()

    # ------------------------------------------------------------------ waiting
    def wait(self, who: object, wake: Callable[[], None]) -> None:
        """Call ``wake`` once an id is idle or may be asked for; in the order of the calls."""
        self._waiting[who] = wake

    def wait_no_more(self, who: object) -> None:
        """It has an id, or its time is over: then the id that it was woken for is another's."""
        self._waiting.pop(who, None)
        if self._idle or self._known < self._ids_max:
            self._wake_one()

    def _forget_one(self) -> None:
        self._known -= 1
        self._wake_one()

    def _wake_one(self) -> None:
        if self._waiting:
            _, wake = self._waiting.popitem(last=False)
            wake()
