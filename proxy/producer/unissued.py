"""How many outcomes are unknown of producer ids that nobody issued: for each of them a log is read, perhaps all of it
(rule R10). Counted for each address, each principal and the proxy, so that no client makes it read for its own
inventions alone. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable

from ...state.entry import NO_PRINCIPAL
from .. import limits


class UnissuedOutcomes:
    """The unknown outcomes of one process. ``count``: how many there are. ``counts_addresses``: does an address stand
    for one client? Not behind a load balancer."""

    def __init__(self, counts_addresses: Callable[[], bool] = lambda: True) -> None:
        self.count = 0
        self._counts_addresses = counts_addresses
        self._of: Counter[Hashable] = Counter()

    def admit(self, address: str, principal: bytes, *, is_after_loss: bool) -> Admitted | None:
        """Count one more, for the client that brought the batch; None: there are too many. ``is_after_loss``: may many
        clients have just lost their ids?"""
        most = limits.UNISSUED_OUTCOMES_OF_ONE_AFTER_LOSS_MAX if is_after_loss else limits.UNISSUED_OUTCOMES_OF_ONE_MAX
        if self.count >= limits.UNISSUED_OUTCOMES_MAX:
            return None
        keys: list[Hashable] = [address] if self._counts_addresses() else []
        if principal != NO_PRINCIPAL:
            keys.append(principal)
        if any(self._of[key] >= most for key in keys):
            return None
        self.count += 1
        self._of.update(keys)
        return Admitted(self, keys)

    def end(self, keys: list[Hashable]) -> None:
        """One of them is known now, or was let go of."""
        self.count -= 1
        for key in keys:
            self._of[key] -= 1
            if not self._of[key]:
                del self._of[key]


class Admitted:
    """One unknown outcome that is counted until ``end``."""

    def __init__(self, outcomes: UnissuedOutcomes, keys: list[Hashable]) -> None:
        self._outcomes = outcomes
        self._keys = keys

    def end(self) -> None:
        """Count it no longer."""
        self._outcomes.end(self._keys)
