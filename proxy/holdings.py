"""What all clients of a process hold together: bytes of requests, and of answers that they do not take. Only sums."""

from __future__ import annotations

from .settings.config import Caps


class Holdings:
    """``bytes_held``: of requests that are not answered; ``answer_bytes_held``: of answers that are not taken."""

    def __init__(self, caps: Caps) -> None:
        self.caps = caps
        self.bytes_held = 0
        self.answer_bytes_held = 0

    def hold_bytes(self, count: int) -> None:
        """Requests of so many bytes came in, or (negative) were answered."""
        self.bytes_held += count

    def hold_answers(self, count: int) -> None:
        """So many bytes of answers wait for clients that do not take them, or (negative) were taken."""
        self.answer_bytes_held += count

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
        """Do clients that do not take their answers cost too much memory?"""
        return self.answer_bytes_held > self.caps.unanswered_bytes_max
