"""The lease of one proxy instance (rules R1, R4): until when it may send. Pure: every time is given from outside.

The lease counts from the moment before its renewal was sent, so it always ends before the key in Redis expires.
"""

from __future__ import annotations

LEASE_SECONDS = 6.0
RENEW_SECONDS = 2.0
"""Two renewals may fail before the lease runs out."""
MARGIN_SECONDS = 1.0
"""No byte of a produce request leaves in the last so many seconds of the lease: clocks drift, and a write takes time
(rule R4)."""


class Lease:
    """Times are seconds of a clock that also runs while the machine sleeps (CLOCK_BOOTTIME)."""

    __slots__ = ("_held", "ends_at", "instance_id", "is_registered", "tries_unanswered", "ttl_seconds")

    def __init__(self, instance_id: bytes, ttl_seconds: float = LEASE_SECONDS) -> None:
        assert ttl_seconds > MARGIN_SECONDS, "a lease that never allows anything"
        self.instance_id = instance_id
        self.ttl_seconds = ttl_seconds
        self.ends_at = float("-inf")
        self.is_registered = False
        """Redis was seen to have its registration. A proxy instance that was registered once is never registered again:
        swaps that it sent under the lost registration would be valid again."""
        self.tries_unanswered = 0
        """First registrations without an answer: whether they were executed, or will be, is unknown."""
        self._held = False

    @property
    def is_held(self) -> bool:
        """Did a renewal succeed, with no loss noticed since?"""
        return self._held

    # R4 lives here: the deadline of every send.
    def may_send(self, now: float) -> bool:
        """May a produce frame leave now (rule R4)?"""
        return now + MARGIN_SECONDS < self.ends_at

    def renewed(self, sent_at: float) -> None:
        """A renewal was confirmed. ``sent_at``: taken before it was sent. An older renewal never shortens the lease."""
        self._held = True
        self.ends_at = max(self.ends_at, sent_at + self.ttl_seconds)

    def notice_end(self, now: float) -> bool:
        """Return True exactly once per loss: when a lease that was held has run out."""
        if self._held and now >= self.ends_at:
            self._held = False
            return True
        return False

    def give_up(self) -> bool:
        """The registration is missing or was ended: nothing may be sent from now on. True if the lease was held."""
        held, self._held = self._held, False
        self.ends_at = float("-inf")
        return held
