"""DescribeProducers: where producers stopped on a partition, from the state by which their batches are judged.

The answer has the producers with a name, which Redis lists by partition (rule R22), and those without a name that were
at work at this proxy; of both only those whose id was issued to the principal that asks. An open intent is resolved
first, as if the producer's next batch had come: so a client that continues after the sequence in the answer writes
nothing twice. Appends nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ...codecs.error_codes import ErrorCode
from ...state import store
from ...state.conditional import is_conditional
from ...state.entry import Entry, StoredFormatError, WindowBatch, pack, pack_named, unpack
from ...state.names import is_named
from ...state.store import StoreAway, Swapped
from ...values import value
from .. import limits
from ..bridge.describe_producers import ActiveProducer, DescribedPartition, Place
from ..events import InternalError, Report
from ..flow.effects import MemberAlive, NamedEntries, Now, Read, Swap, Wait
from ..flow.runner import FlowRunner
from ..producer.proxy_instance import ProxyInstance
from ..producer.sequencer import Sequencer

_HEX_DIGITS = frozenset(b"0123456789abcdef")
Told = Callable[[Sequence[DescribedPartition]], None]
GetSequencer = Callable[[int, str, int], Sequencer | None]
_NOT_NOW = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""Kafka's admin clients look for the leader and ask again, unless they were given a broker (DescribeProducersHandler);
the sentence says what it is. The other code that they ask again for, 3, says that there is no such partition."""


