"""What touches brokers and Redis: a range is read, brokers are waited for, and one partition is concluded.

The order is what makes it sound while proxies run (dev/rules.md, R10, model rows P). The leases of whatever was lost
have run out; then every broker passed the quiescence check; then the stored entries are read; then the end of the log
is asked for and the rest is read to it; then each entry is swapped in where it is still as it was read. Who reserves
meanwhile raises the version, and wins.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from ...codecs.errors import WireError
from ...codecs.logged import anchor_of, iterate_logged
from ...proxy.partition_log.recognised import Recogniser, Recognisers, joints_of
from ...state.decide import BatchIdentity
from ...state.entry import NO_ANCHOR, NO_OFFSET, Entry, StoredFormatError, unpack
from ...state.producer_ids import block_of
from ...state.quiescence import PROBE_SECONDS, QuiescenceAnswers
from ...state.redis_bulk import BulkStore, Swap
from ...state.store import Conflict, block_key, entry_key
from ..reading.broker import FETCH_BYTES, Address, BrokerProblem, Cluster, OutOfRange, TopicPartition
from ..reading.fetching import PartitionFetch, TooLarge
from ..reading.places import Place
from .found import NO_TIME, Anchored, FoundProducer, FoundRange, RangeReading, joined
from .judge import Difference, Effect, Judged, judge, judge_unfound, known_of, may_be_recognised
from .wanted import Wanted

WAIT_SECONDS_MAX: Final = 30.0
"""For a broker to be awake, and for a high watermark to reach the end of its log."""
_LOOK_BYTES: Final = 64 << 10


NOBODY: Final[Address] = ("", 0)
"""In place of the leader of a range that could not be read."""


@dataclass(frozen=True, slots=True)
class RangeRead:
    """One range as read. ``leader``: the broker it was read from; another broker's log may differ."""

    place: int
    leader: Address
    found: FoundRange


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome for one producer on one partition. ``is_written``: with ``effect``; always false in a dry run."""

    topic: str
    partition: int
    producer_id: int
    difference: Difference
    effect: Effect
    is_written: bool


@dataclass(frozen=True, slots=True)
class Concluded:
    """One partition. ``problem``: why nothing was concluded; the proxies rebuild its producers when these come back.
    ``idle``: producers that have written nothing since the time that was asked for. ``unrecognised``: batches after all
    that Redis knows which have a batch marker in their header, and are of none of these producers."""

    place: int
    rows: tuple[Row, ...] = ()
    idle: int = 0
    bytes_read: int = 0
    problem: str = ""
    unrecognised: int = 0


def read_range(cluster: Cluster, number: int, place: Place, start: int, end: int) -> RangeRead:
    """Read one range. Problems with the brokers are in the result's ``found.problem``."""
    reading = RangeReading(start, end)
    try:
        leader = cluster.leader(place.topic, place.partition)
        problem = _read_to_end(cluster, place, reading)
        if cluster.leader(place.topic, place.partition) != leader:
            problem = "its leader has changed meanwhile"
    except BrokerProblem as said:
        return RangeRead(number, NOBODY, replace(reading.found(), problem=str(said)))
    found = reading.found()
    return RangeRead(number, leader, replace(found, problem=found.problem or problem))


def _read_to_end(cluster: Cluster, place: Place, reading: RangeReading) -> str:
    """Return why it was not read to its end; empty: it was."""
    fetch = PartitionFetch(cluster, place.topic, place.partition, FETCH_BYTES)
    while not reading.is_over:
        before = reading.position
        try:
            fetched = fetch.at(before)
        except OutOfRange:
            first, last = cluster.offsets(place.topic, place.partition)
            if first <= before:
                return f"its log ends at {last}, below what it had shown"
            reading.missing_to(first)
            continue
        except TooLarge as problem:
            return str(problem)
        reading.take(fetched.records)
        if not fetched.records and not reading.is_over:
            if fetched.high_watermark < reading.end:
                return f"its log shows {fetched.high_watermark}, below what it had shown"
            reading.missing_to(reading.end)  # the last ones were compacted away, or hidden ranges leave them out
    return ""


def wait_until_settled(cluster: Cluster, places: Sequence[Place], sleep: Callable[[float], None] = time.sleep) -> None:
    """Wait until each broker has passed the quiescence check for one second, so that it has executed whatever proxies
    had sent to it before (rule R6): one after the other, as one that is not asked all the time is not seen. Raises
    BrokerProblem."""
    asked_about: TopicPartition = (places[0].topic, places[0].partition)
    for broker in cluster.brokers():
        answers, begun = QuiescenceAnswers(), time.monotonic()
        while True:
            asked = time.monotonic()
            is_answered = cluster.is_awake(broker, asked_about)
            if answers.saw(asked, time.monotonic(), is_answered=is_answered):
                break
            if time.monotonic() - begun > WAIT_SECONDS_MAX:
                host, port = broker
                raise BrokerProblem(
                    f"{host}:{port} has not passed the quiescence check, and may still append what was sent to it "
                    f"before:"
                    " nothing is written; start the run again when it answers"
                )
            sleep(PROBE_SECONDS)


