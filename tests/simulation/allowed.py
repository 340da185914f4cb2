"""The one table of what may happen to a producer other than "each batch once, in order, at the acknowledged offset".

Each line is a limit that guarantees.md names, or an answer that is the broker's own; the oracle lets a complaint
pass only by one of these names, under the condition that stands in the oracle next to it, and counts how often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum

from simulation.log_records import InLog, identities_of

from testkit.virtual.batches import MAGIC
from testkit.virtual.broker_faults import CONTENT_CODES, FINAL_CODES
from testkit.virtual.cluster import Partition
from testkit.virtual.log import MESSAGE_BYTES_MAX
from testkit.virtual.producer import Answer, Batch, Identity

OUT_OF_ORDER = 45
SIZE_CODES = (10, 18)
CANNOT_BE_TOLD = 87
"""What a producer gets for a batch of which nobody can tell whether it is in the log, or which is no longer there."""


class Allowed(Enum):
    """Name -> why it is no broken promise."""

    GAVE_UP = "a producer with a delivery time of its own gives a batch up; that is its user's choice"
    REFUSED = "the broker refused the batch itself, for good: nothing was appended, and its user has to know"
    CANNOT_BE_TOLD = (
        "87 where the log was cut, cleaned or packed again by other hands: never guessed, never appended again; 45 "
        "where it keeps no batch markers"
    )
    LOST_BY_BROKERS = "an unclean election or a deleted topic took what was acknowledged: no proxy can keep it"
    OWN_COPY = (
        "the producer sent a batch again under a new epoch, and not for a 45 or 59: it had given one up, or one was "
        "refused for good"
    )
    COPY_FOR_AN_ALLOWED_45 = (
        "a duplicate under a newer epoch, which its client began for a 45 that stands in this table: it was "
        "OVERTAKEN, or for a batch that went with its topic when Redis began a new life"
    )
    OLDER_THAN_THE_LOG = (
        "the first copy was deleted by retention and Redis began a new life: what is that old is taken for no retry"
    )
    FORGOTTEN = (
        "45 for the next batch, and those in flight behind it, where the log has lost the one before it, by retention, "
        "compaction, an unclean election or with its topic, and Redis began a new life; or by one of the last two, "
        "before its proxy had noted it: nobody knows that there was one; brokers say 45 after an unclean election, and "
        "before 2.5 59 after the others. And 45 for a batch that went with its topic itself, where later ones of its "
        "producer are in the new one, as brokers say it"
    )
    BEHIND_A_FAILURE = "45 behind a batch of its epoch that its client knows to have failed: the gap is real"
    OVERTAKEN = (
        "45 for what came to the log afterwards: it was on its way, or in work, over a connection that its client had "
        "left and the proxy had not seen end; or it came before older batches, which were in flight over another "
        "connection, as at a broker that leads since a moment, or which its client numbered again when they "
        "were answered; a broker does the same"
    )
    BEGINS_LATE = (
        "a producer of which nothing is known any more, because it is older than its state may live, begins with any "
        "sequence, as at a broker; its client had given up what came before"
    )
    ASKS_IN_VAIN = (
        "nothing tells any more what it had sent: its topic was deleted and Redis began a new life, or the log keeps "
        "no batch markers and a proxy died before it had noted an answer. It is told 45, and asks again until its "
        "delivery "
        "time is over, as Java does if a later batch was acknowledged or this one was numbered again; it has none"
    )
    FENCED_BY_ITSELF = (
        "47 for a producer with a name that has asked for its id more than once: a request that it had given up came "
        "late, "
        "over a connection that the proxy had not seen end, and began a newer instance of it"
    )
    LEFT_BY_AN_OLDER_INSTANCE = (
        "a batch that its user had given up lies behind what its client sent afterwards under another producer id: "
        "nothing orders two producer ids"
    )
    BY_NUMBERS = (
        "success for other records under the numbers of one of the last five batches, of which no digest is stored, as "
        "the entry was made of the batch markers in the log: a broker, which knows numbers alone, always answers so"
    )
    REST_IS_LEFT = (
        "87 for a batch of which the first part is stored in format v1, in which its broker takes no more at once, and "
        "whose leader stores v2 since then: there a batch is appended as a whole"
    )
    OLD_EPOCH = "47 for what was still under way when its producer itself began a newer epoch"


def may_be_refused(code: int, refusals: tuple[int, ...]) -> bool:
    """May a user see this code in a world whose brokers refuse batches with these? The proxy returns ``INVALID_RECORD``
    for a broker's ``CORRUPT_MESSAGE`` (R19)."""
    if code == CANNOT_BE_TOLD:
        return bool({*CONTENT_CODES, *SIZE_CODES} & set(refusals))
    return code in refusals and code in (10, *FINAL_CODES)


