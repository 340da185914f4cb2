from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from idemproxy.codecs.errors import LimitExceeded, Malformed, Truncated, UnsupportedVersion, WireError
from idemproxy.codecs.messages import LIBRARY_CLASSES
from idemproxy.codecs.messages import encode_response as encode_message
from idemproxy.codecs.produce import (
    PARTITIONS_MAX,
    PartitionAnswer,
    encode_request,
    encode_response,
    parse_request,
    parse_response,
)

LibraryRequest = LIBRARY_CLASSES[0, "request"]
LibraryResponse = LIBRARY_CLASSES[0, "response"]

Topics = Sequence[tuple[str, Sequence[tuple[int, bytes | None]]]]

EVERY_SHAPE: Topics = [
    ("one", [(0, b"records" * 20)]),
    ("several", [(3, b"x"), (0, b""), (7, None), (3, b"the same partition again")]),
    ("ünïcode", [(2**31 - 1, b"y" * 300)]),
    ("none", []),
    ("one", [(1, b"the same topic again")]),
]


def library_request(version: int, topics: Topics, transactional_id: str | None = None, acks: int = -1) -> bytes:
    Topic = LibraryRequest.TopicProduceData

    def partition_data(index: int, records: bytes | None) -> Any:
        return Topic.PartitionProduceData(version=version, index=index, records=records)

    return bytes(
        LibraryRequest(
            version=version,
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=30_000,
            topic_data=[
                Topic(
                    version=version,
                    name=topic,
                    partition_data=[partition_data(index, records) for index, records in parts],
                )
                for topic, parts in topics
            ],
        ).encode()
    )


@pytest.mark.parametrize("transactional_id", [None, "", "tx"])
@pytest.mark.parametrize("version", range(10))
def test_requests_of_the_library_are_read_in_every_version(version: int, transactional_id: str | None) -> None:
    body = library_request(version, EVERY_SHAPE, transactional_id, acks=1)
    frame = b"a header" + body

    request = parse_request(frame, 8, version)

    assert request.transactional_id == (transactional_id if version >= 3 else None)
    assert (request.acks, request.timeout_ms) == (1, 30_000)
    assert [(p.topic, p.partition, p.records) for p in request.partitions] == [
        (topic, index, records) for topic, parts in EVERY_SHAPE for index, records in parts
    ]


@pytest.mark.parametrize("version", range(10))
def test_records_are_found_in_place(version: int) -> None:
    frame = library_request(version, [("t", [(0, b"records")])])

    (part,) = parse_request(frame, 0, version).partitions

    assert part.records is not None
    assert part.records.obj is frame


@pytest.mark.parametrize("version", range(10))
def test_a_request_that_ends_early_is_refused_at_every_byte(version: int) -> None:
    body = library_request(version, EVERY_SHAPE, "tx")

    for cut in range(len(body)):
        with pytest.raises(WireError):
            parse_request(body[:cut], 0, version)


@pytest.mark.parametrize("version", range(10))
def test_bytes_after_a_request_are_refused(version: int) -> None:
    with pytest.raises(Malformed, match="1 bytes after"):
        parse_request(library_request(version, EVERY_SHAPE) + b"\0", 0, version)


def test_tagged_fields_of_a_request_are_skipped() -> None:
    body = library_request(9, [("t", [(0, b"r")])])
    assert body.endswith(b"r\0\0\0")
    tags = b"\x01\x05\x02ab"

    request = parse_request(body[:-3] + tags * 3, 0, 9)

    assert bytes(request.partitions[0].records or b"") == b"r"


@pytest.mark.parametrize("version", [-1, 10, 13])
def test_a_version_that_is_not_served_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match=f"API 0 in version {version}"):
        parse_request(b"\0" * 100, 0, version)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, "ffff 00000001 ffffffff"),  # topics: -1
        (0, "ffff 00000001 00000001 ffff"),  # a topic without a name
        (0, "ffff 00000001 00000001 0001 74 ffffffff"),  # partitions: -1
        (0, "ffff 00000001 00000001 0001 74 00000001 00000000 fffffffe"),  # records of size -2
        (0, "ffff 00000001 00000001 0001 ff 00000000"),  # a name that is not UTF-8
        (3, "fffe ffff 00000001 00000000"),  # a transactional id of length -2
        (9, "00 ffff 00000001 00 00"),  # topics: null
        (9, "00 ffff 00000001 02 00 01 00 00"),  # a topic without a name
        (9, "00 ffff 00000001 02 02 74 00 00 00"),  # partitions: null
        (9, "00 ffff 00000001 ffffffffff01"),  # a varint of six bytes
        (9, "00 ffff 00000001 ffffffff7f"),  # a varint above 32 bits
    ],
)
def test_impossible_fields_are_malformed(version: int, body: str) -> None:
    with pytest.raises(Malformed):
        parse_request(bytes.fromhex(body), 0, version)


def test_records_that_reach_beyond_the_frame_are_truncated() -> None:
    with pytest.raises(Truncated, match="5 bytes announced, 2 there"):
        parse_request(bytes.fromhex("ffff 00000001 00000001 0001 74 00000001 00000000 00000005 aabb"), 0, 0)
    with pytest.raises(Truncated, match="5 bytes, 2 there"):
        parse_request(bytes.fromhex("00 ffff 00000001 02 02 74 02 00000000 06 aabb"), 0, 9)


def test_more_partitions_than_the_limit_are_refused_before_they_are_read() -> None:
    count = (PARTITIONS_MAX + 1).to_bytes(4, "big")
    for body in (
        b"\xff\xff\0\0\0\1" + count,
        b"\xff\xff\0\0\0\1" + b"\0\0\0\1\0\1t" + count,
        bytes.fromhex("00 ffff 00000001 ffffffff0f"),
        bytes.fromhex("00 ffff 00000001 02 02 74 ffffffff0f"),
    ):
        with pytest.raises(LimitExceeded):
            parse_request(body, 0, 9 if body[0] == 0 else 0)


