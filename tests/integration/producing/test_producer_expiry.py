"""Producers that expire by the clock of a real Redis, and what they get when they come back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.state.store import entry_key
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

EXPIRY_SECONDS = 5
DAY_MS = 86_400_000
Place = tuple[str, int]


@pytest.fixture
def proxy(legacy_broker: LegacyCluster, tmp_path: Path) -> Iterator[ProxyProcess]:
    """A proxy that forgets soon."""
    options = ("--producer-expiry-seconds", str(EXPIRY_SECONDS))
    with ProxyProcess(tmp_path, legacy_broker.address(0), options=options) as running:
        yield running


def send(client: RawClient, place: Place, producer_id: int, sequence: int) -> tuple[int, int]:
    """Return code and offset."""
    records = batch([b"%d" % sequence], producer_id=producer_id, sequence=sequence)
    answer = client.produce_one(*place, records)
    return answer.error_code, answer.base_offset


@pytest.mark.promise("retry-after-expiry")
def test_an_idle_producer_expires_its_commits_renew_it_and_then_any_sequence_begins(
    proxy: ProxyProcess, place: Place
) -> None:
    with RawClient(proxy.address) as client:
        producer_id = client.new_producer_id()
        key = entry_key("default", producer_id, *place)
        began = time.monotonic()
        for sequence in range(6):
            assert send(client, place, producer_id, sequence) == (0, sequence)
            time.sleep(EXPIRY_SECONDS / 4)
        assert time.monotonic() - began > EXPIRY_SECONDS
        assert proxy.redis("EXISTS", key) == 1
        left_ms = proxy.redis("PTTL", key)
        assert isinstance(left_ms, int)
        assert 0 < left_ms <= EXPIRY_SECONDS * 1000
        wait_until(lambda: proxy.redis("EXISTS", key) == 0, "the entry expires")
        assert send(client, place, producer_id, 40) == (19, -1), "what comes before it may still come"
        assert send(client, place, producer_id, 40) == (0, 6)
        assert send(client, place, producer_id, 41) == (0, 7)
        assert send(client, place, producer_id, 50)[0] == 45
    assert "expire so soon" in proxy.log


@pytest.mark.promise("retry-after-expiry")
def test_what_is_open_expires_much_later(legacy_broker: LegacyCluster, proxy: ProxyProcess, place: Place) -> None:
    with RawClient(proxy.address) as client:
        producer_id = client.new_producer_id()
        key = entry_key("default", producer_id, *place)
        assert send(client, place, producer_id, 0) == (0, 0)
        legacy_broker.pause_broker(0)
        try:
            client.send_produce([(*place, batch([b"1"], producer_id=producer_id, sequence=1))])
            wait_until(lambda: int(str(proxy.redis("PTTL", key))) > 30 * DAY_MS, "the intent is written")
            time.sleep(0.3)
        finally:
            legacy_broker.resume_broker(0)
        assert client.produce_answer()[0].error_code == 0
        wait_until(lambda: int(str(proxy.redis("PTTL", key))) < DAY_MS, "the commit gives it a near end again")
        assert client.values(*place) == [b"0", b"1"]
