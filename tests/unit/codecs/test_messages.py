from __future__ import annotations

import uuid
from dataclasses import dataclass
from time import process_time

import pytest

from idemproxy.codecs import body_check
from idemproxy.codecs.errors import LimitExceeded, Malformed, Truncated, UnsupportedVersion, WireError
from idemproxy.codecs.messages import (
    REQUEST_BYTES_MAX,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    fields_of,
    served_versions,
)

FETCH, METADATA, SASL_HANDSHAKE, API_VERSIONS, CREATE_TOPICS = 1, 3, 17, 18, 19

BROKERS = [{"node_id": 1, "host": "one", "port": 9092}, {"node_id": 2, "host": "two", "port": 9093, "rack": "r"}]
TOPICS = [
    {
        "error_code": 0,
        "name": "t",
        "partitions": [
            {"error_code": 0, "partition_index": 0, "leader_id": 1, "replica_nodes": [1, 2], "isr_nodes": [1]}
        ],
    }
]


def test_a_request_has_the_bytes_of_the_protocol() -> None:
    assert encode_request(METADATA, 1, topics=[{"name": "a"}, {"name": "b"}]).hex() == "00000002000161000162"
    assert encode_request(METADATA, 1, topics=None).hex() == "ffffffff"
    assert encode_request(SASL_HANDSHAKE, 1, mechanism="PLAIN") == b"\0\5PLAIN"
    flexible = encode_request(METADATA, 9, topics=[{"name": "a"}], allow_auto_topic_creation=False)
    assert flexible.hex() == "0202610000000000"


def test_a_response_is_read_by_attributes_and_missing_fields_are_defaults() -> None:
    body = encode_response(METADATA, 0, brokers=BROKERS, topics=TOPICS)

    response = decode_response(METADATA, 0, body)

    assert [broker.host for broker in response.brokers] == ["one", "two"]
    assert response.topics[0].partitions[0].replica_nodes == [1, 2]
    assert response.controller_id == -1
    assert response.cluster_id is None
    assert set(fields_of(response)) == {"brokers", "topics"}


def test_a_message_goes_from_one_version_to_another() -> None:
    old = decode_response(METADATA, 0, encode_response(METADATA, 0, brokers=BROKERS, topics=TOPICS))

    body = encode_response(METADATA, 9, **fields_of(old), controller_id=2, cluster_id="c")
    new = decode_response(METADATA, 9, body)

    assert (new.controller_id, new.cluster_id) == (2, "c")
    assert new.topics[0].partitions[0].isr_nodes == [1]
    assert new.topics[0].partitions[0].leader_epoch == -1
    assert encode_response(METADATA, 0, **fields_of(new)) == encode_response(METADATA, 0, **fields_of(old))


def test_a_message_as_dicts_can_be_changed_and_encoded() -> None:
    message = decode_response(METADATA, 5, encode_response(METADATA, 5, brokers=BROKERS, topics=TOPICS))

    fields = message.to_dict(json=False)
    fields["brokers"][1]["host"] = "changed"

    again = decode_response(METADATA, 5, encode_response(METADATA, 5, **fields))
    assert [broker.host for broker in again.brokers] == ["one", "changed"]


def test_small_objects_serve_as_nested_structures() -> None:
    @dataclass
    class Broker:
        node_id: int
        host: str
        port: int

    body = encode_response(METADATA, 0, brokers=[Broker(1, "one", 9092)], topics=[])

    assert decode_response(METADATA, 0, body).brokers[0].port == 9092


def test_a_field_that_does_not_exist_is_our_bug() -> None:
    with pytest.raises(AssertionError, match="has no field tpoics"):
        encode_request(METADATA, 1, tpoics=[])
    with pytest.raises(AssertionError, match="has no field nmae"):
        encode_request(METADATA, 1, topics=[{"nmae": "t"}])
    with pytest.raises(AssertionError):
        encode_request(METADATA, 99, topics=[])


def test_served_versions_are_those_of_the_library() -> None:
    assert served_versions(METADATA) == (0, 13)
    assert served_versions(61) == (0, 0)
    assert served_versions(4) is None


@pytest.mark.parametrize(("api_key", "api_version"), [(METADATA, -1), (METADATA, 14), (4, 0), (-1, 0), (1000, 0)])
def test_an_api_or_version_that_is_not_there_is_refused(api_key: int, api_version: int) -> None:
    for decode in (decode_request, decode_response):
        with pytest.raises(UnsupportedVersion) as refused:
            decode(api_key, api_version, b"")
        assert (refused.value.api_key, refused.value.api_version) == (api_key, api_version)


