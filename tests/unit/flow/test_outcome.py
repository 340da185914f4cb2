"""What a broker's answer to an append means: rule R5, the whole table."""

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.proxy.flow.outcome import (
    CONTENT_ERRORS,
    NUMBER_ERRORS,
    ROUTING_ERRORS,
    Appended,
    InDoubt,
    Refused,
    classify,
)
from testkit.stage.sequencer import ProduceConnection

KNOWN = sorted(set(map(int, ErrorCode)) - {-1, 0})
UNKNOWN = [-32768, -3, -2, max(KNOWN) + 1, 1000, 32767]
PRODUCE_CONNECTION = ProduceConnection()


@pytest.mark.promise("append-with-error")
@pytest.mark.parametrize("error_code", [-1, 0, 3, 6, 7, 19, 20, *UNKNOWN])
@pytest.mark.parametrize("base_offset", [0, 1, 2**62])
def test_a_base_offset_means_appended_on_that_leader_whatever_the_code(error_code: int, base_offset: int) -> None:
    assert classify(error_code, base_offset, 17, PRODUCE_CONNECTION, 4) == Appended(
        base_offset, error_code, 17, PRODUCE_CONNECTION
    )


@pytest.mark.parametrize("error_code", sorted(set(KNOWN) - NUMBER_ERRORS))
def test_a_known_code_without_an_offset_means_not_appended(error_code: int) -> None:
    assert classify(error_code, -1, -1, PRODUCE_CONNECTION, 4) == Refused(error_code)


def test_success_without_an_offset_is_no_commit_and_nothing_to_send_again() -> None:
    outcome = classify(0, -1, -1, PRODUCE_CONNECTION, 4)
    assert isinstance(outcome, Refused)
    assert outcome.error_code != 0


@pytest.mark.parametrize("error_code", [45, 46, 47, 59])
def test_what_a_broker_says_of_epoch_and_sequence_is_for_the_log_to_decide(error_code: int) -> None:
    outcome = classify(error_code, -1, -1, PRODUCE_CONNECTION, 4)
    assert isinstance(outcome, InDoubt)
    assert (outcome.broker_id, outcome.error_code) == (4, error_code)


@pytest.mark.parametrize("error_code", [-1, *UNKNOWN])
def test_an_unknown_code_without_an_offset_is_in_doubt_at_that_broker(error_code: int) -> None:
    outcome = classify(error_code, -1, -1, PRODUCE_CONNECTION, 4)
    assert isinstance(outcome, InDoubt)
    assert outcome.broker_id == 4
    assert str(error_code) in outcome.reason


def test_refusals_that_depend_on_content_are_those_of_rule_r19() -> None:
    assert sorted(map(int, CONTENT_ERRORS)) == [-1, 2, 10, 18, 32, 43, 87]


def test_refusals_that_speak_of_the_topology_are_not_those_that_depend_on_content() -> None:
    assert sorted(map(int, ROUTING_ERRORS)) == [3, 5, 6]
    assert not ROUTING_ERRORS & CONTENT_ERRORS
