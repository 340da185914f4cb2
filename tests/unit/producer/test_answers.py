"""The table of what a client gets: every situation has its code, and no other place chooses one."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.errors import LimitExceeded, Malformed, RecordLimitExceeded
from idemproxy.codecs.produce import PartitionAnswer, encode_response
from idemproxy.proxy.producer import answers
from idemproxy.proxy.producer.batch import Answer
from idemproxy.state.decide import Fenced, OutOfOrder
from testkit.real.scenes.refusing import client_rows

PROXY = Path(answers.__file__).parent
SITUATIONS: dict[str, tuple[Callable[[], Answer], int]] = {
    "appended": (lambda: answers.appended(5, -1), 0),
    "duplicate_below_window": (answers.duplicate_below_window, 46),
    "out_of_order": (lambda: answers.out_of_order(OutOfOrder(7, "there is a gap")), 45),
    "not_in_log": (answers.not_in_log, 45),
    "other_content": (lambda: answers.other_content(5), 45),
    "conflict": (lambda: answers.conflict(9, is_past=True), 45),
    "cut_off": (lambda: answers.cut_off(9), 45),
    "conflict_by_header": (
        lambda: answers.conflict_by_header(answers.conflict(9, is_past=False)),
        44,
    ),
    "not_conditional": (lambda: answers.not_conditional("orders"), 44),
    "not_served_conditionally": (lambda: answers.not_served_conditionally("the brokers are native"), 17),
    "partition_fenced": (lambda: answers.partition_fenced(5, 7), 17),
    "displaced": (lambda: answers.displaced(7, 5), 87),
    "fenced": (lambda: answers.fenced(Fenced(3)), 47),
    "fenced_by_name": (answers.fenced_by_name, 47),
    "foreign_producer_id": (answers.foreign_producer_id, 49),
    "in_doubt": (lambda: answers.in_doubt("the store is away"), 7),
    "held_back": (lambda: answers.held_back("draining"), 19),
    "no_leader": (answers.no_leader, 6),
    "unknown_partition": (answers.unknown_partition, 3),
    "impossible_topic": (answers.impossible_topic, 17),
    "refused_plainly": (lambda: answers.refused_plainly(Answer(2), 8), 87),
    "refused": (lambda: answers.refused(29), 29),
    "denied": (lambda: answers.denied(29), 29),
    "undecidable": (lambda: answers.undecidable("records were deleted"), 87),
    "after_unknown": (answers.after_unknown, 87),
    "newer_epoch_at_broker": (answers.newer_epoch_at_broker, 47),
    "others_at_broker": (answers.others_at_broker, 87),
    "partly_stored": (lambda: answers.partly_stored(3, 10), 87),
    "rest_is_left": (lambda: answers.rest_is_left(3), 87),
    "vanished": (lambda: answers.vanished(5), 87),
    "partly_vanished": (answers.partly_vanished, 87),
    "all_vanished": (lambda: answers.all_vanished(2), 87),
    "header_refused": (lambda: answers.header_refused("tenant", "orders"), 43),
    "corrupt": (lambda: answers.corrupt("CRC"), 2),
    "unreadable": (lambda: answers.unreadable(Malformed("gzip")), 87),
    "invalid": (lambda: answers.invalid("two batches", 8), 87),
    "codec_not_served": (answers.codec_not_served, 76),
    "marker_without_id": (lambda: answers.marker_without_id(1, 8), 87),
    "invalid_acks": (lambda: answers.invalid_acks(2), 21),
    "transactional": (answers.transactional, 53),
    "transactional_natively": (answers.transactional_natively, 17),
}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_situation_has_the_code_of_the_table(situation: str) -> None:
    make, code = SITUATIONS[situation]
    assert make().error_code == code


def test_each_error_code_is_in_the_client_table_and_retried_if_retriable() -> None:
    rows = client_rows()
    codes = {make().error_code for make, _ in SITUATIONS.values()} - {0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}
    assert codes <= rows.keys()
    for code, cells in rows.items():
        java = cells["Java"]
        assert (java == "again") == (answers.is_retriable(code)), code
        assert (java == "split") == (code == ErrorCode.MESSAGE_TOO_LARGE)


def test_no_situation_is_left_out() -> None:
    made = {
        node.name
        for node in ast.parse(Path(answers.__file__).read_text()).body
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.returns or ast.Name("")) == "Answer"
    }
    assert made == SITUATIONS.keys()


@pytest.mark.parametrize("situation", sorted(SITUATIONS.keys() - {"appended"}))
def test_every_failure_has_no_offset_and_a_sentence_that_fits_into_every_layout(situation: str) -> None:
    answer = SITUATIONS[situation][0]()
    assert answer.base_offset == (7 if situation == "displaced" else -1), "where it lies, though it should not"
    assert answer.log_append_time_ms == -1
    assert answer.message
    one = PartitionAnswer("t", 0, answer.error_code, -1, message=answer.message)
    for version in range(10):
        assert (answer.message.encode() in encode_response(version, [one])) == (version >= 8)


@pytest.mark.promise("stored-never-out-of-order")
def test_only_proven_gaps_get_out_of_order_and_none_gets_unknown_errors() -> None:
    """The unknown errors are UNKNOWN_PRODUCER_ID (59) and UNKNOWN_SERVER_ERROR (-1)."""
    codes = {situation: make().error_code for situation, (make, _) in SITUATIONS.items()}
    proven = {"out_of_order", "not_in_log", "other_content", "conflict", "cut_off"}
    assert {situation for situation, code in codes.items() if code == 45} == proven
    assert not {59, -1} & set(codes.values())


def test_a_gap_and_a_fence_say_what_is_due() -> None:
    assert "sequence 7 is due" in (answers.out_of_order(OutOfOrder(7, "there is a gap")).message or "")
    assert "epoch 3" in (answers.fenced(Fenced(3)).message or "")


def test_a_success_carries_its_offset_and_its_time() -> None:
    assert answers.appended(5, 1234) == Answer(0, 5, 1234, None)


@pytest.mark.parametrize(("version", "code"), [(0, 42), (3, 42), (7, 42), (8, 87), (9, 87)])
def test_bad_input_gets_an_error_code_that_the_version_knows(version: int, code: int) -> None:
    assert answers.invalid("two batches", version).error_code == code


def test_a_batch_above_a_proxy_limit_gets_the_error_that_splits_it() -> None:
    answer = answers.unreadable(LimitExceeded("zstd: more than 16777216 bytes when decompressed"))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert answers.will_be_retried(answer.error_code, record_count=2)


def test_a_record_above_a_proxy_limit_fails_at_once_without_a_split() -> None:
    assert answers.unreadable(RecordLimitExceeded("20000 headers")).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("error_code", [2, -1])
def test_what_the_broker_calls_corrupt_is_not_retriable_as_our_checksum_was_right(error_code: int) -> None:
    answer = answers.refused(error_code)
    assert answer.error_code == 87
    assert not answers.is_retriable(answer.error_code)


@pytest.mark.parametrize("error_code", [3, 6, 7, 10, 18, 19, 29, 32])
def test_other_refusals_are_handed_on_as_the_broker_said(error_code: int) -> None:
    assert answers.refused(error_code).error_code == error_code


def test_a_refused_header_is_named_with_topic_and_setting_however_long_it_is() -> None:
    for header in ("tenant", "n" * 100_000, "\n\x1b[31m" * 5000, "é" * 40_000):
        message = answers.header_refused(header, "orders").message
        assert message is not None
        assert repr(header[:64]) in message
        assert "orders" in message
        assert "--dropped-headers" in message
        assert len(message.encode()) < 1000
        assert message.isprintable()


def test_retriable_is_what_clients_send_again() -> None:
    retriable = {situation for situation, (make, _) in SITUATIONS.items() if answers.is_retriable(make().error_code)}
    assert retriable == {"in_doubt", "held_back", "no_leader", "unknown_partition", "corrupt"}
    assert not answers.is_retriable(0)


def test_only_answers_py_names_the_codes_that_make_clients_send_under_a_new_epoch() -> None:
    dangerous = {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name, ErrorCode.UNKNOWN_PRODUCER_ID.name}
    naming = {
        path.name
        for path in PROXY.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in dangerous
    }
    assert naming == {"answers.py"}
