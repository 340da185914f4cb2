"""A client of the virtual cluster that speaks kafka-python's bytes, and a small world for it.

Owns the requests and how their answers are read. Never judges them: that is done where the cluster is tested.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from typing import Any

from idemproxy.codecs.batch_marker import Identity, encode_batch_marker
from idemproxy.codecs.compression import Codec
from idemproxy.codecs.convert import HeaderPolicy
from idemproxy.codecs.headers import encode_request_header
from idemproxy.codecs.record_batch import Record, encode_batch
from idemproxy.reactor import Wire
from testkit.stage.wrappers import to_wrapper
from testkit.virtual.broker_faults import BrokerFault, BrokerFaultRates
from testkit.virtual.cluster import ClusterSettings, VirtualCluster
from testkit.virtual.network import Network, NetworkSettings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python 3.11 warns of
    from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest
    from kafka.protocol.producer import ProduceRequest, ProduceResponse

TOPIC = "t"
POLICY = HeaderPolicy()


class Client:
    """Sends requests as kafka-python encodes them and keeps the frames that come back."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        self.data = b""
        self.frames: list[bytes] = []
        self.reason: str | None = None

    def connected(self, wire: Wire) -> None:
        self.wire = wire

    def received(self, data: bytes) -> None:
        self.data += data
        while len(self.data) >= 4 and len(self.data) >= 4 + struct.unpack(">i", self.data[:4])[0]:
            end = 4 + struct.unpack(">i", self.data[:4])[0]
            self.frames.append(self.data[4:end])
            self.data = self.data[end:]

    def lost(self, reason: str) -> None:
        self.reason = reason

    def send(self, request: Any, version: int, correlation_id: int = 7) -> None:
        assert self.wire is not None
        header = encode_request_header(request.API_KEY, version, correlation_id, "test")
        body = bytes(request.encode(version=version))
        self.wire.send(struct.pack(">i", len(header) + len(body)), header, body)


class World:
    """A cluster of two brokers with one topic of two partitions: partition 0 is led by broker 1, partition 1 by 2."""

    def __init__(self, *, settings: ClusterSettings | None = None, rates: BrokerFaultRates | None = None) -> None:
        self.network = Network(1, NetworkSettings(truncation_chance=0))
        self.cluster = VirtualCluster(self.network, {TOPIC: 2}, settings=settings, rates=rates)
        self.log = self.cluster.log(TOPIC, 0)
        self.host = self.network.host("client")

    def connect(self, broker: int = 1) -> Client:
        client = Client()
        self.host.connect(self.cluster.brokers[broker].address, client)
        assert self.network.run(1, lambda: client.wire is not None or client.reason is not None)
        return client

    def ask(self, client: Client, request: Any, version: int, answer: Any, *, seconds: float = 20.0) -> Any:
        """The answer, decoded by kafka-python, or None when none came in time."""
        before = len(client.frames)
        client.send(request, version)
        if not self.network.run(seconds, lambda: len(client.frames) > before):
            return None
        frame = client.frames[-1]
        assert struct.unpack(">i", frame[:4])[0] == 7
        return answer.decode(frame[4:], version=version)

    def fault(self, fault: BrokerFault, number: int = 1) -> None:
        """The produce request with this number meets the fault."""
        self.cluster.choose_fault = lambda seen: fault if seen.number == number else BrokerFault.NONE

    def produce(self, client: Client, message_set: bytes | None, *, acks: int = -1, version: int = 2) -> Any:
        """(error code, base offset), or None when there was no answer."""
        answer = self.ask(client, produce_request([(0, message_set)], acks=acks), version, ProduceResponse)
        if answer is None:
            return None
        (partition,) = answer.responses[0].partition_responses
        return partition.error_code, partition.base_offset


def produce_request(parts: Sequence[tuple[int, bytes | None]], *, acks: int = -1, timeout_ms: int = 1500) -> Any:
    data = ProduceRequest.TopicProduceData
    rows = [data.PartitionProduceData(index=number, records=message_set) for number, message_set in parts]
    topic = data(name=TOPIC, partition_data=rows)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


def list_offsets_request(replica_id: int, time: int = -1) -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic
    part = topic.ListOffsetsPartition(partition_index=0, timestamp=time, max_num_offsets=1)
    return ListOffsetsRequest(replica_id=replica_id, topics=[topic(name=TOPIC, partitions=[part])])


def fetch_request(offset: int, *, partition_bytes: int = 1_000_000, wait_ms: int = 0) -> Any:
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_bytes)
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1_000_000,
        topics=[topic(topic=TOPIC, partitions=[part])],
    )


def wrapper(values: Sequence[bytes], sequence: int = 0) -> bytes:
    """One wrapper with a batch marker, as the proxy sends it."""
    records = [Record(index, 1000 + index, b"k", value) for index, value in enumerate(values)]
    batch = encode_batch(records, producer_id=5, producer_epoch=0, base_sequence=sequence)
    batch_marker = encode_batch_marker([Identity(5, 0, sequence, len(values))])
    converted = to_wrapper(
        [memoryview(batch)], key=batch_marker, codec=Codec.NONE, policy=POLICY, output_bytes_max=1_000_000
    )
    return bytes(converted.message_set)


def fetched(world: World, client: Client, offset: int, version: int = 3, **options: int) -> Any:
    """The one partition's answer to a fetch."""
    answer = world.ask(client, fetch_request(offset, **options), version, FetchResponse)
    (partition,) = answer.responses[0].partitions
    return partition
