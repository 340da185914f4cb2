"""A request that has not arrived completely when its client hangs up: what is kept of it is let go of at once, though
the client still waits for an answer."""

from __future__ import annotations

import struct
from functools import partial
from typing import Any

from idemproxy.proxy.native.raising import RaisingSession
from idemproxy.proxy.native.session import NativeSession
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.producer_ids import CONDITIONAL_ID
from testkit.real.clients.raw_client import RawClient, batch
from testkit.virtual.line import Line, request
from testkit.virtual.wire import VirtualWire
from testkit.virtual.world import TOPIC, World, WorldSettings

BYTES = 50_000


def waiting_fetch(number: int) -> bytes:
    """It waits for 5 s, as the log is empty."""
    name = TOPIC.encode()
    body = struct.pack(">iiiih", -1, 5000, 1, 1, len(name)) + name + struct.pack(">iiqi", 1, 0, 0, 1000)
    return request(number, ApiKey.FETCH, 2, body)


def test_what_was_kept_of_it_is_let_go_of() -> None:
    world = World(1, WorldSettings(brokers=1))
    world.start()
    (proxy,) = world.proxies
    engine, line = proxy.engine, Line()
    place_of: Any = lambda *_: ("proxy", 9092)  # noqa: E731
    accept = partial(engine.accept, None, place_of, make=partial(NativeSession, proxy.host, False, RaisingSession))
    world.network.listen(proxy.host, proxy.address, accept)
    world.network.host("client").connect(proxy.address, line)
    assert world.network.run(1, lambda: line.wire is not None)
    # It will be refused by name, so it is kept until all of it is there.
    parts = [(TOPIC, 0, batch([b"first"], producer_id=CONDITIONAL_ID)), (TOPIC, 1, batch([bytes(BYTES)]))]
    produce = request(2, ApiKey.PRODUCE, 3, RawClient.produce_body(parts, version=3))
    wire = line.wire
    assert isinstance(wire, VirtualWire)
    wire.send(waiting_fetch(1), produce[:-1])
    world.network.run(0.5)
    (connection,) = engine.sessions
    assert engine.memory.unfinished_bytes == len(produce) - 1 == connection.handler._requests.start_bytes
    wire.half_close()
    world.network.run(0.5)
    assert engine.memory.unfinished_bytes == 0 == connection.handler._requests.start_bytes
    assert world.network.run(10, lambda: line.is_lost)
    assert line.answers == [1]
    assert engine.memory.bytes_held == 0
