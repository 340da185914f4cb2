"""Producer ids that are in use, and their renewal: what Redis has of an id expires after its last use (rule R22).

A batch costs nothing more for it. What a name has is renewed before the first batch in an hour is reserved
(``name_guard.py``). Blocks of ids without a name are renewed beside the work: an id is noted when a sequencer is made
for it, and once in an hour all sequencers that have written something are looked at. Each process renews an id at most
once in an hour. Flows only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...codecs.steps import Steps
from ...state import store
from ...state.entry import StoredFormatError
from ...state.names import is_named, listed_name, pack_name, unpack_name
from ...state.producer_ids import block_of, unpack_block, version_of_block
from ...state.store import StoreAway, Swapped
from .. import limits
from ..flow.effects import ExpireAll, ListName, Now, Read, Swap, Wait, in_steps
from .life import Life

WrittenSince = Callable[[float], Steps[set[int]]]
"""Finds the producer ids of which something was written at this time (reactor seconds) or later."""


class IdsInUse:
    """Of one process."""

    def __init__(self, life: Life, written_since: WrittenSince) -> None:
        self._life = life
        self._written_since = written_since
        self._due: dict[int, None] = {}
        """First ids of blocks, to be renewed at the next look."""

    def note(self, producer_id: int) -> None:
        """The producer id is in use. That of a name is renewed with its batches."""
        if not is_named(producer_id) and len(self._due) < limits.IDS_IN_USE_MAX:
            self._due[block_of(producer_id)] = None

    async def run(self) -> None:
        """Renew what is in use, for as long as the process lives."""
        looked_at = await Now()
        while True:
            every = self._life.renew_ms / 1000
            await Wait(min(limits.IDS_IN_USE_LOOK_SECONDS, every))
            now = await Now()
            if now >= looked_at + every:
                look = partial(self._written_since, looked_at)
                for producer_id in await in_steps(look, "ids in use", is_late=True):
                    self.note(producer_id)
                looked_at = now
            for first_id in list(self._due):
                is_due = self._life.is_renewal_due(first_id)
                if is_due and isinstance(await renew_id(self._life, first_id), StoreAway):
                    break  # those that are left wait for the next look
                del self._due[first_id]


async def renew_id(life: Life, first_id: int) -> bool | StoreAway:
    """Renew what Redis has of a block of producer ids or, if the block is of a name, of the name: entries and block
    first, then the record, which so never outlives them (model row S14). False: nothing is renewed, as there is no such
    block, or its name has another id."""
    key, era = store.block_key(life.cluster, first_id), life.era
    stored = await Read(key)
    if not isinstance(stored, bytes):
        return stored if isinstance(stored, StoreAway) else False
    block = unpack_block(stored)
    if block is None:
        return False
    record, name_key = None, store.name_key(life.cluster, block.name)
    if is_named(first_id):
        found = await Read(name_key)
        if not isinstance(found, bytes):
            return found if isinstance(found, StoreAway) else False
        try:
            record = unpack_name(found)
        except StoredFormatError:
            return False
        if record.producer_id != first_id:
            return False
        index, now_ms = store.index_key(life.cluster, first_id), life.wall_clock_ms()
        names = store.names_key(life.cluster, record.principal)
        for effect in (
            ExpireAll(index, life.ids_ttl_ms, now_ms, renews=True),
            ListName(names, listed_name(block.name), life.name_ttl_ms, now_ms, None),
        ):
            if isinstance(away := await effect, StoreAway):
                return away
    result = await Swap(key, version_of_block(stored), stored, life.ids_ttl_ms)
    if record is not None and isinstance(result, Swapped):
        result = await Swap(name_key, record.version, pack_name(record), life.name_ttl_ms)
    if isinstance(result, Swapped) and era == life.era:
        life.renewed_at_ms[first_id] = life.wall_clock_ms()
    return result if isinstance(result, StoreAway) else isinstance(result, Swapped)