def conclude(
    cluster: Cluster,
    store: BulkStore,
    wanted: Wanted,
    number: int,
    place: Place,
    read: Sequence[RangeRead],
    known: Set[int],
) -> Concluded:
    """Read what has come since, and write what one partition has. ``read``: its ranges, in order. ``known``: the
    producers that have an entry on it. Raises InspectionError."""
    problem = next((one.found.problem for one in read if one.found.problem), "")
    leaders = {one.leader for one in read}
    if problem or len(leaders) > 1:
        return Concluded(number, problem=problem or "its leader has changed meanwhile")
    before = joined(one.found for one in read)
    recent = {one.producer_id for one in before.producers if not 0 <= one.time_ms < wanted.since_ms}
    idle = len(before.producers) - len(recent)
    ids = sorted(recent.union(known))
    if not ids and not before.unrecognised:
        return Concluded(number, idle=idle, bytes_read=before.bytes_read)
    begun = time.monotonic()
    keys = [entry_key(wanted.redis.cluster, one, place.topic, place.partition) for one in ids]
    stored = dict(zip(ids, store.read(keys), strict=True))
    leader = leaders.pop()
    walk: _Walk | None = None
    try:
        tail = _read_tail(cluster, place, before, leader)
        if not isinstance(tail, str) and before.unrecognised + tail.unrecognised:
            walk = _Walk(place.start, joined((before, tail)), stored)
            tail = walk.read(cluster, place, leader) or tail
    except BrokerProblem as said:
        tail = str(said)
    if isinstance(tail, str):
        return Concluded(number, idle=idle, bytes_read=before.bytes_read, problem=tail)
    whole = joined((before, tail))
    by_id = {one.producer_id: one for one in whole.producers if one.producer_id in recent}
    unfound: list[Row] = []
    if walk is not None:
        by_id |= walk.producers()
        for one in sorted(known - by_id.keys()):
            value = stored[one]
            left = None if value is None else judge_unfound(one, value, place.start, whole.end)
            if left is not None:
                unfound.append(Row(place.topic, place.partition, one, left.difference, left.effect, is_written=False))
    found = list(by_id.values())
    values = [stored[one.producer_id] for one in found]
    judged = _judged(store, wanted, found, values)
    if time.monotonic() - begun > wanted.expiry_ms / 2000:
        # An entry that was written and has expired meanwhile would look as if nobody had touched it.
        return Concluded(number, problem="it took longer than half the time after which entries expire")
    at = [entry_key(wanted.redis.cluster, one.producer_id, place.topic, place.partition) for one in found]
    rows = _written(store, wanted, place, found, at, values, judged)
    unrecognised = 0 if walk is None else walk.unrecognised
    return Concluded(number, (*rows, *unfound), idle, whole.bytes_read, unrecognised=unrecognised)


class _Walk:
    """Reads once more, in one piece, what follows the entries of producers, as their batches in format v2 name nobody.
    Where an entry ends, and its anchor holds, those of its producer are recognised from there on, as by a proxy."""

    def __init__(self, start: int, whole: FoundRange, stored: Mapping[int, bytes | None]) -> None:
        """``whole``: what was read without that. ``stored``: by producer id, read before the end of the log was asked
        for."""
        self.unrecognised = whole.unrecognised
        self._known: dict[int, Entry] = {}
        for producer_id, value in stored.items():
            entry = _readable(value)
            if entry is not None and start < entry.end_offset <= whole.end and may_be_recognised(producer_id, entry):
                self._known[producer_id] = entry
        self._end = whole.end
        self._read: dict[int, FoundProducer] = {}
        self._unknown_outcome_to = NO_OFFSET
        self._holding: Collection[Anchored] = ()

    def read(self, cluster: Cluster, place: Place, leader: Address) -> str:
        """Return why it was not read to its end; empty: it was. Raises BrokerProblem."""
        if not self._known:
            return ""
        ends = [entry.end_offset for entry in self._known.values()]
        recognisers = Recognisers(
            Recogniser(one, joints=joints_of(BatchIdentity(entry.producer_epoch, entry.next_sequence, 0)))
            for one, entry in self._known.items()
        )
        anchored = {_last_of(entry) for entry in self._known.values()}
        reading = RangeReading(min(ends) - 1, self._end, recognisers, anchored)
        reading.unrecognised_from = max(ends)
        problem = _read_to_end(cluster, place, reading)
        found = reading.found()
        if cluster.leader(place.topic, place.partition) != leader:
            problem = "its leader has changed meanwhile"
        self._read = {one.producer_id: one for one in joined([found]).producers}
        self._unknown_outcome_to, self.unrecognised, self._holding = (
            found.unknown_outcome_to,
            found.unrecognised,
            reading.holding,
        )
        return found.problem or problem

    def producers(self) -> dict[int, FoundProducer]:
        """Return what the log has of each producer whose entry ends in it."""
        return {one: self._of(one, entry) for one, entry in self._known.items() if _last_of(entry) in self._holding}

    def _of(self, producer_id: int, entry: Entry) -> FoundProducer:
        pieces, found = known_of(entry), self._read.get(producer_id)
        if found is None:
            has_unmarked = self._unknown_outcome_to > entry.end_offset
            where = entry.end_offset, entry.anchor, NO_TIME
            return FoundProducer(producer_id, pieces, *where, has_unmarked=has_unmarked)
        return replace(found, pieces=(*pieces, *(one for one in found.pieces if one not in pieces)))