class DescribeProducers:
    """Of one proxy process."""

    def __init__(
        self,
        instance: ProxyInstance,
        runner: FlowRunner,
        report: Report,
        *,
        sequencer: GetSequencer,
        known_on: Callable[[Collection[Place]], Mapping[Place, Sequence[int]]],
        has_partition: Callable[[str, int], bool],
        look_for_topics: Callable[[Sequence[str], Callable[[], None]], None],
    ) -> None:
        """``sequencer``: the one of (producer id, topic, partition), None when there are too many. ``known_on``: the
        producer ids that are in memory, by partition. ``has_partition``: is there such a partition, as last learned?
        ``look_for_topics``: learns of topics again, and calls back soon in any case."""
        self._instance = instance
        self._runner = runner
        self._report = report
        self._sequencer = sequencer
        self._known_on = known_on
        self._has_partition = has_partition
        self._look_for_topics = look_for_topics
        self._at_work = 0

    def answer(self, places: Sequence[Place], principal: bytes, done: Told) -> None:
        """``done`` gets one answer for each place, in their order."""
        if self._at_work >= limits.DESCRIBES_AT_WORK_MAX:
            done(
                [
                    _refused(place, _NOT_NOW, "too many of these questions are asked at once: ask again")
                    for place in places
                ]
            )
            return
        self._at_work += 1
        # The topic may be newer than the metadata that is known: that is learned again before 3 is answered.
        missing = {topic for topic, partition in places if not self._has_partition(topic, partition)}
        if missing:
            self._look_for_topics(sorted(missing), lambda: self._start(places, principal, done))
        else:
            self._start(places, principal, done)

    def _start(self, places: Sequence[Place], principal: bytes, done: Told) -> None:
        def ended(answers: Sequence[DescribedPartition]) -> None:
            self._at_work -= 1
            done(answers)

        def broke(error: Exception) -> None:
            self._report(InternalError("DescribeProducers", error))
            ended([_refused(place, ErrorCode.UNKNOWN_SERVER_ERROR, "an error inside the proxy") for place in places])

        self._runner.start(self._describe(places, principal), ended, broke)

    async def _describe(self, places: Sequence[Place], principal: bytes) -> list[DescribedPartition]:
        until = await Now() + limits.DESCRIBE_SECONDS
        known = self._known_on(set(places))
        room = limits.DESCRIBED_PRODUCERS_MAX
        answers = []
        for place in places:
            reported = await self._partition(place, known.get(place, ()), principal, until, room)
            room -= len(reported.producers)
            answers.append(reported)
        return answers

    async def _partition(
        self, place: Place, known: Sequence[int], principal: bytes, until: float, room: int
    ) -> DescribedPartition:
        if not self._has_partition(*place):
            return _refused(place, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
        if await Now() >= until:
            return _refused(place, _NOT_NOW, "the partitions before it took too long: ask for it alone")
        index = store.partition_index_key(self._instance.cluster, *place)
        named = await NamedEntries(index, room + 1)
        if isinstance(named, StoreAway):
            return _refused(place, _NOT_NOW, f"Redis cannot be asked: {named.reason}")
        ids: set[int] = set()
        for key in named:
            if (producer_id := _producer_of(key)) is None:
                what = f"Redis lists {key!r} in {index!r}, which no proxy writes: delete that key"
                again = "each producer with a name is listed in it again with its next batch"
                return _refused(place, ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}; {again}")
            ids.add(producer_id)
        ids.update(one for one in known if not is_conditional(one) and not is_named(one))
        if len(ids) > room:
            what = f"more than {limits.DESCRIBED_PRODUCERS_MAX} producers in one answer: ask for fewer partitions"
            return _refused(place, ErrorCode.INVALID_REQUEST, what)
        looks = [_Look(self._instance, producer_id, place) for producer_id in sorted(ids)]
        reported: list[ActiveProducer] = []
        while True:
            left = []
            for look in looks:
                if not look.is_begun and await Now() >= until:
                    unseen = sum(not one.is_begun for one in looks)
                    what = f"{unseen} of its {len(ids)} producers could not be looked at in time: ask again"
                    return _refused(place, _NOT_NOW, what)
                found = await look.at_rest(principal)
                if isinstance(found, _NotTold):
                    return _refused(place, found.error_code, found.reason)
                if isinstance(found, ActiveProducer):
                    reported.append(found)
                elif found is not None:
                    left.append(look)
            if not left:
                return DescribedPartition(*place, producers=tuple(sorted(reported, key=lambda one: one.producer_id)))
            if await Now() >= until:
                who = left[0].producer_id
                return _refused(
                    place, _NOT_NOW, f"what became of a batch of producer {who} is not known yet: ask again"
                )
            for look in left:
                if (sequencer := self._sequencer(look.producer_id, *place)) is not None:
                    sequencer.resolve_open(until)
            await Wait(limits.DESCRIBE_LOOK_SECONDS)
            looks = left


@value(frozen=True, slots=True)
class _NotTold:
    """Where the producer stopped cannot be determined."""

    error_code: ErrorCode
    reason: str


@value(frozen=True, slots=True)
class _Open:
    """It has an open intent, or its entry has to be confirmed first."""


class _Look:
    """Looks at the stored entry of one producer on one partition."""

    def __init__(self, instance: ProxyInstance, producer_id: int, place: Place) -> None:
        self.producer_id = producer_id
        self.is_begun = False
        self._instance = instance
        self._key = store.entry_key(instance.cluster, producer_id, *place)
        self._seen: tuple[WindowBatch, ...] | None = None

    async def at_rest(self, principal: bytes) -> ActiveProducer | _Open | _NotTold | None:
        """Return where the producer stopped, or why that is not known; None: it has no entry here, or one of another
        principal, or it has no name and what became of its last batch cannot be determined."""
        self.is_begun = True
        stored = await Read(self._key)
        if isinstance(stored, StoreAway):
            return _NotTold(_NOT_NOW, f"Redis cannot be asked: {stored.reason}")
        try:
            entry = None if stored is None else unpack(stored)
        except StoredFormatError as error:
            return _NotTold(ErrorCode.UNKNOWN_SERVER_ERROR, f"producer {self.producer_id}: {error}")
        if entry is None or entry.principal != principal:
            return None
        if not await self._is_told(entry):
            return _Open()
        if entry.intent is not None and entry.intent.is_unrecoverable:  # R17: the log may have more of it
            if not is_named(self.producer_id):
                return None  # the answer has one code for a whole partition, and anybody can make up an id
            what = f"what became of the last batch of producer {self.producer_id} cannot be determined"
            return _NotTold(ErrorCode.INVALID_RECORD, f"{what}: look into the log, then `idemproxy forget producer`")
        return ActiveProducer(self.producer_id, entry.producer_epoch, entry.last_sequence)

    async def _is_told(self, entry: Entry) -> bool:
        """May the last sequence of the entry be reported? An entry without an open intent has to be confirmed by a
        swap. While its owner keeps appending, each look finds an open intent, and batches that were committed since the
        look before: what is committed is reported then. For a fenced producer nothing more is reserved, so what is open
        there is waited for."""
        if entry.data_generation != self._instance.data_generation:
            self._seen = None
            return False
        if not entry.has_open_intent:
            return await self._is_confirmed(entry)
        assert entry.intent is not None
        seen, self._seen = self._seen, entry.window
        return seen not in (None, entry.window) and await MemberAlive(entry.intent.owner) is True

    async def _is_confirmed(self, entry: Entry) -> bool:
        """What was read may come from a server of Redis that is the master no longer: a swap that changes nothing but
        the version shows what is due now (rule R11). Any proxy that works with the entry finds the newer version with
        the next swap, and reads it again."""
        lease_epoch = self._instance.lease_epoch
        touched = replace(entry, version=entry.version + 1)
        value = pack_named(touched) if is_named(self.producer_id) else pack(touched)
        result = await Swap(self._key, entry.version, value, store.KEEP_TTL)
        return isinstance(result, Swapped) and lease_epoch == self._instance.lease_epoch


def _producer_of(entry_key: bytes) -> int | None:
    """Return whose entry a key is of; None: it is none."""
    digits = entry_key[entry_key.rfind(b":") + 1 :]
    return int(digits, 16) if len(digits) == 16 and set(digits) <= _HEX_DIGITS else None


def _refused(place: Place, code: ErrorCode, message: str | None) -> DescribedPartition:
    return DescribedPartition(*place, code, message)
