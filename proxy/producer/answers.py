"""Turns a verdict or a failure into an error code and a sentence for people: the only place that chooses codes."""

from __future__ import annotations

from ...codecs.error_codes import ErrorCode, meaning_of, named
from ...codecs.errors import LimitExceeded, RecordLimitExceeded, WireError
from ...state.decide import Fenced, OutOfOrder
from .batch import Answer

_NONE = int(ErrorCode.NONE)
_STORED = (_NONE, int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
_TOPIC_SHOWN = 249
_HEADER_NAME_SHOWN = 64
"""Characters of a header's name in a message: a client may send a name of any length, an answer holds 32,767 bytes."""

# R11 lives here: 45 and 59 make clients send possibly written batches again under a new epoch. Only what is proven
# gives 45 (``out_of_order``, ``not_in_log``, ``other_content``, ``conflict``, ``cut_off``); nothing gives 59.


def appended(base_offset: int, log_append_time_ms: int) -> Answer:
    """The batch is in the log, now or from an earlier try."""
    return Answer(_NONE, base_offset, log_append_time_ms)


def duplicate_below_window() -> Answer:
    """The batch was found in the log, and is older than the last five batches. Clients expect no offset with 46."""
    return Answer(
        int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
        message="this batch is in the log already, before the last five batches",
    )


def out_of_order(verdict: OutOfOrder) -> Answer:
    """A gap that is proven, or a new epoch that does not start at 0."""
    return Answer(
        int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), message=f"{verdict.reason}: sequence {verdict.expected} is due"
    )


def not_in_log() -> Answer:
    """By its sequences the batch, or its beginning, is in the log, but a complete search has shown that it is not."""
    return Answer(
        int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        message="the batch overlaps with what is in the log, and the log does not have such a batch",
    )


def other_content(base_offset: int) -> Answer:
    """By its sequences it is in the log, but the records there are not its own: two programs send as one producer, or a
    client has used sequences twice. A success would make the client believe that its records are stored."""
    return Answer(
        int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        message=f"other records were stored under the same sequences, at offset {base_offset}, and not these: look "
        "whether two programs send under one producer id and epoch",
    )


def conflict(next_offset: int, *, is_past: bool) -> Answer:
    """The batch is not in the log, and was not appended: the log ends elsewhere than it expects (rule R23)."""
    how = "has come past" if is_past else "has not come to"
    return Answer(
        int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        message=f"the log {how} the expected offset: the next offset is {next_offset}",
        next_offset=next_offset,
    )


def cut_off(next_offset: int) -> Answer:
    """The log ends where the batch expects, but a batch before it in its writer's pipeline was refused (rule R23)."""
    return Answer(
        int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        message=f"a batch before it in the same pipeline was refused: the next offset is {next_offset}",
        next_offset=next_offset,
    )


def conflict_by_header(reported: Answer) -> Answer:
    """The same for a client that gives the expected offset in a record header, and numbers its batches like any
    producer: after OUT_OF_ORDER_SEQUENCE_NUMBER it would send the batch again and again."""
    if reported.error_code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return reported
    return Answer(int(ErrorCode.POLICY_VIOLATION), message=reported.message, next_offset=reported.next_offset)


def not_conditional(topic: str) -> Answer:
    """The topic takes only batches that say at which offset they have to be (rule R23)."""
    return Answer(
        int(ErrorCode.POLICY_VIOLATION),
        message=f"topic {topic[:_TOPIC_SHOWN]} takes conditional publishes only (topics.conditional), with the "
        "expected offset as base sequence, or in the record header expected-offset",
    )


def not_served_conditionally(why: str) -> Answer:
    """Conditional publish is not served here."""
    return Answer(int(ErrorCode.INVALID_TOPIC_EXCEPTION), message=f"no conditional publish: {why}")


def partition_fenced(expected_end: int, end_offset: int) -> Answer:
    """Somebody else writes to the conditional partition: nothing more is appended until an operator has looked (rule
    R23)."""
    return Answer(
        int(ErrorCode.INVALID_TOPIC_EXCEPTION),
        message=f"the partition is fenced: by what was published conditionally it ended at offset {expected_end}, and "
        f"it was seen to end at {end_offset}: another writer is at work, or the log has lost records",
    )


def displaced(base_offset: int, expected_offset: int) -> Answer:
    """The batch was appended, but lies at another offset than expected (rule R23): it is no success, and not absent."""
    return Answer(
        int(ErrorCode.INVALID_RECORD),
        base_offset,
        message=f"the batch is in the log at offset {base_offset}, and was to be at {expected_offset}: another writer "
        "is at work, or the log has lost records; the partition is fenced",
    )


def fenced(verdict: Fenced) -> Answer:
    """A newer epoch of this producer has written here."""
    return Answer(
        int(ErrorCode.INVALID_PRODUCER_EPOCH),
        message=f"epoch {verdict.producer_epoch} of this producer has written to this partition already",
    )


def fenced_by_name() -> Answer:
    """The name of this producer has a newer instance, or is gone (rule R22)."""
    return Answer(
        int(ErrorCode.INVALID_PRODUCER_EPOCH),
        message="a newer instance with this producer name has begun, or the name was forgotten",
    )


