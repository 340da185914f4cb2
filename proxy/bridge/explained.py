"""APIs that old brokers do not have and that are offered all the same, to say in the client's own exception why not and
what to do instead: each thing that is asked about gets code 35 and a sentence. Otherwise tools see only that an API is
missing, and some give up more than they need: sarama lists no topics, since it asks for their settings too.

Nothing is guessed: a setting that the broker cannot tell is not told as a default, on which tools would act (Kafka
Connect refuses a topic whose cleanup.policy is said to be delete). Only APIs whose answers have a place for a sentence.
Source: KIP-133 (DescribeConfigs v0 to v2, AlterConfigs v0 and v1), KIP-339 (IncrementalAlterConfigs v0), KIP-195
(CreatePartitions v0 and v1).
"""

from __future__ import annotations

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import LimitExceeded
from ...reactor import Buffer
from ..versions import ApiKey
from .base import THROTTLE_NONE, Chunks, Refused
from .fields import INT8, INT16, INT32, Reader, string

EXPLAINED_BYTES_MAX = 48 * 1024
"""Of a request: a thousand topics with long names. All of it is read in one step, of 20 ms for 24,000 empty names."""
_CODE = INT16.pack(ErrorCode.UNSUPPORTED_VERSION)
_NO_SETTINGS = INT32.pack(0)
_THING_BYTES_MIN = 7

SETTINGS = (
    "brokers before 0.11 neither tell nor change settings over Kafka's protocol; those of topics are in ZooKeeper: "
    "kafka-configs.sh --zookeeper"
)
PARTITIONS = "brokers before 1.0 add no partitions over Kafka's protocol: use kafka-topics.sh --zookeeper --alter"


class Explained:
    """Of one request; it is never sent on."""

    broker_version = 0

    def __init__(self, api_key: int, api_version: int) -> None:
        self._api_key = api_key
        self._version = api_version

    def request(self, body: memoryview) -> Chunks | Refused:
        """The refusal. Raises WireError for garbage and for more than ``EXPLAINED_BYTES_MAX``."""
        if len(body) > EXPLAINED_BYTES_MAX:
            raise LimitExceeded(f"API {self._api_key}: {len(body)} bytes, the limit is {EXPLAINED_BYTES_MAX} bytes")
        reader = Reader(body)
        read = self._topic if self._api_key == ApiKey.CREATE_PARTITIONS else self._resource
        things = [read(reader) for _ in range(reader.count("things", _THING_BYTES_MIN))]
        if self._api_key == ApiKey.CREATE_PARTITIONS:
            reader.int32("timeout_ms")
        if self._api_key != ApiKey.DESCRIBE_CONFIGS or self._version >= 1:
            reader.boolean("validate_only, or include_synonyms")
        reader.finish()
        sentence = PARTITIONS if self._api_key == ApiKey.CREATE_PARTITIONS else SETTINGS
        answer = b"".join((THROTTLE_NONE, INT32.pack(len(things)), *things))
        return Refused(ErrorCode.UNSUPPORTED_VERSION, sentence, answer)

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
        is_asked = self._api_key == ApiKey.DESCRIBE_CONFIGS
        for _ in range(reader.count("settings", INT16.size, null_is=0)):
            reader.take(reader.int16("setting"), "setting")
            if self._api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
                reader.int8("operation")
            if not is_asked:
                reader.nullable_string("value")
        return _CODE + string(SETTINGS) + named + (_NO_SETTINGS if is_asked else b"")
