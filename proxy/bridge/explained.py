"""APIs that old brokers do not have and that are offered all the same, so that the client's own exception says why that
is so and what to do instead: each resource that is asked about gets code 35 and a sentence. Otherwise users see only
that an API is missing, or nothing at all: librdkafka waits silently for a broker that has the new kind of groups.

Only APIs whose answers have a place for a sentence. Source: KIP-133 (AlterConfigs v0 and v1), KIP-339
(IncrementalAlterConfigs v0), KIP-195 (CreatePartitions v0 and v1), KIP-848 (ConsumerGroupHeartbeat v0 and v1).
"""

from __future__ import annotations

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import LimitExceeded
from ...reactor import Buffer
from ..versions import ApiKey
from .base import THROTTLE_NONE, Chunks, RequestRefused
from .fields import INT8, INT16, INT32, NO_TAGS, Reader, compact_nullable_string, string

EXPLAINED_BYTES_MAX = 48 * 1024
"""Of a request: a thousand topics with long names. All of it is read in one step, of 20 ms for 24,000 empty names."""
_CODE = INT16.pack(ErrorCode.UNSUPPORTED_VERSION)
_THING_BYTES_MIN = 7

SETTINGS = (
    "brokers before 0.11 change no settings over Kafka's protocol; those of topics are in ZooKeeper: "
    "kafka-configs.sh --zookeeper"
)
GROUPS = (
    "brokers before 4.0 do not have the consumer group protocol of KIP-848: set group.protocol=classic, the consumer "
    "groups that every broker has"
)
PARTITIONS = "brokers before 1.0 add no partitions over Kafka's protocol: use kafka-topics.sh --zookeeper --alter"
_NO_MEMBER, _NO_ASSIGNMENT = compact_nullable_string(None), INT8.pack(-1)
_NO_HEARTBEAT = b"".join(
    (
        *(THROTTLE_NONE, _CODE, compact_nullable_string(GROUPS)),
        *(_NO_MEMBER, INT32.pack(0), INT32.pack(0), _NO_ASSIGNMENT, NO_TAGS),  # no epoch, no interval
    )
)


class Explained:
    """The bridge of one such request; it is never sent on."""

    broker_version = 0

    def __init__(self, api_key: int) -> None:
        self._api_key = api_key

    def request(self, body: memoryview) -> Chunks | RequestRefused:
        """The refusal. Raises WireError for garbage and for more than ``EXPLAINED_BYTES_MAX``."""
        if len(body) > EXPLAINED_BYTES_MAX:
            raise LimitExceeded(f"API {self._api_key}: {len(body)} bytes, the limit is {EXPLAINED_BYTES_MAX} bytes")
        if self._api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
            return RequestRefused(ErrorCode.UNSUPPORTED_VERSION, GROUPS, _NO_HEARTBEAT)
        reader = Reader(body)
        read = self._topic if self._api_key == ApiKey.CREATE_PARTITIONS else self._resource
        things = [read(reader) for _ in range(reader.count("things", _THING_BYTES_MIN))]
        if self._api_key == ApiKey.CREATE_PARTITIONS:
            reader.int32("timeout_ms")
        reader.boolean("validate_only")
        reader.finish()
        sentence = PARTITIONS if self._api_key == ApiKey.CREATE_PARTITIONS else SETTINGS
        answer = b"".join((THROTTLE_NONE, INT32.pack(len(things)), *things))
        return RequestRefused(ErrorCode.UNSUPPORTED_VERSION, sentence, answer)

    def response(self, body: Buffer) -> Chunks:
        """There is none: no broker is asked."""
        raise AssertionError("a request that is never sent on has no answer")

    def _topic(self, reader: Reader) -> bytes:
        name = reader.string("topic name")
        reader.int32("count")
        for _ in range(reader.count("assignments", INT32.size, null_is=0)):
            reader.int32_array("broker_ids")
        return string(name) + _CODE + string(PARTITIONS)

    def _resource(self, reader: Reader) -> bytes:
        named = INT8.pack(reader.int8("resource_type")) + string(reader.string("resource_name"))
        for _ in range(reader.count("settings", INT16.size, null_is=0)):
            reader.take(reader.int16("setting"), "setting")
            if self._api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
                reader.int8("operation")
            reader.nullable_string("value")
        return _CODE + string(SETTINGS) + named
