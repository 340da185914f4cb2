"""Every bridge, byte for byte against the message library: what leaves is what the library writes in that version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import WireError
from idemproxy.proxy.bridge.base import Bridge, RequestRefused
from idemproxy.proxy.bridge.table import plan
from idemproxy.proxy.versions import KNOWN, OWN_RANGES, RAISED_TO, ApiKey, advertised

from .both_sides import bridge_for

BIG = 2_000_000
Fields = dict[str, Any]

PARTITIONS = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}]
MORE_PARTITIONS = [*PARTITIONS, {"partition_index": 9, "committed_offset": 2**40, "committed_metadata": None}]
OFFSETS = [{"name": "a", "partitions": PARTITIONS}, {"name": "b", "partitions": MORE_PARTITIONS}]

REQUESTS: dict[int, Fields] = {
    ApiKey.FETCH: {
        "replica_id": -1,
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 50_000_000,
        "isolation_level": 1,
        "topics": [
            {"topic": "a", "partitions": [{"partition": 3, "fetch_offset": 5, "partition_max_bytes": BIG}]},
            {
                "topic": "b",
                "partitions": [{"partition": n, "fetch_offset": n, "partition_max_bytes": BIG} for n in (0, 1)],
            },
        ],
    },
    ApiKey.LIST_OFFSETS: {
        "replica_id": -1,
        "isolation_level": 1,
        "topics": [
            {
                "name": "a",
                "partitions": [
                    {"partition_index": 0, "timestamp": -1, "max_num_offsets": 1},
                    {"partition_index": 4, "timestamp": -2, "max_num_offsets": 1},
                ],
            },
            {"name": "b", "partitions": [{"partition_index": 1, "timestamp": -1, "max_num_offsets": 1}]},
        ],
    },
    ApiKey.OFFSET_COMMIT: {
        "group_id": "g",
        "generation_id_or_member_epoch": 5,
        "member_id": "m-1",
        "retention_time_ms": 86_400_000,
        "topics": OFFSETS,
    },
    ApiKey.OFFSET_FETCH: {
        "group_id": "g",
        "topics": [{"name": "a", "partition_indexes": [0, 1]}, {"name": "b", "partition_indexes": []}],
    },
    ApiKey.FIND_COORDINATOR: {"key": "g", "key_type": 0},
    ApiKey.JOIN_GROUP: {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 300_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\1"}, {"name": "roundrobin", "metadata": b""}],
    },
    ApiKey.HEARTBEAT: {"group_id": "g", "generation_id": 5, "member_id": "m-1"},
    ApiKey.LEAVE_GROUP: {"group_id": "g", "member_id": "m-1"},
    ApiKey.SYNC_GROUP: {
        "group_id": "g",
        "generation_id": 5,
        "member_id": "m-1",
        "assignments": [{"member_id": "m-1", "assignment": b"abc"}],
    },
    ApiKey.DESCRIBE_GROUPS: {"groups": ["g", "h"]},
    ApiKey.LIST_GROUPS: {},
    ApiKey.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
    ApiKey.CREATE_TOPICS: {
        "topics": [
            {"name": "a", "num_partitions": 4, "replication_factor": 1, "configs": [{"name": "x", "value": "1"}]},
            {
                "name": "b",
                "num_partitions": -1,
                "replication_factor": -1,
                "assignments": [{"partition_index": 0, "broker_ids": [1, 2]}],
                "configs": [{"name": "x", "value": None}],
            },
        ],
        "timeout_ms": 30_000,
        "validate_only": False,
    },
    ApiKey.DELETE_TOPICS: {"topic_names": ["a", "b"], "timeout_ms": 30_000},
}
"""A request of each API that goes through, with all that matters in it."""

ANSWERS: dict[int, Fields] = {
    ApiKey.FETCH: {
        "responses": [
            {
                "topic": "a",
                "partitions": [
                    {
                        "partition_index": 3,
                        "error_code": 0,
                        "high_watermark": 10,
                        "last_stable_offset": 10,
                        "aborted_transactions": [],
                        "records": b"stored as it is" * 100,
                    },
                    {
                        "partition_index": 4,
                        "error_code": 1,
                        "high_watermark": -1,
                        "last_stable_offset": -1,
                        "aborted_transactions": [],
                        "records": b"",
                    },
                ],
            },
            {"topic": "b", "partitions": []},
        ]
    },
    ApiKey.LIST_OFFSETS: {
        "topics": [
            {
                "name": "a",
                "partitions": [
                    {"partition_index": 0, "error_code": 0, "timestamp": -1, "offset": 42, "old_style_offsets": [42]},
                    {"partition_index": 4, "error_code": 6, "timestamp": -1, "offset": -1, "old_style_offsets": []},
                ],
            },
            {"name": "b", "partitions": []},
        ]
    },
    ApiKey.OFFSET_COMMIT: {"topics": [{"name": "a", "partitions": [{"partition_index": 0, "error_code": 16}]}]},
    ApiKey.OFFSET_FETCH: {
        "topics": [
            {
                "name": "a",
                "partitions": [{"partition_index": 0, "committed_offset": 7, "metadata": "m", "error_code": 0}],
            }
        ],
        "error_code": 0,
    },
    ApiKey.JOIN_GROUP: {
        "error_code": 0,
        "generation_id": 6,
        "protocol_name": "range",
        "leader": "m-1",
        "member_id": "m-1",
        "members": [{"member_id": "m-1", "metadata": b"\0\1"}],
    },
    ApiKey.HEARTBEAT: {"error_code": 27},
    ApiKey.LEAVE_GROUP: {"error_code": 25},
    ApiKey.SYNC_GROUP: {"error_code": 0, "assignment": b"abc"},
    ApiKey.DESCRIBE_GROUPS: {
        "groups": [
            {
                "error_code": 0,
                "group_id": "g",
                "group_state": "Stable",
                "protocol_type": "consumer",
                "protocol_data": "range",
                "members": [
                    {
                        "member_id": "m-1",
                        "client_id": "c",
                        "client_host": "/10.0.0.1",
                        "member_metadata": b"x",
                        "member_assignment": b"y",
                    }
                ],
            }
        ]
    },
    ApiKey.LIST_GROUPS: {"error_code": 0, "groups": [{"group_id": "g", "protocol_type": "consumer"}]},
    ApiKey.SASL_HANDSHAKE: {"error_code": 33, "mechanisms": ["PLAIN"]},
    ApiKey.CREATE_TOPICS: {
        "topics": [
            {"name": "a", "error_code": 36, "error_message": None},
            {"name": "b", "error_code": 0, "error_message": None},
        ]
    },
    ApiKey.DELETE_TOPICS: {"responses": [{"name": "a", "error_code": 0}]},
}
"""An answer of each API; what a lower version can not say has the value that the bridge gives it."""


def served() -> Iterator[tuple[int, int, str]]:
    """(API, client version, broker release) for all that is advertised in front of each release."""
    for release, ranges in KNOWN.items():
        for key, (first, last) in advertised([ranges]).items():
            if key not in OWN_RANGES and key in ranges:
                yield from ((key, version, release) for version in range(first, last + 1))


def sent(bridge: Bridge, body: bytes) -> bytes:
    """What goes to the broker."""
    chunks = bridge.request(memoryview(body))
    assert not isinstance(chunks, RequestRefused)
    return b"".join(chunks)


def refused(bridge: Bridge, body: bytes) -> RequestRefused:
    """The refusal that a request meets."""
    result = bridge.request(memoryview(body))
    assert isinstance(result, RequestRefused)
    return result


@pytest.mark.parametrize(("key", "version", "release"), list(served()))
def test_a_request_reaches_the_broker_as_the_library_writes_it_in_its_version(
    key: int, version: int, release: str
) -> None:
    fields = REQUESTS[key]
    bridge = bridge_for(key, version, release)
    expected = messages.encode_request(key, bridge.broker_version, **fields)
    assert sent(bridge, messages.encode_request(key, version, **fields)) == expected


@pytest.mark.parametrize(("key", "version", "release"), [one for one in served() if one[0] in ANSWERS])
def test_an_answer_reaches_the_client_as_the_library_writes_it_in_its_version(
    key: int, version: int, release: str
) -> None:
    fields = ANSWERS[key]
    bridge = bridge_for(key, version, release)
    sent(bridge, messages.encode_request(key, version, **REQUESTS[key]))
    answer = messages.encode_response(key, bridge.broker_version, **fields)
    assert b"".join(bridge.response(memoryview(answer))) == messages.encode_response(key, version, **fields)


@pytest.mark.parametrize(("key", "version", "release"), [one for one in served() if one[2] in ("0.8.2", "0.10.0")])
def test_hostile_bytes_are_only_ever_wire_errors(key: int, version: int, release: str) -> None:
    request = messages.encode_request(key, version, **REQUESTS[key])
    bridge = bridge_for(key, version, release)
    for cut in range(len(request)):
        broken = request[:cut] + b"\xff" + request[cut + 1 :]
        for body in (request[:cut], broken, broken[: cut + 1]):
            try:
                bridge_for(key, version, release).request(memoryview(body))
            except WireError:
                continue
    sent(bridge, request)
    answer = messages.encode_response(key, bridge.broker_version, **ANSWERS.get(key, {}))
    for cut in range(len(answer)):
        for body in (answer[:cut], answer[:cut] + b"\xff" + answer[cut + 1 :], answer + b"\0" * cut):
            try:
                bridge.response(memoryview(body))
            except WireError:
                continue


def test_every_raised_api_is_covered_here() -> None:
    assert RAISED_TO.keys() <= REQUESTS.keys()
    assert RAISED_TO.keys() - {ApiKey.FIND_COORDINATOR} <= ANSWERS.keys()


@pytest.mark.parametrize("key", RAISED_TO.keys() - {ApiKey.FIND_COORDINATOR, ApiKey.FETCH, ApiKey.CREATE_TOPICS})
def test_the_same_version_on_both_sides_goes_through_untouched(key: int) -> None:
    bridge = plan(key, 0, KNOWN["0.10.2"])
    assert not isinstance(bridge, RequestRefused)
    body = memoryview(b"whatever this is")
    request = bridge.request(body)
    assert not isinstance(request, RequestRefused)
    assert request[0] is body
    assert bridge.response(body)[0] is body