@pytest.mark.parametrize("api_version", range(5))
def test_an_old_brokers_answer_to_a_new_api_versions_request_is_read(api_version: int) -> None:
    body = bytes.fromhex("0023 00000001 0012 0000 0000")

    response = decode_response(API_VERSIONS, api_version, body)

    assert response.error_code == 35
    assert [(api.api_key, api.min_version, api.max_version) for api in response.api_keys] == [(18, 0, 0)]


def test_api_versions_without_an_error_has_its_own_layout() -> None:
    api = {"api_key": 18, "min_version": 0, "max_version": 3}
    for api_version in range(5):
        body = encode_response(API_VERSIONS, api_version, error_code=0, api_keys=[api], throttle_time_ms=7)
        assert decode_response(API_VERSIONS, api_version, body).api_keys[0].max_version == 3


def test_uuids_and_records_pass() -> None:
    topic_id = uuid.UUID(int=77)
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 5, "records": b"bytes"}

    body = encode_response(FETCH, 13, responses=[{"topic_id": topic_id, "partitions": [partition]}])
    response = decode_response(FETCH, 13, memoryview(body))

    assert response.responses[0].topic_id == topic_id
    assert response.responses[0].partitions[0].records == b"bytes"


@pytest.mark.parametrize("api_version", [0, 1, 5, 9, 12])
def test_a_body_that_ends_early_is_refused_at_every_byte(api_version: int) -> None:
    body = encode_response(METADATA, api_version, brokers=BROKERS, topics=TOPICS)

    for cut in range(len(body)):
        with pytest.raises(WireError):
            decode_response(METADATA, api_version, body[:cut])
    with pytest.raises(Malformed, match="1 bytes after its end"):
        decode_response(METADATA, api_version, body + b"\0")


@pytest.mark.parametrize(
    ("api_version", "body", "error"),
    [
        (1, "fffffffe", Malformed),  # a count of -2
        (0, "ffffffff", Malformed),  # null where version 0 has no null
        (1, "7fffffff", Truncated),  # more elements than bytes
        (1, "00000001 ffff", Malformed),  # a null name
        (1, "00000001 fffe", Malformed),
        (1, "00000001 0001", Truncated),
        (1, "00000001 0001 ff", Malformed),  # not UTF-8
        (9, "02 00 00 000000 00", Malformed),  # a null compact name
        (9, "ffffffffff01", Malformed),  # a varint of six bytes
        (9, "ffffffff0f", Truncated),
    ],
)
def test_impossible_fields_of_a_request_are_refused(api_version: int, body: str, error: type[WireError]) -> None:
    with pytest.raises(error):
        decode_request(METADATA, api_version, bytes.fromhex(body))


def test_null_strings_of_old_brokers_are_read_where_newer_schemas_have_none() -> None:
    body = bytes.fromhex("00000001 00000001 ffff 00002384 00000000")

    assert decode_response(METADATA, 0, body).brokers[0].host is None


def test_unknown_tagged_fields_are_skipped_and_known_ones_read() -> None:
    plain = encode_request(FETCH, 12, topics=[])
    assert plain.endswith(b"\0")

    request = decode_request(FETCH, 12, plain[:-1] + b"\x02" + b"\x00\x03\x03ab" + b"\x55\x01x")

    assert request.cluster_id == "ab"
    assert decode_request(FETCH, 12, encode_request(FETCH, 12, topics=[], cluster_id="c")).cluster_id == "c"


@pytest.mark.parametrize("tag", ["00 02 02 61 00", "00 01 02 61", "00 05 02 61", "ffffffffff 01 00"])
def test_tagged_fields_of_a_wrong_size_are_refused(tag: str) -> None:
    plain = encode_request(FETCH, 12, topics=[])

    with pytest.raises(WireError):
        decode_request(FETCH, 12, plain[:-1] + b"\x01" + bytes.fromhex(tag))


def test_a_request_above_the_limit_is_refused_unread() -> None:
    with pytest.raises(LimitExceeded, match=str(REQUEST_BYTES_MAX)):
        decode_request(METADATA, 1, bytes(REQUEST_BYTES_MAX + 1))


def test_more_array_elements_than_the_limit_are_refused() -> None:
    count = body_check.ELEMENTS_MAX + 1

    with pytest.raises(LimitExceeded, match="array elements"):
        decode_request(METADATA, 1, count.to_bytes(4, "big") + bytes(2 * count))


def test_hostile_bodies_are_refused_in_no_time() -> None:
    endless_number = b"\xff" * 1_000_000
    # 250,000 topics with a tagged field each: the library would copy the rest of the body for every one.
    topics = b"\x80\xa1\x0f" + b"\x01\x01\x50\x00" * 249_999
    start = process_time()

    with pytest.raises(Malformed):
        decode_request(METADATA, 9, endless_number)
    with pytest.raises(LimitExceeded, match="too many sections"):
        decode_request(METADATA, 9, topics + bytes(100))

    assert process_time() - start < 5, "of CPU; with the copies it is minutes"
