"""Which producers with a name began at this process, and whom each of them fenced. Plain data, capped, as clients
choose their names freely. Pure."""

from __future__ import annotations

from ...values import value
from .. import limits
from ..events import InstanceBegan


@value(frozen=True, slots=True)
class ProducerNameInstance:
    """The newest instance of a name that began at this process. ``instances``: how many of the name began here;
    ``fenced``: how many of these replaced an earlier instance, which was fenced. ``began_at``: seconds of the clock."""

    producer_id: int
    producer_epoch: int
    instances: int
    fenced: int
    began_at: float


class ProducerNameInstances:
    """The named instances of one process. ``began``, ``fenced``: counted over all names, also those that were
    dropped."""

    def __init__(self) -> None:
        self.began = self.fenced = 0
        self._known: dict[str, ProducerNameInstance] = {}
        """By name; the one whose instance began last comes last."""

    def note_instance(self, event: InstanceBegan, now: float) -> None:
        """Another one has begun."""
        had_one = event.before is not None
        self.began += 1
        self.fenced += had_one
        before = self._known.pop(event.name, None)
        counts = (1, int(had_one)) if before is None else (before.instances + 1, before.fenced + had_one)
        self._known[event.name] = ProducerNameInstance(event.producer_id, event.producer_epoch, *counts, now)
        if len(self._known) > limits.NAMES_SHOWN_MAX:
            del self._known[next(iter(self._known))]

    def newest_first(self) -> list[tuple[str, ProducerNameInstance]]:
        """Return them by name, the one that began last first. May be called from another thread."""
        return list(self._known.copy().items())[::-1]
