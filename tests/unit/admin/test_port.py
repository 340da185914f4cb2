"""The admin port as a trio task: it opens the configured address, says if it cannot, and never ends the proxy."""

from __future__ import annotations

import socket
from functools import partial

import pytest
import trio
import trio.testing

from idemproxy.proxy.admin.serve import Admin
from idemproxy.proxy.engine.engine import Engine
from idemproxy.proxy.settings.config import ConfigError
from idemproxy.proxy.telemetry import metric_names as names
from idemproxy.proxy.telemetry.reports import Telemetry
from testkit.virtual.world import World, WorldSettings


def engine_and_telemetry() -> tuple[Engine, Telemetry]:
    world = World(1, WorldSettings(brokers=1))
    world.start()
    return world.proxies[0].engine, Telemetry()


def runs_for(seconds: float, admin: Admin, engine: Engine, telemetry: Telemetry) -> bool:
    """Does it run until it is cancelled? On a clock of its own, which does not wait."""

    async def run() -> bool:
        with trio.move_on_after(seconds) as scope:
            await admin.run(engine, telemetry, lambda: None, lambda: True, list)
        return scope.cancelled_caught

    return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


async def ask(address: tuple[str, int], path: str) -> bytes:
    """The answer, as soon as there is one."""
    while True:
        try:
            stream = await trio.open_tcp_stream(*address)
        except OSError:
            await trio.sleep(0.02)
            continue
        async with stream:
            await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            answer = bytearray()
            async for piece in stream:
                answer += piece
            return bytes(answer)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_admin_port_answers_on_its_configured_address(host: str) -> None:
    engine, telemetry = engine_and_telemetry()
    admin = Admin((host, 0))
    assert admin._socket is not None
    address = admin._socket.getsockname()[:2]

    async def run() -> bytes:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(admin.run, engine, telemetry, lambda: None, lambda: True, list))
            with trio.fail_after(20):
                answer = await ask(address, "/livez")
                metrics = await ask(address, "/metrics")
            nursery.cancel_scope.cancel()
        assert b"idemproxy_redis_up 0.0" in metrics
        return answer

    answer = trio.run(run).lower()
    assert answer.startswith(b"http/1.1 200")
    assert b"\r\nserver:" not in answer, "what it runs on is nobody's business"
    for header in (b"cache-control: no-store", b"referrer-policy: no-referrer", b"x-content-type-options: nosniff"):
        assert answer.count(b"\r\n" + header + b"\r\n") == 1
    assert b"frame-ancestors 'none'" in answer
    assert any("admin port: http://" in line.text for line in telemetry.recent)


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
def test_an_address_that_cannot_be_had_is_one_sentence(host: str, shown: str) -> None:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as refused:
            Admin((host, port))
    todo = "end it, or give the admin port another address (--admin-bind; in the file admin.bind)"
    why = f"address already in use by another process; {todo}"
    assert refused.value.problems == (f"admin: cannot listen on {shown}:{port}: {why}",)


def test_a_failing_admin_port_is_reported_and_retried_without_ending_the_proxy() -> None:
    engine, telemetry = engine_and_telemetry()
    admin = Admin(("127.0.0.1", 0))
    assert admin._socket is not None
    admin._socket.close()

    assert runs_for(1.6, admin, engine, telemetry), "it goes on until it is cancelled"
    failures = [sample.value for sample in telemetry.metrics.samples() if sample.metric is names.INTERNAL_ERRORS]
    assert failures == [2]
    assert any("the admin port" in line.text for line in telemetry.recent)


def test_without_a_port_it_only_waits() -> None:
    engine, telemetry = engine_and_telemetry()
    assert runs_for(60, Admin(None), engine, telemetry)
    assert list(telemetry.recent) == []
