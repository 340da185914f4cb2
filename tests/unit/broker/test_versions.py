"""API versions: what is advertised, and how a broker's version is found. Broker answers are as seen on real ones."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

import pytest

from idemproxy.codecs.headers import FLEXIBLE_FROM
from idemproxy.proxy.bridge import api_versions
from idemproxy.proxy.bridge.base import RequestRefused
from idemproxy.proxy.bridge.table import plan
from idemproxy.proxy.versions import (
    EXPLAINED,
    KNOWN,
    OWN_RANGES,
    OWN_WHERE_MISSING,
    PASSED_MAX,
    RAISED_TO,
    ApiKey,
    BrokerRanges,
    Detected,
    Probe,
    advertised,
    detect,
)

KAFKA_4_3: BrokerRanges = {
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (1, 11),
    ApiKey.METADATA: (0, 13),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.CREATE_TOPICS: (2, 7),
}
"""Minimums that were raised (seen on 4.3.1), as a stand-in for services that raise theirs."""

EVERYBODY_NEEDS = {
    ApiKey.PRODUCE: 8,
    ApiKey.FETCH: 5,
    ApiKey.METADATA: 4,
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.API_VERSIONS: 3,
}


@pytest.mark.parametrize("version", KNOWN)
def test_what_every_client_family_insists_on_is_advertised_with_minimum_0(version: str) -> None:
    ranges = advertised([KNOWN[version]])
    for key, highest in EVERYBODY_NEEDS.items():
        assert ranges[key] == (0, highest)


@pytest.mark.promise("compared-3")
@pytest.mark.parametrize("ranges", [*KNOWN.values(), KAFKA_4_3])
def test_no_minimum_is_raised_and_no_range_is_empty(ranges: BrokerRanges) -> None:
    for key, (first, last) in advertised([ranges]).items():
        assert 0 <= first <= last
        if key not in OWN_RANGES and key in ranges:
            assert first == ranges[key][0]


@pytest.mark.promise("compared-3")
@pytest.mark.parametrize("ranges", [*KNOWN.values(), KAFKA_4_3])
def test_whatever_is_advertised_has_a_bridge(ranges: BrokerRanges) -> None:
    for key, (first, last) in advertised([ranges]).items():
        for version in range(first, last + 1):
            if key in OWN_RANGES or key in OWN_WHERE_MISSING.keys() - ranges.keys():
                continue
            bridge = plan(key, version, ranges)
            assert not isinstance(bridge, RequestRefused), (key, version)
            if key not in ranges:
                assert key in EXPLAINED
                continue
            assert ranges[key][0] <= bridge.broker_version <= min(version, ranges[key][1])


@pytest.mark.parametrize("version", KNOWN)
def test_what_is_not_advertised_has_no_bridge(version: str) -> None:
    ranges = advertised([KNOWN[version]])
    for key in set(range(80)) - OWN_RANGES.keys():
        _, last = ranges.get(key, (0, -1))
        assert isinstance(plan(key, last + 1, KNOWN[version]), RequestRefused)
        assert isinstance(plan(key, -1, KNOWN[version]), RequestRefused)


@pytest.mark.parametrize("version", KNOWN)
def test_apis_between_brokers_and_apis_the_broker_lacks_are_not_advertised(version: str) -> None:
    ranges = advertised([KNOWN[version]])
    assert not {4, 5, 6, 7} & ranges.keys()
    offered = OWN_RANGES.keys() | OWN_WHERE_MISSING.keys() | EXPLAINED.keys()
    assert ranges.keys() == KNOWN[version].keys() & PASSED_MAX.keys() | offered


def test_kafka_0_10_2_is_advertised_to_consumers_as_kafka_0_11() -> None:
    ranges = advertised([KNOWN["0.10.2"]])
    for key, highest in RAISED_TO.items():
        assert ranges[key] == (0, highest)


def test_a_mixed_cluster_gets_what_all_of_its_brokers_can() -> None:
    mixed = advertised([KNOWN["0.9.0"], KNOWN["0.10.2"]])
    assert mixed.keys() == advertised([KNOWN["0.9.0"]]).keys()
    assert ApiKey.CREATE_TOPICS not in mixed


def test_brokers_without_a_version_in_common_lose_that_api_but_never_ours() -> None:
    ranges = advertised([{0: (0, 2), 1: (0, 3)}, {0: (5, 9), 1: (4, 9)}])
    assert ranges == {
        **OWN_RANGES,
        **{key: (0, last) for key, last in (*OWN_WHERE_MISSING.items(), *EXPLAINED.items())},
    }


def test_without_a_broker_the_oldest_brokers_versions_are_advertised() -> None:
    assert advertised([]) == advertised([KNOWN["0.8.2"]])


def test_nothing_that_goes_through_untouched_is_flexible() -> None:
    for key, last in PASSED_MAX.items():
        assert last < FLEXIBLE_FROM.get(key, last + 1), key


def test_offsets_that_live_in_zookeeper_are_not_bridged_to() -> None:
    ranges = advertised([{0: (0, 0), 1: (0, 0), 8: (0, 0), 9: (0, 0)}])
    assert ranges[ApiKey.OFFSET_COMMIT] == (0, 0)
    assert ranges[ApiKey.OFFSET_FETCH] == (0, 0)


# Detection

HOST = pack(">h", 9) + b"127.0.0.1"
METADATA_V0 = pack(">ii", 1, 0) + HOST + pack(">i", 9092) + pack(">i", 0)
METADATA_V1 = pack(">ii", 1, 0) + HOST + pack(">i", 9092) + pack(">h", -1) + pack(">i", 0) + pack(">i", 0)


def v0_with_topics(count: int) -> bytes:
    """A v0 answer as 0.8.2 gives it to Metadata v1: all topics."""
    partition = pack(">hii", 0, 0, 0) + pack(">ii", 1, 0) + pack(">ii", 1, 0)
    topic = pack(">hh", 0, 4) + b"pain" + pack(">i", 2) + partition * 2
    return METADATA_V0[:-4] + pack(">i", count) + topic * count


def run(replies: dict[tuple[int, int], bytes | None]) -> tuple[Detected, list[tuple[int, int]]]:
    """Detect against a table of answers; also return what was asked."""
    answers: list[bytes | None] = []
    asked = []
    while isinstance(step := detect(answers), Probe):
        asked.append((step.api_key, step.api_version))
        answers.append(replies[step.api_key, step.api_version])
    return step, asked


@pytest.mark.parametrize(("fetch_answer", "version"), [(bytes(4), "0.8.2"), (bytes(8), "0.9.0")])
@pytest.mark.parametrize("metadata", [METADATA_V0, v0_with_topics(1), v0_with_topics(40), bytes(8)])
def test_old_brokers_are_distinguished_by_an_empty_fetch_without_unknown_requests(
    metadata: bytes, fetch_answer: bytes, version: str
) -> None:
    found, asked = run({(3, 1): metadata, (1, 1): fetch_answer})
    assert (found.version, found.ranges) == (version, KNOWN[version])
    assert asked == [(3, 1), (1, 1)]


@pytest.mark.parametrize("version", ["0.10.0", "0.10.1", "0.10.2"])
def test_brokers_with_api_versions_are_distinguished_by_it(version: str) -> None:
    found, asked = run({(3, 1): METADATA_V1, (18, 0): api_versions.encode(0, 0, KNOWN[version])})
    assert (found.version, found.ranges) == (version, KNOWN[version])
    assert asked == [(3, 1), (18, 0)]


def test_brokers_with_produce_3_are_newer() -> None:
    found, _ = run({(3, 1): METADATA_V1, (18, 0): api_versions.encode(0, 0, KAFKA_4_3)})
    assert (found.version, found.ranges) == ("newer", KAFKA_4_3)


@pytest.mark.parametrize(
    "answers",
    [
        [None],
        [b""],
        [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
        [METADATA_V0 + b"\0"],
        [METADATA_V1[:-1]],
        [pack(">i", -1)],
        [pack(">i", 2**31 - 1)],
        [METADATA_V0, None],
        [METADATA_V0, b""],
        [METADATA_V0, bytes(6)],
        [METADATA_V1, None],
        [METADATA_V1, b"\0"],
        [METADATA_V1, pack(">hi", 35, 0)],
        [METADATA_V1, pack(">hi", 0, 0)],
        [METADATA_V1, pack(">hi", 0, -1)],
        [METADATA_V1, api_versions.encode(0, 0, KNOWN["0.10.2"])[:-1]],
    ],
)
def test_whatever_else_comes_is_unsure_and_says_why(answers: Sequence[bytes | None]) -> None:
    found = detect(answers)
    assert isinstance(found, Detected)
    assert found.version == "unsure"
    assert found.reason
    assert not found.ranges
