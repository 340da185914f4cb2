"""The border to the store: its results, its events, its keys. Knows no Redis and no Kafka rule; nothing runs here.

A store offers one atomic step, compare-and-swap by version. Answers come by callback, never from inside the call, and
every call is answered exactly once. ``StoreAway``: the outcome is unknown. The call may have been executed, or may yet
be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from ..values import value

NO_VERSION = 0
"""The version of an absent value; stored ones begin at 1."""

MODE_PROXY, MODE_NATIVE = b"proxy", b"native"
"""The values of ``mode_key``, as ``upstream.idempotence`` has them. Engine topics follow native (``native_mode``)."""

CHANGES = b"changing to "
"""Before the value that comes next: no proxy may serve clients, until none is registered that serves them in the mode
before."""

DATA_COUNT_BITS = 32
"""The lower bits of ``data_number_key``'s value. A hundred processes need a year for 31 of them."""

_CLUSTER_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def native_mode(engine_topics: Iterable[str]) -> bytes:
    """Return the value of ``mode_key`` where the brokers give idempotence, but for topics that match these patterns:
    ``native``, or ``native ["orders-*"]``."""
    patterns = sorted(set(engine_topics))
    return MODE_NATIVE + (b" " + json.dumps(patterns, ensure_ascii=False).encode() if patterns else b"")


def engine_topics_of(stored: bytes) -> tuple[str, ...] | None:
    """Return the patterns of ``native_mode``, also while the mode is changing to it; None: the value is of another
    kind."""
    mode, _, patterns = stored.removeprefix(CHANGES).partition(b" ")
    try:
        found = json.loads(patterns or b"[]") if mode == MODE_NATIVE else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        return None
    return tuple(sorted(set(found)))


# ---------------------------------------------------------------------- results
@value(frozen=True, slots=True)
class Swapped:
    """The value is stored. Also the answer when exactly this value was stored already: the first reply was lost."""


@value(frozen=True, slots=True)
class Conflict:
    """Another version is stored. ``value`` is what is there now, None when the key is absent."""

    value: bytes | None


@value(frozen=True, slots=True)
class StoreAway:
    """No answer, or a refusal: whether it was executed is unknown. ``reason`` is for people."""

    reason: str


@value(frozen=True, slots=True)
class NameMoved:
    """Nothing is stored: the name has another newest instance. ``record`` is what is stored of it, None when nothing
    is."""

    record: bytes | None


@value(frozen=True, slots=True)
class NameCheck:
    """Compared in the same step as the version (rule R22). ``key``: of the name's record. ``newest``: the producer id
    and epoch that have to be its newest (``names.newest_bytes``). ``index``: the set of the producer id's entries, to
    which the swapped key is added. ``until_ms``: when the entry expires unless it is renewed, ms since 1970."""

    key: bytes
    newest: bytes
    index: bytes
    until_ms: int


SwapResult = Swapped | Conflict | NameMoved | StoreAway


# ---------------------------------------------------------------------- events, for log and metrics
@value(frozen=True, slots=True)
class StoreReady:
    """Connected and checked, the lease is held."""

    data_generation: bytes


@value(frozen=True, slots=True)
class StoreLost:
    """The connection ended or could not be opened; it is tried again."""

    reason: str


@value(frozen=True, slots=True)
class StoreRefused:
    """The server is there but must not be used; ``reason`` says what to change. It is checked again every second."""

    reason: str


@value(frozen=True, slots=True)
class StoreWarning:
    """The server is used, but some setting of it makes losses likelier."""

    text: str


@value(frozen=True, slots=True)
class StoreEmptied:
    """The server lost its data, our registration with them, and did not restart: somebody deleted them."""


StoreEvent = StoreReady | StoreLost | StoreRefused | StoreWarning | StoreEmptied


PASSING_VERSION = 2**63 - 1
"""Of an entry that says nothing and expires at once: it only shows that nothing is stored, and counts as absent."""
KEEP_TTL = -1
"""As time to live: what is stored expires when it would have."""


