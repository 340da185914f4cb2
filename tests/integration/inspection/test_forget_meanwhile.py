"""``idemproxy forget`` while others write: what has changed since it was shown is left alone, and that is a failure."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from idemproxy.proxy.commands.inspection.forget import forget_producer
from idemproxy.state.entry import Entry, Intent, IntentBatch, pack, unpack
from idemproxy.state.redis_facts import RedisAddress
from idemproxy.state.redis_inspection import RedisInspection
from idemproxy.state.store import entry_key, member_key
from testkit.real.store.inspecting import idemproxy
from testkit.real.store.two_proxies_redis import ExternalRedis

OWNER = b"12345678"
KEYS = [entry_key("default", 7, "orders", partition) for partition in (0, 1)]
ENTRY = Entry(5, bytes(16), bytes(8), 0, 0)
LEFT = Entry(
    5, bytes(16), bytes(8), 0, 0, intent=Intent(OWNER, 0, (IntentBatch(0, 1, b"digest-1"),), 0, bytes(8), bytes(8), 0)
)
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server() -> Iterator[ExternalRedis]:
    with ExternalRedis() as running:
        yield running


@pytest.fixture
def redis(server: ExternalRedis) -> ExternalRedis:
    assert server.call("FLUSHALL") == b"OK"
    return server


def forget(redis: ExternalRedis, meanwhile: Callable[[], object], force: bool = False) -> tuple[int, list[str]]:
    """Status and last lines of a run that is answered with the producer's id, after something has happened."""

    def ask() -> str:
        meanwhile()
        return "7\n"

    out = io.StringIO()
    with RedisInspection(RedisAddress(redis.address), "default") as inspection:
        rows = inspection.entries(producer_id=7)
        status = forget_producer(inspection, rows, ask=ask, force=force, expiry_ms=HOUR_MS, out=out)
    return status, out.getvalue().splitlines()[-2:]


def test_an_entry_written_since_it_was_shown_stays_and_others_are_forgotten(redis: ExternalRedis) -> None:
    for key in KEYS:
        redis.call("SET", key, pack(ENTRY))
    newer = pack(Entry(6, bytes(16), bytes(8), 0, 1))
    status, lines = forget(redis, lambda: redis.call("SET", KEYS[0], newer))
    assert status == 1
    assert lines[-1] == "forgotten on 1 of 2 partitions"
    assert lines[-2].endswith("orders/0: not forgotten: it has changed since it was shown")
    assert redis.call("GET", KEYS[0]) == newer
    assert unpack(redis.call("GET", KEYS[1])).version == 6


@pytest.mark.parametrize("force", [False, True])
def test_a_returned_owner_keeps_its_open_intent_unless_forget_is_forced(redis: ExternalRedis, force: bool) -> None:
    redis.call("SET", KEYS[0], pack(LEFT))
    status, lines = forget(redis, lambda: redis.call("SET", member_key("default", OWNER), b"1"), force)
    assert status == int(not force)
    assert lines[-1].endswith(f"forgotten on {int(force)} of 1 partition")
    assert unpack(redis.call("GET", KEYS[0])).has_open_intent is not force
    if not force:
        assert lines[-2].endswith(f"not forgotten: proxy {OWNER.hex()} is alive and may be writing it now")


def test_what_is_forgotten_is_kept_for_as_long_as_an_idle_producer(redis: ExternalRedis, tmp_path: Path) -> None:
    where = ("--redis", f"redis://{redis.address[0]}:{redis.address[1]}", "--yes")
    redis.call("SET", KEYS[0], pack(ENTRY))
    assert idemproxy("forget", "producer", 7, *where).returncode == 0
    assert 23 * HOUR_MS < redis.call("PTTL", KEYS[0]) <= 24 * HOUR_MS
    redis.call("SET", KEYS[0], pack(ENTRY))
    file = tmp_path / "c.yaml"
    file.write_text("upstream: {bootstrap: [k:1]}\nproducers: {expiry_seconds: 7200}\n")
    assert idemproxy("forget", "producer", 7, *where, "--config", os.fspath(file)).returncode == 0
    assert HOUR_MS < redis.call("PTTL", KEYS[0]) <= 2 * HOUR_MS
