"""Which named producers began at this process, and whom each of them fenced. Plain data, capped, as clients choose
their names freely. Pure."""

from __future__ import annotations

from ...values import value
from .. import limits
from ..events import InstanceBegan


@value(frozen=True, slots=True)
class NamedInstance:
    """The newest instance of a name that began here. ``instances``, ``fenced``: so many began here, and so many of
    these had one before them, which is fenced since. ``began_at``: seconds of the clock."""

    producer_id: int
    producer_epoch: int
    instances: int
    fenced: int
    began_at: float


class NamedInstances:
    """Of one process. ``began``, ``fenced``: of all names, also of those that are not known any more."""

    def __init__(self) -> None:
        self.began = self.fenced = 0
        self._known: dict[str, NamedInstance] = {}
        """The name of which an instance began last is the last one."""

    def take(self, event: InstanceBegan, now: float) -> None:
        """Another one has begun."""
        had_one = event.before is not None
        self.began += 1
        self.fenced += had_one
        before = self._known.pop(event.name, None)
        counts = (1, int(had_one)) if before is None else (before.instances + 1, before.fenced + had_one)
        self._known[event.name] = NamedInstance(event.producer_id, event.producer_epoch, *counts, now)
        if len(self._known) > limits.NAMES_SHOWN_MAX:
            del self._known[next(iter(self._known))]

    def newest_first(self) -> list[tuple[str, NamedInstance]]:
        """Return them by name, the one that began last first. May be called from another thread."""
        return list(self._known.copy().items())[::-1]