ANSWERS = [
    PartitionAnswer("one", 0, 0, 2**62, 1_700_000_000_000, 5),
    PartitionAnswer("two", 1, 45, -1),
    PartitionAnswer("one", 2**31 - 1, -1, -1, message="a sentence for people: ü"),
    PartitionAnswer("two", 0, 87, -1, message=""),
]


def library_response(version: int, answers: Sequence[PartitionAnswer], throttle_ms: int) -> bytes:
    Topic = LibraryResponse.TopicProduceResponse
    topics: dict[str, list[Any]] = {}
    for answer in answers:
        topics.setdefault(answer.topic, []).append(
            Topic.PartitionProduceResponse(
                version=version,
                index=answer.partition,
                error_code=answer.error_code,
                base_offset=answer.base_offset,
                log_append_time_ms=answer.log_append_time_ms,
                log_start_offset=answer.log_start_offset,
                record_errors=[],
                error_message=answer.message,
            )
        )
    responses = [Topic(version=version, name=name, partition_responses=parts) for name, parts in topics.items()]
    return bytes(LibraryResponse(version=version, responses=responses, throttle_time_ms=throttle_ms).encode())


@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("version", range(10))
def test_responses_are_those_of_the_library_in_every_version(version: int, count: int) -> None:
    answers = ANSWERS[:count]

    assert encode_response(version, answers, 250) == library_response(version, answers, 250)


def test_a_flexible_response_with_long_messages_and_many_topics_matches_the_library() -> None:
    answers = [PartitionAnswer(f"topic-{i:03}" * 20, i, 0, i, message="m" * i) for i in range(200)]

    assert encode_response(9, answers) == library_response(9, answers, 0)


@pytest.mark.parametrize("version", range(9))
def test_requests_to_brokers_are_those_of_the_library(version: int) -> None:
    parts = [("a", 0, b"records"), ("b", 1, b"x" * 500), ("a", 2, b""), ("b", 0, b"y")]
    grouped: Topics = [("a", [(0, b"records"), (2, b"")]), ("b", [(1, b"x" * 500), (0, b"y")])]

    assert b"".join(encode_request(version, -1, 30_000, parts)) == library_request(version, grouped)
    assert b"".join(encode_request(version, -1, 30_000, [])) == library_request(version, [])


def test_records_to_brokers_are_not_copied() -> None:
    records = memoryview(b"records")

    assert any(chunk is records for chunk in encode_request(2, -1, 1000, [("t", 0, records)]))


def test_a_partition_twice_in_one_request_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="t-0 twice"):
        encode_request(2, -1, 1000, [("t", 0, b"a"), ("t", 0, b"b")])


@pytest.mark.parametrize("version", range(9))
def test_responses_of_brokers_are_read_in_every_version(version: int) -> None:
    in_wire_order = [ANSWERS[0], ANSWERS[2], ANSWERS[1], ANSWERS[3]]
    frame = b"head" + library_response(version, ANSWERS, 40)

    answers, throttle_ms = parse_response(frame, 4, version)

    assert throttle_ms == (40 if version else 0)
    assert [(a.topic, a.partition, a.error_code, a.base_offset) for a in answers] == [
        (a.topic, a.partition, a.error_code, a.base_offset) for a in in_wire_order
    ]
    assert [a.log_append_time_ms for a in answers] == (
        [a.log_append_time_ms for a in in_wire_order] if version >= 2 else [-1] * 4
    )
    assert [a.log_start_offset for a in answers] == (
        [a.log_start_offset for a in in_wire_order] if version >= 5 else [-1] * 4
    )
    assert [a.message for a in answers] == ([a.message for a in in_wire_order] if version >= 8 else [None] * 4)


def test_what_a_broker_says_of_single_records_stands_in_for_a_message() -> None:
    errors = [
        {"batch_index": 0, "batch_index_error_message": None},
        {"batch_index": 1, "batch_index_error_message": "no key"},
        {"batch_index": 2, "batch_index_error_message": "no value"},
    ]
    partition = {"index": 1, "error_code": 87, "base_offset": -1, "record_errors": errors, "error_message": None}
    body = encode_message(0, 8, responses=[{"name": "t", "partition_responses": [partition]}])

    ((answer,), _) = parse_response(body, 0, 8)

    assert (answer.error_code, answer.message) == (87, "no key")


def test_a_broker_may_complain_about_each_record_of_a_large_batch() -> None:
    errors = [{"batch_index": index, "batch_index_error_message": "no key"} for index in range(PARTITIONS_MAX + 1)]
    partition = {"index": 1, "error_code": 87, "base_offset": -1, "record_errors": errors, "error_message": None}
    body = encode_message(0, 8, responses=[{"name": "t", "partition_responses": [partition]}])

    ((answer,), _) = parse_response(body, 0, 8)

    assert (answer.error_code, answer.message) == (87, "no key")


@pytest.mark.parametrize("version", range(9))
def test_a_response_that_ends_early_or_late_is_refused_at_every_byte(version: int) -> None:
    body = library_response(version, ANSWERS, 40)

    for cut in range(len(body)):
        with pytest.raises(WireError):
            parse_response(body[:cut], 0, version)
    with pytest.raises(Malformed):
        parse_response(body + b"\0", 0, version)


def test_a_response_in_a_version_that_is_not_spoken_is_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        parse_response(b"\0" * 50, 0, 9)
