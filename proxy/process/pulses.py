"""Which workers are alive: each sends a beat from its event loop, and one that is silent for a lease is replaced.

Its lease has ended by then, so it may append nothing any more (rule R4), while the kernel still gives it new
connections. Pure: every time is given from outside, in seconds of one clock that does not go back."""

from __future__ import annotations

from collections.abc import Mapping

from .. import limits


class Pulses:
    """The beats of all workers, as their supervisor has seen them."""

    __slots__ = ("_heard_at", "_killed_at", "_looked_at", "_until")

    def __init__(self) -> None:
        self._looked_at = float("-inf")
        self._until: dict[int, float] = {}
        """When each that runs has been silent for too long, by its number."""
        self._heard_at: dict[int, float] = {}
        self._killed_at: dict[int, float] = {}

    def begin(self, number: int, now: float) -> None:
        """A process was started under this number. Its first beat comes when its event loop runs."""
        self._until[number] = now + limits.WORKER_START_SECONDS_MAX

    def beat(self, number: int, now: float) -> None:
        """A beat has arrived."""
        if number in self._until:
            self._until[number] = now + limits.WORKER_SILENT_SECONDS_MAX
            self._heard_at[number] = now

    def end(self, number: int) -> None:
        """The process has ended."""
        for kept in (self._until, self._heard_at, self._killed_at):
            kept.pop(number, None)

    def look(self, now: float) -> list[int]:
        """Return the workers to kill, each once; to be called every ``WORKER_LOOK_SECONDS``. If this call is late, the
        supervisor itself stood still, with the workers or without: what it has not heard says nothing of them, and the
        time of each begins again."""
        if now - self._looked_at > limits.WORKER_LOOK_SECONDS + limits.SUPERVISOR_LATE_SECONDS:
            least = now + limits.WORKER_SILENT_SECONDS_MAX
            self._until = {number: max(until, least) for number, until in self._until.items()}
            self._heard_at = dict.fromkeys(self._heard_at, now)
        self._looked_at = now
        hung = [number for number, until in self._until.items() if now > until and number not in self._killed_at]
        self._killed_at.update(dict.fromkeys(hung, now))
        self._heard_at = dict.fromkeys(hung, now) | self._heard_at  # also of those that hung before their first beat
        return hung

    def silent(self, now: float) -> Mapping[int, float]:
        """Return for how many seconds each worker that has missed beats has been silent, by its number."""
        silence = {number: now - heard_at for number, heard_at in self._heard_at.items()}
        return {number: seconds for number, seconds in silence.items() if seconds > limits.WORKER_SILENT_SECONDS_SHOWN}

    def unkillable(self, now: float) -> list[int]:
        """Return the workers that SIGKILL has not ended within a lease: only the end of the whole proxy may help."""
        late = limits.WORKER_SILENT_SECONDS_MAX
        return [number for number, killed_at in self._killed_at.items() if now - killed_at > late]
