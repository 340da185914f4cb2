"""The layouts of the APIs of which Kafka 4 dropped versions: data. What a step loses or makes up stands at its API.

Dropped by KIP-896: a broker of Kafka 4 closes the connection over such a version. Where the higher version changed what
the same bytes mean, that is said as well. ListOffsets needs more than a layout (``list_offsets``); Produce and Fetch
carry records; WriteTxnMarkers is spoken between brokers. Source: Kafka's message schemas (``*Request.json``,
``*Response.json``), for the delegation tokens KIP-48.

In all of them, throttle_time_ms: Kafka 2.0 and later answer at once and read nothing from the connection for that long
(KIP-219). A client of a version that lacks the field, or from before, does not wait by itself; its next request does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from ....codecs.error_codes import ErrorCode
from ...versions import ApiKey
from ..base import THROTTLE_NONE
from ..fields import INT8, INT16, INT32, INT64
from .error_codes import OF_0_10_2, OF_0_11_0, OF_1_0, OF_1_1, known_code
from .layouts import BYTE, BYTES, INT, LONG, NULLABLE_STRING, SHORT, STRING, Array, Field, Layout


@dataclass(frozen=True, slots=True)
class RaisedApi:
    """Its layouts in all versions up to ``KAFKA_4_FROM``, which requests are raised to."""

    request: Layout
    answer: Layout


def _known(error_code: bytes, last_known: int) -> bytes:
    (code,) = INT16.unpack(error_code)
    return INT16.pack(known_code(code, last_known))


def _error_code(last_known: ErrorCode) -> Field:
    return Field("error_code", SHORT, lowered=partial(_known, last_known=last_known))


_THROTTLE: Final = Field("throttle_time_ms", INT)
_TOPIC: Final = Field("topic name", STRING)
_PARTITION: Final = Field("partition", INT)
_PARTITION_NUMBERS: Final = Field("partitions", Array((_PARTITION,)))
_MESSAGE: Final = Field("error_message", NULLABLE_STRING)


def _throttle_since(version: int) -> Field:
    return Field("throttle_time_ms", INT, since=version, default=THROTTLE_NONE)


def _partitions(*entry: Field) -> Field:
    """Partitions by topic."""
    return _array("topics", _TOPIC, _array("partitions", *entry))


def _array(name: str, *entry: Field, is_nullable: bool = False) -> Field:
    return Field(name, Array(entry, is_nullable))


OFFSET_COMMIT: Final = RaisedApi(
    request=(
        Field("group_id", STRING),
        Field("generation_id", INT, since=1, default=INT32.pack(-1)),
        Field("member_id", STRING, since=1, default=INT16.pack(0)),
        Field("retention_time_ms", LONG, since=2, default=INT64.pack(-1)),
        _partitions(
            _PARTITION,
            Field("offset", LONG),
            Field("commit_timestamp", LONG, since=1, until=1, default=INT64.pack(-1)),
            Field("metadata", NULLABLE_STRING),
        ),
    ),
    answer=(_partitions(_PARTITION, _error_code(OF_0_10_2)),),
)
"""v0 wrote to ZooKeeper, which Kafka 4 has not: the group's coordinator stores the offset, as for a client that assigns
its partitions itself (generation -1, no member). So it expires with the group (offsets.retention.minutes); a group with
members refuses it (UNKNOWN_MEMBER_ID); and only the coordinator takes it (``table.group_of_any_broker``).
v1 had a time stamp for each partition, from which the retention counted: it is lost, the broker's time and its own
setting count (retention_time_ms -1)."""


_OFFSET = INT32.size
"""Where the offset stands in a partition's entry."""