def may_be_untold(partition: Partition) -> bool:
    """Has anything happened to the log after which its records no longer tell what was appended?"""
    harmless = {"compression changed"} if stores_batches(partition) else set()
    return bool(partition.met - harmless) or not keeps_batch_markers(partition)


def keeps_batch_markers(partition: Partition) -> bool:
    """Does every record that was ever appended there say whose it is?"""
    log = partition.log
    is_marked = all(identities_of(one.message) for one in (*log.history, *log.truncated, *log.lost))
    if stores_batches(partition):
        return is_marked
    is_kept = log.compression is None and log.message_format != 0 and "compression changed" not in partition.met
    return is_kept and is_marked


def is_rest_left(partition: Partition, batch: Batch) -> bool:
    """Is the beginning of the batch in the log, in format v1, and not its end? And has a leader stored v2 since?"""
    holding = [
        one for one in partition.log.history if any(record.value in batch.values for record in one.message.records)
    ]
    stored = {record.value for one in holding for record in one.message.records}
    is_part = batch.values[0] in stored and batch.values[-1] not in stored
    return is_part and all(one.message.magic != MAGIC for one in holding)


def stores_batches(partition: Partition) -> bool:
    """Is all that was ever appended there of format v2? A broker that packs such a batch again keeps its batch
    marker."""
    log = partition.log
    appended = (*log.history, *log.truncated, *log.lost)
    return bool(appended) and all(one.message.magic == MAGIC for one in appended)


def is_forgotten(partition: Partition, told: Identity, mine: Sequence[Batch]) -> bool:
    """Was the record right before this batch, in its epoch, stored, and is it in the log no more? Or has it followed a
    batch of which that is true, with others between them that were refused for it, too? A broker refuses the rest of a
    pipeline so. ``mine``: the batches of its producer there."""
    told_all = (one for batch in mine for one in (*batch.answers_as_whole, *batch.answers))
    refused = [one.identity for one in told_all if one.error_code == OUT_OF_ORDER]
    while not _has_lost_the_record_before(partition, told, mine):
        ahead = (one for one in refused if (*told[:2], told.base_sequence) == (*one[:2], one.base_sequence + one[3]))
        if (before := next(ahead, None)) is None:
            return False
        told = before
    return True


def _has_lost_the_record_before(partition: Partition, told: Identity, mine: Sequence[Batch]) -> bool:
    before, log = values_before(told, mine), partition.log
    was = any(one.value in before for stored in (*log.history, *log.lost) for one in stored.message.records)
    return was and not any(one.value in before for stored in log.messages for one in stored.message.records)


def values_before(told: Identity, mine: Sequence[Batch]) -> set[bytes]:
    """What was sent as the record right before this batch, in its epoch."""
    place = told.base_sequence - 1
    return {
        batch.values[place - name.base_sequence]
        for batch in mine
        for name in batch.sent_as
        if name[:2] == told[:2] and 0 <= place - name.base_sequence < len(batch.values)
    }


def may_be_unmarked(partition: Partition, refusals: tuple[int, ...]) -> bool:
    """Do brokers refuse single records for their size? Then such a record goes without a batch marker."""
    return partition.log.message_bytes_max < MESSAGE_BYTES_MAX or bool(set(SIZE_CODES) & set(refusals))


