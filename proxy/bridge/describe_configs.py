"""DescribeConfigs v0 to v2, answered by the proxy where the brokers have none (before 0.11).

Such brokers report no setting over Kafka's protocol. So each setting but broker.id has a null value, and among its
synonyms the default that Kafka's documentation gives. A default as the value would be taken for the truth: Kafka
Connect refuses a topic whose cleanup.policy is said to be delete, and a topic may have any setting of its own. Where a
setting has no default it has no synonym either. That a topic exists, and that the client may know of it, is what
Metadata tells. Source: KIP-133, KIP-226 (v1: sources and synonyms), KafkaApis.handleDescribeConfigsRequest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import LimitExceeded
from ...codecs.steps import Steps
from ...reactor import Buffer
from .base import THROTTLE_NONE
from .cluster import Topic
from .documented_settings import Documented, documented_of_brokers, documented_of_topics
from .fields import INT8, INT16, INT32, NULL_STRING, Reader, nullable_string, string
from .metadata import read_answer

METADATA_VERSION = 4
"""The version of Metadata whose answer is read here."""
REQUEST_BYTES_MAX: Final = 48 * 1024
"""A thousand topics with long names. All of it is read in one step, of 20 ms for 24,000 empty names."""
RESOURCES_PER_STEP: Final = 500
"""Resources that are answered in one step: 5 ms where each asks for 25 settings by name."""
NOT_TOLD = (
    "brokers before 0.11 tell no settings over Kafka's protocol: values are left out, and the synonyms are the "
    "defaults of Kafka's documentation; what a topic has instead is in ZooKeeper: kafka-configs.sh --zookeeper"
)
"""The message in each answer without an error. Most clients show a message only with an error."""
NO_SUCH_KIND = "in brokers before 0.11 only topics and brokers have settings"
_TOPIC, _BROKER = 2, 4
"""Types of resources."""
_STATIC_BROKER_CONFIG, _DEFAULT_CONFIG = INT8.pack(4), INT8.pack(5)
"""Sources of a value."""
_BROKER_ID = "broker.id"
_RESOURCE_BYTES_MIN = 7
_NO_ENTRIES = INT32.pack(0)
_TRUE, _FALSE = b"\x01", b"\x00"


@dataclass(frozen=True, slots=True)
class Resource:
    """What is asked about. ``names``: of the settings; None: all."""

    kind: int
    name: str
    names: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class DescribeConfigs:
    """A client's request. Each resource once, as in the answer."""

    version: int
    resources: tuple[Resource, ...]
    include_synonyms: bool

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are asked about."""
        return tuple(one.name for one in self.resources if one.kind == _TOPIC)


def parse_describe_configs(version: int, body: Buffer) -> DescribeConfigs:
    """A client's request body. WireError for garbage and for more than ``REQUEST_BYTES_MAX``."""
    if len(body) > REQUEST_BYTES_MAX:
        raise LimitExceeded(f"DescribeConfigs: {len(body)} bytes, the limit is {REQUEST_BYTES_MAX} bytes")
    reader = Reader(body)
    resources = [_resource(reader) for _ in range(reader.count("resources", _RESOURCE_BYTES_MIN))]
    include_synonyms = reader.boolean("include_synonyms") if version >= 1 else False
    reader.finish()
    each_once = {(one.kind, one.name): one for one in resources}
    return DescribeConfigs(version, tuple(each_once.values()), include_synonyms)


def _resource(reader: Reader) -> Resource:
    kind, name = reader.int8("resource_type"), reader.string("resource_name")
    count = reader.count("configuration_keys", INT16.size, null_is=-1)
    names = frozenset(reader.string("configuration key") for _ in range(count))
    return Resource(kind, name, None if count == -1 else names)


