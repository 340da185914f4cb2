"""What all clients of a process hold together: requests, answers that they do not take, and large answers of brokers.

A large answer gets room before it is read: without it, its broker keeps it. Pure sums; knows no Kafka."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .settings.config import Caps


class Room:
    """For one large answer. ``is_there``: it may be read."""

    __slots__ = ("_go", "_holdings", "is_over", "is_there", "size")

    def __init__(self, holdings: Holdings, size: int, go: Callable[[], None]) -> None:
        self._holdings = holdings
        self._go = go
        self.size = size
        self.is_there = False
        self.is_over = False

    def granted(self) -> None:
        """It is there at last."""
        self.is_there = True
        self._go()

    def release(self) -> None:
        """It is not needed any more. More than once is the same as once."""
        if not self.is_over:
            self.is_over = True
            self._holdings.released(self)


class Holdings:
    """``bytes_held``: of requests that are not answered; ``answer_bytes_held``: of answers that are not taken;
    ``answer_bytes_due``: of large answers of brokers that have not arrived completely, or have not been given on."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.bytes_held = 0
        self.answer_bytes_held = 0
        self.answer_bytes_due = 0
        self._asked: deque[Room] = deque()

    def hold_bytes(self, count: int) -> None:
        """Requests of so many bytes came in, or (negative) were answered."""
        self.bytes_held += count

    def hold_answers(self, count: int) -> None:
        """So many bytes of answers wait for clients that do not take them, or (negative) were taken."""
        self.answer_bytes_held += count
        if count < 0 and self._asked:
            self._grant()

    @property
    def is_full(self) -> bool:
        """Is no client to be read from now, but those in the middle of a request?"""
        return self.bytes_held > self.caps.bytes_in_flight_max

    @property
    def is_overfull(self) -> bool:
        """Not even those."""
        return self.bytes_held > 2 * self.caps.bytes_in_flight_max

    @property
    def has_many_answers(self) -> bool:
        """Do clients that do not take their answers cost too much memory, or keep others waiting for theirs?"""
        return self.answer_bytes_held > self.caps.unanswered_bytes_max or bool(self._asked)

    # ------------------------------------------------------------------ large answers
    def ask_room(self, size: int, go: Callable[[], None]) -> Room:
        """Return room for an answer of ``size`` bytes. If it is not there yet, ``go`` is called when it is: those who
        have asked earlier come first."""
        room = Room(self, size, go)
        if not self._asked and self._has_room(size):
            room.is_there = True
            self.answer_bytes_due += size
        else:
            self._asked.append(room)
        return room

    def released(self, room: Room) -> None:
        """Somebody needs his room no more."""
        if room.is_there:
            self.answer_bytes_due -= room.size
        self._grant()

    def _has_room(self, size: int) -> bool:
        """One answer of any size finds its way, even where others leave half of the room."""
        most, held = self.caps.unanswered_bytes_max, self.answer_bytes_held
        return self.answer_bytes_due + held + size <= most or (not self.answer_bytes_due and held <= most // 2)

    def _grant(self) -> None:
        while self._asked and (self._asked[0].is_over or self._has_room(self._asked[0].size)):
            room = self._asked.popleft()
            if not room.is_over:
                self.answer_bytes_due += room.size
                room.granted()