class Store(Protocol):
    """What the proxy needs of a store. ``ttl_ms`` 0: no expiry; of a swap also ``KEEP_TTL``."""

    @property
    def data_generation(self) -> bytes | None:
        """16 bytes that name the present data generation; None while not connected."""
        ...

    def read(self, key: bytes, done: Callable[[bytes | StoreAway | None], None]) -> None:
        """The stored value, None when absent."""
        ...

    def swap(
        self,
        key: bytes,
        expected_version: int,
        value: bytes,
        ttl_ms: int,
        done: Callable[[Swapped | Conflict | StoreAway], None],
    ) -> None:
        """Store ``value`` if the stored version is ``expected_version`` (0: if the key is absent)."""
        ...

    def swap_named(
        self,
        key: bytes,
        expected_version: int,
        value: bytes,
        ttl_ms: int,
        name: NameCheck,
        done: Callable[[SwapResult], None],
    ) -> None:
        """The same, but only if ``name`` holds as well. ``ttl_ms`` is not 0."""
        ...

    def expire_all(
        self, index: bytes, ttl_ms: int, now_ms: int, renews: bool, done: Callable[[bool | StoreAway], None]
    ) -> None:
        """Let all keys in an index expire in ``ttl_ms``, and the index itself, if they would not expire sooner;
        ``renews``: also if they would. They leave the index of their partition then. ``now_ms``: since 1970. False:
        there is no such index."""
        ...

    def list_name(
        self,
        names: bytes,
        member: bytes,
        ttl_ms: int,
        now_ms: int,
        count_max: int | None,
        done: Callable[[bool | StoreAway], None],
    ) -> None:
        """Add a name to the list of its principal's, for ``ttl_ms`` from now on (``now_ms``: since 1970). False: it has
        ``count_max`` members already, and nothing is added."""
        ...

    def named_entries(self, index: bytes, count_max: int, done: Callable[[list[bytes] | StoreAway], None]) -> None:
        """The keys of the entries that producers with a name have on a partition, at most so many; some may be gone."""
        ...

    def claim(self, key: bytes, value: bytes, ttl_ms: int, done: Callable[[bool | StoreAway], None]) -> None:
        """Store ``value`` if the key is absent. False: it exists, perhaps from a try of ours whose reply was lost."""
        ...

    def member_alive(self, instance_id: bytes, done: Callable[[bool | StoreAway], None]) -> None:
        """Does that proxy instance still hold its lease (rule R1)?"""
        ...

    def end_member(self, instance_id: bytes, done: Callable[[bool | StoreAway], None]) -> None:
        """End the lease of a proxy instance that is certainly dead. True if it existed."""
        ...


# ---------------------------------------------------------------------- keys
@value(frozen=True, slots=True)
class Bound:
    """Why the keys of a kind need no expiry: there are at most ``count`` of them, each one for a ``unit``, and
    ``reason`` says why they have to stay."""

    count: str
    unit: str
    reason: str


@value(frozen=True, slots=True)
class KeyKind:
    """One kind of key. ``pattern``: what follows the prefix of the cluster name. ``bound`` None: every key of this kind
    has an expiry, from the step on that writes it."""

    pattern: re.Pattern[bytes]
    bound: Bound | None


KEY_KINDS: dict[str, KeyKind] = {}
"""All that is ever stored, by the name of the kind. A test holds every key that it finds in a Redis to this."""
_Key = TypeVar("_Key", bound=Callable[..., bytes])


def _kind(name: str, pattern: bytes, bound: Bound | None = None) -> Callable[[_Key], _Key]:
    """Declare the kind of the keys that the function makes."""

    def declared(make: _Key) -> _Key:
        KEY_KINDS[name] = KeyKind(re.compile(pattern, re.DOTALL), bound)
        return make

    return declared


def kind_of(cluster: str, key: bytes) -> str | None:
    """Return the name of a key's kind; None: it is none of this cluster name's."""
    start = f"idem:{cluster}:".encode()
    if not key.startswith(start):
        return None
    rest = key[len(start) :]
    return next((name for name, kind in KEY_KINDS.items() if kind.pattern.fullmatch(rest)), None)


def is_cluster_name(name: str) -> bool:
    """Tell whether ``name`` can be part of a key: letters, digits, dot, underscore, hyphen; at most 64."""
    return _CLUSTER_NAME.fullmatch(name) is not None


@_kind("entry", rb"\{.*/[0-9]+\}:[0-9a-f]{16}")
@_kind(
    "conditional partition",
    rb"\{.*/[0-9]+\}:7fffffffffffffff",
    Bound("the partitions of topics.conditional", "partition", "R23: a fence stays until a person lifts it"),
)
def entry_key(cluster: str, producer_id: int, topic: str, partition: int) -> bytes:
    """Return the key of one producer on one partition. All of a partition share a hash slot.

    Unambiguous for any topic string: what follows the last slash has a fixed form.
    """
    return f"idem:{cluster}:{{{topic}/{partition}}}:{producer_id:016x}".encode()


