"""What is stored under a cluster's name, read back for people: the meaning of each key and value. Pure. The inverse of
the keys in ``store``; values are decoded by the modules that write them. Never raises
because of what is stored: a value that cannot be read is ``Damaged``."""

from __future__ import annotations

import re
from dataclasses import replace

from ..values import value
from .commit import fresh
from .entry import NO_DATA_GENERATION, NO_PRINCIPAL, NOBODY, Entry, StoredFormatError, unpack
from .names import NO_ID, NameRecord, unpack_name
from .producer_ids import Block, unpack_block
from .store import cluster_key, data_number_key, entry_key, hidden_ranges_key, is_cluster_name, mode_key, verdict_key

_ENTRY = re.compile(rb"\{(.*)/(0|[1-9][0-9]{0,9})\}:([0-9a-f]{16})", re.DOTALL)
_BLOCK = re.compile(rb"(?:block|issued):([0-9a-f]{16})")
_PRODUCER_NAME = re.compile(rb"name:(.+)", re.DOTALL)
_INDEX = re.compile(rb"index:([0-9a-f]{16})")
_PARTITION_INDEX = re.compile(rb"\{.*/(0|[1-9][0-9]{0,9})\}:named", re.DOTALL)
_NAMES = re.compile(rb"names:[0-9a-f]{16}")
_MEMBER = re.compile(rb"member:([0-9a-f]{2,64})")
_NAME = re.compile(rb"idem:([A-Za-z0-9._-]{1,64}):")


@value(frozen=True, slots=True)
class EntryPlace:
    """The key of one producer on one partition."""

    topic: str
    partition: int
    producer_id: int

    def key(self, cluster: str) -> bytes:
        """Return the key."""
        return entry_key(cluster, self.producer_id, self.topic, self.partition)


@value(frozen=True, slots=True)
class BlockPlace:
    """The key that stands for a block of producer ids, or for one that a broker has issued."""

    start: int


@value(frozen=True, slots=True)
class NamePlace:
    """The key of the record of a producer's name."""

    name: str


@value(frozen=True, slots=True)
class IndexPlace:
    """The key of the set of a producer with a name's entries or, ``producer_id`` -1, of the sorted set of the entries
    that producers with a name have on a partition, or of the names of a principal."""

    producer_id: int


@value(frozen=True, slots=True)
class MemberPlace:
    """The key of the lease of one proxy instance."""

    instance_id: bytes


@value(frozen=True, slots=True)
class ClusterPlace:
    """The key of the broker's own cluster id, of who gives idempotence (``mode_key``), of what a probe has found out
    (``verdict_key``), or of the data number of the memory."""


@value(frozen=True, slots=True)
class HiddenRangesPlace:
    """The key of the ranges that fetches leave out."""


Place = EntryPlace | BlockPlace | NamePlace | IndexPlace | MemberPlace | ClusterPlace | HiddenRangesPlace


@value(frozen=True, slots=True)
class Damaged:
    """A value that this version cannot read; ``reason`` is for people."""

    reason: str


def prefix(cluster: str) -> bytes:
    """Return the prefix of all keys of a cluster name."""
    assert is_cluster_name(cluster), cluster
    return b"idem:%b:" % cluster.encode()


def cluster_of(key: bytes) -> str | None:
    """Return the cluster name in a key; None if the key does not begin like one of the proxy's."""
    match = _NAME.match(key)
    return match[1].decode() if match else None


