"""Writes many entries at once, while proxies run: the swap of ``redis_store.py``, over redis-py. Blocking, for the bulk
rebuild.

A writer registers like a proxy, and sends every swap under that registration, with the script of one data generation.
So what it sends is refused once Redis has another data generation, or has lost its data, after the writer began
(rule R10). It reserves nothing: nobody ever waits for it. A registration that is gone is not made again; the run has
ended."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from redis.exceptions import RedisError

from .inspection import EntryPlace, parse_key, prefix
from .lease import LEASE_SECONDS
from .redis_blocking import InspectionError, connected, info_of, pool_of, redis_errors_as_sentences
from .redis_data_number import RANDOM_BYTES, first_value
from .redis_facts import (
    NOT_REGISTERED,
    RedisAddress,
    data_generation_of,
    eviction_refusal_of,
    refusal_of,
    script_sha,
    swap_script,
)
from .store import Conflict, Swapped, data_number_key, data_number_of, member_key

PAGE_KEYS = 500
"""Keys in one request: other clients of Redis get their turns in between."""
INSTANCE_ID_BYTES = 8
_BEAT = b"\x01" + bytes(8)
"""The value of the registration. It stays: the tasks of one run cannot know of renewals that another process sends."""
Wanted = TypeVar("Wanted")
_DATA_NUMBER_CODES = ("NOSCRIPT", "READONLY", NOT_REGISTERED)


class StoreEnded(InspectionError):
    """Redis has another data generation, or has lost its data, since the run began: nothing more is written."""


@dataclass(frozen=True, slots=True)
class Access:
    """A server, and the cluster name in the keys of the proxies. ``over_tls``: takes a connected socket and returns it
    with TLS; it has to be picklable where Spark tasks carry this object."""

    address: RedisAddress
    cluster: str
    over_tls: Callable[[Any], Any] | None = None


@dataclass(frozen=True, slots=True)
class Registration:
    """The registration of one run. ``sha``: the SHA-1 by which EVALSHA calls the swap script, which is loaded."""

    data_generation: bytes
    instance_id: bytes
    sha: bytes


@dataclass(frozen=True, slots=True)
class Swap:
    """One value to store. ``expected_version`` 0: the key has to be absent. ``ttl_ms`` 0: no expiry."""

    key: bytes
    expected_version: int
    value: bytes
    ttl_ms: int


class BulkStore:
    """One connection. A context manager. Every method may raise InspectionError."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._pool = pool_of(access.address, access.over_tls)
        self._redis = connected(self._pool)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._redis.close()
        self._pool.disconnect()

    # ------------------------------------------------------------------ reading
    def data_generation(self) -> bytes:
        """Check that the proxies would use this server, and return the present data generation."""
        with redis_errors_as_sentences():
            info = info_of(self._redis, b"server", b"replication", b"memory")
            data_number = data_number_of(self._redis.get(data_number_key(self._access.cluster)))
        refusal = refusal_of(info) or eviction_refusal_of(info)
        if refusal is not None:
            raise InspectionError(refusal)
        data_generation = data_generation_of(info, data_number)
        assert data_generation is not None, "refused above"
        return data_generation

    def now_us(self) -> int:
        """Return the server's time: microseconds since 1970."""
        with redis_errors_as_sentences():
            seconds, microseconds = self._redis.time()
        return int(seconds) * 1_000_000 + int(microseconds)

    def read(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return what is stored under each key."""
        values: list[bytes | None] = []
        with redis_errors_as_sentences():
            for page in _pages(keys):
                values += self._redis.mget(page)
        return values

    def entry_places(self) -> Iterator[EntryPlace]:
        """Yield the producers and partitions that have an entry; one may come twice. Walks by SCAN: entries that come
        or go meanwhile may be missing."""
        cluster = self._access.cluster
        with redis_errors_as_sentences():
            for key in self._redis.scan_iter(match=prefix(cluster) + b"{*", count=PAGE_KEYS):
                place = parse_key(cluster, key)
                if isinstance(place, EntryPlace):
                    yield place

    def has_data_number(self) -> bool:
        """Has the data number of the memory begun? If not, proxies that live begin it with their next heartbeat."""
        with redis_errors_as_sentences():
            return bool(self._redis.exists(data_number_key(self._access.cluster)))

    # ------------------------------------------------------------------ writing
    def register(self) -> Registration:
        """Load the script and register under a name that nobody else has. Where no proxy has been yet, the data number
        of the memory begins here: what is written would be of an earlier one else."""
        with redis_errors_as_sentences():
            self._redis.set(data_number_key(self._access.cluster), first_value(os.urandom(RANDOM_BYTES)), nx=True)
        data_generation = self.data_generation()
        text = swap_script(data_generation)
        registration = Registration(data_generation, os.urandom(INSTANCE_ID_BYTES), script_sha(text))
        with redis_errors_as_sentences():
            self._redis.execute_command(b"SCRIPT LOAD", text)
            if not self._redis.set(self._member(registration), _BEAT, nx=True, px=int(LEASE_SECONDS * 1000)):
                raise InspectionError("Redis: the registration of this run is there already: start it again")
        return registration

    def renew(self, registration: Registration) -> None:
        """Prolong the registration. Raises StoreEnded when it is gone, or of an earlier data number: then it is given
        back, so that nothing more is written, which no proxy would believe."""
        if self.data_generation() != registration.data_generation:
            self.end(registration)
            raise StoreEnded("Redis's data has another data generation since this run began: start it again")
        with redis_errors_as_sentences():
            if not self._redis.set(self._member(registration), _BEAT, xx=True, px=int(LEASE_SECONDS * 1000)):
                raise StoreEnded("Redis has lost this run's registration, and perhaps all data: start it again")

    def end(self, registration: Registration) -> None:
        """Give the registration back."""
        with redis_errors_as_sentences():
            self._redis.delete(self._member(registration))

    def swap(self, registration: Registration, swaps: Sequence[Swap]) -> list[Swapped | Conflict]:
        """Store each value whose key still has the expected version; return one result for each, in order. Raises
        StoreEnded: some of the values may be stored then."""
        results: list[Swapped | Conflict] = []
        member = self._member(registration)
        with redis_errors_as_sentences():
            for page in _pages(swaps):
                with self._redis.pipeline(transaction=False) as pipe:
                    for one in page:
                        version, ttl = one.expected_version.to_bytes(8, "big"), b"%d" % one.ttl_ms
                        pipe.execute_command(
                            b"EVALSHA", registration.sha, b"2", one.key, member, version, one.value, ttl, _BEAT
                        )
                    replies = pipe.execute(raise_on_error=False)
                results += [_result_of(one, reply) for one, reply in zip(page, replies, strict=True)]
        return results

    def _member(self, registration: Registration) -> bytes:
        return member_key(self._access.cluster, registration.instance_id)


def _result_of(swap: Swap, reply: Any) -> Swapped | Conflict:
    if isinstance(reply, RedisError):
        if any(code in str(reply) for code in _DATA_NUMBER_CODES):
            raise StoreEnded(f"Redis has another data generation, or lost its data, since this run began: {reply}")
        raise reply
    if reply == 1 or reply == swap.value:  # the second: the reply to a first try was lost
        return Swapped()
    return Conflict(reply)


def _pages(wanted: Sequence[Wanted]) -> Iterator[Sequence[Wanted]]:
    for first in range(0, len(wanted), PAGE_KEYS):
        yield wanted[first : first + PAGE_KEYS]
