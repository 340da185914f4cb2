"""Thousands of batches under producer ids that nobody issued, real: what they cost others, and what is left of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy import limits
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.machine.process_memory import resident_bytes
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

OUT_OF_ORDER, TIMED_OUT = 45, 7
CONNECTIONS, IN_FLIGHT, ROUNDS = 100, 16, 1
"""More batches at a time than outcomes may be unknown for one address, 1,600."""
LOG_BATCHES, LOG_RECORDS, RECORD_BYTES = 20, 500, 1_000
"""10 MB, ten fetches."""
GROWN_BYTES_MAX = 20 << 20
TIMEOUT_MS = 40_000


@pytest.fixture
def proxy(legacy_broker: LegacyCluster, tmp_path: Path) -> Iterator[ProxyProcess]:
    with ProxyProcess(tmp_path, legacy_broker.address(0)) as running:
        yield running


@pytest.fixture
def long_log(proxy: ProxyProcess, place: tuple[str, int]) -> tuple[str, int]:
    """A partition with so much of another writer."""
    random = Random(1)
    with RawClient(proxy.address) as client:
        for _ in range(LOG_BATCHES):
            records = batch([random.randbytes(RECORD_BYTES) for _ in range(LOG_RECORDS)])
            assert client.produce_one(*place, records).error_code == 0
    return place


def attack(proxy: ProxyProcess, place: tuple[str, int], rounds: int = ROUNDS) -> Counter[int]:
    """Send such batches, as many at a time as the connections may have in flight; return what was answered."""
    random, codes = Random(2), Counter[int]()
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(proxy.address, 60)) for _ in range(CONNECTIONS)]
        for _ in range(rounds):
            for client in clients:
                for _ in range(IN_FLIGHT):
                    records = batch([b"x"], producer_id=random.getrandbits(61), sequence=5)
                    client.send_produce([(*place, records)], timeout_ms=TIMEOUT_MS)
            for client in clients:
                for _ in range(IN_FLIGHT):
                    (answer,) = client.produce_answer()
                    codes[answer.error_code] += 1
    return codes


def keys_without_expiry(proxy: ProxyProcess) -> set[bytes]:
    keys = proxy.redis("KEYS", "*")
    assert isinstance(keys, list)
    return {key for key in keys if proxy.redis("PTTL", key) == -1}


def test_ids_that_nobody_issued_stop_nobody_and_leave_nothing(
    proxy: ProxyProcess, long_log: tuple[str, int], other_place: tuple[str, int]
) -> None:
    with RawClient(proxy.address) as client:
        known = client.new_producer_id()
        assert client.produce_one(*other_place, batch([b"0"], producer_id=known)).error_code == 0
    attack(proxy, long_log, 1)  # the heap grows once with so many requests, of whatever kind
    entries = proxy.entries()
    keys, resident = keys_without_expiry(proxy), resident_bytes(proxy.pid)
    codes = attack(proxy, long_log)
    assert codes.keys() <= {OUT_OF_ORDER, TIMED_OUT}
    assert codes[OUT_OF_ORDER] >= limits.UNISSUED_OUTCOMES_OF_ONE_MAX, "what is admitted gets its outcome"
    with RawClient(proxy.address) as client:
        begun = time.monotonic()
        newcomer = client.new_producer_id()
        assert client.produce_one(*other_place, batch([b"new"], producer_id=newcomer)).error_code == 0
        assert time.monotonic() - begun < 5
    wait_until(lambda: len(proxy.entries()) == len(entries) + 1, "no entry of theirs is left")
    assert keys_without_expiry(proxy) == keys
    wait_until(lambda: resident_bytes(proxy.pid) - resident < GROWN_BYTES_MAX, "their memory was given back")


def test_a_proxy_ends_in_time_though_many_outcomes_are_unknown(proxy: ProxyProcess, long_log: tuple[str, int]) -> None:
    random = Random(3)
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            client = stack.enter_context(RawClient(proxy.address))
            for _ in range(IN_FLIGHT):
                client.send_produce([(*long_log, batch([b"x"], producer_id=random.getrandbits(61), sequence=5))])
        begun = time.monotonic()
        assert proxy.stop() == 0
    assert time.monotonic() - begun < limits.DRAIN_SECONDS
