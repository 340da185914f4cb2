"""Batches with a producer id that want no answer: they are held like any other as long as they wait, though nothing
that they have asked for is open."""

from __future__ import annotations

import pytest

from idemproxy.proxy.settings.config import Caps
from idemproxy.proxy.versions import ApiKey
from testkit.real.raw_client import RawClient, batch
from testkit.virtual.guest import Introduced
from testkit.virtual.line import Line, request
from testkit.virtual.world import TOPIC, World, WorldSettings

HELD_MAX = 200_000
UNSENT_MAX = 50_000
RECORD_BYTES = 10_000
MANY = 100
ONE_READ = 2 * 64 * 1024
"""More may come in one go than is asked whether there is room for it."""


def produce(number: int, acks: int = 0) -> bytes:
    """The first batch of a producer."""
    records = batch([bytes(RECORD_BYTES)], producer_id=1_000 + number, sequence=0)
    body = RawClient.produce_body([(TOPIC, 0, records)], version=3, acks=acks, timeout_ms=2_000_000_000)
    return request(number, ApiKey.PRODUCE, 3, body)


class Scene:
    """A proxy whose broker takes its time, and a client who does not."""

    def __init__(self, is_guest: bool) -> None:
        self.world = World(1, WorldSettings(brokers=1, has_principals=is_guest, has_guests=is_guest))
        if self.world.cluster.users is not None:
            self.world.cluster.users |= {"raw": True}
        self.world.start()
        self.run(2)
        (self.proxy,) = self.world.proxies
        self.engine = self.proxy.engine
        self.engine.set_caps(Caps(request_bytes_total_max=HELD_MAX, client_response_bytes_max=UNSENT_MAX))
        self.is_guest = is_guest

    def line(self) -> Line:
        line = Line()
        host = self.world.network.host("client")
        host.connect(self.proxy.addresses[0], Introduced("raw", line) if self.is_guest else line)
        assert self.world.network.run(5, lambda: line.wire is not None)
        return line

    @property
    def batch_bytes(self) -> int:
        """Of all that waits."""
        return sum(
            len(one.records) for sequencer in self.engine.sequencers for one in (*sequencer.queue, *sequencer.out)
        )

    def run(self, seconds: float) -> None:
        self.world.network.run(seconds)


@pytest.mark.parametrize("is_guest", [False, True])
def test_a_flood_of_them_waits_outside_and_all_of_it_is_appended(is_guest: bool) -> None:
    scene = Scene(is_guest)
    line = scene.line()
    assert line.wire is not None
    stored = scene.world.cluster.log(TOPIC, 0).end_offset
    line.wire.send(b"".join(map(produce, range(MANY))))
    most = 0
    for _ in range(200):
        scene.run(0.005)
        assert scene.engine.memory.bytes_held >= scene.batch_bytes
        most = max(most, scene.batch_bytes)
    assert 2 * RECORD_BYTES < most < UNSENT_MAX + ONE_READ
    scene.run(60)
    assert scene.world.cluster.log(TOPIC, 0).end_offset == stored + MANY
    assert scene.engine.memory.bytes_held == 0
    assert not line.is_lost
    assert scene.world.errors() == []


def test_what_a_client_leaves_behind_counts_too() -> None:
    scene = Scene(is_guest=False)
    line = scene.line()
    assert line.wire is not None
    line.wire.send(b"".join(map(produce, range(4))))
    line.wire.close()
    scene.run(0.02)
    assert scene.engine.memory.bytes_held >= scene.batch_bytes > 0
    scene.run(30)
    assert scene.world.cluster.log(TOPIC, 0).end_offset == 4
    assert scene.engine.memory.bytes_held == 0
