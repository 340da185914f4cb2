"""Which fetches are too small for a message of usual size, in versions in which a larger one comes cut off."""

from __future__ import annotations

import pytest

from idemproxy.codecs import messages
from idemproxy.codecs.errors import WireError
from idemproxy.proxy.bridge.fetch import PARTITION_BYTES_MIN, small_limit
from idemproxy.proxy.versions import ApiKey


def fetch(version: int, *limits: int) -> memoryview:
    parts = [
        {"partition": number, "fetch_offset": 7, "partition_max_bytes": limit} for number, limit in enumerate(limits)
    ]
    topics = [{"topic": "orders", "partitions": parts}] if limits else []
    fields = {"replica_id": -1, "max_wait_ms": 1, "min_bytes": 1, "topics": topics}
    return memoryview(messages.encode_request(ApiKey.FETCH, version, **fields))


@pytest.mark.parametrize("version", range(6))
def test_a_small_limit_is_found_only_in_versions_that_cut_messages_off(version: int) -> None:
    cuts_off = version <= 2
    assert small_limit(version, fetch(version, 4096, 10)) == (4096 if cuts_off else None)
    assert small_limit(version, fetch(version, PARTITION_BYTES_MIN - 1)) == (
        PARTITION_BYTES_MIN - 1 if cuts_off else None
    )
    assert small_limit(version, fetch(version, PARTITION_BYTES_MIN)) is None
    assert small_limit(version, fetch(version)) is None


def test_what_cannot_be_read_is_a_wire_error() -> None:
    whole = fetch(2, 10)
    for size in range(len(whole)):
        with pytest.raises(WireError):
            small_limit(2, whole[:size])