def foreign_producer_id() -> Answer:
    """The producer id, or what it has written here, belongs to another principal."""
    return Answer(
        int(ErrorCode.INVALID_PRODUCER_ID_MAPPING), message="this producer id was issued to another principal"
    )


def in_doubt(reason: str) -> Answer:
    """The outcome is not known in time, or Redis is away: the retry finds out."""
    return Answer(int(ErrorCode.REQUEST_TIMED_OUT), message=reason)


def held_back(reason: str) -> Answer:
    """Not appended, to be sent again: it comes after a batch that failed retriably, the proxy drains, or a limit is
    reached."""
    return Answer(int(ErrorCode.NOT_ENOUGH_REPLICAS), message=reason)


def no_leader() -> Answer:
    """No leader of the partition is known, or it cannot be reached; nothing was sent."""
    return Answer(int(ErrorCode.NOT_LEADER_OR_FOLLOWER), message="the partition's leader cannot be reached")


def unknown_partition() -> Answer:
    """The cluster has no such topic or partition."""
    return Answer(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), message="the cluster has no such topic or partition")


def impossible_topic() -> Answer:
    """No topic can have this name. The brokers of 0.10 say UNKNOWN_TOPIC_OR_PARTITION, with which a client asks again
    until its time is up; later ones refuse the name in their answer to Metadata."""
    return Answer(
        int(ErrorCode.INVALID_TOPIC_EXCEPTION),
        message="no topic can have this name: it has 1 to 249 letters, digits, dots, underscores and hyphens",
    )


def refused_plainly(answer: Answer, version: int) -> Answer:
    """The broker's answer to a batch of format v2 without a producer id (rule R20). The checksums were right, the
    client's and ours, so CORRUPT_MESSAGE is no transport fault: clients would send the batch again until its time is
    up. Brokers from 2.4 on say INVALID_RECORD themselves (KAFKA-8955)."""
    if answer.error_code != ErrorCode.CORRUPT_MESSAGE:
        return answer
    return invalid(refused(answer.error_code).message or "", version)


def refused(error_code: int) -> Answer:
    """The broker refused it. The CRC that we sent was right, so CORRUPT_MESSAGE is no transport fault: the client gets
    a code that is not retriable instead (rule R19)."""
    if error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR):
        return Answer(
            int(ErrorCode.INVALID_RECORD),
            message="the broker refuses this batch (CORRUPT_MESSAGE or UNKNOWN_SERVER_ERROR): for instance no key on a "
            "compacted topic",
        )
    meaning = meaning_of(error_code)
    return Answer(error_code, message=f"the broker refuses this batch{': ' if meaning else ''}{meaning}")


def newer_epoch_at_broker() -> Answer:
    """The broker has a newer epoch of the producer than all that came through a proxy. The log does not have the
    batch."""
    return Answer(
        int(ErrorCode.INVALID_PRODUCER_EPOCH),
        message="the broker has a newer epoch of this producer, which did not come through a proxy",
    )


def others_at_broker() -> Answer:
    """The broker has stored the numbers that are due, and the log does not have the batch: others came past the
    proxies, or retention has deleted it."""
    return Answer(
        int(ErrorCode.INVALID_RECORD),
        message="the broker has stored these sequences, and the log does not have this batch: other records came past "
        "the proxies, or this one was deleted",
    )


def partly_stored(records: int, error_code: int) -> Answer:
    """The log has the first ``records`` of the batch, and the broker refuses the others for good. With the broker's own
    code (10) the client would split the batch and send those first records again."""
    return Answer(
        int(ErrorCode.INVALID_RECORD),
        message=f"the first {records} records are in the log, the broker refuses the rest: {named(error_code)}",
    )


def rest_is_left(records: int) -> Answer:
    """The log has the first ``records`` of the batch in message format v1, and the leader now stores v2, where a batch
    is appended as a whole: with all of it those first records would be there twice."""
    return Answer(
        int(ErrorCode.INVALID_RECORD),
        message=f"the first {records} records are in the log; the rest cannot be appended, as the partition's leader "
        "stores message format v2 now, in which batches are not cut",
    )


def undecidable(reason: str) -> Answer:
    """It cannot be determined whether the batch is in the log: the user has to know."""
    return Answer(
        int(ErrorCode.INVALID_RECORD), message=f"it cannot be decided whether this batch is in the log: {reason}"
    )


def after_unknown() -> Answer:
    """It was not appended: the outcome of what is missing before it is unknown. OUT_OF_ORDER_SEQUENCE_NUMBER would say
    that it is lost (rule R11)."""
    return Answer(
        int(ErrorCode.INVALID_RECORD),
        message="this batch was not appended: it is not known whether the batch before it is in the log",
    )


def vanished(base_offset: int) -> Answer:
    """The batch was committed and is not in the log any more. It is never appended again: later batches may be in."""
    return Answer(
        int(ErrorCode.INVALID_RECORD),
        message=f"this batch was committed at offset {base_offset} and is not in the log any more",
    )


