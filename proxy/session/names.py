"""InitProducerId of producers with a name (rule R22): the next instance of a name gets its producer id and epoch. Which
ones is decided in ``state/names.py``; here that is written, or nothing is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from cachetools import LRUCache

from ...codecs.error_codes import ErrorCode
from ...state import store
from ...state.entry import NO_DATA_GENERATION, StoredFormatError
from ...state.names import (
    NO_EPOCH,
    NO_ID,
    ForeignName,
    NameRecord,
    NewId,
    Outdated,
    Raised,
    Repeated,
    is_name,
    is_named,
    listed_name,
    next_instance,
    pack_name,
    propose_named_id,
    unpack_name,
    with_new_id,
)
from ...state.producer_ids import RANDOM_BYTES, block_of, pack_block, version_of_block
from ...state.store import NO_VERSION, StoreAway, Swapped
from ...values import value
from .. import limits
from ..bridge.init_producer_id import FENCED_SINCE, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, InitProducerIdRequest
from ..events import ClientRefused, InstanceBegan, InternalError, OperatorMessage, Report
from ..flow.effects import ExpireAll, ListName, Read, Swap
from ..flow.runner import FlowRunner
from ..producer.ids_in_use import renew_id
from ..producer.proxy_instance import ProxyInstance
from .name_patterns import matching

Done = Callable[[int, int, int], None]
"""Gets error code, producer id and epoch; id and epoch are -1 with an error."""
_TRIES_MAX = 10
"""Others may begin instances of the same name meanwhile."""


class NamesClient(Protocol):
    """Who asks."""

    @property
    def principal(self) -> bytes: ...

    @property
    def address(self) -> str: ...

    @property
    def is_closed(self) -> bool: ...


@value(frozen=True, slots=True)
class NameOf:
    """The name of a producer. ``keeps_id``: as in ``next_instance``."""

    name: str
    keeps_id: bool


class Names:
    """Of one proxy process. ``patterns``: client ids that are names; * stands for any text."""

    def __init__(
        self, instance: ProxyInstance, runner: FlowRunner, random_bytes: Callable[[int], bytes], report: Report
    ) -> None:
        self._instance = instance
        self._runner = runner
        self._random_bytes = random_bytes
        self._report = report
        self._patterns = matching(())
        self._at_work = 0
        self._written: LRUCache[str, NameRecord] = LRUCache(limits.NAMES_REMEMBERED_MAX)
        """Name -> its record as this process wrote it last."""

    def set_patterns(self, patterns: Iterable[str]) -> None:
        """These client ids are names from now on."""
        self._patterns = matching(patterns)

    def of(self, request: InitProducerIdRequest, client_id: str | None) -> NameOf | None:
        """Return the name of a producer that asks for its id; None: it has none."""
        if request.transactional_id is not None:
            return NameOf(request.transactional_id, keeps_id=True)
        if client_id and self._patterns.fullmatch(client_id):
            return NameOf(client_id, keeps_id=False)
        return None

    def answer(
        self,
        name: NameOf,
        request: InitProducerIdRequest,
        version: int,
        client: NamesClient,
        done: Done,
    ) -> None:
        """Begin the next instance of a name. Errors that ``done`` may get: INVALID_REQUEST (no possible name, or only
        one of id and epoch), COORDINATOR_LOAD_IN_PROGRESS (the store is away, too many begin at once, or the principal
        has too many names: the client asks again), PRODUCER_FENCED or before v4 INVALID_PRODUCER_EPOCH (a newer
        instance has begun), and an authorization error if the name is another principal's."""
        is_half = (request.producer_id == NO_PRODUCER_ID) is not (request.producer_epoch == NO_PRODUCER_EPOCH)
        if not is_name(name.name) or is_half:
            _refuse(done, ErrorCode.INVALID_REQUEST)
            return
        if self._at_work >= limits.NAMES_AT_WORK_MAX:
            _refuse(done, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        self._at_work += 1

        def ended(result: NameRecord | ErrorCode) -> None:
            self._at_work -= 1
            if isinstance(result, NameRecord):
                done(int(ErrorCode.NONE), *result.newest)
            else:
                _refuse(done, result)

        def broke(error: Exception) -> None:
            self._report(InternalError(f"producer name {name.name!r}", error))
            ended(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

        self._runner.start(self._begin(name, request, version, client), ended, broke)

    async def _begin(
        self, name: NameOf, request: InitProducerIdRequest, version: int, client: NamesClient
    ) -> NameRecord | ErrorCode:
        principal = client.principal
        key, lease_epoch = store.name_key(self._instance.cluster, name.name), self._instance.lease_epoch
        # An id that was not issued to a producer with a name belongs to no instance of this name.
        given = (request.producer_id, request.producer_epoch) if is_named(request.producer_id) else None
        claimed: int | None = None
        for _ in range(_TRIES_MAX):
            record = await self._read(key, name.name)
            if isinstance(record, StoreAway):
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            data_generation, now_ms = self._instance.data_generation, self._instance.wall_clock_ms()
            verdict = next_instance(record, principal, data_generation, now_ms, keeps_id=name.keeps_id, given=given)
            if isinstance(verdict, Raised):  # what the id has is to expire later than the name: it is renewed first
                renewed = await renew_id(self._instance, verdict.record.producer_id)
                if isinstance(renewed, StoreAway):
                    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                verdict = verdict if renewed else NewId()  # its block is lost: the id is of no use any more
            match verdict:
                case ForeignName():
                    self._report(OperatorMessage("warning", f"the producer name {name.name!r} is another principal's"))
                    return _not_allowed(request)
                case Outdated():
                    return ErrorCode.PRODUCER_FENCED if version >= FENCED_SINCE else ErrorCode.INVALID_PRODUCER_EPOCH
                case Repeated():
                    assert record is not None
                    return record
                case Raised():
                    following = verdict.record
                case NewId():
                    if not await self._lists(name.name, client, is_new=record is None):
                        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                    if claimed is None:
                        claimed = await self._claim(name.name, principal, data_generation, now_ms)
                    if claimed is None:
                        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                    raised_from = NO_EPOCH if given is None else given[1]
                    following = with_new_id(record, claimed, principal, data_generation, now_ms, raised_from)
            if client.is_closed:  # R17: it may have asked again meanwhile, and would be fenced by itself
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            expected = NO_VERSION if record is None else record.version
            # A swap that finds exactly its own value stored counts as executed. So no two instances may write the same
            # value: a random step of the version keeps them apart.
            apart = int.from_bytes(self._random_bytes(4), "big")
            following = replace(following, version=following.version + apart)
            result = await Swap(key, expected, pack_name(following), self._instance.name_ttl_ms)
            if lease_epoch != self._instance.lease_epoch or isinstance(result, StoreAway):
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if isinstance(result, Swapped):
                self._written[name.name] = following
                self._report(InstanceBegan(name.name, *following.newest, None if record is None else record.newest))
                if following.last_id != NO_ID:
                    await self._let_expire(following.last_id)
                return following
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    async def _read(self, key: bytes, name: str) -> NameRecord | StoreAway | None:
        """Return what is stored of a name. An older record than this process wrote lacks its last writes (rule R10)."""
        stored = await Read(key)
        if stored is None or isinstance(stored, StoreAway):
            return stored
        try:
            record = unpack_name(stored)
        except StoredFormatError as error:
            self._report(OperatorMessage("error", f"producer name {name!r}: {error}"))
            return StoreAway(str(error))
        written = self._written.get(name)
        return (
            replace(record, data_generation=NO_DATA_GENERATION)
            if written is not None and _lacks(record, written)
            else record
        )

    async def _claim(self, name: str, principal: bytes, data_generation: bytes, now_ms: int) -> int | None:
        """Return a producer id that nobody ever had; None: the store is away."""
        block = pack_block(data_generation, now_ms, principal, name)
        for _ in range(_TRIES_MAX):
            producer_id = propose_named_id(self._random_bytes(RANDOM_BYTES))
            key = store.block_key(self._instance.cluster, producer_id)
            result = await Swap(key, NO_VERSION, block, self._instance.ids_ttl_ms)
            if isinstance(result, Swapped):
                return producer_id
            if isinstance(result, StoreAway):
                return None
        return None

    async def _lists(self, name: str, client: NamesClient, *, is_new: bool) -> bool:
        """Count the name among those of its principal. False: that has too many, or the store is away."""
        instance = self._instance
        count_max = limits.NAMES_PER_PRINCIPAL_MAX if is_new else None
        names = store.names_key(instance.cluster, client.principal)
        listed = await ListName(names, listed_name(name), instance.name_ttl_ms, instance.wall_clock_ms(), count_max)
        if listed is False:
            what = f"the producer name {name!r} is one more than the {limits.NAMES_PER_PRINCIPAL_MAX} of its principal"
            how = "it gets a retriable error until some have expired or `idemproxy forget name` has dropped them"
            self._report(ClientRefused(client.address, f"{what}: {how}"))
        return listed is True

    async def _let_expire(self, producer_id: int) -> None:
        """Let the state of a producer id that its name no longer has expire like that of a producer without a name, and
        its block with the last retry: without it, too, an older instance is fenced. If this process ends before that is
        done, all of it expires later (``ProxyInstance.ids_ttl_ms``)."""
        instance = self._instance
        index = store.index_key(instance.cluster, producer_id)
        await ExpireAll(index, instance.expiry_ms, instance.wall_clock_ms(), renews=False)
        key = store.block_key(instance.cluster, block_of(producer_id))
        block = await Read(key)
        if isinstance(block, bytes):
            ttl_ms = min(limits.CLIENT_RETRY_SECONDS_MAX * 1000, instance.ids_ttl_ms)
            await Swap(key, version_of_block(block), block, ttl_ms)


def _lacks(record: NameRecord, written: NameRecord) -> bool:
    """Has the record lost what this process wrote? Versions rise by random steps, so a higher one alone does not show
    that another process has written since: the epoch has to be higher, or the producer id another one."""
    if record.version < written.version:
        return True
    if record.producer_id == written.last_id != NO_ID:
        return True  # an id is never used again
    is_other = record.version != written.version
    return is_other and record.producer_id == written.producer_id and record.producer_epoch <= written.producer_epoch


def _refuse(done: Done, error: ErrorCode) -> None:
    done(int(error), NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


def _not_allowed(request: InitProducerIdRequest) -> ErrorCode:
    """As a broker says it: of a transactional id, or of a producer that only is idempotent."""
    if request.transactional_id is not None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
