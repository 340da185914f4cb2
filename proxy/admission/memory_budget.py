"""What all clients of a process hold together: requests, answers that they do not take, and large answers of brokers.

Once the memory is full, no client is read from, also not for the rest of an unfinished request: complete requests are
answered, and that frees some. But where unfinished ones hold more than half of the memory, all might wait for ever; so
then a few at a time may arrive completely.

Memory for a large answer is reserved before it is read: until then its broker keeps it. Clients that have not taken a
large one yet share half of the memory, so that many which take nothing leave the other half to those that do. Pure
sums; knows no Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ..settings.config import Caps

WAITING_COUNTS: Final = 2
"""How often each byte of a request counts that waits to be read: there will be a converted copy of it, too."""
Count = Callable[[int], None]
"""Called with the number of bytes that are kept from now on, or (negative) no more."""


class Held:
    """Bytes that are counted as long as this object lives: what keeps the bytes refers to it, too. So what is
    counted is what is there, whatever way a request ends."""

    __slots__ = ("_count", "_size")

    def __init__(self, count: Count, size: int) -> None:
        self._count = count
        self._size = size
        count(size)

    def resize(self, size: int) -> None:
        """From now on it is so many bytes."""
        before, self._size = self._size, size
        if size != before:
            self._count(size - before)

    def grow(self, count: int) -> None:
        """So many bytes more."""
        self.resize(self._size + count)

    def __del__(self) -> None:
        self._count(-self._size)


class Reservation:
    """Memory for one large answer of a broker, ``size`` bytes. ``is_there``: it is granted, the answer may be read.
    ``is_over``: it was released."""

    __slots__ = ("_budget", "_go", "is_new", "is_over", "is_there", "size")

    def __init__(self, budget: MemoryBudget, size: int, go: Callable[[], None], is_new: bool) -> None:
        self._budget = budget
        self._go = go
        self.size = size
        self.is_new = is_new
        self.is_there = False
        self.is_over = False

    def granted(self) -> None:
        """The memory is there: call back."""
        self._go()

    def release(self) -> None:
        """It is not needed any more. More than once is the same as once."""
        if not self.is_over:
            self.is_over = True
            self._budget.released(self)


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """What is held at one moment, in bytes; ``waiting``: large answers that wait for memory. See ``MemoryBudget``."""

    bytes_held: int
    bytes_max: int
    unfinished_bytes: int
    answer_bytes_held: int
    answer_bytes_due: int
    waiting: int


class MemoryBudget:
    """``bytes_held``: of requests that are not answered, with what they are or will be converted to; of these
    ``unfinished_bytes`` are of requests that have not arrived completely; ``answer_bytes_held``: of answers that are
    not taken; ``answer_bytes_due``: of large answers of brokers that have not arrived completely, or have not been
    given on."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.bytes_held = 0
        self.unfinished_bytes = 0
        self._ending_bytes = 0
        """Bytes that are missing of the requests that may arrive completely though the memory is full."""
        self.answer_bytes_held = 0
        self.answer_bytes_due = 0
        self._new_bytes = 0
        """The part of ``answer_bytes_held`` and ``answer_bytes_due`` that is for clients which have not taken a large
        answer yet."""
        self._waiting: tuple[deque[Reservation], deque[Reservation]] = (deque(), deque())
        """What waits for memory: of clients that have taken large answers, and of those that have not."""
        self._is_turn_of_new = False

    def statistics(self) -> MemoryStatistics:
        """Return what is held now."""
        return MemoryStatistics(
            self.bytes_held,
            self.caps.request_bytes_total_max,
            self.unfinished_bytes,
            self.answer_bytes_held,
            self.answer_bytes_due,
            sum(map(len, self._waiting)),
        )

    def hold_bytes(self, count: int) -> None:
        """Requests of so many bytes came in, or (negative) were answered."""
        self.bytes_held += count

    def hold_unfinished(self, count: int) -> None:
        """So many bytes of requests came in that are not complete, or (negative) are complete now, or have gone."""
        self.bytes_held += count
        self.unfinished_bytes += count

    def hold_answers(self, count: int, is_new: bool = False) -> None:
        """So many bytes of answers wait for clients that do not take them, or (negative) were taken. ``is_new``: the
        client has never taken a large one."""
        self.answer_bytes_held += count
        if is_new:
            self._new_bytes += count
        if count < 0:
            self._grant()

    @property
    def is_full(self) -> bool:
        """Is no client to be read from now?"""
        return self.bytes_held > self.caps.request_bytes_total_max

    @property
    def is_full_of_unfinished(self) -> bool:
        """Is it mostly unfinished requests, which are not answered and free nothing by themselves?"""
        most = self.caps.request_bytes_total_max
        return self.bytes_held > most and self.unfinished_bytes > most // 2

    @property
    def ending_bytes_max(self) -> int:
        """So many bytes may be missing in all of the requests that may arrive completely though the memory is full."""
        return self.caps.request_bytes_total_max // 8

    def may_end(self, missing_bytes: int) -> bool:
        """May a request of which so many bytes are missing arrive completely though the memory is full? If so,
        ``has_ended`` is to be called when it has arrived, or its client has gone."""
        if self._ending_bytes + missing_bytes > self.ending_bytes_max:
            return False
        self._ending_bytes += missing_bytes
        return True

    def has_ended(self, missing_bytes: int) -> None:
        """A request that ``may_end`` allowed has arrived, or its client has gone. ``missing_bytes``: as given there."""
        self._ending_bytes -= missing_bytes

    @property
    def has_many_answers(self) -> bool:
        """Do clients that do not take their answers cost too much memory, or keep others waiting for theirs?"""
        return self.answer_bytes_held > self.caps.response_bytes_total_max or any(self._waiting)

    # ------------------------------------------------------------------ large answers
    def reserve(self, size: int, go: Callable[[], None], is_new: bool = False) -> Reservation:
        """Reserve ``size`` bytes for an answer. If they are not free yet, ``go`` is called when they are: what has
        waited longer comes first, and new clients and others take turns."""
        reservation = Reservation(self, size, go, is_new)
        if not self._waiting[is_new] and self._fits(reservation) and self._fits_new(reservation):
            self._allot(reservation)
        else:
            self._waiting[is_new].append(reservation)
        return reservation

    def released(self, reservation: Reservation) -> None:
        """It is needed no more."""
        if reservation.is_there:
            self._count(reservation, -reservation.size)
        self._grant()

    def _fits(self, reservation: Reservation) -> bool:
        """Is there room for it? An answer that is larger than all of the memory fits, too, while no other one is due
        and untaken answers hold at most half."""
        most, held, due = self.caps.response_bytes_total_max, self.answer_bytes_held, self.answer_bytes_due
        return due + held + reservation.size <= most or (not due and held <= most // 2)

    def _fits_new(self, reservation: Reservation) -> bool:
        most = self.caps.response_bytes_total_max // 2
        return not reservation.is_new or self._new_bytes + reservation.size <= most or not self._new_bytes

    def _allot(self, reservation: Reservation) -> None:
        reservation.is_there = True
        self._count(reservation, reservation.size)

    def _count(self, reservation: Reservation, count: int) -> None:
        self.answer_bytes_due += count
        if reservation.is_new:
            self._new_bytes += count

    def _grant(self) -> None:
        while (reservation := self._next()) is not None:
            self._waiting[reservation.is_new].popleft()
            self._is_turn_of_new = not reservation.is_new
            self._allot(reservation)
            reservation.granted()

    def _next(self) -> Reservation | None:
        """The reservation that is granted now, if any is."""
        for is_new in (self._is_turn_of_new, not self._is_turn_of_new):
            queue = self._waiting[is_new]
            while queue and queue[0].is_over:
                queue.popleft()
            if queue and self._fits_new(queue[0]):
                return queue[0] if self._fits(queue[0]) else None
        return None
