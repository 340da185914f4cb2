"""The limit of what requests of clients may take, with those that have not arrived completely."""

from __future__ import annotations

import pytest

from idemproxy.proxy.settings.config import Caps
from idemproxy.proxy.versions import ApiKey
from idemproxy.state.producer_ids import block_of, pack_block
from idemproxy.state.store import block_key
from testkit.real.clients.raw_client import RawClient, batch
from testkit.virtual.line import Line, request
from testkit.virtual.redis_server import Stored
from testkit.virtual.world import TOPIC, World, WorldSettings

HELD_MAX = 100_000
WHOLE = request(7, 18)


class Scene:
    def __init__(self) -> None:
        self.world = World(1, WorldSettings(brokers=1))
        self.world.start()
        (self.proxy,) = self.world.proxies
        self.engine = self.proxy.engine

    def client(self) -> Line:
        client = Line()
        self.world.network.host("client").connect(self.proxy.address, client)
        self.world.network.run(1)
        return client

    def send(self, client: Line, data: bytes) -> None:
        assert client.wire is not None
        client.wire.send(data)
        self.world.network.run(1)

    def unfinished(self, size: int, of: int = 50_000_000) -> Line:
        """A client whose request of ``of`` bytes has arrived so far."""
        client = self.client()
        self.send(client, of.to_bytes(4, "big") + bytes(size))
        return client


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.proxy.engine.set_caps(Caps(request_bytes_total_max=HELD_MAX))
    return scene


def test_unfinished_requests_count_and_nothing_new_is_read_until_they_have_gone(scene: Scene) -> None:
    first, _second = scene.unfinished(60_000), scene.unfinished(60_000)
    late = scene.client()
    scene.send(late, WHOLE)
    scene.send(late, WHOLE)
    assert late.answers == []
    assert first.wire is not None
    first.wire.reset()
    scene.world.network.run(1)
    assert late.answers == [7, 7]


def test_a_request_that_has_begun_may_end_though_there_is_no_room(scene: Scene) -> None:
    scene.unfinished(90_000)
    half = scene.client()
    scene.send(half, WHOLE[:9])
    scene.unfinished(60_000)
    scene.send(half, WHOLE[9:])
    assert half.answers == [7]
    assert not half.is_lost


def test_unfinished_requests_that_fill_the_memory_limit_end_gradually_without_a_disconnect(scene: Scene) -> None:
    """Each is refused at once, so that it makes room when it has come."""
    size, missing = 40_000, 5_000
    refused = request(7, ApiKey.PRODUCE, 3, RawClient.produce_body([(TOPIC, 0, bytes(size))]))
    clients = [scene.client() for _ in range(8)]
    highest = 0
    for data in (refused[:-missing], refused[-missing:]):
        for client in clients:
            assert client.wire is not None
            client.wire.send(data)
        for _ in range(500):
            scene.world.network.run(0.01)
            highest = max(highest, scene.engine.memory.bytes_held)
    assert [client.answers for client in clients] == [[7]] * 8
    assert HELD_MAX < highest < HELD_MAX + size
    assert scene.engine.memory.bytes_held == scene.engine.memory.unfinished_bytes == 0


def test_an_unfinished_request_waits_while_complete_ones_that_will_be_answered_fill_the_room(scene: Scene) -> None:
    for broker in scene.world.cluster.brokers.values():
        broker.host.pause(1_000)
    first, second = scene.client(), scene.client()
    records = batch([bytes(range(250)) * 200], producer_id=1_000)
    instance = scene.engine.context.instance  # an id that was issued: any other one gets NOT_LEADER_OR_FOLLOWER at once
    claim = Stored(pack_block(instance.data_generation, 0), None)
    scene.world.redis.server.data[block_key(instance.cluster, block_of(1_000))] = claim
    scene.send(second, WHOLE[:-1])
    scene.send(first, request(7, ApiKey.PRODUCE, 3, RawClient.produce_body([(TOPIC, 0, records)], timeout_ms=4_000)))
    assert scene.engine.memory.bytes_held > HELD_MAX
    scene.send(second, WHOLE[-1:])
    assert second.answers == []
    scene.world.network.run(30)
    assert (first.answers, second.answers) == ([7], [7])


def test_many_small_requests_in_one_read_are_taken_only_as_memory_allows(scene: Scene) -> None:
    """Ten come in each read, and their broker hangs."""
    clients = [scene.client() for _ in range(10)]
    records = [batch([b"x"], producer_id=1_000 + number) for number in range(100)]
    for broker in scene.world.cluster.brokers.values():
        broker.host.pause(20)
    for number, client in enumerate(clients):
        bodies = [RawClient.produce_body([(TOPIC, 0, one)], timeout_ms=100_000) for one in records[number::10]]
        assert client.wire is not None
        client.wire.send(b"".join(request(7, ApiKey.PRODUCE, 3, body) for body in bodies))
    highest = 0
    for _ in range(200):
        scene.world.network.run(0.01)
        highest = max(highest, scene.engine.memory.bytes_held)
    assert HELD_MAX / 2 < highest < 1.25 * HELD_MAX
    assert scene.world.network.run(120, lambda: all(client.answers == [7] * 10 for client in clients))


def test_a_client_that_continues_a_request_far_above_the_limit_is_disconnected(scene: Scene) -> None:
    first, second = scene.unfinished(60_000), scene.unfinished(60_000)
    scene.send(second, bytes(90_000))
    assert second.is_lost
    assert not first.is_lost
    scene.send(first, bytes(10_000))
    assert not first.is_lost, "there is room again"
    late = scene.client()
    scene.send(late, WHOLE)
    assert late.answers == [7]
