"""InitProducerId: hands out producer ids from claimed blocks. A fresh id with epoch 0 for everybody without a name
(``names.py``); 14 while the store is away.

Never 7: older Java clients take it for fatal (KAFKA-14417). The id and epoch that a request of version 3 brings along
are ignored, as brokers do for producers without a transactional id (KIP-360)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from cachetools import LRUCache

from ...codecs.error_codes import ErrorCode
from ...state import store
from ...state.producer_ids import RANDOM_BYTES, IdBlocks, pack_block
from ...state.store import Store, StoreAway
from .. import limits
from ..events import ProducerIdIssued, Report
from ..producer.proxy_instance import ProxyInstance

_CLAIM_TRIES_MAX = 5
_WAITING_MAX = 1000
"""Requests that wait for a block; more get 14 and come again."""


class ProducerIds:
    """The producer ids of one proxy process. Every principal has blocks of its own: the ids in them are its own too."""

    def __init__(
        self, instance: ProxyInstance, ids: Store, random_bytes: Callable[[int], bytes], report: Report
    ) -> None:
        self._instance = instance
        self._store = ids
        self._random_bytes = random_bytes
        self._report = report
        self._issuers: LRUCache[bytes, _Issuer] = LRUCache(limits.PRINCIPALS_MAX)

    def answer(self, principal: bytes, done: Callable[[int, int], None]) -> None:
        """``done`` gets error code and producer id (-1 with an error), now or once a block is claimed; the epoch is
        always 0."""
        issuer = self._issuers.get(principal)
        if issuer is None:
            issuer = _Issuer(self._instance, self._store, self._random_bytes, self._report, principal)
            self._issuers[principal] = issuer
        issuer.answer(done)

    def forget(self) -> None:
        """A new data generation: ids of the blocks so far would be unverified from their first batch on."""
        for issuer in self._issuers.values():
            issuer.forget()


class _Issuer:
    """The producer ids of one principal."""

    def __init__(
        self,
        instance: ProxyInstance,
        ids: Store,
        random_bytes: Callable[[int], bytes],
        report: Report,
        principal: bytes,
    ) -> None:
        self._instance = instance
        self._store = ids
        self._random_bytes = random_bytes
        self._report = report
        self._principal = principal
        self._blocks = IdBlocks()
        self._waiting: deque[Callable[[int, int], None]] = deque()
        self._claiming = False
        self._tries = 0

    def answer(self, done: Callable[[int, int], None]) -> None:
        """Hand one out, now or when a block is claimed."""
        if len(self._waiting) >= _WAITING_MAX:
            done(int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), -1)
            return
        self._waiting.append(done)
        self._serve()

    def forget(self) -> None:
        """Hand out no more ids of the blocks that were claimed so far."""
        self._blocks.forget()

    # ------------------------------------------------------------------ inside
    def _serve(self) -> None:
        while self._waiting:
            producer_id = self._blocks.next_id()
            if producer_id is None:
                break
            self._report(ProducerIdIssued(producer_id))
            self._waiting.popleft()(0, producer_id)
        if self._blocks.wants_block and not self._claiming:
            self._claim()

    def _claim(self) -> None:
        data_generation = self._store.data_generation
        if data_generation is None:
            self._refuse_all()
            return
        self._claiming = True
        start = self._blocks.propose(self._random_bytes(RANDOM_BYTES))
        value = pack_block(data_generation, self._instance.wall_clock_ms(), self._principal)
        lease_epoch = self._instance.lease_epoch

        def claimed(result: bool | StoreAway) -> None:
            self._claiming = False
            if result is True and lease_epoch == self._instance.lease_epoch:
                self._tries = 0
                self._blocks.claimed(start)
                self._serve()
            elif isinstance(result, StoreAway) or self._tries >= _CLAIM_TRIES_MAX:
                self._tries = 0
                self._refuse_all()
            else:
                self._tries += 1  # taken, perhaps by ourselves in a call whose reply was lost: another one
                self._claim()

        self._store.claim(store.block_key(self._instance.cluster, start), value, self._instance.ids_ttl_ms, claimed)

    def _refuse_all(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for done in waiting:
            done(int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), -1)
