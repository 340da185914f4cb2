"""DescribeCluster v0 and v1, answered by the proxy: what Metadata tells a client of the brokers, in another layout. So
both name the same brokers, at the proxy's own addresses, and both need the same rights.

Source: KIP-700, KIP-919 (v1: which kind of endpoint is meant), DescribeClusterRequest and -Response.
"""

from __future__ import annotations

from ...codecs.error_codes import ErrorCode
from ...reactor import Buffer
from .base import THROTTLE_NONE
from .fields import INT8, INT16, INT32, NO_TAGS, Reader, compact_nullable_string, uvarint

METADATA_VERSION = 4
"""The version of Metadata whose answer is read here."""
_BROKERS, _CONTROLLERS = 1, 2
"""Kinds of endpoints."""
_OPERATIONS_NOT_KNOWN = INT32.pack(-(2**31))
"""What Kafka answers if authorized operations were not asked for; the proxy does not know what a client may do at the
cluster, so it is the answer in any case."""
_BROKER_BYTES_MIN = 12
_REFUSED = {
    _CONTROLLERS: (ErrorCode.MISMATCHED_ENDPOINT_TYPE, "these are brokers, and controllers were asked for"),
}
_UNKNOWN = (ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "this kind of endpoint is not known here")


def refused_describe_cluster(version: int, body: Buffer) -> bytes | None:
    """Return the answer that refuses a client's request; None: it is to be answered with ``encode_describe_cluster``.
    WireError for garbage."""
    reader = Reader(body)
    reader.boolean("include_cluster_authorized_operations")
    kind = reader.int8("endpoint_type") if version >= 1 else _BROKERS
    reader.skip_tags()
    reader.finish()
    if kind == _BROKERS:
        return None
    code, message = _REFUSED.get(kind, _UNKNOWN)
    nobody = (compact_nullable_string(""), INT32.pack(-1), uvarint(1))
    return _answer(version, code, message, *nobody)


def encode_describe_cluster(version: int, metadata: Buffer) -> bytes:
    """Return the answer's body, made of one to Metadata 4 that names no topic."""
    reader = Reader(metadata)
    reader.int32("throttle_time_ms")
    count = reader.count("brokers", _BROKER_BYTES_MIN)
    brokers = [uvarint(count + 1)]
    for _ in range(count):
        brokers += (
            INT32.pack(reader.int32("node_id")),
            compact_nullable_string(reader.string("host")),
            INT32.pack(reader.int32("port")),
            compact_nullable_string(reader.nullable_string("rack")),
            NO_TAGS,
        )
    cluster_id = compact_nullable_string(reader.nullable_string("cluster_id"))
    controller_id = INT32.pack(reader.int32("controller_id"))
    return _answer(version, ErrorCode.NONE, None, cluster_id, controller_id, *brokers)


def _answer(version: int, code: int, message: str | None, *reported: bytes) -> bytes:
    kind = INT8.pack(_BROKERS) if version >= 1 else b""
    head = (THROTTLE_NONE, INT16.pack(code), compact_nullable_string(message), kind)
    return b"".join((*head, *reported, _OPERATIONS_NOT_KNOWN, NO_TAGS))
