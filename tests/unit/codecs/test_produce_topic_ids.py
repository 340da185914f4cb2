from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import LimitExceeded, Malformed, WireError
from idemproxy.codecs.primitives import encode_unsigned_varint
from idemproxy.codecs.produce import PARTITIONS_MAX, PartitionAnswer
from idemproxy.codecs.produce_topic_ids import encode_request, encode_response, parse_request, parse_response

IDS = [UUID(int=(1 << 127) + 5), UUID(int=7)]
SETS: list[tuple[UUID, list[tuple[int, bytes | None]]]] = [
    (IDS[0], [(0, b"records" * 40), (7, b"")]),
    (IDS[1], [(2**31 - 1, b"x")]),
]
ANSWERS = [
    PartitionAnswer(IDS[0].hex, 0, 0, 2**40, 5, 6),
    PartitionAnswer(IDS[0].hex, 7, 87, -1, message="ünïcode"),
    PartitionAnswer(IDS[1].hex, 3, 100, -1, message=""),
]


def library_request(sets: Any = SETS, transactional_id: str | None = None) -> bytes:
    topics = [
        {"topic_id": topic_id, "partition_data": [{"index": index, "records": records} for index, records in parts]}
        for topic_id, parts in sets
    ]
    fields: dict[str, Any] = {"transactional_id": transactional_id, "acks": 1, "timeout_ms": 9, "topic_data": topics}
    return bytes(messages.encode_request(0, 13, **fields))


def library_response(record_errors: list[dict[str, Any]] | None = None) -> bytes:
    responses: dict[str, list[dict[str, Any]]] = {}
    for one in ANSWERS:
        responses.setdefault(one.topic, []).append(
            {
                "index": one.partition,
                "error_code": one.error_code,
                "base_offset": one.base_offset,
                "log_append_time_ms": one.log_append_time_ms,
                "log_start_offset": one.log_start_offset,
                "record_errors": record_errors or [],
                "error_message": None if record_errors else one.message,
            }
        )
    fields = [{"topic_id": UUID(topic), "partition_responses": parts} for topic, parts in responses.items()]
    return bytes(messages.encode_response(0, 13, responses=fields, throttle_time_ms=44))


@pytest.mark.parametrize("transactional_id", [None, "", "tx"])
def test_a_request_of_the_library_is_read(transactional_id: str | None) -> None:
    request = parse_request(library_request(transactional_id=transactional_id))

    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, 1, 9)
    assert [(one.topic, one.partition, one.records) for one in request.partitions] == [
        (topic_id.hex, index, records) for topic_id, parts in SETS for index, records in parts
    ]


def test_missing_records_are_none() -> None:
    (one,) = parse_request(library_request([(IDS[0], [(0, None)])])).partitions

    assert one.records is None


def test_a_request_is_written_as_by_the_library() -> None:
    parts = [(topic_id.hex, index, records or b"") for topic_id, parts in SETS for index, records in parts]

    assert b"".join(encode_request(1, 9, parts)) == library_request()


def test_a_response_of_the_library_is_read() -> None:
    assert parse_response(library_response()) == (ANSWERS, 44)


def test_the_message_about_a_record_stands_for_a_missing_one_about_the_batch() -> None:
    errors = [{"batch_index": n, "batch_index_error_message": text} for n, text in enumerate((None, "bad", "worse"))]
    answers, _ = parse_response(library_response(errors))

    assert {one.message for one in answers} == {"bad"}


def test_a_response_is_written_as_by_the_library() -> None:
    assert encode_response(ANSWERS, 44) == library_response()


@pytest.mark.parametrize(
    ("parse", "whole"), [(parse_request, library_request(transactional_id="tx")), (parse_response, library_response())]
)
def test_what_is_cut_off_or_too_long_is_refused(parse: Callable[[bytes], object], whole: bytes) -> None:
    for end in range(len(whole)):
        with pytest.raises(WireError):
            parse(whole[:end])
    with pytest.raises(Malformed):
        parse(whole + b"\0")


@pytest.mark.parametrize(("parse", "start"), [(parse_request, b"\0\xff\xff\0\0\0\0"), (parse_response, b"")])
def test_too_many_topics_are_refused(parse: Callable[[bytes], object], start: bytes) -> None:
    with pytest.raises(LimitExceeded):
        parse(start + encode_unsigned_varint(PARTITIONS_MAX + 2) + b"\0" * 100)
    with pytest.raises(Malformed):
        parse(start + b"\0" * 5)


def test_too_many_partitions_are_refused() -> None:
    half: list[tuple[int, bytes | None]] = [(n, None) for n in range(PARTITIONS_MAX // 2)]
    assert len(parse_request(library_request([(IDS[0], half), (IDS[1], half)])).partitions) == PARTITIONS_MAX
    with pytest.raises(LimitExceeded):
        parse_request(library_request([(IDS[0], half), (IDS[1], [*half, (1, None)])]))


def test_a_name_that_is_no_text_is_refused() -> None:
    with pytest.raises(Malformed):
        parse_request(b"\x02\xff" + library_request()[1:])
