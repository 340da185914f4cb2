"""A client of brokers that give idempotence themselves sends versions that Kafka 4 dropped: they are counted where the
broker serves them, else refused with an error, in the order of its requests. Kafka 4 closes the connection."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest

from idemproxy.codecs import messages
from idemproxy.proxy import limits
from idemproxy.proxy.events import ClientRefused, OldClientSeen, OldRequestRefused
from idemproxy.proxy.native.raising import RaisingSession
from idemproxy.proxy.native.session import NativeSession
from idemproxy.proxy.versions import ApiKey
from testkit.virtual import wire
from testkit.virtual.line import Line, request
from testkit.virtual.releases import KEEPS_3_9, Release
from testkit.virtual.wire import VirtualWire
from testkit.virtual.world import TOPIC, World, WorldSettings

NAME = TOPIC.encode()
KAFKA_4 = replace(
    KEEPS_3_9,
    ranges={**KEEPS_3_9.ranges, ApiKey.PRODUCE: (0, 13), ApiKey.FETCH: (4, 18), ApiKey.LIST_OFFSETS: (1, 11)},
)
REFUSED = 35


class Scene:
    """A client at a proxy in front of one broker."""

    def __init__(self, release: Release, translate: str = "never") -> None:
        self.world = World(1, WorldSettings(brokers=1))
        (broker,) = self.world.cluster.brokers.values()
        broker.release = broker.next_release = release
        self.world.start()
        self.world.network.run(2)
        (self.proxy,) = self.world.proxies
        self.engine = self.proxy.engine
        self.engine.old_client_settings = replace(self.engine.old_client_settings, translate=translate)
        place_of: Any = lambda *_: ("proxy", 9092)  # noqa: E731
        accept = partial(
            self.engine.accept, None, place_of, make=partial(NativeSession, self.proxy.host, False, RaisingSession)
        )
        self.world.network.listen(self.proxy.host, self.proxy.address, accept)
        self.line = Line()
        self.world.network.host("client").connect(self.proxy.address, self.line)
        assert self.world.network.run(1, lambda: self.line.wire is not None)

    def send(self, *chunks: bytes) -> None:
        assert self.line.wire is not None
        self.line.wire.send(*chunks)
        self.world.network.run(1)

    def bodies(self) -> list[bytes]:
        """Of all answers, after correlation ids, as all of these versions have them."""
        found, data = [], bytes(self.line.data)
        while data:
            size = int.from_bytes(data[:4], "big")
            found.append(data[8 : 4 + size])
            data = data[4 + size :]
        return found

    def reported(self, kind: type) -> list[Any]:
        return [event for _, _, event in self.proxy.events if isinstance(event, kind)]

    @property
    def requests(self) -> dict[tuple[int, int], int]:
        return dict(self.engine.old_clients.inventory.requests)


def produce(number: int, *, acks: int = 1, version: int = 2, size: int = 20) -> bytes:
    part = struct.pack(">ii", 0, size) + bytes(size)
    return request(
        number,
        ApiKey.PRODUCE,
        version,
        struct.pack(">hiih", acks, 1000, 1, len(NAME)) + NAME + struct.pack(">i", 1) + part,
    )


def fetch(number: int, version: int = 3) -> bytes:
    limit = struct.pack(">i", 1000) if version >= 3 else b""
    level = b"\0" if version >= 4 else b""
    head = struct.pack(">iii", -1, 0, 0) + limit + level
    return request(
        number, ApiKey.FETCH, version, head + struct.pack(">ih", 1, 1) + NAME + struct.pack(">iiqi", 1, 0, 0, 1000)
    )


def metadata(number: int) -> bytes:
    return request(number, ApiKey.METADATA, 1, struct.pack(">ih", 1, len(NAME)) + NAME)


def codes_of(key: int, version: int, body: bytes) -> list[int]:
    answer = messages.decode_response(key, version, body)
    topics: Sequence[Any] = answer.topics if key == ApiKey.LIST_OFFSETS else answer.responses
    parts = [one for topic in topics for one in (topic.partition_responses if key == 0 else topic.partitions)]
    return [one.error_code for one in parts]


def test_versions_that_the_broker_lacks_are_refused_in_the_order_of_the_requests() -> None:
    scene = Scene(KAFKA_4)
    offsets = struct.pack(">iih", -1, 1, 1) + NAME + struct.pack(">iiqi", 1, 0, -1, 1)
    scene.send(metadata(1), fetch(2), metadata(3), produce(4), request(5, ApiKey.LIST_OFFSETS, 0, offsets), metadata(6))
    assert scene.line.answers == [1, 2, 3, 4, 5, 6]
    assert not scene.line.is_lost
    bodies = scene.bodies()
    assert codes_of(ApiKey.FETCH, 3, bodies[1]) == [REFUSED]
    assert codes_of(ApiKey.PRODUCE, 2, bodies[3]) == [REFUSED]
    assert codes_of(ApiKey.LIST_OFFSETS, 0, bodies[4]) == [REFUSED]
    assert bodies[0] == bodies[2] == bodies[5], "the broker answers these"
    assert scene.requests == {(1, 3): 1, (0, 2): 1, (2, 0): 1}
    (client,) = scene.engine.old_clients.inventory.newest_first()
    assert (client.client.name, client.refused) == ("client", 3)
    (line,) = scene.reported(OldClientSeen)
    assert (line.client, line.api_key, line.api_version, line.is_refused) == ("client", 1, 3, True)
    assert len(scene.reported(OldRequestRefused)) == 3
    assert scene.reported(ClientRefused) == [], "no line for each of them"
    assert scene.world.errors() == []


def test_versions_that_the_broker_serves_pass_and_are_counted() -> None:
    scene = Scene(KEEPS_3_9)
    scene.send(fetch(1), fetch(2), fetch(3, version=4))
    assert scene.line.answers == [1, 2, 3]
    assert codes_of(ApiKey.FETCH, 3, scene.bodies()[0]) == [0]
    assert scene.requests == {(1, 3): 2}
    (line,) = scene.reported(OldClientSeen)
    assert not line.is_refused
    assert scene.reported(OldRequestRefused) == []


def test_the_first_request_of_a_connection_may_be_one_that_is_refused() -> None:
    scene = Scene(KAFKA_4)
    scene.send(produce(1), metadata(2))
    assert scene.line.answers == [1, 2]
    (client,) = scene.engine.old_clients.inventory.newest_first()
    assert client.client.name == "client", "that of its header"


def test_the_software_is_that_of_its_first_api_versions() -> None:
    scene = Scene(KAFKA_4)
    scene.send(request(1, ApiKey.API_VERSIONS, 3, b"\x07sarama\x071.40.0\x00"), fetch(2))
    assert scene.line.answers == [1, 2]
    (client,) = scene.engine.old_clients.inventory.newest_first()
    assert client.client.software == "sarama 1.40.0"


def test_a_request_that_comes_in_pieces_is_refused_once_and_nothing_of_it_stays() -> None:
    scene = Scene(KAFKA_4)
    whole = produce(1, size=50_000)
    for start in range(0, len(whole), 10_000):
        assert scene.line.answers == []
        scene.send(whole[start : start + 10_000])
    assert scene.line.answers == [1]
    assert scene.requests == {(0, 2): 1}
    assert scene.engine.memory.unfinished_bytes == scene.engine.memory.bytes_held == 0


def test_without_a_response_the_connection_is_closed_and_the_log_says_why() -> None:
    scene = Scene(KAFKA_4)
    scene.send(metadata(1), produce(2, acks=0), metadata(3))
    assert scene.line.answers == [1]
    assert scene.line.is_lost
    (refused,) = scene.reported(ClientRefused)
    assert refused.what.startswith("Produce 2 is not served by the broker")
    assert scene.requests == {(0, 2): 1}


def test_a_request_too_large_to_be_kept_is_refused_before_it_has_arrived() -> None:
    scene = Scene(KAFKA_4)
    scene.send(produce(1, size=limits.CONDITIONAL_REFUSED_BYTES_MAX)[:1000])
    assert scene.line.is_lost
    assert scene.requests == {(0, 2): 1}
    assert scene.engine.memory.unfinished_bytes == 0


@pytest.mark.parametrize("version", [-1, 99])
def test_a_version_that_no_kafka_has_is_no_old_one(version: int) -> None:
    scene = Scene(KAFKA_4)
    scene.send(request(1, ApiKey.FETCH, version))
    assert scene.requests == {}


def offsets(number: int, timestamp: int = -1) -> bytes:
    """ListOffsets 0, which is raised."""
    body = struct.pack(">iih", -1, 1, 1) + NAME + struct.pack(">iiqi", 1, 0, timestamp, 1)
    return request(number, ApiKey.LIST_OFFSETS, 0, body)


def test_any_order_of_raised_refused_and_passing_requests_in_any_pieces_is_answered_in_order() -> None:
    kinds = {"o": offsets, "r": lambda number: request(number, ApiKey.API_VERSIONS, 99), "p": metadata}
    for order in map("".join, product(kinds, repeat=4)):
        scene = Scene(KAFKA_4, "auto")
        whole = b"".join(kinds[kind](number) for number, kind in enumerate(order, 1))
        scene.send(whole[:70], whole[70:75], whole[75:])
        assert scene.line.answers == [1, 2, 3, 4], order
        bodies = dict(zip(order, scene.bodies(), strict=True))
        assert codes_of(ApiKey.LIST_OFFSETS, 0, bodies["o"]) == [0] if "o" in bodies else True
        assert scene.engine.memory.bytes_held == scene.engine.memory.unfinished_bytes == 0
        assert scene.world.errors() == []


@pytest.mark.parametrize("read_bytes", [1, 7, 50, 65_536])
def test_answers_that_come_in_pieces_are_whole_before_the_next_request_is_raised(
    monkeypatch: pytest.MonkeyPatch, read_bytes: int
) -> None:
    monkeypatch.setattr(wire, "RECEIVE_BYTES_MAX", read_bytes)
    scene = Scene(KAFKA_4, "auto")
    count = 100 if read_bytes >= 50 else 10
    scene.send(b"".join(metadata(number) if number % 3 else offsets(number) for number in range(1, count + 1)))
    assert scene.world.network.run(60, lambda: len(scene.line.answers) == count)
    assert scene.line.answers == list(range(1, count + 1))
    assert scene.engine.memory.bytes_held == scene.engine.memory.unfinished_bytes == 0


def test_a_large_request_that_has_to_wait_is_not_read_meanwhile() -> None:
    """Otherwise a few hundred clients that wait for records fill the memory of all."""
    scene = Scene(KAFKA_4, "auto")
    waiting = struct.pack(">iiiib", -1, 5000, 1, 1000, 0) + struct.pack(">ih", 1, len(NAME)) + NAME
    large = request(2, ApiKey.LIST_OFFSETS, 0, struct.pack(">ii", -1, 0) + bytes(900_000))
    scene.send(request(1, ApiKey.FETCH, 4, waiting + struct.pack(">iiqi", 1, 0, 0, 1000)), large)
    assert scene.line.answers == []
    held_bytes = scene.engine.memory.bytes_held + scene.engine.memory.unfinished_bytes
    assert held_bytes <= 2 * wire.RECEIVE_BYTES_MAX


def test_what_came_in_front_of_a_fin_is_raised_and_the_rest_of_a_request_is_not_waited_for() -> None:
    for steps in range(1, 12):
        scene = Scene(KAFKA_4, "auto")
        line = scene.line.wire
        assert isinstance(line, VirtualWire)
        line.send(metadata(1), offsets(2), metadata(3), offsets(4), offsets(5)[:-3])
        scene.world.network.run(steps * 0.0005)
        line.half_close()
        assert scene.world.network.run(5, partial(getattr, scene.line, "is_lost"))
        assert scene.line.answers == [1, 2, 3, 4], steps
        assert scene.engine.memory.bytes_held == scene.engine.memory.unfinished_bytes == 0
        assert not scene.engine.sessions


def test_nothing_stays_of_a_client_that_leaves_while_its_request_is_raised() -> None:
    for sent in (offsets(1), offsets(1) + offsets(2) + metadata(3), metadata(1) + offsets(2)[:-1]):
        for steps in range(12):
            scene = Scene(KAFKA_4, "auto")
            assert scene.line.wire is not None
            scene.line.wire.send(sent)
            scene.world.network.run(steps * 0.0005)
            scene.line.wire.reset()
            scene.world.network.run(2)
            assert scene.engine.memory.bytes_held == scene.engine.memory.unfinished_bytes == 0
            assert not scene.engine.sessions
            assert scene.world.errors() == []


def test_a_broker_that_goes_while_a_request_is_raised_takes_the_connection_along() -> None:
    scene = Scene(KAFKA_4, "auto")
    assert scene.line.wire is not None
    (number,) = scene.world.cluster.brokers
    scene.send(metadata(1))
    scene.line.wire.send(offsets(2))
    scene.world.cluster.crash_broker(number)
    assert scene.world.network.run(5, lambda: scene.line.is_lost)
    assert scene.engine.memory.bytes_held == 0


def test_garbage_in_a_request_that_is_raised_is_refused_and_what_came_before_it_is_answered() -> None:
    scene = Scene(KAFKA_4, "auto")
    scene.send(metadata(1), request(2, ApiKey.LIST_OFFSETS, 0, b"\0\0\0\1\x7f\xff\xff\xff"), metadata(3))
    assert scene.line.is_lost
    assert scene.line.answers == [1]
    (refused,) = scene.reported(ClientRefused)
    assert refused.what.startswith("ListOffsets: ")


def test_always_raises_what_the_broker_serves_itself() -> None:
    scene = Scene(KEEPS_3_9, "always")
    scene.send(offsets(1))
    assert codes_of(ApiKey.LIST_OFFSETS, 0, scene.bodies()[0]) == [0]
    (line,) = scene.reported(OldClientSeen)
    assert line.is_raised