def was_overtaken(batch: Batch, told: Answer, given_at: float, there: Sequence[InLog]) -> bool:
    """Was the batch appended after the answer was given, which its client may have read much later? And was it under
    way then over a connection that its client had left, or sent before older ones that its client numbered again?"""
    later = [record for record in there if record.appended_at > given_at]
    is_overtaken = batch.overtaken_until.get(told.identity, 0.0) >= given_at or told.identity in batch.ahead_as
    return bool(there) and len(later) == len(there) and is_overtaken


def was_ahead(batch: Batch, told: Answer, given_at: float, there: Sequence[InLog], before: Sequence[InLog]) -> bool:
    """Was it sent while older batches were in flight over another connection, or before older ones that its client has
    numbered again, and was the record before it not in the log then? And did it come to the log after the answer was
    given, if at all?"""
    since = given_at if told.identity in batch.ahead_as else told.ahead_since
    is_later = since is not None and all(record.appended_at > since for record in before)
    return is_later and all(record.appended_at > given_at for record in there)


def went_with_its_topic(partition: Partition, batch: Batch, gone: AbstractSet[bytes]) -> bool:
    """Was the batch stored in a topic that was deleted and recreated? ``gone``: what the brokers have lost."""
    return "topic recreated" in partition.met and gone >= set(batch.values)


def begins_late(record: InLog, due: int, unrecoverable: Mapping[tuple[int, int, int], float]) -> bool:
    """Had its client reported to its user by then that everything from the due sequence on has failed?"""
    before = ((record.producer_id, record.producer_epoch, sequence) for sequence in range(due, record.sequence))
    return all(unrecoverable.get(name, record.appended_at) < record.appended_at for name in before)


def has_newer_epoch(batch: Batch, told: Identity) -> bool:
    """Was the batch sent by the same producer in a newer epoch?"""
    return any(
        one.producer_id == told.producer_id and one.producer_epoch > told.producer_epoch for one in batch.sent_as
    )


def is_gap_of_failures(batch: Batch, told: Answer, mine: Iterable[Batch]) -> bool:
    """Had its user heard before this answer that a batch ahead of it, which was numbered in the same epoch, failed?"""
    ahead = (one for one in mine if one.first < batch.first and one.failed is not None and one.failed[0] <= told.at)
    names = (name for one in ahead for name in (*one.sent_as, one.identity) if name is not None)
    return any(name[:2] == told.identity[:2] for name in names)


def was_left_behind(batch: Batch, offset: int, later: Iterable[Batch], places: Mapping[bytes, Sequence[InLog]]) -> bool:
    """Had its user given the batch up before anything was appended that its client sent later and that lies before
    ``offset``? And was all of that sent under other producer ids?"""
    in_order = (one for one in later if not one.renumbered_for)
    before = [record for one in in_order for record in places.get(one.values[0], ()) if record.offset < offset]
    ids = {name.producer_id for name in batch.sent_as}
    is_unrecoverable = batch.failed is not None and all(record.appended_at > batch.failed[0] for record in before)
    return bool(before) and is_unrecoverable and not any(record.producer_id in ids for record in before)


def asks_in_vain(
    partition: Partition, mine: Sequence[Batch], gone: AbstractSet[bytes], *, state_was_lost: bool
) -> bool:
    """Does the oldest unfinished batch of a producer get ``OUT_OF_ORDER_SEQUENCE_NUMBER`` because nothing shows any
    more what came before it, and is it sent again all the same, because a later one had been acknowledged, or it was
    numbered again? ``gone``: what the brokers have lost. ``state_was_lost``: a new Redis data generation began."""
    oldest = next(batch for batch in mine if not batch.is_done)
    has_later = any(
        one.acknowledged is not None and one.first > oldest.first and gone >= set(one.values) for one in mine
    )
    is_told = bool(oldest.answers) and oldest.answers[-1].error_code == OUT_OF_ORDER
    is_forgotten = state_was_lost and "topic recreated" in partition.met and has_later
    return is_told and (is_forgotten or (bool(oldest.renumbered_for) and not keeps_batch_markers(partition)))