@_kind("block", rb"block:[0-9a-f]{16}")
def block_key(cluster: str, block_start: int) -> bytes:
    """Return the key under which a block of producer ids is claimed."""
    return f"idem:{cluster}:block:{block_start:016x}".encode()


@_kind("issued id", rb"issued:[0-9a-f]{16}")
def issued_key(cluster: str, producer_id: int) -> bytes:
    """Return the key under which it is noted that a broker has issued this producer id, in the form of a block."""
    return f"idem:{cluster}:issued:{producer_id:016x}".encode()


@_kind("name", rb"name:.+")
def name_key(cluster: str, name: str) -> bytes:
    """Return the key of the record of a name (rule R22)."""
    return f"idem:{cluster}:name:{name}".encode()


@_kind("entries of a name", rb"index:[0-9a-f]{16}")
def index_key(cluster: str, producer_id: int) -> bytes:
    """Return the key of the set of the entries that a producer with a name has."""
    return f"idem:{cluster}:index:{producer_id:016x}".encode()


@_kind("producer names of a partition", rb"\{.*/[0-9]+\}:named")
def partition_index_key(cluster: str, topic: str, partition: int) -> bytes:
    """Return the key of the sorted set of the entries that producers with a name have on a partition. The score is when
    the entry expires, in ms since 1970."""
    return f"idem:{cluster}:{{{topic}/{partition}}}:named".encode()


def partition_index_of(entry: bytes) -> bytes:
    """Return the ``partition_index_key`` of the partition that an entry's key is of."""
    return entry[: entry.rindex(b":")] + b":named"


@_kind("names of a principal", rb"names:[0-9a-f]{16}")
def names_key(cluster: str, principal: bytes) -> bytes:
    """Return the key of the sorted set of the names that a principal has (``names.listed_name``). The score is when the
    name expires, in ms since 1970."""
    return f"idem:{cluster}:names:{principal.hex()}".encode()


@_kind("registration", rb"member:(?:[0-9a-f]{2})+")
def member_key(cluster: str, instance_id: bytes) -> bytes:
    """Return the key of a proxy instance's lease; it exists as long as the lease runs (rule R1)."""
    return f"idem:{cluster}:member:{instance_id.hex()}".encode()


@_kind(
    "hidden ranges",
    rb"hidden_ranges",
    Bound("1, of 1 MiB (hidden_ranges.STORED_BYTES_MAX)", "cluster name", "a range is left out until it is removed"),
)
def hidden_ranges_key(cluster: str) -> bytes:
    """Return the key of the ranges that fetches leave out."""
    return f"idem:{cluster}:hidden_ranges".encode()


@_kind(
    "cluster id", rb"cluster", Bound("1", "cluster name", "the name stands for one cluster, also after a long pause")
)
def cluster_key(cluster: str) -> bytes:
    """Return the key that holds the broker's own cluster id, so that one name never stands for two clusters."""
    return f"idem:{cluster}:cluster".encode()


@_kind(
    "life",
    rb"life",
    Bound("1, of 20 bytes", "cluster name", "R10: it shows that Redis's memory went back in time, also after a pause"),
)
def data_number_key(cluster: str) -> bytes:
    """Return the key of the data number of what is in Redis's memory: a number of which ``data_number_of`` is the data
    number, and the rest is counted up by every proxy with each heartbeat."""
    return f"idem:{cluster}:life".encode()


def data_number_of(stored: bytes | int | None) -> int:
    """Return the data number in a value of ``data_number_key``; 0 where there is none, or none that can be read."""
    try:
        return int(stored or 0) >> DATA_COUNT_BITS
    except ValueError:
        return 0


@_kind("mode", rb"mode", Bound("1", "cluster name", "all proxies of a cluster name give idempotence in one way"))
def mode_key(cluster: str) -> bytes:
    """Return the key that says who gives idempotence to the producers of a cluster: ``MODE_PROXY``, or a value of
    ``native_mode``. One value for all proxies; absent where no proxy has given it."""
    return f"idem:{cluster}:mode".encode()


@_kind("without ids", rb"without-ids")
def without_ids_key(cluster: str) -> bytes:
    """Return the key that is there as long as a client may send a batch again that a proxy has appended without its
    producer id."""
    return f"idem:{cluster}:without-ids".encode()


@_kind("verdict", rb"verdict")
def verdict_key(cluster: str) -> bytes:
    """Return the key of what a probe has found out about a cluster whose brokers do not show that they are Kafka: one
    value for all proxies, opaque here, which expires."""
    return f"idem:{cluster}:verdict".encode()
