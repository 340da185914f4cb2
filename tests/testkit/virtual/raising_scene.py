"""An old client at a proxy, in front of brokers whose ends the test holds itself: it sees each request of the proxy,
and answers it, or does not."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from idemproxy.codecs import messages
from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.produce import PartitionAnswer, PartitionRecords, encode_response, parse_request
from idemproxy.proxy.native.raising import RaisingSession
from idemproxy.proxy.native.session import NativeSession
from idemproxy.proxy.process.descriptors import ForClients
from idemproxy.proxy.versions import ApiKey
from idemproxy.reactor import Address, Endpoint

from .broker_end import BrokerEnd
from .line import Line, request
from .network import VirtualReactor
from .releases import KEEPS_3_9, Release
from .world import TOPIC, World, WorldSettings

NAME = TOPIC.encode()
KAFKA_4 = replace(
    KEEPS_3_9,
    ranges={**KEEPS_3_9.ranges, ApiKey.PRODUCE: (0, 13), ApiKey.FETCH: (4, 18), ApiKey.LIST_OFFSETS: (1, 11)},
)
ID = 4000
TIMEOUT_MS = 30_000


def message_set(*values: bytes) -> bytes:
    """In format v1."""
    return encode_set([(None, value, 1_700_000_000_000) for value in values], magic=1)


def produce(number: int, *sets: bytes, acks: int = -1, timeout_ms: int = TIMEOUT_MS) -> bytes:
    """Produce 2 of these sets to the partitions from 0 on."""
    parts = b"".join(struct.pack(">ii", index, len(one)) + one for index, one in enumerate(sets))
    head = struct.pack(">hiih", acks, timeout_ms, 1, len(NAME)) + NAME + struct.pack(">i", len(sets))
    return request(number, ApiKey.PRODUCE, 2, head + parts)


def fetch(number: int, version: int = 3, wait_ms: int = 0, bytes_max: int = 1000) -> bytes:
    """Of partition 0 from the beginning."""
    head = struct.pack(">iii", -1, wait_ms, 1) + (struct.pack(">i", bytes_max) if version >= 3 else b"")
    part = struct.pack(">ih", 1, len(NAME)) + NAME + struct.pack(">iiqi", 1, 0, 0, bytes_max)
    return request(number, ApiKey.FETCH, version, head + part)


def metadata(number: int) -> bytes:
    """About the topic."""
    return request(number, ApiKey.METADATA, 1, struct.pack(">ih", 1, len(NAME)) + NAME)


class _ToEnds:
    """Opens connections to ends that the scene keeps, in place of those to brokers."""

    def __init__(self, host: VirtualReactor, begun: Callable[[], None]) -> None:
        self._host, self._begun = host, begun
        self.now, self.later, self.at_flush = host.now, host.later, host.at_flush

    def connect(self, address: Address, endpoint: Endpoint) -> None:
        """To any address of a broker."""
        self._begun()
        self._host.connect(("ends", 1), endpoint)


class RaisingScene:
    """``ends``: the brokers' ends of connections for the client, in the order in which they were opened."""

    def __init__(self, *, requires_login: bool = False, brokers: int = 1, release: Release = KAFKA_4) -> None:
        self.world = World(1, WorldSettings(brokers=brokers))
        for broker in self.world.cluster.brokers.values():
            broker.release = broker.next_release = release
        self.broker = broker
        self.world.start()
        self.world.network.run(2)
        (self.proxy,) = self.world.proxies
        self.engine = self.proxy.engine
        self.engine.old_client_settings = replace(self.engine.old_client_settings, translate="auto")
        self.ends: list[BrokerEnd] = []
        self.connects = 0
        self.world.network.listen(self.world.network.host("ends"), ("ends", 1), self._accept)
        self.why_no_room: str | None = None
        """Why no connection to a broker is opened."""
        upstream: Any = ForClients(_ToEnds(self.proxy.host, self._count), lambda: self.why_no_room)
        make = self.handler(upstream, requires_login)
        place_of: Any = lambda *_: ("proxy", 9092)  # noqa: E731
        accept = partial(self.engine.accept, self.broker.number, place_of, make=make)
        self.world.network.listen(self.proxy.host, self.proxy.address, accept)
        self.line = self.connect()

    def handler(self, upstream: Any, requires_login: bool) -> Any:
        """Makes the handler of each connection."""
        return partial(NativeSession, upstream, requires_login, RaisingSession)

    def connect(self) -> Line:
        """Another client."""
        line = Line()
        self.world.network.host("client").connect(self.proxy.address, line)
        assert self.world.network.run(1, lambda: line.wire is not None)
        return line

    def _accept(self) -> BrokerEnd:
        self.ends.append(BrokerEnd())
        return self.ends[-1]

    def _count(self) -> None:
        self.connects += 1

    # ------------------------------------------------------------------ the client
    def send(self, *chunks: bytes) -> None:
        """Of the first client."""
        assert self.line.wire is not None
        self.line.wire.send(*chunks)
        self.run()

    def run(self, seconds: float = 0.5) -> None:
        self.world.network.run(seconds)

    def code(self) -> int:
        """Of the last answer, to a Produce of one partition."""
        size = len(self.line.data) - self.line.data.rindex(NAME) - len(NAME)
        _, _, code = struct.unpack_from(">iih", self.line.data, len(self.line.data) - size)
        return int(code)

    # ------------------------------------------------------------------ the brokers
    def waiting(self, key: int) -> BrokerEnd:
        """The newest end whose oldest request is of this API."""
        return next(end for end in reversed(self.ends) if end.keys[:1] == [key])

    def keys(self) -> list[list[int]]:
        """Of what waits at each end."""
        return [end.keys for end in self.ends]

    def answer(self, key: int, body: bytes) -> None:
        """Answer the newest request of this API."""
        self.waiting(key).answer(body)
        self.run()

    def give_id(self) -> None:
        """Answer InitProducerId."""
        self.answer(ApiKey.INIT_PRODUCER_ID, struct.pack(">ihqh", 0, 0, ID, 0))

    def answer_produce(self, code: int = 0, offset: int = 7) -> None:
        """Answer a Produce, the same for each of its partitions."""
        end = self.waiting(ApiKey.PRODUCE)
        self.answer(ApiKey.PRODUCE, self.produce_answer(end.frames[0], code, offset))

    @staticmethod
    def produce_answer(frame: bytes, code: int = 0, offset: int = 7) -> bytes:
        """To this request, of version 8."""
        parts = RaisingScene.parts(frame)
        return encode_response(8, [PartitionAnswer(one.topic, one.partition, code, offset) for one in parts])

    @staticmethod
    def parts(frame: bytes) -> list[PartitionRecords]:
        """Of this request, of version 8."""
        return parse_request(frame, 8 + 2 + int.from_bytes(frame[8:10], "big"), 8).partitions

    def answer_metadata(self, version: int, leader: int) -> None:
        """The broker of this scene, and who leads partitions 0 and 1."""
        one = {"error_code": 0, "leader_id": leader, "replica_nodes": [leader], "isr_nodes": [leader]}
        body = messages.encode_response(
            ApiKey.METADATA,
            version,
            throttle_time_ms=0,
            brokers=[{"node_id": self.broker.number, "host": "h", "port": 1, "rack": None}],
            cluster_id=None,
            controller_id=0,
            topics=[
                {
                    "error_code": 0,
                    "name": TOPIC,
                    "is_internal": False,
                    "partitions": [{**one, "partition_index": index} for index in range(2)],
                }
            ],
        )
        self.answer(ApiKey.METADATA, body)

    def log_in(self) -> None:
        """The client authenticates at its broker."""
        self.send(request(1, ApiKey.SASL_HANDSHAKE, 1, b"\0\5PLAIN"))
        self.answer(ApiKey.SASL_HANDSHAKE, b"\0\0" + struct.pack(">ih", 1, 5) + b"PLAIN")
        self.send(request(2, ApiKey.SASL_AUTHENTICATE, 0, struct.pack(">i", 4) + b"\0a\0b"))
        self.answer(ApiKey.SASL_AUTHENTICATE, b"\0\0\xff\xff" + struct.pack(">i", 0))

    # ------------------------------------------------------------------ what stays
    def assert_nothing_stays(self) -> None:
        """All counters are at 0, no id is lent, nothing goes wrong inside."""
        memory = self.engine.memory
        assert memory.bytes_held == memory.unfinished_bytes == memory.answer_bytes_due == memory.answer_bytes_held == 0
        for pool in self.engine.old_producers.pools:
            assert pool.known == len(pool._idle) + len(pool._reserved)
            assert not pool._used
        assert not self.engine.old_producers.departed._open
        assert self.world.errors() == []