def _last_of(entry: Entry) -> Anchored:
    return entry.end_offset - 1, entry.anchor


def _readable(value: bytes | None) -> Entry | None:
    try:
        return None if value is None else unpack(value)
    except StoredFormatError:
        return None


def _read_tail(cluster: Cluster, place: Place, before: FoundRange, leader: Address) -> FoundRange | str:
    """Read from the end of ``before`` to the present log end offset. Returns a text if that is not possible: why."""
    begun = time.monotonic()
    while True:
        ends = cluster.ends(place.topic, place.partition)
        if ends.leader != leader:
            return "its leader has changed meanwhile"
        if ends.log_end < before.end:
            return f"its log ends at {ends.log_end}, below what it had shown"
        if ends.high_watermark >= ends.log_end and not ends.is_contested:
            break
        if time.monotonic() - begun > WAIT_SECONDS_MAX:
            if ends.is_contested:
                return "two brokers say that they lead it"
            return "its high watermark does not reach the end of its log"
        time.sleep(PROBE_SECONDS)
    offset, anchor = before.last
    if anchor != NO_ANCHOR and not _is_there(cluster, place, offset, anchor):
        return f"another record is at offset {offset} than a moment ago"
    reading = RangeReading(before.end, ends.log_end)
    problem = _read_to_end(cluster, place, reading)
    found = reading.found()
    return problem or found.problem or found


def _is_there(cluster: Cluster, place: Place, offset: int, anchor: bytes) -> bool:
    """Is the message with this last offset still the one that was read? Deleted by retention is all right."""
    fetch = PartitionFetch(cluster, place.topic, place.partition, _LOOK_BYTES)
    while True:
        try:
            fetched = fetch.at(offset)
        except OutOfRange:
            return cluster.offsets(place.topic, place.partition)[0] > offset
        if not fetched.records:
            return False
        try:
            for message in iterate_logged(fetched.records):
                if message.offset >= offset:
                    return message.offset == offset and anchor_of(message) == anchor
        except WireError:
            return False


def _judged(
    store: BulkStore, wanted: Wanted, found: Sequence[FoundProducer], stored: Sequence[bytes | None]
) -> list[Judged]:
    data_generation = store.data_generation() if wanted.registration is None else wanted.registration.data_generation
    blocks = {block_of(one.producer_id): None for one, value in zip(found, stored, strict=True) if value is None}
    claims = store.read([block_key(wanted.redis.cluster, start) for start in blocks])
    claimed = dict(zip(blocks, claims, strict=True))
    version_from = store.now_us()
    return [
        judge(one, value, claimed.get(block_of(one.producer_id)), data_generation, version_from)
        for one, value in zip(found, stored, strict=True)
    ]


def _written(
    store: BulkStore,
    wanted: Wanted,
    place: Place,
    found: Sequence[FoundProducer],
    keys: Sequence[bytes],
    stored: Sequence[bytes | None],
    judged: Sequence[Judged],
) -> tuple[Row, ...]:
    """Write what is to be written, and return the outcome for each producer. An entry that somebody else has changed
    meanwhile is BUSY."""
    ours = [index for index, one in enumerate(judged) if one.value is not None]
    if wanted.registration is None:
        now = store.read(keys)
        moved = {index for index, value in enumerate(now) if value != stored[index]}
        written = set[int]()
    else:
        swaps = [
            Swap(keys[index], judged[index].expected_version, judged[index].value or b"", wanted.expiry_ms)
            for index in ours
        ]
        results = dict(zip(ours, store.swap(wanted.registration, swaps), strict=True))
        moved = {index for index, result in results.items() if isinstance(result, Conflict)}
        written = results.keys() - moved
    return tuple(
        Row(
            place.topic,
            place.partition,
            one.producer_id,
            Difference.BUSY if index in moved else said.difference,
            Effect.NOTHING if index in moved else said.effect,
            index in written,
        )
        for index, (one, said) in enumerate(zip(found, judged, strict=True))
    )
