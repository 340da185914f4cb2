"""The proxy's own questions: what is asked is what the message library writes, and only the right answer is taken."""

from __future__ import annotations

from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import UnsupportedVersion, WireError
from idemproxy.proxy.bridge.asks import (
    LOG_END_REPLICA_ID,
    EarliestOffset,
    FetchAnswer,
    FetchRecords,
    LatestOffset,
    Metadata,
    OffsetAnswer,
    Question,
)
from idemproxy.proxy.bridge.cluster import BrokerAddress, Cluster
from idemproxy.proxy.versions import KNOWN

OFFSET_QUESTIONS: list[tuple[Any, int, int]] = [
    (LatestOffset("t", 3), -1, -1),
    (LatestOffset("t", 3, LOG_END_REPLICA_ID), -3, -1),
    (EarliestOffset("t", 3), -1, -2),
]
"""Question, replica id, time stamp."""
ALL: list[Question[Any]] = [
    LatestOffset("t", 3),
    EarliestOffset("t", 3),
    FetchRecords("t", 3, 0, 100),
    Metadata(None),
    Metadata(("t",)),
]


@pytest.mark.parametrize(("question", "replica_id", "timestamp"), OFFSET_QUESTIONS)
@pytest.mark.parametrize("version", [0, 1])
def test_an_offset_is_asked_for_as_the_library_writes_it(
    question: LatestOffset | EarliestOffset, replica_id: int, timestamp: int, version: int
) -> None:
    partition = {"partition_index": 3, "timestamp": timestamp, "max_num_offsets": 1}
    topics = [{"name": "t", "partitions": [partition]}]
    assert question.encode(version) == messages.encode_request(2, version, replica_id=replica_id, topics=topics)


def offsets_answer(version: int, topic: str = "t", partition: int = 3, **fields: Any) -> bytes:
    """An answer to a question for one offset."""
    parts = [{"partition_index": partition, **fields}]
    return messages.encode_response(2, version, topics=[{"name": topic, "partitions": parts}])


def test_an_offset_is_read_in_both_versions() -> None:
    question = LatestOffset("t", 3)
    assert question.parse(0, offsets_answer(0, old_style_offsets=[2**40])) == OffsetAnswer(0, 2**40)
    assert question.parse(1, offsets_answer(1, offset=2**40)) == OffsetAnswer(0, 2**40)
    assert question.parse(0, offsets_answer(0, error_code=6)).error_code == 6
    assert question.parse(1, offsets_answer(1, error_code=6)).error_code == 6


@pytest.mark.parametrize(
    "body",
    [
        offsets_answer(0, topic="u", old_style_offsets=[1]),
        offsets_answer(0, partition=4, old_style_offsets=[1]),
        offsets_answer(0, old_style_offsets=[]),
        offsets_answer(0, old_style_offsets=[2, 1]),
        offsets_answer(0, old_style_offsets=[1]) + b"\0",
        offsets_answer(0, old_style_offsets=[1])[:-1],
        bytes(4),
        b"",
    ],
)
def test_an_answer_about_anything_else_is_never_taken_for_an_offset(body: bytes) -> None:
    with pytest.raises(WireError):
        LatestOffset("t", 3).parse(0, body)


@pytest.mark.parametrize("version", range(5))
def test_a_fetch_is_asked_for_as_the_library_writes_it(version: int) -> None:
    partition = {"partition": 3, "fetch_offset": 2**40, "partition_max_bytes": 70_000}
    expected = messages.encode_request(
        1,
        version,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=70_000,
        isolation_level=0,
        topics=[{"topic": "t", "partitions": [partition]}],
    )
    assert FetchRecords("t", 3, 2**40, 70_000).encode(version) == expected


def fetch_answer(version: int, topic: str = "t", partition: int = 3, **fields: Any) -> bytes:
    """An answer to a fetch of one partition."""
    parts = [{"partition_index": partition, "high_watermark": 9, **fields}]
    return messages.encode_response(1, version, responses=[{"topic": topic, "partitions": parts}])


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("aborted", [None, [{"producer_id": 1, "first_offset": 2}]])
def test_fetched_records_are_a_view_into_the_answer(version: int, aborted: Any) -> None:
    body = fetch_answer(version, records=b"stored", aborted_transactions=aborted if version >= 4 else None)
    answer = FetchRecords("t", 3, 0, 100).parse(version, memoryview(body))
    assert answer == FetchAnswer(0, 9, memoryview(b"stored"))
    assert answer.records.obj is body


@pytest.mark.parametrize("version", range(5))
def test_a_fetch_that_failed_has_no_records_and_its_code(version: int) -> None:
    for records in (None, b""):
        answer = FetchRecords("t", 3, 0, 100).parse(version, fetch_answer(version, records=records, error_code=1))
        assert (answer.error_code, len(answer.records)) == (1, 0)


@pytest.mark.parametrize("version", range(5))
def test_only_the_whole_answer_about_that_partition_is_taken(version: int) -> None:
    question = FetchRecords("t", 3, 0, 100)
    whole = fetch_answer(version, records=b"stored")
    broken = [whole[:cut] for cut in range(len(whole))] + [whole + b"\0"]
    for body in [*broken, fetch_answer(version, topic="u"), fetch_answer(version, partition=4)]:
        with pytest.raises(WireError):
            question.parse(version, body)


@pytest.mark.parametrize("version", range(1, 5))
def test_a_fetch_without_quota_says_so(version: int) -> None:
    """Brokers since 2.0 name no partition then (KIP-219)."""
    body = messages.encode_response(1, version, throttle_time_ms=1200, responses=[])
    with pytest.raises(WireError, match="quota for consumers is used up for 1200 ms"):
        FetchRecords("t", 3, 0, 100).parse(version, memoryview(body))


@pytest.mark.parametrize("release", KNOWN)
def test_each_question_has_a_version_for_each_broker(release: str) -> None:
    ranges = KNOWN[release]
    for question in ALL:
        first, last = ranges[question.api_key]
        assert first <= question.version_for(ranges) <= last


def test_a_broker_that_has_only_later_versions_can_not_be_asked() -> None:
    for question in ALL:
        for ranges in ({question.api_key: (11, 12)}, {}):
            with pytest.raises(UnsupportedVersion):
                question.version_for(ranges)


def test_records_with_time_stamps_are_never_asked_for_in_a_version_that_drops_them() -> None:
    for release in ("0.10.0", "0.10.1", "0.10.2"):
        assert FetchRecords("t", 0, 0, 1).version_for(KNOWN[release]) >= 2


def test_the_cluster_is_asked_for_and_read() -> None:
    ranges = KNOWN["0.10.2"]
    question = Metadata(("t",))
    version = question.version_for(ranges)
    assert question.encode(version) == messages.encode_request(3, version, topics=[{"name": "t"}])
    brokers = [{"node_id": 1, "host": "h", "port": 9092, "rack": None}]
    body = messages.encode_response(3, version, brokers=brokers, cluster_id="c", controller_id=1, topics=[])
    assert question.parse(version, body) == Cluster("c", 1, {1: BrokerAddress(1, "h", 9092)}, {})
