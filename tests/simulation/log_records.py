"""Records as they lie in a virtual log, each with the name that its wrapper's batch marker, or its batch, gives it.
Only reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from idemproxy.codecs.batch_marker import Identity, parse_batch_marker
from idemproxy.codecs.message_set import iterate_shallow
from testkit.virtual.batches import MAGIC, identity_in, is_batch
from testkit.virtual.header_markers import SentIdentities
from testkit.virtual.log import Message, Stored
from testkit.virtual.producer import SEQUENCE_LIMIT, Batch


class InLog(NamedTuple):
    """One record where it lies, with the number that the batch marker gives it."""

    offset: int
    value: bytes
    producer_id: int
    producer_epoch: int
    sequence: int
    appended_at: float
    is_sure: bool = True
    """False: it has no batch marker, and was sent under several names."""

    @property
    def name(self) -> tuple[int, int, int]:
        """Producer id, producer epoch, sequence."""
        return self.producer_id, self.producer_epoch, self.sequence


def nobodys(_record: bytes) -> Sequence[Identity]:
    """No record may be without a batch marker."""
    return ()


def identities_of(message: Message) -> tuple[Identity, ...]:
    """Which batches a stored message names: by its batch marker, or as a batch of format v2. None: it names none."""
    if message.marked_as is not None:
        return (message.marked_as,)
    if message.producer_id >= 0:
        return (Identity(message.producer_id, message.producer_epoch, message.base_sequence, message.record_count),)
    return parse_batch_marker(message.key) or ()


def producers_in(message_set: bytes, sent: SentIdentities) -> set[int]:
    """Return whose batches are in what is produced to a partition. ``sent``: what batch markers may stand for."""
    if is_batch(message_set):
        producer_id, *fields = identity_in(message_set)
        identity = sent.marked_as(*fields) if producer_id < 0 else None
        return {producer_id if identity is None else identity.producer_id}
    named = [parse_batch_marker(message.key) or () for message in iterate_shallow(message_set)]
    return {identity.producer_id for identities in named for identity in identities}


def records_of(
    messages: Sequence[Stored], sent_as: Callable[[bytes], Sequence[Identity]] = nobodys
) -> tuple[list[InLog], list[str]]:
    """Return every record of marked wrappers, or of batches, with its number, and what else there is as complaints.
    ``sent_as``: under which names a record was sent that may be stored alone and without a batch marker, the newest one
    last."""
    records: list[InLog] = []
    complaints: list[str] = []
    for stored in messages:
        identities = identities_of(stored.message)
        inner = stored.message.records
        is_sure = True
        if not identities and len(inner) == 1 and stored.message.magic != MAGIC:
            names = sent_as(inner[0].value or b"")
            identities, is_sure = tuple(names[-1:]), len(names) == 1
        if sum(identity.record_count for identity in identities) != len(inner):
            complaints.append(
                f"the message at {stored.first_offset} has {len(inner)} records and batch marker {identities}"
            )
            continue
        offset = stored.first_offset
        for identity in identities:
            for index in range(identity.record_count):
                sequence = (identity.base_sequence + index) % SEQUENCE_LIMIT
                value = inner[offset - stored.first_offset].value or b""
                name = identity.producer_id, identity.producer_epoch, sequence
                records.append(InLog(offset, value, *name, stored.appended_at, is_sure))
                offset += 1
    return records, complaints


def stored_with(record_value: bytes, messages: Sequence[Stored]) -> Stored | None:
    """Return the newest of these messages that holds the record."""
    for stored in reversed(messages):
        if any(message.value == record_value for message in stored.message.records):
            return stored
    return None


def holds_all(stored: Stored | None, batch: Batch) -> bool:
    """Is the stored message one that holds the whole batch, not a part of it?"""
    if stored is None:
        return True
    values = [message.value for message in stored.message.records]
    return batch.values[0] not in values or batch.values[-1] in values
