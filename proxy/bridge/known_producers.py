"""The question for the last batch of a producer that a leader knows: body out, typed answer in. Owns no connection and
decides nothing.

Brokers have it since Kafka 2.8 (DescribeProducers, KIP-664); a leader answers from the state by which it checks
sequences. Source: DescribeProducersRequest.json and DescribeProducersResponse.json."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from ...codecs.errors import Malformed, UnsupportedVersion
from ...reactor import Buffer
from ..versions import ApiKey, BrokerRanges
from .fields import INT32, NO_TAGS, Reader, compact_nullable_string, uvarint

_ONE = uvarint(2)
"""The length of a compact array with one entry."""
_PRODUCER = Struct(">qiiqiq")
"""Producer id, epoch, last sequence, last timestamp, coordinator epoch, start of its transaction."""


@dataclass(frozen=True, slots=True)
class KnownProducer:
    """``error_code``: the broker's for the partition. ``last_sequence``: of the last batch that the leader knows; None:
    it does not know the producer, and takes any sequence of it (KIP-360)."""

    error_code: int
    last_sequence: int | None = None


@dataclass(frozen=True, slots=True)
class AskKnownProducer:
    """What does the leader of this partition know of the producer? DescribeProducers v0."""

    topic: str
    partition: int
    producer_id: int

    @property
    def api_key(self) -> int:
        """DescribeProducers."""
        return ApiKey.DESCRIBE_PRODUCERS

    def version_for(self, ranges: BrokerRanges) -> int:
        """The only one. Raises UnsupportedVersion where the broker does not have it."""
        if ApiKey.DESCRIBE_PRODUCERS not in ranges:
            raise UnsupportedVersion(ApiKey.DESCRIBE_PRODUCERS, 0)
        return 0

    def encode(self, _api_version: int) -> bytes:
        """The request body."""
        partitions = _ONE + INT32.pack(self.partition) + NO_TAGS
        return _ONE + compact_nullable_string(self.topic) + partitions + NO_TAGS

    def parse(self, _api_version: int, body: Buffer) -> KnownProducer:
        """What the leader knows. All producers of the partition are in the answer."""
        reader = Reader(body)
        reader.int32("throttle_time_ms")
        if (count := reader.uvarint("topics")) != 2:
            raise Malformed(f"topics: {count - 1} where one was asked for")
        topic = reader.compact_nullable_string("topic name")
        if (count := reader.uvarint("partitions")) != 2:
            raise Malformed(f"partitions: {count - 1} where one was asked for")
        if (place := (topic, reader.int32("partition"))) != (self.topic, self.partition):
            raise Malformed(f"partition before {reader.position}: {place!r} was not asked for")
        error_code = reader.int16("error_code")
        reader.compact_nullable_string("error_message")
        last_sequence = None
        for _ in range(max(reader.uvarint("producers") - 1, 0)):
            producer_id, _, last, *_ = reader.unpack(_PRODUCER, "producer")
            reader.skip_tags()
            if producer_id == self.producer_id:
                last_sequence = last
        for _ in range(3):
            reader.skip_tags()  # of the partition, the topic, the answer
        reader.finish()
        return KnownProducer(error_code, last_sequence)
