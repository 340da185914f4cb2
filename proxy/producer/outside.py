"""What an append (``append.py``) needs of the engine: typing only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...state.store import NameCheck, SwapResult
from ..broker.queued_append import QueuedAppend, Route
from ..flow.form import Form
from ..flow.outcome import Outcome


class AppendTarget(Protocol):
    """What an append sees of a broker. ``takes_batches``: something can be sent to it now. ``form``: how it stores
    batches. ``may_hold_batches``: may its logs have batches of format v2, whatever it stores now?"""

    id: int
    takes_batches: bool
    form: Form

    @property
    def may_hold_batches(self) -> bool: ...


class Leaders(Protocol):
    """The leaders of partitions, as last learned. ``cluster``: another object whenever the topology has changed."""

    @property
    def cluster(self) -> object: ...

    def leader_of(self, topic: str, partition: int) -> int | None: ...

    def broker(self, broker_id: int) -> AppendTarget | None: ...


class Swapping(Protocol):
    """Swaps in an entry, if the stored version is the expected one and ``name`` holds, if there is one."""

    def __call__(
        self,
        key: bytes,
        expected_version: int,
        value: bytes,
        ttl_ms: int,
        done: Callable[[SwapResult], None],
        name: NameCheck | None = None,
        /,
    ) -> None: ...


class Flushed(Protocol):
    """A sequencer that holds a commit."""

    def look(self, now: float) -> bool:
        """Write the commit, if it is time. False: call it again later. ``now``: reactor seconds."""
        ...


class AppendOutside(Protocol):
    """What an append asks for: the same as the effects of flows, by plain calls."""

    @property
    def leaders(self) -> Leaders: ...

    @property
    def swap(self) -> Swapping:
        """Swap in an entry: as the effect ``Swap``."""
        ...

    def queue_append(self, broker: Any, append: QueuedAppend) -> None:
        """Queue an append for the produce connections of a broker that ``leaders`` returned."""
        ...

    def queue_append_by(self, route: Route, broker_id: int, append: QueuedAppend) -> None:
        """Queue an append for a client's own connection."""
        ...

    def look_at(self, topic: str, outcome: Outcome) -> None:
        """Note what an outcome says of the topology."""
        ...

    def flush_soon(self, sequencer: Flushed) -> None:
        """Have its commit written alone if no reserve comes that carries it."""
        ...

    def in_turn(self, go_on: Callable[[None], None]) -> None:
        """Call ``go_on``, in a later pass if this one has done enough."""
        ...
