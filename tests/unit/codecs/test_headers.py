from __future__ import annotations

from importlib import import_module

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.errors import Malformed, Truncated
from idemproxy.codecs.headers import (
    ANSWER_TAGGED_FIELDS_MAX,
    FLEXIBLE_FROM,
    TAGGED_FIELDS_MAX,
    encode_request_header,
    encode_response_header,
    is_flexible,
    parse_request_header,
    parse_response_header,
    skip_tagged_fields,
)
from idemproxy.codecs.messages import LIBRARY_CLASSES

LIBRARY_REQUESTS = {api_key: message for (api_key, kind), message in LIBRARY_CLASSES.items() if kind == "request"}
# Imported after codecs.messages, which knows how to import the library without warnings.
LibraryRequestHeader = import_module("kafka.protocol.api_header").RequestHeader
kafka_errors = import_module("kafka.errors").kafka_errors


def test_the_first_flexible_versions_are_those_of_the_protocol_library() -> None:
    assert len(LIBRARY_REQUESTS) > 40
    for api_key, message in LIBRARY_REQUESTS.items():
        for api_version in range(message.max_version + 1):
            assert is_flexible(api_key, api_version) == message.flexible_version_q(api_version), (api_key, api_version)


@pytest.mark.parametrize("client_id", [None, "", "kafka-python", "ü" * 100])
@pytest.mark.parametrize("api_key", sorted(LIBRARY_REQUESTS))
def test_request_headers_are_those_of_the_protocol_library(api_key: int, client_id: str | None) -> None:
    message = LIBRARY_REQUESTS[api_key]
    for api_version in range(message.max_version + 1):
        expected = LibraryRequestHeader(
            request_api_key=api_key, request_api_version=api_version, correlation_id=77, client_id=client_id
        ).encode(flexible=message.flexible_version_q(api_version))

        encoded = encode_request_header(api_key, api_version, 77, client_id)

        assert encoded == expected
        assert parse_request_header(encoded + b"body") == (api_key, api_version, 77, client_id, len(encoded))


def test_an_unknown_api_has_a_header_without_tagged_fields() -> None:
    header = encode_request_header(999, 5, 1, "x")

    assert parse_request_header(header).body_offset == len(header) == 11


def test_tagged_fields_of_a_header_are_skipped() -> None:
    header = encode_request_header(0, 9, 3, "x")[:-1] + b"\x02" + b"\x00\x03abc" + b"\x81\x01\x00"

    assert parse_request_header(header + b"body").body_offset == len(header)


def test_a_client_id_that_is_not_utf8_does_not_refuse_the_request() -> None:
    header = encode_request_header(0, 7, 3, "ab")[:-2] + b"a\xff"

    assert parse_request_header(header).client_id == "a�"


@pytest.mark.parametrize("cut", range(17))
def test_a_cut_request_header_is_truncated(cut: int) -> None:
    header = encode_request_header(0, 9, 3, "client")
    assert len(header) == 17

    with pytest.raises(Truncated):
        parse_request_header(header[:cut])


def test_a_client_id_of_negative_length_is_malformed() -> None:
    with pytest.raises(Malformed, match="client id at 8: length -2"):
        parse_request_header(bytes.fromhex("0000 0007 00000001 fffe"))


@pytest.mark.parametrize("at_most", [TAGGED_FIELDS_MAX, ANSWER_TAGGED_FIELDS_MAX])
def test_too_many_tagged_fields_are_malformed(at_most: int) -> None:
    field = b"\x80\x01\0"
    assert skip_tagged_fields(bytes([at_most]) + field * at_most, 0, at_most) == 1 + 3 * at_most
    with pytest.raises(Malformed, match="tagged fields"):
        skip_tagged_fields(bytes([at_most + 1]) + field * (at_most + 1), 0, at_most)


@pytest.mark.parametrize("data", [b"\x01\0", b"\x01\0\x02a", b"\x01\x80", b"\x01\0\x80"])
def test_cut_tagged_fields_are_truncated(data: bytes) -> None:
    with pytest.raises(Truncated):
        skip_tagged_fields(data, 0)


def test_response_headers_have_tagged_fields_where_flexible_but_for_api_versions() -> None:
    assert encode_response_header(3, 8, 9) == b"\0\0\0\x09"
    assert encode_response_header(3, 9, 9) == b"\0\0\0\x09\0"
    assert encode_response_header(18, 4, 9) == b"\0\0\0\x09"
    for api_key, api_version in ((3, 8), (3, 9), (18, 4)):
        header = encode_response_header(api_key, api_version, -5)
        assert parse_response_header(header + b"body", api_key, api_version) == (-5, len(header))


def test_a_cut_response_header_is_truncated() -> None:
    with pytest.raises(Truncated):
        parse_response_header(b"\0\0\0", 3, 1)
    with pytest.raises(Truncated):
        parse_response_header(b"\0\0\0\1", 3, 9)


def test_every_flexible_version_is_known_as_a_number() -> None:
    assert all(0 <= version <= 12 for version in FLEXIBLE_FROM.values())
    assert 17 not in FLEXIBLE_FROM
    assert 47 not in FLEXIBLE_FROM


def test_error_codes_are_complete_and_retriable_as_the_library_says() -> None:
    assert {int(code) for code in ErrorCode} == {number for number in kafka_errors if number is not None}
    for code in ErrorCode:
        # Java's clients send again after CORRUPT_MESSAGE; the library does not.
        if code is not ErrorCode.CORRUPT_MESSAGE:
            assert code.retriable == kafka_errors[code].retriable, code
    assert ErrorCode.CORRUPT_MESSAGE.retriable
    assert ErrorCode(45).name == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.retriable
