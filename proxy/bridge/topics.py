"""CreateTopics v4 to v0, which topics it has created, and what a DeleteTopics names. The rest of creating and deleting
topics only gets throttle_time_ms (see ``table``).

Source: KIP-4 (CreateTopics v0), Kafka 0.10.2 (v1: validate_only and error messages), KIP-464 (v4: -1 for the broker's
defaults; brokers that have v4 take -1 in every version, and kafkajs says it in all that it knows, v0 to v3).
"""

from __future__ import annotations

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...reactor import Buffer
from .. import limits
from ..settings.config import TopicDefaults
from .base import RequestRefused
from .fields import INT16, INT32, NULL_STRING, Reader, string

_TOPIC_BYTES_MIN = 16
_CONFIG_BYTES_MIN = 4
_ASSIGNMENT_BYTES_MIN = 8
_RESULT_BYTES_MIN = 4
_TEXT_BYTES_MIN = 2
_REASON = "this broker can only create topics, not validate them"


_LEFT_TO_THE_BROKER = -1
_VALIDATE_ONLY_SINCE = _MESSAGES_SINCE = 1
_THROTTLE_SINCE = 2
_PLAIN_MAX = 4
"""The last version before the flexible ones (tagged fields, compact strings)."""


class CreateTopicsWithNumbers:
    """v4 to v3, and in every version below: a number that is left to the broker (-1) gets the proxy's default. A topic
    with assignments is left as it is: they say both numbers."""

    __slots__ = ("_defaults", "_version")

    def __init__(self, defaults: TopicDefaults, client_version: int) -> None:
        self._defaults = defaults
        self._version = client_version

    def down(self, request: Buffer) -> Buffer | RequestRefused:
        """The same bytes, with other numbers in their places. A request above ``CREATE_TOPICS_NUMBERS_BYTES_MAX``
        passes unread. WireError for garbage."""
        if len(request) > limits.CREATE_TOPICS_NUMBERS_BYTES_MAX:
            return request
        reader, changed = Reader(request), bytearray(request)
        for _ in range(reader.count("topics", _TOPIC_BYTES_MIN)):
            reader.string("topic name")
            start = reader.position
            partitions, replication_factor = reader.int32("num_partitions"), reader.int16("replication_factor")
            if not _read_lists(reader):
                if partitions == _LEFT_TO_THE_BROKER:
                    INT32.pack_into(changed, start, self._defaults.default_partitions)
                if replication_factor == _LEFT_TO_THE_BROKER:
                    INT16.pack_into(changed, start + INT32.size, self._defaults.default_replication_factor)
        reader.int32("timeout_ms")
        if self._version >= _VALIDATE_ONLY_SINCE:
            reader.boolean("validate_only")
        reader.finish()
        return bytes(changed)

    def up(self, answer: Buffer) -> Buffer:
        """The same."""
        return answer


class CreateTopicsWithoutValidateOnly:
    """v1 to v0: validate_only is left out if it is false; if it is true the request is refused, as the broker would
    create the topics."""

    __slots__ = ()

    def down(self, request: Buffer) -> Buffer | RequestRefused:
        """All but the last byte (validate_only), unread. If that is not 0 the refusal; WireError for garbage there.
        WireError above ``CREATE_TOPICS_BYTES_MAX``."""
        if len(request) > limits.CREATE_TOPICS_BYTES_MAX:
            raise WireError(f"CreateTopics of {len(request)} bytes: the limit is {limits.CREATE_TOPICS_BYTES_MAX}")
        if request[-1:] == b"\0":
            return request[:-1]
        reader = Reader(request)
        names = [_read_topic(reader) for _ in range(reader.count("topics", _TOPIC_BYTES_MIN))]
        reader.int32("timeout_ms")
        reader.boolean("validate_only")
        reader.finish()
        verdict = INT16.pack(ErrorCode.UNSUPPORTED_VERSION) + string(_REASON)
        answer = b"".join((INT32.pack(len(names)), *(string(name) + verdict for name in names)))
        return RequestRefused(ErrorCode.UNSUPPORTED_VERSION, _REASON, answer)

    def up(self, answer: Buffer) -> Buffer:
        """Each result, without a message."""
        reader = Reader(answer)
        parts: list[Buffer] = []
        start = 0
        for _ in range(reader.count("topics", _RESULT_BYTES_MIN)):
            reader.string("topic name")
            reader.int16("error_code")
            parts += (reader.data[start : reader.position], NULL_STRING)
            start = reader.position
        parts.append(reader.data[start : reader.position])
        reader.finish()
        return b"".join(parts)


def creates_topics(client_version: int, request: Buffer) -> bool:
    """Does a CreateTopics request create topics, and not only validate them? Not read further: garbage is refused by
    the broker."""
    return client_version < _VALIDATE_ONLY_SINCE or (client_version <= _PLAIN_MAX and request[-1:] == b"\0")


def created_topics(broker_version: int, answer: Buffer) -> tuple[str, ...]:
    """The topics that a broker says it has created; none, unread, from answers above v4 or above
    ``CREATE_TOPICS_NUMBERS_BYTES_MAX`` bytes. WireError for garbage."""
    if broker_version > _PLAIN_MAX or len(answer) > limits.CREATE_TOPICS_NUMBERS_BYTES_MAX:
        return ()
    reader = Reader(answer)
    if broker_version >= _THROTTLE_SINCE:
        reader.int32("throttle_time_ms")
    created: list[str] = []
    for _ in range(reader.count("topics", _RESULT_BYTES_MIN)):
        name, code = reader.string("topic name"), reader.int16("error_code")
        if broker_version >= _MESSAGES_SINCE:
            reader.nullable_string("error_message")
        if code == ErrorCode.NONE:
            created.append(name)
    reader.finish()
    return tuple(created)


def deleted_topics(request: Buffer) -> tuple[str, ...]:
    """The topics that a DeleteTopics request, v0 to v3, names. WireError for garbage, and for too many."""
    reader = Reader(request)
    count = reader.count("topics", _TEXT_BYTES_MIN)
    if count > limits.DELETED_TOPICS_MAX:
        raise WireError(f"DeleteTopics of {count} topics: the limit is {limits.DELETED_TOPICS_MAX}")
    names = tuple(reader.string("topic name") for _ in range(count))
    reader.int32("timeout_ms")
    reader.finish()
    return names


def _read_topic(reader: Reader) -> str:
    name = reader.string("topic name")
    reader.int32("num_partitions")
    reader.int16("replication_factor")
    _read_lists(reader)
    return name


def _read_lists(reader: Reader) -> int:
    """Pass over assignments and settings. Return how many assignments there are."""
    assignments = reader.count("assignments", _ASSIGNMENT_BYTES_MIN)
    for _ in range(assignments):
        reader.int32("partition")
        reader.int32_array("broker_ids")
    for _ in range(reader.count("configs", _CONFIG_BYTES_MIN)):
        reader.string("config name")
        reader.nullable_string("config value")
    return assignments
