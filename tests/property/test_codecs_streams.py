"""Frames, headers and the produce path: any cutting of the stream is the same, round trips, hostile bytes."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idemproxy.codecs.errors import WireError
from idemproxy.codecs.framing import FrameSplitter, frame
from idemproxy.codecs.headers import (
    encode_request_header,
    encode_response_header,
    parse_request_header,
    parse_response_header,
)
from idemproxy.codecs.messages import decode_request, decode_response, encode_request, encode_response
from idemproxy.codecs.produce import (
    PartitionAnswer,
    parse_request,
    parse_response,
)
from idemproxy.codecs.produce import encode_request as encode_produce_request
from idemproxy.codecs.produce import encode_response as encode_produce_response

PRODUCE = 0
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=8)

requests = st.fixed_dictionaries(
    {
        "transactional_id": st.none() | names,
        "acks": int16,
        "timeout_ms": int32,
        "topic_data": st.lists(
            st.fixed_dictionaries(
                {
                    "name": names,
                    "partition_data": st.lists(
                        st.fixed_dictionaries({"index": int32, "records": st.none() | st.binary(max_size=20)}),
                        max_size=3,
                    ),
                }
            ),
            max_size=3,
        ),
    }
)
answers = st.builds(PartitionAnswer, names, int32, int16, int64, int64, int64, st.none() | names)


@settings(deadline=None)
@given(frames=st.lists(st.binary(min_size=1, max_size=40), max_size=6), data=st.data())
def test_a_stream_gives_the_same_frames_however_it_is_cut(frames: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(map(frame, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))

    for borders in ([0, *cuts, len(stream)], list(range(len(stream) + 1))):
        splitter = FrameSplitter(40)
        out: list[bytes | bytearray] = []
        arrived = 0
        for start, end in pairwise(borders):
            out += splitter.feed(stream[start:end])
            arrived += end - start
            assert splitter.buffered_bytes == arrived - sum(len(one) + 4 for one in out)
        assert out == frames


@pytest.mark.promise("any-bytes")
@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=8), max_size=3), st.binary(max_size=60))
def test_a_stream_of_any_bytes_fails_alike_in_one_piece_and_byte_by_byte(frames: list[bytes], rest: bytes) -> None:
    stream = b"".join(map(frame, frames)) + rest

    def run(pieces: list[bytes]) -> tuple[list[bytes | bytearray], type[WireError] | None]:
        splitter = FrameSplitter(20)
        out: list[bytes | bytearray] = []
        for piece in pieces:
            try:
                out += splitter.feed(piece)
            except WireError as exc:
                return out, type(exc)
        return out, None if splitter.error is None else type(splitter.error)

    whole, error = run([stream])
    bytewise, bytewise_error = run([stream[i : i + 1] for i in range(len(stream))])

    assert (whole, error) == (bytewise, bytewise_error)
    assert whole[: len(frames)] == frames


@settings(deadline=None)
@given(int16, int16, int32, st.none() | st.text(max_size=20))
def test_request_headers_come_back(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> None:
    header = encode_request_header(api_key, api_version, correlation_id, client_id)

    assert parse_request_header(header) == (api_key, api_version, correlation_id, client_id, len(header))


@settings(deadline=None)
@given(int16, int16, int32)
def test_response_headers_come_back(api_key: int, api_version: int, correlation_id: int) -> None:
    header = encode_response_header(api_key, api_version, correlation_id)

    assert parse_response_header(header, api_key, api_version) == (correlation_id, len(header))


@settings(deadline=None)
@given(st.binary(max_size=40), int16, int16)
def test_any_bytes_are_a_header_or_a_wire_error(data: bytes, api_key: int, api_version: int) -> None:
    with suppress(WireError):
        assert parse_request_header(data).body_offset <= len(data)
    with suppress(WireError):
        parse_response_header(data, api_key, api_version)


@settings(deadline=None)
@given(requests, st.integers(0, 9), st.binary(max_size=20))
def test_produce_requests_are_read_as_the_library_reads_them(
    fields: dict[str, object], version: int, header: bytes
) -> None:
    body = encode_request(PRODUCE, version, **fields)
    expected = decode_request(PRODUCE, version, body)

    request = parse_request(header + body, len(header), version)

    assert request.transactional_id == expected.transactional_id
    assert (request.acks, request.timeout_ms) == (expected.acks, expected.timeout_ms)
    assert [(p.topic, p.partition, p.records) for p in request.partitions] == [
        (topic.name, part.index, part.records) for topic in expected.topic_data for part in topic.partition_data
    ]


@settings(deadline=None)
@given(st.lists(answers, max_size=6), st.integers(0, 9), int32)
def test_produce_responses_are_those_of_the_library(
    given_answers: list[PartitionAnswer], version: int, throttle_ms: int
) -> None:
    topics: dict[str, list[dict[str, object]]] = {}
    for answer in given_answers:
        topics.setdefault(answer.topic, []).append(
            {
                "index": answer.partition,
                "error_code": answer.error_code,
                "base_offset": answer.base_offset,
                "log_append_time_ms": answer.log_append_time_ms,
                "log_start_offset": answer.log_start_offset,
                "error_message": answer.message,
            }
        )
    responses = [{"name": name, "partition_responses": parts} for name, parts in topics.items()]

    body = encode_produce_response(version, given_answers, throttle_ms)

    assert body == encode_response(PRODUCE, version, responses=responses, throttle_time_ms=throttle_ms)
    if version <= 8:
        read, read_throttle_ms = parse_response(b"xx" + body, 2, version)
        assert read_throttle_ms == (throttle_ms if version else 0)
        assert [(a.topic, a.partition, a.error_code, a.base_offset) for a in read] == [
            (topic.name, part.index, part.error_code, part.base_offset)
            for topic in decode_response(PRODUCE, version, body).responses
            for part in topic.partition_responses
        ]


@settings(deadline=None)
@given(st.dictionaries(st.tuples(names, int32), st.binary(max_size=20), max_size=6), st.integers(0, 8), int16, int32)
def test_requests_to_brokers_come_back(
    parts: dict[tuple[str, int], bytes], version: int, acks: int, timeout_ms: int
) -> None:
    body = b"".join(
        encode_produce_request(version, acks, timeout_ms, [(*where, records) for where, records in parts.items()])
    )

    request = parse_request(body, 0, version)

    assert (request.acks, request.timeout_ms) == (acks, timeout_ms)
    assert {(p.topic, p.partition): bytes(p.records or b"") for p in request.partitions} == parts


@pytest.mark.promise("any-bytes")
@settings(deadline=None)
@given(st.binary(max_size=80), st.integers(-1, 10))
def test_any_bytes_are_produce_messages_or_wire_errors(data: bytes, version: int) -> None:
    with suppress(WireError):
        parse_request(data, 0, version)
    with suppress(WireError):
        parse_response(data, 0, version)


@pytest.mark.promise("any-bytes")
@settings(deadline=None)
@given(requests, st.integers(0, 9), st.data())
def test_damaged_produce_requests_are_requests_or_wire_errors(
    fields: dict[str, object], version: int, data: st.DataObject
) -> None:
    body = bytearray(encode_request(PRODUCE, version, **fields))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))

    with suppress(WireError):
        request = parse_request(body, 0, version)
        assert sum(len(p.records) for p in request.partitions if p.records is not None) <= len(body)
