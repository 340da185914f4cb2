"""Producer ids that are in use, and their renewal: what Redis has of an id expires after its last use (rule R22).

A batch costs nothing more for it. What a name has is renewed before the first batch in an hour is reserved
(``name_guard.py``). Blocks of ids without a name are renewed apart from that work: once in a minute all sequencers are
asked whether they have written something since. So an id that somebody invents, and of which nothing is written, costs
nothing. Each process renews an id at most once in an hour. Flows only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...codecs.steps import Steps
from ...state import store
from ...state.entry import StoredFormatError
from ...state.names import is_named, listed_name, pack_name, unpack_name
from ...state.producer_ids import unpack_block, version_of_block
from ...state.store import StoreAway, Swapped
from .. import limits
from ..flow.effects import ExpireAll, ListName, Now, Read, Swap, Wait, in_steps
from .proxy_instance import ProxyInstance

WrittenSince = Callable[[float], Steps[set[int]]]
"""Finds the producer ids of which something was written at this time (reactor seconds) or later."""


class IdsInUse:
    """Of one process."""

    def __init__(self, instance: ProxyInstance, written_since: WrittenSince) -> None:
        self._instance = instance
        self._written_since = written_since

    async def run(self) -> None:
        """Renew what is in use, for as long as the process lives."""
        looked_at = await Now()
        while True:
            await Wait(min(limits.IDS_IN_USE_LOOK_SECONDS, self._instance.renew_ms / 1000))
            now = await Now()
            # One look further back, as the time of a write is only known to a second or so (``RecentTime``).
            look = partial(self._written_since, looked_at - limits.IDS_IN_USE_LOOK_SECONDS)
            written = await in_steps(look, "ids in use", is_late=True)
            blocks = {self._instance.first_id(producer_id) for producer_id in written if not is_named(producer_id)}
            for first_id in filter(self._instance.is_renewal_due, sorted(blocks)):
                is_renewed = await renew_id(self._instance, first_id)
                if isinstance(is_renewed, StoreAway):
                    break  # those that are left are found again by the next look
                if not is_renewed:  # nobody has issued it, or another process has renewed it: not asked for an hour
                    self._instance.renewed_at_ms[first_id] = self._instance.wall_clock_ms()
            else:
                looked_at = now


async def renew_id(instance: ProxyInstance, first_id: int) -> bool | StoreAway:
    """Renew what Redis has of a block of producer ids or, if the block is of a name, of the name: entries and block
    first, then the record, which so never outlives them (model row S14). False: nothing is renewed, as there is no such
    block, or its name has another id."""
    key, lease_epoch = instance.issue_key(first_id), instance.lease_epoch
    stored = await Read(key)
    if not isinstance(stored, bytes):
        return stored if isinstance(stored, StoreAway) else False
    block = unpack_block(stored)
    if block is None:
        return False
    record, name_key = None, store.name_key(instance.cluster, block.name)
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
        index, now_ms = store.index_key(instance.cluster, first_id), instance.wall_clock_ms()
        names = store.names_key(instance.cluster, record.principal)
        for effect in (
            ExpireAll(index, instance.ids_ttl_ms, now_ms, renews=True),
            ListName(names, listed_name(block.name), instance.name_ttl_ms, now_ms, None),
        ):
            if isinstance(away := await effect, StoreAway):
                return away
    result = await Swap(key, version_of_block(stored), stored, instance.issue_ttl_ms(first_id))
    if record is not None and isinstance(result, Swapped):
        result = await Swap(name_key, record.version, pack_name(record), instance.name_ttl_ms)
    if isinstance(result, Swapped) and lease_epoch == instance.lease_epoch:
        instance.renewed_at_ms[first_id] = instance.wall_clock_ms()
    return result if isinstance(result, StoreAway) else isinstance(result, Swapped)
