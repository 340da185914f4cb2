"""What the fast path (``fast_path.py``) needs of the engine: typing only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...state.store import Conflict, StoreAway, Swapped
from ..broker.queued_append import QueuedAppend
from ..flow.outcome import Outcome


class Broker(Protocol):
    """What the fast path sees of a broker. ``takes_batches``: something can be sent to it now."""

    id: int
    takes_batches: bool


class Leaders(Protocol):
    """The leaders of partitions, as last learned. ``cluster``: another object whenever the topology has changed."""

    @property
    def cluster(self) -> object: ...

    def leader_of(self, topic: str, partition: int) -> int | None: ...

    def broker(self, broker_id: int) -> Broker | None: ...


Swapping = Callable[[bytes, int, bytes, Callable[[Swapped | Conflict | StoreAway], None]], None]
"""Key, expected version, value, and the callback that gets the result."""


class Flushed(Protocol):
    """A sequencer that holds a commit."""

    def look(self, now: float) -> bool:
        """Write the commit, if it is time. False: call it again later. ``now``: reactor seconds."""
        ...


class Outside(Protocol):
    """What the fast path asks for: the same as the effects of flows, by plain calls."""

    @property
    def leaders(self) -> Leaders: ...

    def swap(
        self,
        key: bytes,
        expected_version: int,
        value: bytes,
        done: Callable[[Swapped | Conflict | StoreAway], None],
    ) -> None:
        """Swap in an entry that has an open intent: as the effect ``Swap``."""
        ...

    def push(self, broker: Any, append: QueuedAppend) -> None:
        """Queue an append for the lanes of a broker that ``leaders`` returned."""
        ...

    def look_at(self, topic: str, outcome: Outcome) -> None:
        """Note what an outcome says of the topology."""
        ...

    def flush_soon(self, sequencer: Flushed) -> None:
        """Have its commit written alone if no reserve comes that carries it."""
        ...

    def in_turn(self, go_on: Callable[[None], None]) -> None:
        """Go on, in a later pass if this one has done enough."""
        ...
