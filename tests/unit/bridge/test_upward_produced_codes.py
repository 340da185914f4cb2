"""The codes that clients of Kafka 0.8 to 0.10 get for a message set, for every code of Kafka 4.3."""

from __future__ import annotations

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.proxy.bridge.upward.error_codes import produced_code

CODES = range(-1, 150)
"""Kafka 4.3 has fewer than that."""
LAST_OF_0_10_2 = 44
NOT_REPORTED = {45, 35, 47, 59, 87}
"""Clients take them for anything, or lose the report about the message (pykafka)."""

# Measured with these clients: their first Produce was answered so.
RETRIED_BY_JAVA_0_8 = {2, 3, 5, 6, 7, 19, 20}
RETRIED_BY_LIBRDKAFKA_0_9 = {3, 5, 6, 7}
RETRIED_BY_SARAMA_1_19 = {2, 3, 5, 6, 7, 19, 20}
RETRIED_BY_ALL = RETRIED_BY_JAVA_0_8 & RETRIED_BY_LIBRDKAFKA_0_9 & RETRIED_BY_SARAMA_1_19
RETRIED_BY_ANY = RETRIED_BY_JAVA_0_8 | RETRIED_BY_LIBRDKAFKA_0_9 | RETRIED_BY_SARAMA_1_19
AS_IN_0_10 = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}
"""A record without a key in a compacted topic: Java and sarama retry it as long as they do, librdkafka does not."""


def is_retriable(code: int) -> bool:
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False


@pytest.mark.parametrize("code", CODES)
def test_no_client_gets_a_code_that_it_does_not_know(code: int) -> None:
    for is_outcome_unknown in (False, True):
        found = produced_code(code, is_outcome_unknown=is_outcome_unknown)
        assert -1 <= found <= LAST_OF_0_10_2
        assert found not in NOT_REPORTED


@pytest.mark.parametrize("code", CODES)
def test_a_code_has_the_consequence_that_it_has_for_other_clients(code: int) -> None:
    found = produced_code(code)
    if code in AS_IN_0_10:
        assert found == ErrorCode.CORRUPT_MESSAGE
    elif is_retriable(code):
        assert found in RETRIED_BY_ALL
    elif code == ErrorCode.NONE:
        assert found == ErrorCode.NONE
    else:
        assert found not in RETRIED_BY_ANY


@pytest.mark.parametrize("code", CODES)
def test_a_client_does_not_read_that_what_may_be_in_the_log_is_not(code: int) -> None:
    assert produced_code(code, is_outcome_unknown=True) == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.MESSAGE_TOO_LARGE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_TIMESTAMP),
        (1000, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_some_codes_in_words(code: int, expected: ErrorCode) -> None:
    assert produced_code(code) == expected
