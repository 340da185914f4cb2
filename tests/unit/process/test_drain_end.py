"""The end of a process whose drain takes too long (rule R15): the shipped shell ends the shipped engine, which works on
a virtual network. Time passes there as fast as trio's clock says."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from idemproxy.proxy.process.server import Server
from idemproxy.proxy.settings.addresses import Listener
from idemproxy.proxy.settings.config import Caps, Settings
from testkit.virtual.network import Network
from testkit.virtual.redis_connection import RedisFault
from testkit.virtual.world import TOPIC, World, WorldSettings

DRAIN_SECONDS, HANGS_SECONDS = 5.0, 60.0
STEP_SECONDS = 0.01


def a_server_of(world: World, directory: Path) -> Server:
    """The shell around the proxy of this world."""
    listener = Listener("one", "127.0.0.1", 0, 0)
    server = Server(Settings((("127.0.0.1", 1),), (listener,), data_directory=directory), lambda _event: None)
    server._directory.close()
    (proxy,) = world.proxies
    server.engine, server._store = proxy.engine, proxy.store
    server.engine.set_caps(Caps(drain_seconds=DRAIN_SECONDS))
    return server


async def shut_down(server: Server, network: Network) -> None:
    async def let_time_pass() -> None:
        while True:
            network.run(STEP_SECONDS)
            await trio.sleep(STEP_SECONDS)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_time_pass)
        await server._shut_down()
        nursery.cancel_scope.cancel()


@pytest.mark.promise("drain-nothing-late")
def test_appends_out_after_an_overlong_drain_are_reset_before_the_registration_ends(
    tmp_path: Path,
) -> None:
    """Else its bytes might come to the broker when another proxy has looked for it and has appended it."""
    world = World(1, WorldSettings(brokers=1))
    world.start()
    (client,), (broker,) = world.clients, world.cluster.brokers.values()
    server = a_server_of(world, tmp_path)
    client.send(TOPIC, 0)
    assert world.network.run(5, lambda: client.is_done)
    broker.host.pause(HANGS_SECONDS)
    client.send(TOPIC, 0)
    world.network.run(1)
    out: list[tuple[bytes, int]] = []

    def look(_number: int, name: bytes, _arguments: Sequence[bytes]) -> RedisFault:
        out.append(
            (name, sum(broker.produce_connections.busy for broker in server.engine.statistics().topology.brokers))
        )
        return RedisFault.NONE

    world.redis.choose_fault = look
    began = world.network.now
    trio.run(shut_down, server, world.network, clock=MockClock(autojump_threshold=0))
    assert DRAIN_SECONDS < world.network.now - began < HANGS_SECONDS
    assert out[0] == (b"SET", 1), "it is registered as long as it drains"
    assert out[-1] == (b"DEL", 0)
