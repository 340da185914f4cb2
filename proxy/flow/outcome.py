"""What a broker's answer to an append means (rule R5). Pure: error code and base offset in, outcome out.

Base offset >= 0 means appended on that leader, whatever the code; base offset -1 with one of Kafka's codes, also with 3
and 6, also with code 0, means not appended. All else is unknown outcome: no answer, code -1, a code that is not known,
and what a broker says of a producer's epoch and sequence. Seen on ten broker versions."""

from __future__ import annotations

from typing import Protocol

from ...codecs.batch_marker import Identity
from ...codecs.error_codes import ErrorCode, named
from ...state.entry import NO_OFFSET
from ...values import value
from ..events import AppendEnded


class Acknowledger(Protocol):
    """The connection to a broker that brought an answer. ``is_open``: it still lives, so what it acknowledged cannot
    have vanished (rule R9). ``sent_at``, ``answered_at``: reactor seconds, of its last request."""

    @property
    def is_open(self) -> bool: ...

    @property
    def sent_at(self) -> float: ...

    @property
    def answered_at(self) -> float: ...


@value(frozen=True, slots=True)
class Appended:
    """The append is in the log of the leader that was asked. With an error code it may still vanish."""

    base_offset: int
    error_code: int = 0
    log_append_time_ms: int = -1
    produce_connection: Acknowledger | None = None
    """The connection that brought the answer; None: the append was seen in the log."""


@value(frozen=True, slots=True)
class Refused:
    """The append is not in the log, for certain."""

    error_code: int


@value(frozen=True, slots=True)
class NotSent:
    """No byte of the append has left the proxy."""

    reason: str


@value(frozen=True, slots=True)
class InDoubt:
    """The append may be in the log, now or soon. ``error_code``: what the broker answered, if it did. ``is_late``:
    bytes of it left when the lease was about to end, or later (rule R4)."""

    reason: str
    broker_id: int
    error_code: int = 0
    is_late: bool = False


Outcome = Appended | Refused | NotSent | InDoubt


def ended(
    broker_id: int, topic: str, partition: int, identities: tuple[Identity, ...], outcome: Outcome
) -> AppendEnded:
    """Return the event that reports an outcome."""
    where = (broker_id, topic, partition, identities)
    match outcome:
        case Appended():
            return AppendEnded(*where, "appended", outcome.base_offset, outcome.error_code, "")
        case Refused():
            return AppendEnded(*where, "refused", NO_OFFSET, outcome.error_code, "")
        case NotSent():
            return AppendEnded(*where, "not_sent", NO_OFFSET, 0, outcome.reason)
        case InDoubt():
            return AppendEnded(*where, "in_doubt", NO_OFFSET, outcome.error_code, outcome.reason)


# R19 lives here: these may be the fault of one batch among several.
CONTENT_ERRORS = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Codes that may be the fault of one batch among several in a shared append (rule R19). UNKNOWN_SERVER_ERROR is no
refusal but an unknown outcome: it counts here once the log has shown that nothing was appended."""

SIZE_ERRORS = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""The broker would take smaller pieces: the append is above the topic's ``max.message.bytes``, or its
``segment.bytes``."""

ROUTING_ERRORS = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)
"""The topology that was used is out of date."""

NUMBER_ERRORS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""What a broker says of a batch's producer id, epoch and sequence. It knows less or more of the producer than the entry
does, so the log decides. Only what is appended with these can get them."""

_KNOWN_REFUSALS = frozenset(int(code) for code in ErrorCode) - {int(ErrorCode.UNKNOWN_SERVER_ERROR)}


# R5 lives here: what an answer means.
def classify(
    error_code: int, base_offset: int, log_append_time_ms: int, produce_connection: Acknowledger, broker_id: int
) -> Outcome:
    """Return what one partition's part of a produce answer says about its append."""
    if base_offset >= 0:
        return Appended(base_offset, error_code, log_append_time_ms, produce_connection)
    if error_code == 0:
        # Seen for an empty or truncated set, which this proxy never sends: nothing is appended, but it is no commit
        # either.
        return Refused(int(ErrorCode.CORRUPT_MESSAGE))
    if error_code in NUMBER_ERRORS:
        return InDoubt(f"the broker answered {named(error_code)} to a batch that is due", broker_id, error_code)
    if error_code in _KNOWN_REFUSALS:
        return Refused(error_code)
    return InDoubt(f"the broker answered {named(error_code)}, and no offset", broker_id, error_code)
