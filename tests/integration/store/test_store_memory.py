"""How full a real Redis is: what is reported of it while it is there, away, and back, and what the gauges show then."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.process.redis_memory import MeasuredStore, memory_reported
from idemproxy.proxy.telemetry import metric_names as names
from idemproxy.proxy.telemetry.reports import Telemetry
from testkit.real.store.redis_process import RedisProcess
from testkit.stage.select_reactor import SelectReactor

MIB = limits.MIB
LOOK_SECONDS = 0.2


@pytest.fixture
def server() -> Iterator[RedisProcess]:
    with tempfile.TemporaryDirectory(prefix="ip") as path, RedisProcess(Path(path)) as process:
        yield process


class Watching:
    """A store that is asked, and the telemetry that its events reach."""

    def __init__(self, reactor: SelectReactor, server: RedisProcess) -> None:
        self.telemetry = Telemetry()
        self.reactor = reactor
        self.store = MeasuredStore(
            reactor,
            server.socket_path,
            cluster="test",
            instance_id=b"incarnat",
            random_bytes=os.urandom,
            on_data_generation=lambda _: None,
            on_lease_lost=lambda: self.store.begin_instance(b"secondly", lambda: None),
            report=self.telemetry,
        )
        self.store.watch_memory(self.telemetry)
        self.store.start()

    @property
    def shown(self) -> tuple[float, ...]:
        """Used and limit as the gauges show them; empty: no samples."""
        wanted = (names.REDIS_MEMORY_USED, names.REDIS_MEMORY_LIMIT)
        return tuple(one.value for one in self.telemetry.metrics.samples() if one.metric in wanted)

    def until_limit(self, limit: float | None) -> tuple[float, ...]:
        """Wait until this limit is shown; None: until nothing is."""
        self.reactor.run_until(lambda: (self.shown[1] if self.shown else None) == limit)
        return self.shown


@pytest.fixture
def watching(server: RedisProcess, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    monkeypatch.setattr(limits, "REDIS_MEMORY_LOOK_SECONDS", LOOK_SECONDS)
    monkeypatch.setattr(limits, "QUIESCENCE_SECONDS", LOOK_SECONDS)
    with SelectReactor() as reactor:
        yield Watching(reactor, server)


def test_what_redis_uses_and_may_use_is_shown_and_follows_what_it_has(watching: Watching, server: RedisProcess) -> None:
    assert watching.shown == ()
    used, limit = watching.until_limit(0)
    assert 100_000 < used < 50 * MIB
    assert limit == 0
    server.call("CONFIG", "SET", "maxmemory", 64 * MIB)
    used, _ = watching.until_limit(64 * MIB)
    server.call("SET", "ballast", b"x" * 20 * MIB)
    watching.reactor.run_until(lambda: watching.shown[0] >= used + 20 * MIB)


def test_nothing_is_shown_while_redis_is_away(watching: Watching, server: RedisProcess) -> None:
    watching.until_limit(0)
    server.kill()
    watching.until_limit(None)
    watching.reactor.run_for(3 * LOOK_SECONDS)
    assert watching.shown == ()
    server.start("--maxmemory", str(32 * MIB))
    watching.until_limit(32 * MIB)
    assert watching.telemetry.counts["redis_lost_total"] >= 1


def test_nobody_is_asked_after_the_end(watching: Watching) -> None:
    watching.until_limit(0)
    watching.store.stop(lambda: None)
    before = watching.shown
    watching.reactor.run_for(3 * LOOK_SECONDS)
    assert watching.shown == before


@pytest.mark.parametrize(
    "info",
    [
        b"",
        b"maxmemory:0",
        b"used_memory:1",
        b"used_memory:x\r\nmaxmemory:0",
        b"used_memory:-1\r\nmaxmemory:0",
        "used_memory:١\r\nmaxmemory:0".encode(),
        b"used_memory:" + b"9" * 5_000 + b"\r\nmaxmemory:0",
    ],
)
def test_a_server_that_does_not_tell_both_tells_nothing(info: bytes) -> None:
    assert memory_reported(info) is None
