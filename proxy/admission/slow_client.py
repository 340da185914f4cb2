"""How long a slow client is waited for: until the rest of a request arrives, until it takes its answers, until it asks
for anything at all. Pure sums over what is seen of it; knows no timer, no socket and no Kafka."""

from __future__ import annotations

from .. import limits


class SlowClient:
    """One client. Times are seconds of the caller's clock. What it did not do while it was not read from does not count
    against it: ``request_begins`` is called again then."""

    __slots__ = ("_began_at", "_idle_looks", "_taken_at", "_unsent_at_look", "_unsent_at_poll")

    def __init__(self) -> None:
        self._began_at = 0.0
        self._taken_at = 0.0
        self._idle_looks = 0
        self._unsent_at_look = 0
        self._unsent_at_poll = 0

    def request_begins(self, now: float) -> None:
        """The rest of a request is waited for from now on."""
        self._began_at = now

    def why_unfinished(self, now: float, unfinished_bytes: int) -> str | None:
        """Say why the rest of its request, of which so many bytes have arrived, is not waited for any longer. None: it
        is."""
        seconds = now - self._began_at
        if unfinished_bytes >= (seconds - limits.UNFINISHED_SECONDS) * limits.UNFINISHED_BYTES_PER_SECOND:
            return None
        return f"only {unfinished_bytes} bytes of a request came in {seconds:.0f} s"

    def answers_wait(self, now: float, unsent: int) -> None:
        """So many bytes of answers are not taken: the time until they are counts from now on."""
        self._taken_at, self._unsent_at_poll = now, unsent

    def why_untaken(self, now: float, unsent: int, *, is_needed: bool) -> str | None:
        """Say why the client, which has left so many bytes of answers untaken, is not waited for any longer. None: it
        is. ``is_needed``: others wait for the memory; then less than ``UNTAKEN_BYTES_PER_SECOND`` is no progress."""
        taken, seconds = self._unsent_at_poll - unsent, now - self._taken_at
        if not unsent or taken >= (limits.UNTAKEN_BYTES_PER_SECOND * seconds if is_needed else 1):
            self.answers_wait(now, unsent)
            return None
        self._unsent_at_poll = max(self._unsent_at_poll, unsent)
        is_scarce = is_needed and unsent > limits.BACKLOG_BYTES
        if seconds <= (limits.UNTAKEN_SECONDS_SCARCE if is_scarce else limits.UNTAKEN_SECONDS):
            return None
        return f"it read none of {unsent} pending response bytes for {seconds:.0f} s"

    def is_idle(self, unsent: int, idle_seconds: float, *, is_active: bool) -> bool:
        """Has it asked for nothing, and taken nothing, for ``idle_seconds``? To be called every ``IDLE_LOOK_SECONDS``:
        the time is counted in calls."""
        unsent_before, self._unsent_at_look = self._unsent_at_look, unsent
        if is_active or unsent != unsent_before:
            self._idle_looks = 0
            return False
        self._idle_looks += 1
        return self._idle_looks * limits.IDLE_LOOK_SECONDS >= idle_seconds
