"""What each error code of a produce means for an idempotent producer: the one table. The bytes and numbers of a batch
never change, so "again" always means the same batch under the same numbers.

Sources: Kafka's Errors.java, Sender.java and TransactionManager.java (canRetry), ReplicaManager (which codes come
before the append and which after it); what the proxy answers is in proxy/producer/answers.py."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from ..codecs.error_codes import ErrorCode


class Meaning(Enum):
    """What to do."""

    STORED = auto()
    """The batch is in the log."""
    AGAIN = auto()
    """Send it again."""
    GAP = auto()
    """Out of order: again if a batch before it has no outcome yet, else it is final."""
    FENCED = auto()
    """The whole producer ends."""
    FINAL = auto()
    """The batch ends, and with it its partition."""


class Reaction(NamedTuple):
    """What to do after an answer. ``is_outcome_unknown``: the batch may be in the log. ``moves``: ask who leads before
    the next try."""

    meaning: Meaning
    is_outcome_unknown: bool = False
    moves: bool = False


REACTIONS: Final[dict[int, Reaction]] = {
    ErrorCode.NONE: Reaction(Meaning.STORED),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Reaction(Meaning.STORED),
    # Answered before anything was appended.
    ErrorCode.CORRUPT_MESSAGE: Reaction(Meaning.AGAIN),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction(Meaning.AGAIN, moves=True),
    ErrorCode.LEADER_NOT_AVAILABLE: Reaction(Meaning.AGAIN, moves=True),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Reaction(Meaning.AGAIN, moves=True),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction(Meaning.AGAIN),
    ErrorCode.NOT_ENOUGH_REPLICAS: Reaction(Meaning.AGAIN),
    ErrorCode.KAFKA_STORAGE_ERROR: Reaction(Meaning.AGAIN, is_outcome_unknown=True, moves=True),
    ErrorCode.FENCED_LEADER_EPOCH: Reaction(Meaning.AGAIN, moves=True),
    ErrorCode.UNKNOWN_LEADER_EPOCH: Reaction(Meaning.AGAIN, moves=True),
    ErrorCode.UNKNOWN_TOPIC_ID: Reaction(Meaning.AGAIN, moves=True),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Reaction(Meaning.AGAIN),
    # Answered although it was, or may have been, appended.
    ErrorCode.REQUEST_TIMED_OUT: Reaction(Meaning.AGAIN, is_outcome_unknown=True),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Reaction(Meaning.AGAIN, is_outcome_unknown=True),
    ErrorCode.NETWORK_EXCEPTION: Reaction(Meaning.AGAIN, is_outcome_unknown=True),
    ErrorCode.UNKNOWN_SERVER_ERROR: Reaction(Meaning.AGAIN, is_outcome_unknown=True),
    # The numbers do not fit.
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Reaction(Meaning.GAP),
    ErrorCode.UNKNOWN_PRODUCER_ID: Reaction(Meaning.GAP),
    ErrorCode.INVALID_PRODUCER_EPOCH: Reaction(Meaning.FENCED),
    ErrorCode.PRODUCER_FENCED: Reaction(Meaning.FENCED),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Reaction(Meaning.FENCED),
    # A broker means: not appended. The proxy also says so when nobody can tell whether the batch is in the log.
    ErrorCode.INVALID_RECORD: Reaction(Meaning.FINAL, is_outcome_unknown=True),
    ErrorCode.INVALID_REQUEST: Reaction(Meaning.FINAL),
    ErrorCode.MESSAGE_TOO_LARGE: Reaction(Meaning.FINAL),
    ErrorCode.RECORD_LIST_TOO_LARGE: Reaction(Meaning.FINAL),
    ErrorCode.INVALID_TOPIC_EXCEPTION: Reaction(Meaning.FINAL),
    ErrorCode.INVALID_REQUIRED_ACKS: Reaction(Meaning.FINAL),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reaction(Meaning.FINAL),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Reaction(Meaning.FINAL),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Reaction(Meaning.FINAL),
    ErrorCode.INVALID_TIMESTAMP: Reaction(Meaning.FINAL),
    ErrorCode.UNSUPPORTED_VERSION: Reaction(Meaning.FINAL),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Reaction(Meaning.FINAL),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: Reaction(Meaning.FINAL),
    ErrorCode.POLICY_VIOLATION: Reaction(Meaning.FINAL),
}
_UNKNOWN: Final = Reaction(Meaning.FINAL, is_outcome_unknown=True)


def reaction_to(code: int) -> Reaction:
    """Return what to do. A code that is not in the table ends the batch, and it may be in the log."""
    return REACTIONS.get(code, _UNKNOWN)
