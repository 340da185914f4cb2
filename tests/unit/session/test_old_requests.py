"""In front of brokers without producer ids the proxy serves versions that Kafka 4 dropped, and counts who sends
them."""

from __future__ import annotations

import struct

from idemproxy.proxy.events import OldClientSeen, OldRequestRefused
from idemproxy.proxy.versions import ApiKey
from testkit.virtual.line import Line, request
from testkit.virtual.world import TOPIC, World, WorldSettings

NAME = TOPIC.encode()


def fetch(number: int, version: int) -> bytes:
    head = struct.pack(">iii", -1, 0, 0) + (struct.pack(">i", 1000) if version >= 3 else b"")
    head += b"\0" if version >= 4 else b""
    return request(
        number, ApiKey.FETCH, version, head + struct.pack(">ih", 1, 1) + NAME + struct.pack(">iiqi", 1, 0, 0, 1000)
    )


def test_requests_in_dropped_versions_are_served_and_counted() -> None:
    world = World(1, WorldSettings(brokers=1))
    world.start()
    (proxy,) = world.proxies
    line = Line()
    world.network.host("client").connect(proxy.address, line)
    assert world.network.run(1, lambda: line.wire is not None)
    assert line.wire is not None
    produce = struct.pack(">hiih", 1, 1000, 1, 1) + NAME + struct.pack(">iii", 1, 0, 0)
    line.wire.send(
        request(1, ApiKey.API_VERSIONS, 3, b"\x07sarama\x071.40.0\x00"),
        *(fetch(2, 2), fetch(3, 3), fetch(4, 3), fetch(5, 4)),
        *(request(6, ApiKey.PRODUCE, 2, produce), request(7, ApiKey.PRODUCE, 2, produce)),
        request(8, ApiKey.METADATA, 1, struct.pack(">i", -1)),
    )
    assert world.network.run(5, lambda: len(line.answers) == 8)
    inventory = proxy.engine.old_clients.inventory
    assert inventory.requests == {(1, 2): 1, (1, 3): 2, (0, 2): 2}
    (client,) = inventory.newest_first()
    assert (client.client.name, client.client.software, client.refused) == ("client", "sarama 1.40.0", 0)
    reported = [event for _, _, event in proxy.events]
    (seen,) = [event for event in reported if isinstance(event, OldClientSeen)]
    assert (seen.api_key, seen.api_version, seen.is_refused) == (1, 2, False)
    assert not [event for event in reported if isinstance(event, OldRequestRefused)]
    assert world.errors() == []
