"""What one process knows of the name that a producer id belongs to, and whether a batch is of its newest instance (rule
R22). Flows only.

The swap that reserves compares the name in Redis, so nothing of an older instance is appended even if what is known
here is out of date. What is known here decides what the client is answered, and what that swap compares."""

from __future__ import annotations

from ...state import store
from ...state.entry import StoredFormatError
from ...state.names import NameRecord, is_fenced, newest_bytes, pack_name, unpack_name, with_higher_epoch
from ...state.producer_ids import block_of, unpack_block
from ...state.store import NameCheck, StoreAway, Swapped
from .. import limits
from ..flow.effects import Now, Read, Swap
from .ids_in_use import renew_id
from .proxy_instance import ProxyInstance

_NOT_FOUND = StoreAway("the name of this producer id is not in Redis, or not yet")


class NameGuard:
    """The guard of one producer with a name id on one partition. ``principal``: to whom the id was issued; None: not
    known yet."""

    def __init__(self, instance: ProxyInstance, producer_id: int) -> None:
        self.principal: bytes | None = None
        self._instance = instance
        self._producer_id = producer_id
        self._block_key = store.block_key(instance.cluster, block_of(producer_id))
        self._index = store.index_key(instance.cluster, producer_id)
        self._key = b""
        self._record: NameRecord | None = None
        self._lease_epoch = -1
        self._is_gone = False

    def check(self, producer_epoch: int) -> NameCheck:
        """Return what a swap that reserves batches of this epoch has to compare."""
        assert self._key, "nothing is reserved before the name is known"
        newest = newest_bytes(self._producer_id, producer_epoch)
        return NameCheck(self._key, newest, self._index, self._instance.wall_clock_ms() + self._instance.ids_ttl_ms)

    @property
    def is_over(self) -> bool:
        """Has the name got another producer id since, or expired, as far as is known? Then the state of this one
        expires."""
        record = self._record
        return self._is_gone if record is None else record.producer_id != self._producer_id

    def moved(self, stored: bytes | None) -> None:
        """Take the record of the name that a swap has found instead of the expected one."""
        self._take(stored)

    async def admits(self, producer_epoch: int, principal: bytes) -> bool | StoreAway:
        """Is a batch of this epoch one of the newest instance, and of the principal to whom the id was issued? True may
        be out of date, as the reserve compares again; False comes only from a record that was read after the batch
        came. StoreAway: it cannot be determined now. A higher epoch than the stored one is written to the record."""
        lease_epoch = self._instance.lease_epoch
        is_renewed: bool | StoreAway = True
        if self._instance.is_renewal_due(self._producer_id):  # before anything is reserved, so that it lives as long
            is_renewed = await renew_id(self._instance, self._producer_id)
            if isinstance(is_renewed, StoreAway):
                return is_renewed
        is_new = self._lease_epoch != lease_epoch or not is_renewed
        while True:
            if is_new and (away := await self._read()) is not None:
                return away
            if lease_epoch != self._instance.lease_epoch:
                return StoreAway("the state has a new data generation")
            if self.principal is not None and self.principal != principal:
                return False
            record = self._record
            if is_fenced(record, self._producer_id, producer_epoch):
                if is_new:
                    return False
                is_new = True
                continue
            assert record is not None
            if producer_epoch <= record.producer_epoch:
                return True
            higher = with_higher_epoch(record, producer_epoch)
            result = await Swap(self._key, record.version, pack_name(higher), store.KEEP_TTL)
            if isinstance(result, Swapped):
                self._record = higher
                return True
            if isinstance(result, StoreAway):
                return result
            is_new = True

    async def _read(self) -> StoreAway | None:
        """Read the record and, the first time, the block of the id, which has the name. A server that is no longer the
        master may lack them, so their absence is believed only after it has lasted as long as a lease."""
        if not self._key:
            found = await Read(self._block_key)
            if isinstance(found, StoreAway):
                return found
            block = None if found is None else unpack_block(found)
            if block is None or not block.name:
                return await self._missing()
            self.principal = block.principal
            self._key = store.name_key(self._instance.cluster, block.name)
        lease_epoch = self._instance.lease_epoch
        stored = await Read(self._key)
        if isinstance(stored, StoreAway):
            return stored
        if stored is None:
            return await self._missing()
        self._instance.missing_names.pop(self._producer_id, None)
        if not self._take(stored):
            return StoreAway("the record of the name cannot be read by this version")
        self._lease_epoch = lease_epoch
        return None

    async def _missing(self) -> StoreAway | None:
        now, self._record = await Now(), None
        since, looked_at = self._instance.missing_names.get(self._producer_id, (now, now))
        if now - looked_at > limits.NAME_MISSED_SECONDS:
            since = now  # what was seen long ago says nothing of now
        self._instance.missing_names[self._producer_id] = since, now
        self._is_gone = now - since >= limits.LEASE_SECONDS
        return None if self._is_gone else _NOT_FOUND

    def _take(self, stored: bytes | None) -> bool:
        try:
            self._record = None if stored is None else unpack_name(stored)
        except StoredFormatError:
            self._record, self._lease_epoch = None, -1
            return False
        return True