def partly_vanished() -> Answer:
    """Some of the batch's records are in the log, and others, which were stored, are not any more."""
    return Answer(
        int(ErrorCode.INVALID_RECORD),
        message="some of the records of this batch are in the log, and others that were stored are not any more: the "
        "brokers have lost them (an unclean leader election, or a failover before Kafka 0.11)",
    )


def all_vanished(record_count: int) -> Answer:
    """The first ``record_count`` records of the batch were stored, and the log has none of them any more."""
    return Answer(
        int(ErrorCode.INVALID_RECORD),
        message=f"by their numbers the first {record_count} records of this batch were stored, and the log has nothing "
        "of them any more: the brokers have lost them (an unclean leader election, or a failover before Kafka 0.11), "
        "the topic was recreated, or other records were sent under these numbers",
    )


def header_refused(header: str, topic: str) -> Answer:
    """The broker's message format has no record headers."""
    name = repr(header[:_HEADER_NAME_SHOWN])
    return Answer(
        int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        message=f"record header {name} cannot be stored in topic {topic}: the broker's message format has no headers "
        "(setting: --dropped-headers)",
    )


def corrupt(reason: str) -> Answer:
    """The checksum does not fit: nothing was forwarded."""
    return Answer(int(ErrorCode.CORRUPT_MESSAGE), message=reason)


def unreadable(error: WireError) -> Answer:
    """The checksum is right, but what it covers cannot be read. A retry would be the same, so it is not retriable.

    A batch above a limit of ours is one that brokers take. With MESSAGE_TOO_LARGE Java splits it, and estimates later
    batches by their uncompressed size (``Sender.completeBatch``, ``RecordAccumulator.splitAndReenqueue``); with any
    other code that is not retriable it drops every record of it. Java splits by size: where one record is above a
    limit, it would split the batch again and again, until its time is up.
    """
    if isinstance(error, LimitExceeded) and not isinstance(error, RecordLimitExceeded):
        return Answer(int(ErrorCode.MESSAGE_TOO_LARGE), message=f"the batch is above a limit of the proxy: {error}")
    return Answer(int(ErrorCode.INVALID_RECORD), message=f"the batch cannot be read: {error}")


def invalid(reason: str, version: int) -> Answer:
    """A batch that no producer may send. ``version``: of Produce; clients before version 8 do not know code 87."""
    code = ErrorCode.INVALID_RECORD if version >= 8 else ErrorCode.INVALID_REQUEST
    return Answer(int(code), message=reason)


def marker_without_id(producer_epoch: int, version: int = 0) -> Answer:
    """A batch without a producer id that could be taken for one with a batch marker. ``version``: as of ``invalid``."""
    what = f"a batch without a producer id has producer epoch {producer_epoch}: only idemproxy may store that"
    return invalid(what, version)


def invalid_acks(acks: int) -> Answer:
    """acks=0 with a producer id is refused: a client that gets no answer cannot retry (rule R16)."""
    return Answer(
        int(ErrorCode.INVALID_REQUIRED_ACKS), message=f"acks is {acks}; with a producer id -1 and 1 are served"
    )


def denied(error_code: int) -> Answer:
    """The code by which the broker closes a topic to a client."""
    return Answer(error_code, message="the broker does not let this client write here")


def codec_not_served() -> Answer:
    """A compression codec that needs a later version of Produce: zstd, from version 7 on (KIP-110)."""
    return Answer(
        int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        message="zstd needs a broker with Produce 7; choose gzip, snappy or lz4",
    )


def transactional() -> Answer:
    """Transactions are not served."""
    return Answer(
        int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        message="idemproxy serves idempotent producers, not transactions",
    )


def transactional_natively() -> Answer:
    """The same where the brokers serve them on other topics: the transaction can be aborted, and its producer
    resumes."""
    return Answer(
        int(ErrorCode.INVALID_TOPIC_EXCEPTION),
        message="no transactions on topics of topics.engine or topics.conditional: the request names one, and nothing "
        "of it is appended",
    )


def is_retriable(error_code: int) -> bool:
    """Will the client send the batch again as it is?"""
    return error_code != 0 and ErrorCode(error_code).retriable


def is_failure(error_code: int) -> bool:
    """Does the client take this code as a failure? Not 46: it says that the batch is stored already."""
    return error_code not in _STORED


def will_be_retried(error_code: int, record_count: int) -> bool:
    """Will the client send the records again under the same sequences, as one batch or split into smaller ones?"""
    is_split = error_code == ErrorCode.MESSAGE_TOO_LARGE and record_count > 1
    return is_split or is_retriable(error_code)


def ends_epoch(error_code: int) -> bool:
    """Will the client drop the batch and continue with a new epoch? Not for a duplicate, nor where a newer epoch is
    known already."""
    is_fenced = error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    return is_failure(error_code) and not is_fenced and not is_retriable(error_code)


def reveals_state(error_code: int) -> bool:
    """Does this answer reveal something of what was written before, by this client or by others?"""
    return error_code in (
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_RECORD,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    )
