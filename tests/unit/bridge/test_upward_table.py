"""Which requests are raised, and which ranges are served and announced, in front of Kafka 4 and of older brokers."""

from __future__ import annotations

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.errors import WireError
from idemproxy.proxy.bridge.fields import string
from idemproxy.proxy.bridge.upward.error_codes import OF_0_10_2, SUBSTITUTES, known_code
from idemproxy.proxy.bridge.upward.positions import FetchPositions
from idemproxy.proxy.bridge.upward.table import (
    RAISED_VERSIONS,
    announced,
    group_of_any_broker,
    is_raised,
    plan,
    plan_fetch,
)
from idemproxy.proxy.versions import ApiKey, native, served

from .upwards import KAFKA_4, RAISED, TOKENS

KAFKA_3_9 = {key: (0, last) for key, (_, last) in KAFKA_4.items()}
FLOORS = {
    **{key: 0 for key in KAFKA_4},
    ApiKey.WRITE_TXN_MARKERS: 1,
}


def test_every_version_that_kafka_4_dropped_is_raised_to_its_lowest() -> None:
    for key, version in RAISED:
        found = plan(key, version, KAFKA_4)
        assert found is not None
        assert found.broker_version == KAFKA_4[key][0] == RAISED_VERSIONS[key]
    assert {key for key, _ in RAISED} == set(RAISED_VERSIONS)


@pytest.mark.parametrize(
    ("key", "version"), [(0, 0), (0, 2), (1, 0), (1, 3), (8, 2), (8, 10), (2, 1), (3, 0), (27, 0), (99, 0), (8, -1)]
)
def test_what_is_served_or_unknown_is_not_raised(key: int, version: int) -> None:
    assert plan(key, version, KAFKA_4) is None


def test_brokers_that_serve_the_version_get_it() -> None:
    assert [plan(key, version, KAFKA_3_9) for key, version in RAISED] == [None] * len(RAISED)


@pytest.mark.parametrize(
    ("version", "ranges", "expected"),
    [
        (0, (4, 18), 10),
        (3, (4, 18), 10),
        (3, (4, 7), 4),
        (0, (5, 18), 10),
        (0, (5, 9), None),
        (2, (3, 11), 10),
        (3, (3, 11), None),
        (4, (5, 11), None),
        (0, (0, 17), None),
        (0, (11, 18), None),
        (-1, (4, 18), None),
    ],
)
def test_a_fetch_is_raised_to_the_best_version_that_the_broker_serves(
    version: int, ranges: tuple[int, int], expected: int | None
) -> None:
    found = plan_fetch(version, {ApiKey.FETCH: ranges}, FetchPositions())
    assert (found and found.broker_version) == expected
    assert plan_fetch(version, {}, FetchPositions()) is None


@pytest.mark.parametrize("ranges", [{8: (3, 10)}, {8: (0, 1)}, {8: (1, 1)}, {}])
def test_nothing_is_raised_to_a_version_that_the_broker_lacks(ranges: dict[int, tuple[int, int]]) -> None:
    assert plan(ApiKey.OFFSET_COMMIT, 0, ranges) is None
    assert announced(ranges) == ranges


def test_kafka_4_lists_produce_from_0_and_serves_it_from_3() -> None:
    assert served(KAFKA_4) == {**KAFKA_4, ApiKey.PRODUCE: (3, 13)}
    assert served(KAFKA_3_9) == KAFKA_3_9
    assert served({}) == {}


def test_raised_apis_are_announced_from_0_and_no_range_ends_elsewhere() -> None:
    assert announced(KAFKA_4) == {key: (FLOORS[key], last) for key, (_, last) in KAFKA_4.items()}
    assert announced(KAFKA_4)[ApiKey.LIST_OFFSETS] == (0, 11)  # what librdkafka up to 1.7 looks for
    assert announced(KAFKA_4)[ApiKey.PRODUCE] == (0, 13)


def test_older_brokers_are_announced_as_they_are() -> None:
    assert announced(KAFKA_3_9) == KAFKA_3_9


def test_floors_of_records_are_given() -> None:
    ranges = announced(served(KAFKA_4))
    assert (ranges[ApiKey.PRODUCE], ranges[ApiKey.FETCH]) == ((0, 13), (0, 18))
    assert announced({ApiKey.OFFSET_COMMIT: (2, 10)}) == {ApiKey.OFFSET_COMMIT: (0, 10)}


@pytest.mark.parametrize(
    ("key", "version", "is_at_4", "is_at_3_9", "is_always_at_3_9"),
    [
        (ApiKey.PRODUCE, 0, True, False, True),
        (ApiKey.PRODUCE, 2, True, False, True),
        (ApiKey.PRODUCE, 3, False, False, False),
        (ApiKey.FETCH, 3, True, False, True),
        (ApiKey.FETCH, 4, False, False, False),
        (ApiKey.LIST_OFFSETS, 0, True, False, True),
        (ApiKey.METADATA, 0, False, False, False),
    ],
)
def test_what_is_raised(key: ApiKey, version: int, is_at_4: bool, is_at_3_9: bool, is_always_at_3_9: bool) -> None:
    assert is_raised(key, version, KAFKA_4) == is_at_4 == is_raised(key, version, KAFKA_4, always=True)
    assert is_raised(key, version, KAFKA_3_9) == is_at_3_9
    assert is_raised(key, version, KAFKA_3_9, always=True) == is_always_at_3_9


def test_what_mode_native_passes_is_announced_from_the_same_floors() -> None:
    ranges = announced(native([KAFKA_4, KAFKA_4]))
    assert {key: first for key, (first, _) in ranges.items()} == FLOORS


@pytest.mark.parametrize(
    ("key", "version", "group"),
    [(8, 0, "gruppe-\u00e4"), (9, 0, "gruppe-\u00e4"), (8, 1, None), (9, 1, None), (2, 0, None)],
)
def test_the_coordinator_of_a_group_in_zookeeper_is_known(key: int, version: int, group: str | None) -> None:
    assert group_of_any_broker(key, version, string("gruppe-\u00e4") + b"\0\0\0\0") == group


@pytest.mark.parametrize("body", [b"", b"\xff\xff", b"\0\4abc", b"\0\1\xff"])
def test_a_group_that_can_not_be_read_is_a_wire_error(body: bytes) -> None:
    with pytest.raises(WireError):
        group_of_any_broker(ApiKey.OFFSET_COMMIT, 0, body)


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_a_code_stays_retriable_or_final_and_becomes_a_known_one(code: ErrorCode) -> None:
    known = ErrorCode(known_code(code, OF_0_10_2))
    assert known <= OF_0_10_2
    if code <= OF_0_10_2:
        assert known == code
    elif code.retriable:
        assert known.retriable
    else:
        assert not known.retriable
    assert known_code(code, code if code > OF_0_10_2 else OF_0_10_2) == code


def test_codes_of_no_release_are_unknown_errors_and_substitutes_need_no_substitute() -> None:
    assert known_code(999, OF_0_10_2) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert all(key > OF_0_10_2 >= value for key, value in SUBSTITUTES.items())


def test_every_raised_api_but_tokens_is_in_the_library() -> None:
    missing = {key for key in RAISED_VERSIONS if messages.served_versions(key) is None}
    assert missing == set(TOKENS)
