"""What readers of logs have in common with the proxy, which they do not import."""

from __future__ import annotations

import pytest

from idemproxy.client import asking, limits, log_flows
from idemproxy.pipeline.audit.plan import of_cluster
from idemproxy.pipeline.reading import broker
from idemproxy.pipeline.reading.places import NothingToRead
from idemproxy.pipeline.source.options import parse_options
from idemproxy.pipeline.source.problems import WrongOption
from idemproxy.pipeline.source.reader import BatchReader
from idemproxy.proxy import versions
from idemproxy.proxy.bridge import asks
from idemproxy.state.hidden_ranges import STORED_BYTES_MAX, HiddenRange, OffsetRange, State, pack_hidden_ranges
from testkit.stage.reading_server import ReadingServer


@pytest.mark.parametrize("name", ["HIGH_WATERMARK_REPLICA_ID", "LOG_END_REPLICA_ID"])
def test_the_end_of_a_log_is_asked_for_as_the_proxy_asks(name: str) -> None:
    assert getattr(log_flows, name) == getattr(asks, name)


def test_constants_repeated_to_avoid_importing_the_client_equal_the_originals() -> None:
    assert (broker.LATEST, broker.EARLIEST) == (asking.LATEST, asking.EARLIEST)
    assert broker.FETCH_BYTES_MAX == limits.WHOLE_FETCH_BYTES_MAX


def test_a_proxy_with_hidden_ranges_is_known_by_its_fetch_versions() -> None:
    raised, passed = versions.RAISED_TO[versions.ApiKey.FETCH], versions.PASSED_MAX[versions.ApiKey.FETCH]
    assert {raised, passed} <= set(asking.LEAVING_OUT_VERSIONS)


def test_the_list_of_hidden_ranges_has_no_room_for_more_messages() -> None:
    """The shortest way to name so many of one partition."""
    count = limits.LEFT_OUT_MESSAGES_MAX
    messages = tuple((offset, 1_000_000_000, offset) for offset in range(count))
    named = {OffsetRange("t", 0, 0, count): HiddenRange(State.ACTIVE, 1, messages=messages)}
    assert len(pack_hidden_ranges(1, named)) > STORED_BYTES_MAX


def test_a_topic_without_a_visible_partition_is_not_read_as_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its partitions have no leader yet, or a right is missing: nothing is read, and that is no success."""
    monkeypatch.setattr(broker, "NEW_TOPIC_SECONDS", 0.2)
    with ReadingServer([]) as server:
        server.without_partitions = ["orders"]
        with pytest.raises(NothingToRead, match="there is no topic orders"):
            of_cluster([server.address], ["orders"], [])
        options = {"kafka.bootstrap.servers": "{}:{}".format(*server.address), "subscribe": "orders"}
        with pytest.raises(WrongOption, match="subscribe: there is no topic orders"):
            BatchReader(parse_options(options, is_stream=False)).partitions()
