"""No broker's own address gets to a client: which answers have room for one, in every version that is offered.

Users of other proxies were led past them by the hints of KIP-951 and by DescribeCluster (docs/explanation/compared.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from idemproxy.codecs.messages import LIBRARY_CLASSES
from idemproxy.codecs.produce import CLIENT_VERSION_MAX
from idemproxy.proxy.versions import KNOWN, OWN_RANGES, PASSED_MAX, ApiKey, BrokerRanges, advertised

REWRITTEN = {ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER, ApiKey.FIND_COORDINATOR}
"""Two are made by the proxy, the coordinator's address is replaced."""
OF_CLIENTS = {(ApiKey.DESCRIBE_GROUPS, "client_host"), (ApiKey.DESCRIBE_ACLS, "host"), (ApiKey.DELETE_ACLS, "host")}
"""Not of a broker: where the members of a group are, and whom a rule is for."""
MADE_HERE = {ApiKey.CONSUMER_GROUP_HEARTBEAT}
"""The library does not know it; the proxy's own refusal has nothing but a sentence in it."""
WORDS = {"host", "hosts", "port", "ports", "endpoint", "endpoints"}
NEWEST: BrokerRanges = {key: (0, LIBRARY_CLASSES[key, "response"].max_version) for key, _ in LIBRARY_CLASSES}
"""A broker that has every API in every version that is known today."""


def places(schema: Any, version: int) -> Iterator[str]:
    """Yield the fields of an answer that may have an address in them, tagged ones and nested ones too."""
    for name, field in schema.fields.items():
        if not field.for_version_q(version):
            continue
        if WORDS & set(name.split("_")):
            yield name
        inner = field.array_of if field.is_array() else field
        if inner.is_struct():
            yield from places(inner, version)


def answers_with_an_address(ranges: BrokerRanges) -> set[tuple[int, str]]:
    """Return (API, field) of all answers in these ranges that have room for an address."""
    return {
        (key, name)
        for key, (first, last) in ranges.items()
        if key not in MADE_HERE
        for version in range(first, last + 1)
        for name in places(LIBRARY_CLASSES[key, "response"]._struct, version)
    }


@pytest.mark.promise("compared-1")
@pytest.mark.parametrize("ranges", [*KNOWN.values(), NEWEST], ids=[*KNOWN, "newest"])
def test_only_rewritten_answers_have_room_for_a_broker_address_in_offered_versions(ranges: BrokerRanges) -> None:
    found = answers_with_an_address(advertised([ranges]))
    assert {(key, name) for key, name in found if key not in REWRITTEN} <= OF_CLIENTS
    assert {key for key, _ in found} >= REWRITTEN, "those that are known are seen"


def test_the_newer_versions_that_are_not_offered_have_room_for_one() -> None:
    found = answers_with_an_address(NEWEST)
    assert {(ApiKey.PRODUCE, "node_endpoints"), (ApiKey.FETCH, "node_endpoints")} <= found
    assert (ApiKey.DESCRIBE_CLUSTER, "host") in found


def test_a_produce_is_understood_in_no_version_whose_answer_has_room_for_one() -> None:
    assert answers_with_an_address({ApiKey.PRODUCE: (0, CLIENT_VERSION_MAX)}) == set()


@pytest.mark.promise("compared-2")
def test_describe_cluster_is_passed_on_to_no_broker() -> None:
    assert ApiKey.DESCRIBE_CLUSTER not in PASSED_MAX
    assert advertised([NEWEST])[ApiKey.DESCRIBE_CLUSTER] == OWN_RANGES[ApiKey.DESCRIBE_CLUSTER] == (0, 1)
