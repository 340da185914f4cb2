"""Answers for requests that are not served: an error code in the client's own layout, so that no client waits for
nothing.

Best effort: at the top of the answer where the version has an error code there, else at every part that the request
names. Layouts come from the message library. Source: Kafka's getErrorResponse of each request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from struct import Struct
from typing import Any

from ...codecs import messages, produce
from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...reactor import Buffer
from ..versions import ApiKey
from . import api_versions

Fields = dict[str, Any]
PRODUCE_VERSION_MAX = 9
REFUSED_BYTES_MAX = 16 << 10
"""Of a request that has to be read to be refused: decoding costs up to 5 us a byte, and everybody else waits."""
_CODE = Struct(">h")
_TOKEN_V0: Mapping[int, bytes] = {
    ApiKey.CREATE_DELEGATION_TOKEN: bytes(2 + 2 + 3 * 8 + 2 + 4 + 4),
    ApiKey.RENEW_DELEGATION_TOKEN: bytes(8 + 4),
    ApiKey.EXPIRE_DELEGATION_TOKEN: bytes(8 + 4),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: bytes(4 + 4),
}
"""Version 0 of the responses about delegation tokens, which the message library lacks, after their error code: empty
texts, times of 0, no token, no throttling. Source: CreateDelegationTokenResponse.json and the like."""
_TRANSACTIONAL = frozenset(
    {ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT}
)


def refusal(api_key: int, api_version: int, body: Buffer = b"") -> bytes | None:
    """Return the body of an answer that refuses this request; None: there is none, close the connection and say so.

    The code is 35, for the APIs of transactions 53: fatal to every client, so that none tries again for ever. Without
    the request's ``body``, and with one above ``REFUSED_BYTES_MAX``, there is an answer only where the version has an
    error code at its top. Of Produce any body is read.
    """
    transactional = api_key in _TRANSACTIONAL
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if transactional else ErrorCode.UNSUPPORTED_VERSION
    if api_key == ApiKey.API_VERSIONS:
        return api_versions.unsupported()
    try:
        if api_key == ApiKey.PRODUCE:
            return _refused_produce(api_version, body, code)
        if api_key in _TOKEN_V0 and api_version == 0:
            return _CODE.pack(code) + _TOKEN_V0[api_key]
        served = messages.served_versions(api_key)
        if served is None or not served[0] <= api_version <= served[1]:
            return None
        if _is_told_at_the_top(api_key, api_version):
            return messages.encode_response(api_key, api_version, error_code=code)
        parts = _PARTS.get(api_key)
        if parts is None or len(body) > REFUSED_BYTES_MAX:
            return None
        request = messages.decode_request(api_key, api_version, body)
        return messages.encode_response(api_key, api_version, **parts(request, code))
    except WireError:
        return None


@cache
def _is_told_at_the_top(api_key: int, api_version: int) -> bool:
    empty = messages.encode_response(api_key, api_version)
    return "error_code" in messages.fields_of(messages.decode_response(api_key, api_version, empty))


def _refused_produce(api_version: int, body: Buffer, code: int) -> bytes | None:
    if not 0 <= api_version <= PRODUCE_VERSION_MAX:
        return None
    request = produce.parse_request(body, 0, api_version)
    if request.acks == 0:
        return None  # waits for no answer; a closed connection is what a broker says then
    answers = [produce.PartitionAnswer(part.topic, part.partition, code, -1) for part in request.partitions]
    return produce.encode_response(api_version, answers)


def _by_topic(topics: Iterable[Any], partitions_of: Callable[[Any], list[Fields]]) -> list[Fields]:
    return [{"name": topic.name, "partitions": partitions_of(topic)} for topic in topics]


def _fetch(request: Any, code: int) -> Fields:
    return {
        "responses": [
            {
                "topic": topic.topic,
                "partitions": [
                    {"partition_index": one.partition, "error_code": code, "high_watermark": -1, "records": b""}
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _list_offsets(request: Any, code: int) -> Fields:
    return {
        "topics": _by_topic(
            request.topics,
            lambda topic: [
                {"partition_index": one.partition_index, "error_code": code, "timestamp": -1, "offset": -1}
                for one in topic.partitions
            ],
        )
    }


def _committed(request: Any, code: int) -> Fields:
    return {
        "topics": _by_topic(
            request.topics,
            lambda topic: [{"partition_index": one.partition_index, "error_code": code} for one in topic.partitions],
        )
    }


def _offset_fetch(request: Any, code: int) -> Fields:
    return {
        "groups": [{"group_id": group.group_id, "error_code": code, "topics": []} for group in request.groups or ()],
        "topics": _by_topic(
            request.topics or (),
            lambda topic: [
                {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": code}
                for index in topic.partition_indexes
            ],
        ),
    }


def _add_partitions(request: Any, code: int) -> Fields:
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": code} for index in topic.partitions
                ],
            }
            for topic in request.v3_and_below_topics
        ]
    }


def _metadata(request: Any, code: int) -> Fields:
    return {"topics": [{"name": topic.name, "error_code": code} for topic in request.topics or ()]}


def _create_topics(request: Any, code: int) -> Fields:
    return {"topics": [{"name": topic.name, "error_code": code} for topic in request.topics]}


def _delete_topics(request: Any, code: int) -> Fields:
    names = [*request.topic_names, *(topic.name for topic in request.topics)]
    return {"responses": [{"name": name, "error_code": code} for name in names]}


def _describe_groups(request: Any, code: int) -> Fields:
    return {"groups": [{"group_id": group_id, "error_code": code} for group_id in request.groups]}


def _find_coordinator(request: Any, code: int) -> Fields:
    return {"coordinators": [{"key": key, "error_code": code, "node_id": -1} for key in request.coordinator_keys]}


def _leader_epochs(request: Any, code: int) -> Fields:
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    {"partition": one.partition, "error_code": code, "leader_epoch": -1, "end_offset": -1}
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _markers(request: Any, code: int) -> Fields:
    def topics_of(marker: Any) -> list[Fields]:
        return _by_topic(marker.topics, lambda topic: _coded(topic.partition_indexes, code))

    return {"markers": [{"producer_id": one.producer_id, "topics": topics_of(one)} for one in request.markers]}


def _coded(indexes: Iterable[int], code: int) -> list[Fields]:
    return [{"partition_index": index, "error_code": code} for index in indexes]


def _create_acls(request: Any, code: int) -> Fields:
    return {"results": [{"error_code": code, "error_message": None} for _ in request.creations]}


def _delete_acls(request: Any, code: int) -> Fields:
    refused: Fields = {"error_code": code, "error_message": None, "matching_acls": []}
    return {"filter_results": [refused for _ in request.filters]}


def _describe_configs(request: Any, code: int) -> Fields:
    return {
        "results": [
            {
                "error_code": code,
                "error_message": None,
                "resource_type": one.resource_type,
                "resource_name": one.resource_name,
                "configs": [],
            }
            for one in request.resources
        ]
    }


def _alter_log_dirs(request: Any, code: int) -> Fields:
    topics = [topic for one in request.dirs for topic in one.topics]
    return {
        "results": [{"topic_name": topic.name, "partitions": _coded(topic.partitions, code)} for topic in topics],
    }


def _describe_log_dirs(_request: Any, code: int) -> Fields:
    return {"results": [{"error_code": code, "log_dir": "", "topics": []}]}


_PARTS: Mapping[int, Callable[[Any, int], Fields]] = {
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _committed,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.TXN_OFFSET_COMMIT: _committed,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _leader_epochs,
    ApiKey.WRITE_TXN_MARKERS: _markers,
    ApiKey.CREATE_ACLS: _create_acls,
    ApiKey.DELETE_ACLS: _delete_acls,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _alter_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
}
"""APIs whose answer has an error code for each part only. All others of that kind, none of which clients wait for, end
in a closed connection."""
