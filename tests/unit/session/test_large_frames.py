"""Large requests and answers are read in few pieces: each recv, and each pass of the event loop, costs as much as the
copy of 64 KiB."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable

import pytest

from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.produce import encode_request
from testkit.virtual.line import Line, request
from testkit.virtual.network import NetworkSettings
from testkit.virtual.world import TOPIC, World, WorldSettings

MEGABYTE = 990_000
READS = 5
"""64 KiB, which tell the size, and then 256 KiB each time. With 64 KiB each time it is 16."""
FETCH, PRODUCE = 1, 0


def produce(correlation_id: int) -> bytes:
    """A megabyte in message format v1, without a producer id."""
    chunks = encode_request(2, 1, 10_000, [(TOPIC, 0, encode_set([(None, bytes(MEGABYTE), 0)], magic=1))])
    return request(correlation_id, PRODUCE, 2, b"".join(map(bytes, chunks)))


def fetch(correlation_id: int) -> bytes:
    """Of all that the log has."""
    name = TOPIC.encode()
    body = struct.pack(">iiiih", -1, 0, 1, 1, len(name)) + name + struct.pack(">iiqi", 1, 0, 0, 2 * MEGABYTE)
    return request(correlation_id, FETCH, 2, body)


@pytest.mark.parametrize("asked", [produce, fetch])
def test_a_megabyte_is_read_in_few_pieces(asked: Callable[[int], bytes]) -> None:
    network = NetworkSettings(window_bytes=4 * MEGABYTE, split_chance=0, partial_write_chance=0)
    world = World(1, WorldSettings(brokers=1, network=network))
    world.start()
    (proxy,) = world.proxies
    log = world.cluster.log(TOPIC, 0)
    log.append(encode_set([(None, bytes(MEGABYTE), 0)], magic=1), 0.0)
    log.high_watermark = log.end_offset
    client = Line()
    world.network.host("client").connect(proxy.address, client)
    world.network.run(1)
    trace: list[str] = []
    world.network.trace = trace

    assert client.wire is not None
    client.wire.send(asked(1))
    world.network.run(2)

    assert client.answers == [1]
    reads = Counter(words[3] for line in trace if (words := line.split())[1:3] == [proxy.name, "read"])
    assert max(reads.values()) == READS
