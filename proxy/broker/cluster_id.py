"""One cluster name in Redis never stands for two clusters: the brokers' own cluster id is stored beside the state, and
a proxy whose brokers tell another id does not use that state.

Owns the question and its repetition while Redis is away. Never ends the proxy: ``process/server.py`` does. Brokers
before 0.10.1 tell no id and are believed.
"""

from __future__ import annotations

from collections.abc import Callable

from ...reactor import Reactor
from ...state.store import Store, StoreAway, cluster_key
from .. import limits


class ClusterName:
    """Compares the brokers' cluster id with the stored one, once for each connection to Redis."""

    def __init__(
        self,
        reactor: Reactor,
        store: Store,
        cluster: str,
        *,
        is_ours: Callable[[], None],
        is_anothers: Callable[[str], None],
    ) -> None:
        """``is_ours`` is called when ``is_certain`` would return True now; ``is_anothers`` with a sentence if the state
        belongs to another cluster."""
        self._reactor = reactor
        self._store = store
        self._cluster = cluster
        self._is_ours = is_ours
        self._is_anothers = is_anothers
        self._certain: str | None = None
        self._asked: str | None = None
        self._turn = 0

    def forget(self) -> None:
        """The connection to Redis is new: its data may have begun a new life, without the cluster id."""
        self._certain = self._asked = None
        self._turn += 1

    def is_certain(self, cluster_id: str | None) -> bool:
        """Does the state belong to the cluster with this id? False: not known yet; one of the callbacks will be
        called."""
        if cluster_id is None or cluster_id == self._certain:
            return True
        if cluster_id != self._asked:
            self.forget()
            self._asked = cluster_id
            self._ask(self._turn, cluster_id)
        return False

    def _ask(self, turn: int, cluster_id: str) -> None:
        """Claim and read the id in a row: Redis answers both before anything that is asked later."""
        if turn == self._turn:
            key = cluster_key(self._cluster)
            self._store.claim(key, cluster_id.encode(), 0, lambda _is_new: None)
            self._store.read(key, lambda found: self._take(turn, cluster_id, found))

    def _take(self, turn: int, cluster_id: str, found: bytes | StoreAway | None) -> None:
        if turn != self._turn:
            return
        if found is None or isinstance(found, StoreAway):
            self._reactor.later(limits.SETTLE_SECONDS, lambda: self._ask(turn, cluster_id))
            return
        if found == cluster_id.encode():
            self._certain = cluster_id
            self._is_ours()
            return
        self._is_anothers(mismatch(self._cluster, found, cluster_id))


def mismatch(cluster: str, kept: bytes, told: str) -> str:
    """Return the sentence that says that the state under a name belongs to other brokers. ``kept``: the id that Redis
    has."""
    return (
        f"cluster name {cluster!r}: Redis keeps under it the state of the cluster with the id "
        f"{kept.decode('utf-8', 'backslashreplace')}, and these brokers tell {told}; another cluster needs another "
        "name (setting: cluster)"
    )
