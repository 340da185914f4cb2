"""Reads Redis for people: streams what is stored under a cluster's name, and forgets one entry or name at a time.
Blocking, over redis-py, for the command line; the proxy never uses it. Walks by SCAN in pages, so its memory does not
grow with the number of keys. Only ``forget``, ``forget_name`` and ``change_hidden_ranges`` write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from redis.exceptions import NoPermissionError, RedisError, ResponseError, WatchError

from .conditional import is_conditional
from .entry import NO_PRINCIPAL, Entry, pack, pack_named
from .hidden_ranges import (
    STORED_BYTES_MAX,
    HiddenRange,
    HiddenRangesFormatError,
    OffsetRange,
    pack_hidden_ranges,
    unpack_hidden_ranges,
)
from .inspection import (
    ClusterPlace,
    Damaged,
    EntryPlace,
    NamePlace,
    Place,
    cluster_of,
    forgotten,
    owner_of,
    parse_key,
    prefix,
    read_block,
    read_entry,
    read_name,
    state_of,
)
from .names import NameRecord, is_named, listed_name
from .producer_ids import Block, block_of
from .redis_blocking import InspectionError as InspectionError
from .redis_blocking import connected, info_of, pool_of, redis_errors_as_sentences
from .redis_facts import RedisAddress, data_generation_of, shown_server
from .store import (
    NO_VERSION,
    block_key,
    data_number_key,
    data_number_of,
    entry_key,
    hidden_ranges_key,
    index_key,
    issued_key,
    member_key,
    name_key,
    names_key,
    partition_index_of,
)

PAGE_KEYS = 500
_CLUSTER_NAMES_MAX = 100
_TOPIC_NAMES_MAX = 1_000
_GLOB_SPECIAL = b"\\*?[]"
_EXPIRY_MS_MIN = 60_000
_CHANGE_TRIES_MAX = 10


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """``version``: with the server's name. ``data_generation``: the present data generation, None if the server does
    not tell. ``now_ms``: its clock, since 1970."""

    version: str
    role: str
    data_generation: bytes | None
    now_ms: int


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One entry. ``state``: a word of ``inspection.state_of``. ``expires_ms``: the time to live; None: it does not
    expire. ``untouched_seconds``: since it was last read or written; None if the server cannot tell, as this read would
    count too (before CLIENT NO-TOUCH, Redis 7.2). ``stored``: the value as it is."""

    place: EntryPlace
    entry: Entry | Damaged
    state: str
    is_owner_alive: bool
    expires_ms: int | None
    untouched_seconds: int | None
    stored: bytes


@dataclass(frozen=True, slots=True)
class NameRow:
    """The name of a producer. ``partitions``: on how many partitions its present producer id has an entry.
    ``stored``: the value as it is."""

    name: str
    record: NameRecord | Damaged
    stored: bytes
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class UnknownRow:
    """A key under the cluster's name that no proxy of this version writes, or the cluster id (``cluster_id``)."""

    key: bytes
    cluster_id: bytes | None = None