def _no_offset_is_an_error(body: bytearray, start: int) -> None:
    """A partition without an offset is UNKNOWN_TOPIC_OR_PARTITION in v0, and no error in v1."""
    (offset,) = INT64.unpack_from(body, start + _OFFSET)
    (code,) = INT16.unpack_from(body, len(body) - INT16.size)
    if offset == -1 and code == ErrorCode.NONE:
        INT16.pack_into(body, len(body) - INT16.size, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


OFFSET_FETCH: Final = RaisedApi(
    request=(Field("group_id", STRING), _array("topics", _TOPIC, _PARTITION_NUMBERS)),
    answer=(
        _array(
            "topics",
            _TOPIC,
            Field(
                "partitions",
                Array(
                    (
                        _PARTITION,
                        Field("offset", LONG),
                        Field("metadata", NULLABLE_STRING),
                        _error_code(OF_0_10_2),
                    ),
                    patched=_no_offset_is_an_error,
                ),
            ),
        ),
    ),
)
"""v0 read from ZooKeeper, which Kafka 4 has not: the group's coordinator answers, with what was committed there in any
version. What lies in a ZooKeeper of former days is not found. Where nothing was committed, v1 says offset -1 and no
error, v0 UNKNOWN_TOPIC_OR_PARTITION, upon which its clients begin where they are configured to."""

CREATE_TOPICS: Final = RaisedApi(
    request=(
        _array(
            "topics",
            _TOPIC,
            Field("num_partitions", INT),
            Field("replication_factor", SHORT),
            _array("assignments", _PARTITION, _array("broker_ids", Field("broker_id", INT))),
            _array("configs", Field("config name", STRING), Field("config value", NULLABLE_STRING)),
        ),
        Field("timeout_ms", INT),
        Field("validate_only", BYTE, since=1, default=b"\0", is_ignorable=False),
    ),
    answer=(
        _throttle_since(2),
        _array(
            "topics",
            _TOPIC,
            _error_code(OF_0_10_2),
            Field("error_message", NULLABLE_STRING, since=1, default=INT16.pack(-1)),
        ),
    ),
)
"""v0 has no messages: what the broker has to say about an error is lost but for its code."""

DELETE_TOPICS: Final = RaisedApi(
    request=(_array("topics", _TOPIC), Field("timeout_ms", INT)),
    answer=(_throttle_since(1), _array("topics", _TOPIC, _error_code(OF_0_10_2))),
)
"""Nothing but throttle_time_ms is lost."""

_DEFAULT_CONFIG: Final = INT8.pack(5)


def _is_default(config_source: bytes) -> bytes:
    return b"\1" if config_source == _DEFAULT_CONFIG else b"\0"


DESCRIBE_CONFIGS: Final = RaisedApi(
    request=(
        _array(
            "resources",
            Field("resource_type", BYTE),
            Field("resource_name", STRING),
            _array("configuration_keys", Field("configuration key", STRING), is_nullable=True),
        ),
        Field("include_synonyms", BYTE, since=1, default=b"\0", is_ignorable=False),
    ),
    answer=(
        _THROTTLE,
        _array(
            "results",
            _error_code(OF_0_11_0),
            _MESSAGE,
            Field("resource_type", BYTE),
            Field("resource_name", STRING),
            _array(
                "configs",
                Field("config name", STRING),
                Field("config value", NULLABLE_STRING),
                Field("read_only", BYTE),
                Field("config_source", BYTE, lowered=_is_default),
                Field("is_sensitive", BYTE),
                Field(
                    "synonyms",
                    Array((Field("name", STRING), Field("value", NULLABLE_STRING), Field("source", BYTE))),
                    since=1,
                    default=INT32.pack(0),
                ),
            ),
        ),
    ),
)
"""v1 has the source of a value in the place of v0's is_default (KIP-226). Only DEFAULT_CONFIG is a default, as in the
answers of Kafka 1.1 to 3.9 to v0 (DescribeConfigsResponse.toStruct): a topic's setting that comes from the broker's
file is none. Where else a value comes from is lost; synonyms are not asked for. Null asks for all settings, in both
versions, and is passed as null."""

_LITERAL: Final = INT8.pack(3)
_PATTERN: Final = Field("pattern_type", BYTE, since=1, default=_LITERAL, is_ignorable=False)
_FILTER: Final = (
    Field("resource_type", BYTE),
    Field("resource_name", NULLABLE_STRING),
    _PATTERN,
    Field("principal", NULLABLE_STRING),
    Field("host", NULLABLE_STRING),
    Field("operation", BYTE),
    Field("permission_type", BYTE),
)
_RULE: Final = (
    Field("principal", STRING),
    Field("host", STRING),
    Field("operation", BYTE),
    Field("permission_type", BYTE),
)
_RESOURCE: Final = (Field("resource_type", BYTE), Field("resource_name", STRING), _PATTERN)

DESCRIBE_ACLS: Final = RaisedApi(
    request=_FILTER,
    answer=(_THROTTLE, _error_code(OF_0_11_0), _MESSAGE, _array("resources", *_RESOURCE, _array("acls", *_RULE))),
)
"""v0 means LITERAL (KIP-290): rules for prefixes are neither found nor deleted by it, and one in an answer, which would
look as if it were for one name, is an error (also in DeleteAcls)."""

CREATE_ACLS: Final = RaisedApi(
    request=(_array("creations", *_RESOURCE, *_RULE),),
    answer=(_THROTTLE, _array("results", _error_code(OF_0_11_0), _MESSAGE)),
)
"""v0 creates LITERAL rules; "*" is any name in both versions."""

DELETE_ACLS: Final = RaisedApi(
    request=(_array("filters", *_FILTER),),
    answer=(
        _THROTTLE,
        _array(
            "filter_results",
            _error_code(OF_0_11_0),
            _MESSAGE,
            _array("matching_acls", _error_code(OF_0_11_0), _MESSAGE, *_RESOURCE, *_RULE),
        ),
    ),
)
"""As DescribeAcls."""

OFFSET_FOR_LEADER_EPOCH: Final = RaisedApi(
    request=(
        _partitions(
            _PARTITION,
            Field("current_leader_epoch", INT, since=2, default=INT32.pack(-1)),
            Field("leader_epoch", INT),
        ),
    ),
    answer=(
        _throttle_since(2),
        _partitions(
            _error_code(OF_0_11_0),
            _PARTITION,
            Field("leader_epoch", INT, since=1, default=INT32.pack(-1)),
            Field("end_offset", LONG),
        ),
    ),
)
"""The epoch that the client believes to be the leader's is made up as -1: not fenced, as before KIP-320. v0 loses which
epoch the end offset belongs to (KIP-279)."""

ALTER_REPLICA_LOG_DIRS: Final = RaisedApi(
    request=(_array("dirs", Field("path", STRING), _array("topics", _TOPIC, _PARTITION_NUMBERS)),),
    answer=(_THROTTLE, _array("results", _TOPIC, _array("partitions", _PARTITION, _error_code(OF_1_0)))),
)
"""Nothing is lost: the layouts are the same."""

DESCRIBE_LOG_DIRS: Final = RaisedApi(
    request=(_array("topics", _TOPIC, _PARTITION_NUMBERS, is_nullable=True),),
    answer=(
        _THROTTLE,
        _array(
            "results",
            _error_code(OF_1_0),
            Field("log_dir", STRING),
            _partitions(
                _PARTITION,
                Field("partition_size", LONG),
                Field("offset_lag", LONG),
                Field("is_future_key", BYTE),
            ),
        ),
    ),
)
"""Nothing is lost: the layouts are the same. Null asks for all topics and is passed as null; empty asks for none."""

_PRINCIPAL: Final = (Field("principal_type", STRING), Field("principal_name", STRING))
_TIMES: Final = (Field("issue_timestamp", LONG), Field("expiry_timestamp", LONG), Field("max_timestamp", LONG))
_TOKEN: Final = (*_PRINCIPAL, *_TIMES, Field("token_id", STRING), Field("hmac", BYTES))

CREATE_DELEGATION_TOKEN: Final = RaisedApi(
    request=(_array("renewers", *_PRINCIPAL), Field("max_lifetime_ms", LONG)),
    answer=(_error_code(OF_1_1), *_TOKEN, _THROTTLE),
)
"""Nothing is lost: the layouts are the same, as in the other three APIs of tokens."""

RENEW_DELEGATION_TOKEN: Final = RaisedApi(
    request=(Field("hmac", BYTES), Field("renew_period_ms", LONG)),
    answer=(_error_code(OF_1_1), Field("expiry_timestamp_ms", LONG), _THROTTLE),
)

EXPIRE_DELEGATION_TOKEN: Final = RaisedApi(
    request=(Field("hmac", BYTES), Field("expiry_time_period_ms", LONG)),
    answer=(_error_code(OF_1_1), Field("expiry_timestamp_ms", LONG), _THROTTLE),
)

DESCRIBE_DELEGATION_TOKEN: Final = RaisedApi(
    request=(_array("owners", *_PRINCIPAL, is_nullable=True),),
    answer=(_error_code(OF_1_1), _array("tokens", *_TOKEN, _array("renewers", *_PRINCIPAL)), _THROTTLE),
)

BY_LAYOUT: Final[Mapping[int, RaisedApi]] = {
    ApiKey.OFFSET_COMMIT: OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH: OFFSET_FETCH,
    ApiKey.CREATE_TOPICS: CREATE_TOPICS,
    ApiKey.DELETE_TOPICS: DELETE_TOPICS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_ACLS: DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS: CREATE_ACLS,
    ApiKey.DELETE_ACLS: DELETE_ACLS,
    ApiKey.DESCRIBE_CONFIGS: DESCRIBE_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS: ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_LOG_DIRS: DESCRIBE_LOG_DIRS,
    ApiKey.CREATE_DELEGATION_TOKEN: CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN: RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN: EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: DESCRIBE_DELEGATION_TOKEN,
}
"""All but ListOffsets."""