def answer_describe_configs(request: DescribeConfigs, metadata: Buffer, release: str) -> Steps[bytes]:
    """Make the answer's body. ``metadata``: the answer to Metadata 4 about the topics. ``release``: of the broker, as
    in ``versions.KNOWN``. WireError for garbage."""
    cluster = yield from read_answer(METADATA_VERSION, metadata, {})
    broker_names = frozenset(map(str, cluster.brokers))
    of_topics = _Entries(documented_of_topics(release), request)
    of_brokers = _Entries(documented_of_brokers(release), request)
    parts = [THROTTLE_NONE, INT32.pack(len(request.resources))]
    for number, one in enumerate(request.resources):
        if number and number % RESOURCES_PER_STEP == 0:
            yield
        code, message = _verdict(one, cluster.topics, broker_names)
        entries = _NO_ENTRIES
        if code == ErrorCode.NONE and one.kind == _TOPIC:
            entries = of_topics.encode(one.names)
        elif code == ErrorCode.NONE and one.name:
            entries = of_brokers.encode(one.names, known={_BROKER_ID: one.name})
        parts += (INT16.pack(code), nullable_string(message), INT8.pack(one.kind), string(one.name), entries)
    return b"".join(parts)


def _verdict(one: Resource, topics: Mapping[str, Topic], broker_names: frozenset[str]) -> tuple[int, str | None]:
    """Return the error code and the sentence for one resource. A broker without a name stands for dynamic defaults of
    all brokers (KIP-226): old brokers have none."""
    if one.kind == _TOPIC:
        topic = topics.get(one.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
        is_there = code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
        return (ErrorCode.NONE, NOT_TOLD) if is_there else (code, None)
    if one.kind != _BROKER:
        return ErrorCode.INVALID_REQUEST, NO_SUCH_KIND
    if one.name and one.name not in broker_names:
        return ErrorCode.INVALID_REQUEST, f"there is no broker {one.name[:16]!r} in the cluster"
    return ErrorCode.NONE, NOT_TOLD


class _Entries:
    """The settings of one kind of resource, encoded once for all that ask for all of them."""

    def __init__(self, documented: Mapping[str, Documented], request: DescribeConfigs) -> None:
        self._has_sources, self._has_synonyms = request.version >= 1, request.include_synonyms
        self._entries = {name: self._unknown(name, one) for name, one in documented.items()}
        self._all = b"".join(self._entries.values())

    def encode(self, names: frozenset[str] | None, known: Mapping[str, str] | None = None) -> bytes:
        """Encode the array. ``names`` None: all. ``known``: settings with their values, in front of the others."""
        reported = [self._known(*one) for one in (known or {}).items() if names is None or one[0] in names]
        if names is None:
            return b"".join((INT32.pack(len(reported) + len(self._entries)), *reported, self._all))
        reported += [entry for name, entry in self._entries.items() if name in names]
        return INT32.pack(len(reported)) + b"".join(reported)

    def _unknown(self, name: str, one: Documented) -> bytes:
        setting = string(name) + NULL_STRING
        if one.default is None:
            return self._entry(setting, _DEFAULT_CONFIG, _TRUE, None)
        synonym = string(one.broker_name) + string(one.default) + _DEFAULT_CONFIG
        return self._entry(setting, _DEFAULT_CONFIG, _TRUE, synonym)

    def _known(self, name: str, value: str) -> bytes:
        synonym = string(name) + string(value) + _STATIC_BROKER_CONFIG
        return self._entry(string(name) + string(value), _STATIC_BROKER_CONFIG, _FALSE, synonym)

    def _entry(self, setting: bytes, source: bytes, is_default: bytes, synonym: bytes | None) -> bytes:
        is_read_only, is_sensitive = _TRUE, _FALSE
        if not self._has_sources:
            return setting + is_read_only + is_default + is_sensitive
        synonyms = INT32.pack(1) + synonym if self._has_synonyms and synonym is not None else _NO_ENTRIES
        return setting + is_read_only + source + is_sensitive + synonyms
