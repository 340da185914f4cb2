"""Answers to clients' Metadata, each made once: one about a whole large cluster costs milliseconds, and after a restart
all clients ask the same. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from ...reactor import Reactor
from .. import limits
from ..admission.turns import in_turns
from ..bridge.base import Addresses
from ..bridge.cluster import Cluster, Topic
from ..bridge.metadata import tell_client

_Key = tuple[int, tuple[str, ...] | None, tuple[object, ...]]


class MetadataAnswers:
    """Keeps the encoded answers for as long as the cluster is as they say."""

    def __init__(self, reactor: Reactor, fallback_cluster_id: str) -> None:
        """``fallback_cluster_id``: reported to clients where the brokers have no cluster id."""
        self._reactor = reactor
        self._fallback_cluster_id = fallback_cluster_id
        self._cluster: Cluster | None = None
        self._made: dict[_Key, bytes] = {}
        self._made_bytes = 0
        self._making: dict[_Key, list[Callable[[bytes], None]]] = {}

    def tell(
        self,
        version: int,
        cluster: Cluster,
        topics: tuple[str, ...] | None,
        addresses: Addresses,
        new: Mapping[str, Topic],
        done: Callable[[bytes], None],
    ) -> None:
        """Give the body to ``done``, of a large cluster some passes later. See ``encode_client_answer``.

        ``new``: of the asked topics, those that the cluster does not list yet. Such an answer is not kept."""
        if new:
            asked = {name: cluster.topics[name] for name in topics or () if name in cluster.topics}
            cluster = replace(cluster, topics={**asked, **new})
            in_turns(self._reactor, tell_client(version, cluster, topics, addresses, self._fallback_cluster_id), done)
            return
        if cluster is not self._cluster:
            self._cluster = cluster
            self._making = {}
            self._forget()
        key = version, topics, tuple(sorted(addresses.items()))
        body = self._made.get(key)
        if body is not None:
            done(body)
        elif key in self._making:
            self._making[key].append(done)
        else:
            waiting = self._making[key] = [done]
            steps = tell_client(version, cluster, topics, addresses, self._fallback_cluster_id)
            in_turns(self._reactor, steps, partial(self._finished, key, waiting))

    def _finished(self, key: _Key, waiting: list[Callable[[bytes], None]], body: bytes) -> None:
        if self._making.get(key) is waiting:  # the cluster is still what it was
            del self._making[key]
            size = len(body) + sum(map(len, key[1] or ()))
            if self._made_bytes + size > limits.ANSWERS_KEPT_BYTES_MAX or len(self._made) >= limits.ANSWERS_KEPT_MAX:
                self._forget()
            if size <= limits.ANSWERS_KEPT_BYTES_MAX:
                self._made[key] = body
                self._made_bytes += size
        for done in waiting:
            done(body)

    def _forget(self) -> None:
        self._made.clear()
        self._made_bytes = 0