def parse_key(cluster: str, key: bytes) -> Place | None:
    """Return what a key stands for; None for any other key."""
    start = prefix(cluster)
    if not key.startswith(start):
        return None
    rest = key[len(start) :]
    if match := _ENTRY.fullmatch(rest):
        try:
            topic = match[1].decode()
        except UnicodeDecodeError:
            return None
        return EntryPlace(topic, int(match[2]), int(match[3], 16))
    if match := _BLOCK.fullmatch(rest):
        return BlockPlace(int(match[1], 16))
    if match := _PRODUCER_NAME.fullmatch(rest):
        try:
            return NamePlace(match[1].decode())
        except UnicodeDecodeError:
            return None
    if match := _INDEX.fullmatch(rest):
        return IndexPlace(int(match[1], 16))
    if _PARTITION_INDEX.fullmatch(rest) or _NAMES.fullmatch(rest):
        return IndexPlace(NO_ID)
    if (match := _MEMBER.fullmatch(rest)) and len(match[1]) % 2 == 0:
        return MemberPlace(bytes.fromhex(match[1].decode()))
    if key == hidden_ranges_key(cluster):
        return HiddenRangesPlace()
    of_cluster = (cluster_key(cluster), data_number_key(cluster), mode_key(cluster), verdict_key(cluster))
    return ClusterPlace() if key in of_cluster else None


def read_entry(stored: bytes) -> Entry | Damaged:
    """Return what an entry's value says."""
    try:
        return unpack(stored)
    except StoredFormatError as error:
        return Damaged(str(error))


def read_block(stored: bytes) -> Block | Damaged:
    """Return what a block's value says."""
    return unpack_block(stored) or Damaged(f"the owner entry of a block has {len(stored)} bytes that cannot be read")


def read_name(stored: bytes) -> NameRecord | Damaged:
    """Return what is stored of a name."""
    try:
        return unpack_name(stored)
    except StoredFormatError as error:
        return Damaged(str(error))


def state_of(entry: Entry | Damaged, data_generation: bytes | None, is_owner_alive: bool) -> str:
    """Return one word. An intent whose owner lives: ``append_reservation`` (an append reservation), ``open`` (it names
    batches) or ``rebuilding`` (a takeover); ``abandoned``: any intent whose owner is gone. ``unrecoverable``: the
    outcome cannot be determined, and the batches are remembered. ``unverified``: of an earlier data generation, or
    forgotten, so it is rebuilt when the producer comes back (rule R10). ``damaged``: it cannot be read. Else ``quiet``.

    ``data_generation`` None: the server does not tell it, and no entry is called unverified."""
    if isinstance(entry, Damaged):
        return "damaged"
    intent = entry.intent
    if intent is not None and not intent.is_unrecoverable:
        if not is_owner_alive:
            return "abandoned"
        if intent.is_append_reservation:
            return "append_reservation"
        return "open" if intent.batches else "rebuilding"
    if data_generation is not None and entry.data_generation != data_generation:
        return "unverified"
    return "unrecoverable" if intent is not None else "quiet"


def owner_of(entry: Entry | Damaged) -> bytes | None:
    """Return the owner of an open intent; None if there is no open intent, or its owner has left it."""
    if isinstance(entry, Damaged) or not entry.has_open_intent:
        return None
    assert entry.intent is not None
    return None if entry.intent.owner == NOBODY else entry.intent.owner


def forgotten(
    stored: bytes, now_us: int, issued_to: bytes = NO_PRINCIPAL, *, is_conditional_partition: bool = False
) -> Entry:
    """Return the entry to write in the place of ``stored``, so that nothing of it is used any more.

    It is not deleted but made unverified: the proxy to which the producer comes back reads the log first (rule R10).
    The version rises, so that a swap that is on its way fails (model rows b3, b4). ``now_us``: microseconds since 1970,
    the new version if the stored one cannot be read: it is above every counted version. The producer id keeps its
    principal; if the entry cannot be read, that is ``issued_to``, which the id's block names."""
    entry = read_entry(stored)
    if isinstance(entry, Entry):
        version, principal = entry.version + 1, entry.principal
        if (
            is_conditional_partition
        ):  # R23: a proxy that remembers a fence from a loss sees that a person has lifted it since
            version = max(version, now_us)
    else:
        version, principal = now_us, issued_to
    return replace(fresh(NO_DATA_GENERATION, principal, 0, 0), version=version)
