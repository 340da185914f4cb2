"""What an append (``producer/append.py``) asks for: the same as the effects of flows (``perform.py``), by plain calls.
Sans-IO; decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...reactor import Reactor
from ...state.store import NameCheck, Store, SwapResult
from .. import limits
from ..admission.loop_budget import LoopBudget
from ..broker.queued_append import QueuedAppend, Route
from ..broker.topology import Topology
from ..flow.effects import Append, Swap
from ..flow.outcome import Outcome
from ..flow.runner import FlowRunner
from ..producer.outside import Flushed
from .perform import look_at_outcome


class EngineOutside:
    """The outside of the appends of one engine. ``stored``: returns the store, which is given to the engine later."""

    def __init__(
        self,
        reactor: Reactor,
        topology: Topology,
        stored: Callable[[], Store],
        runner: FlowRunner,
        loop_budget: LoopBudget,
    ) -> None:
        self._reactor = reactor
        self.leaders = topology
        self._stored = stored
        self._runner = runner
        self._loop_budget = loop_budget
        self._store: Store | None = None
        self._unwritten: dict[Flushed, None] = {}
        """Sequencers that hold a commit, until it is written; in the order in which they came."""
        self._is_looking = False

    def swap(
        self,
        key: bytes,
        expected_version: int,
        value: bytes,
        ttl_ms: int,
        done: Callable[[SwapResult], None],
        name: NameCheck | None = None,
    ) -> None:
        """Swap an entry (``Store.swap``, ``Store.swap_named``)."""
        if self._runner.on_effect is not None:
            self._runner.on_effect(Swap(key, expected_version, value, ttl_ms, name))
        store = self._store
        if store is None:
            store = self._store = self._stored()
        if name is None:
            store.swap(key, expected_version, value, ttl_ms, done)
        else:
            store.swap_named(key, expected_version, value, ttl_ms, name, done)

    def queue_append(self, broker: Any, append: QueuedAppend) -> None:
        """Let an append wait for a produce connection."""
        if self._runner.on_effect is not None:
            self._runner.on_effect(_effect_of(broker.id, append))
        broker.pool.queue_append(append)

    def queue_append_by(self, route: Route, broker_id: int, append: QueuedAppend) -> None:
        """Let an append wait for the client's own connection."""
        if self._runner.on_effect is not None:
            self._runner.on_effect(_effect_of(broker_id, append))
        route.queue_append(append, broker_id)

    def in_turn(self, go_on: Callable[[None], None]) -> None:
        """Call ``go_on``, in a later pass if this one has done enough."""
        self._loop_budget.in_turn(go_on)(None)

    def look_at(self, topic: str, outcome: Outcome) -> None:
        """Note what an outcome says of the topology."""
        look_at_outcome(self.leaders, topic, outcome)

    def flush_soon(self, sequencer: Flushed) -> None:
        """Have the commit that it holds written if no reserve comes to carry it. One timer serves all of them."""
        self._unwritten[sequencer] = None
        if not self._is_looking:
            self._is_looking = True
            self._reactor.later(limits.COMMIT_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._is_looking = False
        now = self._reactor.now()
        for sequencer in list(self._unwritten):
            del self._unwritten[sequencer]
            if not sequencer.look(now):
                self._unwritten[sequencer] = None
        if self._unwritten and not self._is_looking:
            self._is_looking = True
            self._reactor.later(limits.COMMIT_LOOK_SECONDS, self._look)


def _effect_of(broker_id: int, append: QueuedAppend) -> Append:
    """Return the effect by which a flow would have asked for this append, for those that watch effects."""
    return Append(
        broker_id,
        append.topic,
        append.partition,
        append.message_set,
        append.timeout_ms,
        append.may_send,
        append.identities,
        sender=append.sender,
        form=append.form,
    )
