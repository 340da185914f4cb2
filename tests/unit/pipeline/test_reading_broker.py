"""What the reader of logs has in common with the proxy, which it does not import."""

from __future__ import annotations

import pytest

from idemproxy.pipeline.reading import broker
from idemproxy.proxy import versions
from idemproxy.proxy.bridge import asks
from idemproxy.state.tombstones import STORED_BYTES_MAX, OffsetRange, State, Tombstone, pack_tombstones


@pytest.mark.parametrize("name", ["HIGH_WATERMARK_REPLICA_ID", "LOG_END_REPLICA_ID"])
def test_the_end_of_a_log_is_asked_for_as_the_proxy_asks(name: str) -> None:
    assert getattr(broker, name) == getattr(asks, name)


def test_what_leaves_tombstones_out_is_known_by_its_fetches() -> None:
    raised, passed = versions.RAISED_TO[versions.ApiKey.FETCH], versions.PASSED_MAX[versions.ApiKey.FETCH]
    assert {raised, passed} <= set(broker.LEAVING_OUT_VERSIONS)


def test_the_list_of_tombstones_has_no_room_for_more_messages() -> None:
    """The shortest way to name so many of one partition."""
    count = broker.LEFT_OUT_MESSAGES_MAX
    messages = tuple((offset, 1_000_000_000, offset) for offset in range(count))
    named = {OffsetRange("t", 0, 0, count): Tombstone(State.ACTIVE, 1, messages=messages)}
    assert len(pack_tombstones(1, named)) > STORED_BYTES_MAX
