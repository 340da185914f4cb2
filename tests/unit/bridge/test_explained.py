"""What old brokers cannot do: a sentence for each thing that is asked about, in the library's layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import LimitExceeded, WireError
from idemproxy.proxy.bridge.base import RequestRefused
from idemproxy.proxy.bridge.explained import EXPLAINED_BYTES_MAX, GROUPS, PARTITIONS, SETTINGS
from idemproxy.proxy.bridge.fields import Reader
from idemproxy.proxy.bridge.table import plan
from idemproxy.proxy.versions import EXPLAINED, KNOWN, ApiKey

RESOURCES = [(2, "a-topic"), (4, "1"), (2, "")]
ASKED: dict[int, dict[str, Any]] = {
    ApiKey.ALTER_CONFIGS: {
        "resources": [
            {"resource_type": kind, "resource_name": name, "configs": [{"name": "x", "value": None}] * count}
            for count, (kind, name) in enumerate(RESOURCES)
        ],
    },
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": "x", "config_operation": 1, "value": "1"}] * count,
            }
            for count, (kind, name) in enumerate(RESOURCES)
        ],
    },
    ApiKey.CREATE_PARTITIONS: {
        "topics": [
            {"name": "a-topic", "count": 9, "assignments": None},
            {"name": "b", "count": 3, "assignments": [{"broker_ids": [1, 2]}, {"broker_ids": []}]},
        ],
        "timeout_ms": 1000,
    },
}


def served() -> Iterator[tuple[int, int]]:
    for key, last in EXPLAINED.items():
        if key != ApiKey.CONSUMER_GROUP_HEARTBEAT:  # the library does not know it
            yield from ((int(key), version) for version in range(last + 1))


def refused(key: int, version: int, body: bytes) -> RequestRefused:
    bridge = plan(key, version, KNOWN["0.10.2"])
    assert not isinstance(bridge, RequestRefused)
    result = bridge.request(memoryview(body))
    assert isinstance(result, RequestRefused)
    return result


@pytest.mark.parametrize(("key", "version"), list(served()))
def test_each_thing_that_is_asked_about_has_its_code_and_its_sentence(key: int, version: int) -> None:
    answer = refused(key, version, messages.encode_request(key, version, **ASKED[key])).answer
    assert answer is not None
    told = messages.decode_response(key, version, answer)
    if key == ApiKey.CREATE_PARTITIONS:
        found = [(one.name, one.error_code, one.error_message) for one in told.results]
        assert found == [("a-topic", 35, PARTITIONS), ("b", 35, PARTITIONS)]
        return
    assert [(one.resource_type, one.resource_name) for one in told.responses] == RESOURCES
    assert {(one.error_code, one.error_message) for one in told.responses} == {(35, SETTINGS)}


@pytest.mark.parametrize(("key", "version"), list(served()))
def test_garbage_is_a_wire_error_and_much_is_not_read(key: int, version: int) -> None:
    body = messages.encode_request(key, version, **ASKED[key])
    for cut in range(len(body)):
        with pytest.raises(WireError):
            refused(key, version, body[:cut])
    with pytest.raises(WireError):
        refused(key, version, body + b"\0")
    with pytest.raises(LimitExceeded):
        refused(key, version, body + bytes(EXPLAINED_BYTES_MAX))


@pytest.mark.parametrize(("key", "version"), list(served()))
def test_a_broker_that_has_it_is_asked(key: int, version: int) -> None:
    bridge = plan(key, version, {**KNOWN["0.10.2"], key: (0, version)})
    assert not isinstance(bridge, RequestRefused)
    body = messages.encode_request(key, version, **ASKED[key])
    chunks = bridge.request(memoryview(body))
    assert not isinstance(chunks, RequestRefused)
    assert b"".join(chunks) == body


@pytest.mark.parametrize("version", range(EXPLAINED[ApiKey.CONSUMER_GROUP_HEARTBEAT] + 1))
def test_a_kip_848_member_is_refused_with_the_groups_that_brokers_have(version: int) -> None:
    key = ApiKey.CONSUMER_GROUP_HEARTBEAT
    answer = refused(key, version, b"whatever it asks").answer
    assert answer is not None
    reader = Reader(answer)
    assert (reader.int32("throttle_time_ms"), reader.int16("error_code")) == (0, 35)
    assert reader.compact_nullable_string("error_message") == GROUPS
    assert reader.compact_nullable_string("member_id") is None
    assert (reader.int32("member_epoch"), reader.int32("heartbeat_interval_ms")) == (0, 0)
    assert reader.int8("assignment") == -1, "null"
    reader.skip_tags()
    reader.finish()
    with pytest.raises(LimitExceeded):
        refused(key, version, bytes(EXPLAINED_BYTES_MAX + 1))
