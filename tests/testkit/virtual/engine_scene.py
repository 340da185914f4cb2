"""A client of the engine at a proxy, in front of a broker whose end for this client the test holds itself. What the
engine appends goes to the virtual cluster."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from idemproxy.codecs.primitives import encode_unsigned_varint
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.proxy.broker.served import Idempotence
from idemproxy.proxy.native.engine_session import EngineSession
from idemproxy.proxy.native.raising import RaisingSession
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import batch

from .broker_faults import BrokerFault, BrokerFaultRates
from .line import request
from .raising_scene import TIMEOUT_MS, RaisingScene
from .releases import RAISED_3_9
from .world import TOPIC

STORES_V2 = replace(RAISED_3_9, ranges={**RAISED_3_9.ranges, ApiKey.PRODUCE: (0, 13)})
INIT = request(1, ApiKey.INIT_PRODUCER_ID, 4, b"\0" + struct.pack(">iqh", 0, -1, -1) + b"\0")


def plain(*values: bytes, partition: int = 0, topic: str = TOPIC) -> tuple[str, int, bytes]:
    """A batch without a producer id."""
    return topic, partition, without_id(-1, -1, *values)


def without_id(epoch: int, sequence: int, *values: bytes) -> bytes:
    """A batch without a producer id, but with such numbers."""
    records = [Record(index, 1_700_000_000_000, None, value) for index, value in enumerate(values or (b"plain",))]
    return encode_batch(records, producer_id=-1, producer_epoch=epoch, base_sequence=sequence)


def produce(
    number: int, *parts: tuple[str, int, bytes], version: int = 8, acks: int = -1, transactional_id: str | None = None
) -> bytes:
    """A request with these batches, each topic once for each."""
    name = None if transactional_id is None else transactional_id.encode()
    if version < 9:
        whose = b"\xff\xff" if name is None else struct.pack(">h", len(name)) + name
        body = whose + struct.pack(">hii", acks, TIMEOUT_MS, len(parts))
        for topic, partition, records in parts:
            head = struct.pack(">h", len(topic)) + topic.encode() + struct.pack(">iii", 1, partition, len(records))
            body += head + records
        return request(number, ApiKey.PRODUCE, version, body)
    whose = b"\0" if name is None else encode_unsigned_varint(len(name) + 1) + name
    body = whose + struct.pack(">hi", acks, TIMEOUT_MS) + encode_unsigned_varint(len(parts) + 1)
    for topic, partition, records in parts:
        named = bytes.fromhex(topic) if version >= 13 else encode_unsigned_varint(len(topic) + 1) + topic.encode()
        size = encode_unsigned_varint(len(records) + 1)
        body += named + b"\x02" + struct.pack(">i", partition) + size + records + b"\0\0"
    return request(number, ApiKey.PRODUCE, version, body + b"\0")


class EngineScene(RaisingScene):
    """The brokers store format v2, and have the versions of Kafka 4 but that they still know the old ones.
    ``engine_topics``: patterns of topics beside which the brokers give idempotence; None: they do on no topic."""

    def __init__(self, engine_topics: Sequence[str] | None = None) -> None:
        super().__init__(release=STORES_V2)
        asks = self.connect()
        assert asks.wire is not None
        asks.wire.send(INIT)
        self.run()
        self.producer_id: int = struct.unpack_from(">q", asks.data, 15)[0]
        """Of the engine, and noted as one of the brokers where these issue them."""
        asks.wire.close()
        self.run()
        if engine_topics is not None:
            assert self.line.wire is not None
            self.line.wire.close()
            self.engine.mode.engine_topics = tuple(engine_topics)
            self.engine.serve_as(Idempotence.NATIVE)
            self.line = self.connect()
            self.engine.note_issued(self.producer_id, self.session, lambda: None)
            self.run()

    def own(self, sequence: int = 0, *values: bytes, partition: int = 0, topic: str = TOPIC) -> tuple[str, int, bytes]:
        """A batch for the engine."""
        return topic, partition, batch(list(values or (b"own",)), producer_id=self.producer_id, sequence=sequence)

    def handler(self, upstream: Any, requires_login: bool) -> Any:
        """Of a client of the engine."""
        return partial(EngineSession, upstream, RaisingSession)

    def slow(self, seconds: float) -> None:
        """From now on each append takes so long."""
        slow = BrokerFaultRates(share=1.0, kinds=(BrokerFault.SLOW,), slow=(seconds, seconds))
        self.world.cluster.rates = slow if seconds else BrokerFaultRates()

    @property
    def session(self) -> EngineSession:
        """Of the only client."""
        (connection,) = self.engine.sessions
        handler = connection.handler
        assert isinstance(handler, EngineSession)
        return handler

    def stored(self, partition: int = 0) -> int:
        """Records in a log of the cluster."""
        return self.world.cluster.log(TOPIC, partition).end_offset

    def codes(self) -> list[int]:
        """The error code of each answer to a Produce of one partition of the topic."""
        data, found = bytes(self.line.data), []
        named = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
        while (at := data.find(named)) >= 0:
            data = data[at + len(named) :]
            found.append(int(struct.unpack_from(">iih", data)[2]))
        return found
