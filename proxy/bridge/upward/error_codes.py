"""Error codes of Kafka 4 for clients that do not know them, or what they are about. The only place for this.

Kafka's own brokers answer a version with codes that are newer than it; a client takes a code that it does not know for
a final error, or loses what the answer was about (pykafka drops the report of a message). So a code above the last one
of the release that brought a client's version becomes one that this release knows and that has the same consequence:
it asks again, or it gives up. Source: Errors.java of each release.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....codecs.error_codes import ErrorCode

OF_0_10_2: Final = ErrorCode.POLICY_VIOLATION
OF_0_11_0: Final = ErrorCode.OPERATION_NOT_ATTEMPTED
OF_1_0: Final = ErrorCode.REASSIGNMENT_IN_PROGRESS
OF_1_1: Final = ErrorCode.INVALID_FETCH_SESSION_EPOCH

SUBSTITUTES: Final[Mapping[int, ErrorCode]] = {
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.LISTENER_NOT_FOUND: ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.TOPIC_DELETION_DISABLED: ErrorCode.INVALID_REQUEST,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE: ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_INSTANCE_ID: ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INCONSISTENT_TOPIC_ID: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_MEMBER_EPOCH: ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
}
"""Code -> what a client gets that does not know it. Where Kafka itself has an answer for lower versions it is the same:
KAFKA_STORAGE_ERROR (KIP-112), LISTENER_NOT_FOUND (Metadata below v6), TOPIC_DELETION_DISABLED (DeleteTopics below v3),
OFFSET_NOT_AVAILABLE (ListOffsets below v5), GROUP_ID_NOT_FOUND (OffsetCommit below v9). Of codes that are not here, a
retriable one becomes REQUEST_TIMED_OUT, any other UNKNOWN_SERVER_ERROR."""


def known_code(error_code: int, last_known: int) -> int:
    """Return the code for a client whose codes end with ``last_known``, which is at least ``OF_0_10_2``."""
    assert last_known >= OF_0_10_2
    if error_code <= last_known:
        return error_code
    substitute = SUBSTITUTES.get(error_code)
    if substitute is not None:
        return substitute
    try:
        is_retriable = ErrorCode(error_code).retriable
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.REQUEST_TIMED_OUT if is_retriable else ErrorCode.UNKNOWN_SERVER_ERROR


OF_A_SET: Final[Mapping[int, ErrorCode]] = {
    # Retriable, and retried by all clients that retry.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE: ErrorCode.LEADER_NOT_AVAILABLE,
    # Not retried by no-kafka, and the one code of that meaning that the others retry.
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.REQUEST_TIMED_OUT,
    # Kafka 0.10 answers so to a record without a key in a compacted topic, 0.11 and later with INVALID_RECORD.
    ErrorCode.CORRUPT_MESSAGE: ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD: ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNSUPPORTED_VERSION: ErrorCode.INVALID_REQUEST,
}
"""Of Produce 0 to 2: code of Kafka 4 -> code for the client. Of codes that are not here, a retriable one becomes
NOT_LEADER_OR_FOLLOWER, the only one that every client retries which retries at all: librdkafka 0.9 and no-kafka give up
at NOT_ENOUGH_REPLICAS, and pykafka then has no report about the message. Any other one stays up to POLICY_VIOLATION,
which Kafka 0.10.2 has, and is UNKNOWN_SERVER_ERROR above."""


def produced_code(error_code: int, is_outcome_unknown: bool = False) -> ErrorCode:
    """Return the code for a message set that a client of Kafka 0.8 to 0.10 has sent. ``is_outcome_unknown``: messages
    of it may be in the log, so the client must not read that they are not; REQUEST_TIMED_OUT says just that.
    """
    if is_outcome_unknown:
        return ErrorCode.REQUEST_TIMED_OUT
    if (substitute := OF_A_SET.get(error_code)) is not None:
        return substitute
    try:
        code = ErrorCode(error_code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if code.retriable:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code if code <= OF_0_10_2 else ErrorCode.UNKNOWN_SERVER_ERROR


OF_A_LENT_ID: Final[Mapping[int, ErrorCode]] = {
    # How InitProducerId may fail for a while.
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    # What a broker says of a sequence or an epoch.
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_PRODUCER_ID: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.PRODUCER_FENCED: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Of Produce 3 and above: what a client gets in the place of a code that is about a producer id, of which it knows
nothing. It can know all others: the broker is asked in the client's own version."""


def written_code(error_code: int, is_outcome_unknown: bool = False) -> int:
    """As ``produced_code``, for a batch that a client of Kafka 0.11 or later has sent without a producer id."""
    if is_outcome_unknown:
        return ErrorCode.REQUEST_TIMED_OUT
    return OF_A_LENT_ID.get(error_code, error_code)