Row = EntryRow | NameRow | UnknownRow


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The entry is as if nothing had been known; the log is read when the producer comes back."""


@dataclass(frozen=True, slots=True)
class NotForgotten:
    """Nothing was changed; ``reason`` is for people."""

    reason: str


class RedisInspection:
    """One connection to the server, for one cluster name. A context manager. Connecting and every method may raise
    InspectionError."""

    def __init__(self, address: RedisAddress, cluster: str, over_tls: Callable[[Any], Any] | None = None) -> None:
        """``over_tls``: takes a connected socket and returns it with TLS."""
        self.cluster = cluster
        self._pool = pool_of(address, over_tls)
        self._redis = connected(self._pool)
        self._leaves_no_trace = False
        self._data_generation: bytes | None = None

    def __enter__(self) -> RedisInspection:
        return self

    def __exit__(self, *error: object) -> None:
        self._redis.close()
        self._pool.disconnect()

    def server(self) -> ServerFacts:
        """Read the server's facts. To be called first: the states of entries depend on the data generation that it
        learns."""
        with redis_errors_as_sentences():
            info = info_of(self._redis, b"server", b"replication")
            data_number = data_number_of(self._redis.get(data_number_key(self.cluster)))
            seconds, microseconds = self._redis.time()
            with suppress(ResponseError):  # exists from 7.2 on
                self._leaves_no_trace = bool(self._redis.execute_command(b"CLIENT NO-TOUCH", b"ON"))
        self._data_generation = data_generation_of(info, data_number)
        now_ms = seconds * 1000 + microseconds // 1000
        return ServerFacts(shown_server(info), info.get("role", "unknown"), self._data_generation, now_ms)

    # ------------------------------------------------------------------ reading
    def everything(self) -> Iterator[Row]:
        """Yield the entries and names that are stored under the cluster's name, and what no proxy writes there, in no
        order; what is stored meanwhile may be missed, and Redis may show a key twice."""
        yield from self._rows(prefix(self.cluster) + b"*")

    def entries(
        self, *, producer_id: int | None = None, topic: str | None = None, partition: int | None = None
    ) -> Iterator[EntryRow]:
        """Yield the entries of a producer, of a topic, of a partition, or all."""
        if producer_id is not None and topic is not None and partition is not None:
            found: Iterable[Row] = self._page([entry_key(self.cluster, producer_id, topic, partition)])
        else:
            log = (
                b"{*}"
                if topic is None
                else b"{%b/%b}"
                % (
                    _literal(topic.encode()),
                    b"*" if partition is None else b"%d" % partition,
                )
            )
            who = b"*" if producer_id is None else b"%016x" % producer_id
            found = self._rows(b"%b%b:%b" % (prefix(self.cluster), log, who))
        for row in found:
            # The pattern also matches topics with a slash in their names, which Kafka forbids and Redis does not.
            if isinstance(row, EntryRow) and topic in (None, row.place.topic):
                yield row

    def names(self, name: str | None = None) -> Iterator[NameRow]:
        """Yield the names of producers, or one."""
        pattern = b"*" if name is None else _literal(name.encode())
        for row in self._rows(prefix(self.cluster) + b"name:" + pattern):
            if isinstance(row, NameRow):
                yield replace(row, partitions=self._partitions(row.record))

    def _partitions(self, record: NameRecord | Damaged) -> int:
        if isinstance(record, Damaged):
            return 0
        with redis_errors_as_sentences():
            return int(self._redis.scard(index_key(self.cluster, record.producer_id)))

    def cluster_names(self) -> list[str]:
        """Return the cluster names that have something stored, at most a hundred."""
        names: set[str] = set()
        with redis_errors_as_sentences():
            for key in self._redis.scan_iter(match=b"idem:*", count=PAGE_KEYS):
                if (name := cluster_of(key)) is not None and len(names) < _CLUSTER_NAMES_MAX:
                    names.add(name)
        return sorted(names)

    def topic_names(self) -> list[str]:
        """Return topics that have something stored, at most a thousand."""
        names: set[str] = set()
        with redis_errors_as_sentences():
            for key in self._redis.scan_iter(match=prefix(self.cluster) + b"{*", count=PAGE_KEYS):
                place = parse_key(self.cluster, key)
                if isinstance(place, EntryPlace) and len(names) < _TOPIC_NAMES_MAX:
                    names.add(place.topic)
        return sorted(names)

    def has_proxies(self) -> bool:
        """Does a proxy hold a lease under the cluster's name? In front of brokers that give idempotence themselves none
        does."""
        with redis_errors_as_sentences():
            return any(True for _ in self._redis.scan_iter(match=prefix(self.cluster) + b"member:*", count=PAGE_KEYS))

    # ------------------------------------------------------------------ hidden ranges
    def hidden_ranges(self) -> dict[OffsetRange, HiddenRange]:
        """Return all that is stored of ranges that fetches leave out."""
        with redis_errors_as_sentences():
            return _hidden_ranges_of(self._redis.get(hidden_ranges_key(self.cluster)))[1]

    def change_hidden_ranges(
        self, change: Callable[[dict[OffsetRange, HiddenRange], int], dict[OffsetRange, HiddenRange]]
    ) -> None:
        """Store what ``change`` makes of them; it is called with the server's time (ms since 1970), and again if a
        proxy has written meanwhile."""
        key = hidden_ranges_key(self.cluster)
        with redis_errors_as_sentences():
            for _ in range(_CHANGE_TRIES_MAX):
                with self._redis.pipeline(transaction=True) as pipe:
                    pipe.watch(key)
                    version, known = _hidden_ranges_of(pipe.get(key))
                    seconds, microseconds = pipe.time()
                    changed = change(known, seconds * 1000 + microseconds // 1000)
                    value = pack_hidden_ranges(version + 1, changed)
                    if len(value) > STORED_BYTES_MAX:
                        raise InspectionError(
                            f"that would be {len(value)} bytes of hidden ranges, the limit is {STORED_BYTES_MAX}"
                        )
                    pipe.multi()
                    pipe.set(key, value)
                    with suppress(WatchError):
                        pipe.execute()
                        return
        raise InspectionError("others keep changing the hidden ranges: try again")

    # ------------------------------------------------------------------ forgetting
    def forget(self, row: EntryRow, *, expiry_ms: int, although_owner_lives: bool = False) -> Forgotten | NotForgotten:
        """Forget an entry that is still as ``row`` has it, in one step with the check that no proxy has written it
        since. It expires when it would have. One with an open intent expires after ``expiry_ms``, and that of a
        conditional partition (R23) never does."""
        key = row.place.key(self.cluster)
        with redis_errors_as_sentences(), self._redis.pipeline(transaction=True) as pipe:
            pipe.watch(key)
            if pipe.get(key) != row.stored:
                return NotForgotten("it has changed since it was shown")
            owner = owner_of(row.entry)
            # A proxy never takes its lease again under the same proxy instance, so an owner that is gone stays gone.
            if owner is not None and not although_owner_lives and pipe.exists(member_key(self.cluster, owner)):
                return NotForgotten(f"proxy {owner.hex()} is alive and may be writing it now")
            left_ms = pipe.pttl(key)
            seconds, microseconds = pipe.time()
            producer_id = row.place.producer_id
            issued = pipe.get(issued_key(self.cluster, producer_id))
            block = read_block(issued or pipe.get(block_key(self.cluster, block_of(producer_id))) or b"")
            issued_to = block.principal if isinstance(block, Block) else NO_PRINCIPAL
            is_conditional_partition = is_conditional(row.place.producer_id)
            entry = forgotten(
                row.stored,
                seconds * 1_000_000 + microseconds,
                issued_to,
                is_conditional_partition=is_conditional_partition,
            )
            has_name = is_named(row.place.producer_id)
            pipe.multi()
            if is_conditional_partition:  # R23: no proxy expects it to expire
                pipe.set(key, pack(entry))
            else:
                value = pack_named(entry) if has_name else pack(entry)
                was_open = isinstance(row.entry, Entry) and row.entry.has_open_intent and not has_name
                pipe.set(key, value, px=expiry_ms if was_open or left_ms < 0 else max(left_ms, _EXPIRY_MS_MIN))
            try:
                pipe.execute()
            except WatchError:
                return NotForgotten("it was written while it was to be forgotten")
        return Forgotten()

    def forget_name(self, row: NameRow, *, expiry_ms: int) -> Forgotten | NotForgotten:
        """Forget a name that is still as ``row`` has it: its record is deleted, so its instances are fenced (rule R22),
        and the principal that asks for the name next gets it, with a producer id that nobody had (model row S20). The
        id and the entries of the one before expire after ``expiry_ms``."""
        key = name_key(self.cluster, row.name)
        with redis_errors_as_sentences(), self._redis.pipeline(transaction=True) as pipe:
            pipe.watch(key)
            if pipe.get(key) != row.stored:
                return NotForgotten("it has changed since it was shown")
            seconds, _ = pipe.time()
            record = None if isinstance(row.record, Damaged) else row.record
            index = None if record is None else index_key(self.cluster, record.producer_id)
            entries = [] if index is None else list(pipe.smembers(index))
            pipe.multi()
            pipe.delete(key)
            if record is not None and index is not None:
                block = block_key(self.cluster, block_of(record.producer_id))
                for expiring in [*entries, index, block]:
                    pipe.pexpire(expiring, expiry_ms, lt=True)
                listed = {listed_name(row.name): 0.0}  # it leaves the list with those that have expired
                pipe.zadd(names_key(self.cluster, record.principal), listed, xx=True, lt=True)
            for entry in entries:
                pipe.zadd(partition_index_of(entry), {entry: seconds * 1000 + expiry_ms}, xx=True, lt=True)
            try:
                pipe.execute()
            except WatchError:
                return NotForgotten("an instance of it has begun while it was to be forgotten")
        return Forgotten()

    # ------------------------------------------------------------------ inside
    def _rows(self, pattern: bytes) -> Iterator[Row]:
        with redis_errors_as_sentences():
            keys = self._redis.scan_iter(match=pattern, count=PAGE_KEYS)
            while page := list(islice(keys, PAGE_KEYS)):
                yield from self._page(page)

    def _page(self, keys: Sequence[bytes]) -> list[Row]:
        """Return what a few keys hold, without those that are gone by now."""
        with redis_errors_as_sentences():
            places = [parse_key(self.cluster, key) for key in keys]
            with self._redis.pipeline(transaction=False) as pipe:
                if self._leaves_no_trace:
                    pipe.execute_command(b"CLIENT NO-TOUCH", b"ON")  # a pipeline has a connection of its own
                for key, place in zip(keys, places, strict=True):
                    if self._leaves_no_trace and isinstance(place, EntryPlace):
                        pipe.object("IDLETIME", key)
                    else:
                        pipe.echo("")
                    pipe.pttl(key)
                    pipe.get(key)
                replies = pipe.execute(raise_on_error=False)[int(self._leaves_no_trace) :]
            alive = self._living(replies[2::3], places)
            rows = (
                self._row(key, place, alive, *replies[3 * index : 3 * index + 3])
                for index, (key, place) in enumerate(zip(keys, places, strict=True))
            )
            return [row for row in rows if row is not None]

    def _living(self, values: Sequence[Any], places: Sequence[Place | None]) -> set[bytes]:
        """Return which owners of these intents are alive. The leases are read after the intents: an owner without one
        has gone, or has given the intent back since. In the other order one that began in between would seem gone."""
        owners = {
            owner
            for value, place in zip(values, places, strict=True)
            if isinstance(place, EntryPlace) and isinstance(value, bytes)
            if (owner := owner_of(read_entry(value))) is not None
        }
        with self._redis.pipeline(transaction=False) as pipe:
            for owner in owners:
                pipe.exists(member_key(self.cluster, owner))
            return {owner for owner, there in zip(owners, pipe.execute(), strict=True) if there}

    def _row(
        self, key: bytes, place: Place | None, alive: set[bytes], idle: Any, left_ms: Any, value: Any
    ) -> Row | None:
        if isinstance(value, RedisError):
            if isinstance(value, NoPermissionError) or "WRONGTYPE" not in str(value):
                raise value
            value = b""
            damage: Damaged | None = Damaged("the key holds no string")
        elif value is None:
            return None
        else:
            damage = None
        if isinstance(place, EntryPlace):
            entry = damage or read_entry(value)
            owner = owner_of(entry)
            is_alive = owner is not None and owner in alive
            expires_ms = left_ms if isinstance(left_ms, int) and left_ms >= 0 else None
            untouched = idle if isinstance(idle, int) else None
            state = state_of(entry, self._data_generation, is_alive)
            return EntryRow(place, entry, state, is_alive, expires_ms, untouched, value)
        if isinstance(place, NamePlace):
            return NameRow(place.name, damage or read_name(value), value)
        if place is None or isinstance(place, ClusterPlace):
            return UnknownRow(key, None if place is None else value)
        return None


def _hidden_ranges_of(stored: bytes | None) -> tuple[int, dict[OffsetRange, HiddenRange]]:
    try:
        return (NO_VERSION, {}) if stored is None else unpack_hidden_ranges(stored)
    except HiddenRangesFormatError as error:
        raise InspectionError(str(error)) from None


def _literal(text: bytes) -> bytes:
    """Return a pattern that matches only this text."""
    return b"".join(b"\\%c" % byte if byte in _GLOB_SPECIAL else b"%c" % byte for byte in text)
