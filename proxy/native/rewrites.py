"""Rewrites the answers of brokers in which addresses stand: the proxy's addresses take their place. Pure; knows no
connection.

Each function gets the start of a body, or all of it, and says how many of its first bytes are replaced, and by what;
what lies after them is not read and is forwarded unchanged. Source: the message schemas of Kafka 4.3
(``versions.NATIVE_MAX``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, NamedTuple

from ...codecs import messages
from ...codecs.error_codes import ErrorCode
from ...codecs.errors import Truncated
from ...codecs.headers import ANSWER_TAGGED_FIELDS_MAX, FLEXIBLE_FROM, skip_tagged_fields
from ...codecs.primitives import read_unsigned_varint
from ..bridge.base import Addresses
from ..bridge.fields import INT16, INT32, Reader, string, uvarint
from ..versions import ApiKey, BrokerRanges

_RANGE = Struct(">hhh")
_BROKER_BYTES_MIN = 7
_COORDINATORS_FROM = 4
_TOPIC_IDS_FROM = 13
_UUID_BYTES = 16
_PARTITION_FIXED_BYTES = 30
"""Of a partition in an answer to Produce: index, error code, base offset, log append time, log start offset."""


class Replaced(NamedTuple):
    """The first ``taken`` bytes of a body become ``instead``. ``strangers``: ids of brokers for which the proxy has no
    address (yet)."""

    taken: int
    instead: bytes
    strangers: frozenset[int] = frozenset()


NOTHING = Replaced(0, b"")
"""The body is forwarded unchanged."""

Told = Callable[[], Addresses]
"""Returns the addresses; called only where an answer has some."""

Rewrite = Callable[[int, memoryview, Told], Replaced]
"""Called with the version, the body, and the addresses. Raises Truncated while too little of the body is there."""


def metadata(version: int, body: memoryview, addresses: Told) -> Replaced:
    """Metadata v0 to v13: the list of brokers, which stands in front. Topics are forwarded unread.

    A broker for which the proxy has no address yet is listed with the address of another one: so no client bypasses the
    proxy, and every leader is listed. A client that asks there is answered that this broker is not the leader, and
    refreshes its metadata.
    """
    is_flexible = version >= FLEXIBLE_FROM[ApiKey.METADATA]
    reader = Reader(body)
    if version >= 3:
        reader.int32("throttle_time_ms")
    front = bytes(body[: reader.position])
    count = reader.uvarint("brokers") - 1 if is_flexible else reader.count("brokers", 0)
    _check_count(reader, count)
    reported: list[bytes] = []
    strangers: set[int] = set()
    places = addresses()
    for _ in range(count):
        broker_id = reader.int32("node_id")
        _skip_string(reader, "host", is_flexible)
        reader.int32("port")
        rest = reader.position
        if version >= 1:
            _skip_string(reader, "rack", is_flexible)
        if is_flexible:
            reader.skip_tags()
        place = places.get(broker_id)
        if place is None:
            strangers.add(broker_id)
            place = next(iter(places.values()), None)
        if place is not None:
            after = bytes(body[rest : reader.position])
            reported.append(INT32.pack(broker_id) + _text(place[0], is_flexible) + INT32.pack(place[1]) + after)
    number = uvarint(len(reported) + 1) if is_flexible else INT32.pack(len(reported))
    return Replaced(reader.position, b"".join((front, number, *reported)), frozenset(strangers))


def find_coordinator(version: int, body: memoryview, addresses: Told) -> Replaced:
    """FindCoordinator v0 to v6: one coordinator, or from v4 on several. One that has no address here is "not available"
    (15): the client asks again."""
    fields = messages.fields_of(messages.decode_response(ApiKey.FIND_COORDINATOR, version, body))
    found = [fields] if version < _COORDINATORS_FROM else [_fields(one) for one in fields["coordinators"]]
    strangers, places = set(), addresses()
    for one in found:
        if one["error_code"]:
            continue  # there is no coordinator in it
        place = places.get(one["node_id"])
        if place is None:
            strangers.add(one["node_id"])
            one |= {"error_code": int(ErrorCode.COORDINATOR_NOT_AVAILABLE), "node_id": -1, "host": "", "port": -1}
        else:
            one["host"], one["port"] = place
    if version >= _COORDINATORS_FROM:
        fields["coordinators"] = found
    return Replaced(len(body), _encode(ApiKey.FIND_COORDINATOR, version, fields), frozenset(strangers))


def describe_cluster(version: int, body: memoryview, addresses: Told) -> Replaced:
    """DescribeCluster v0 to v2: brokers that have no address here are left out."""
    fields = messages.fields_of(messages.decode_response(ApiKey.DESCRIBE_CLUSTER, version, body))
    fields["brokers"], strangers = _placed(fields["brokers"], "broker_id", addresses())
    return Replaced(len(body), _encode(ApiKey.DESCRIBE_CLUSTER, version, fields), strangers)


def produce(version: int, body: memoryview, addresses: Told) -> Replaced:
    """Produce from v10 on: the new leaders that stand at its end after an error 6 (KIP-951). Nearly always there are
    none."""
    at = _behind_partitions(version, body) + INT32.size
    if at < len(body) and body[at] == 0:
        return NOTHING
    fields = messages.fields_of(messages.decode_response(ApiKey.PRODUCE, version, body))
    fields["node_endpoints"], strangers = _placed(fields["node_endpoints"] or (), "node_id", addresses())
    return Replaced(len(body), _encode(ApiKey.PRODUCE, version, fields), strangers)


REWRITES: Mapping[int, Rewrite] = {
    ApiKey.METADATA: metadata,
    ApiKey.FIND_COORDINATOR: find_coordinator,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.PRODUCE: produce,
}
"""By API. All others that are passed have no address of a broker in their answer."""

REWRITTEN_FROM: Mapping[int, int] = {**dict.fromkeys(REWRITES, 0), ApiKey.PRODUCE: 10}
"""The first version of an answer in which addresses stand."""


def api_versions(
    version: int, body: memoryview, ranges: BrokerRanges, announced: Callable[[BrokerRanges], BrokerRanges]
) -> Replaced:
    """ApiVersions v0 to v4: the ranges that clients may use in place of the broker's own. ``announced``: makes them of
    those that both have. What a broker reports of its features is forwarded. An answer with an error is one about the
    version of ApiVersions, and is forwarded as well."""
    reader = Reader(body)
    if error_code := reader.int16("error_code"):
        return NOTHING
    is_flexible = version >= FLEXIBLE_FROM[ApiKey.API_VERSIONS]
    count = reader.uvarint("api_keys") - 1 if is_flexible else reader.count("api_keys", _RANGE.size)
    listed: dict[int, tuple[int, int]] = {}
    for _ in range(count):
        key, first, last = reader.unpack(_RANGE, "api_keys")
        if is_flexible:
            reader.skip_tags()
        own = ranges.get(key)
        if own is not None and max(first, own[0]) <= min(last, own[1]):
            listed[key] = max(first, own[0]), min(last, own[1])
    reported = [_RANGE.pack(key, *range_) for key, range_ in announced(listed).items()]
    if is_flexible:
        number, between = uvarint(len(reported) + 1), b"\0"
    else:
        number, between = INT32.pack(len(reported)), b""
    new = INT16.pack(error_code) + number + b"".join(one + between for one in reported)
    return Replaced(reader.position, new)


def _placed(brokers: Iterable[Any], id_field: str, addresses: Addresses) -> tuple[list[dict[str, Any]], frozenset[int]]:
    """Return the brokers for which the proxy has an address, at that address, and the ids of the others."""
    reported, strangers = [], set()
    for one in map(_fields, brokers):
        place = addresses.get(one[id_field])
        if place is None:
            strangers.add(one[id_field])
        else:
            reported.append({**one, "host": place[0], "port": place[1]})
    return reported, frozenset(strangers)


def _fields(part: Any) -> dict[str, Any]:
    return messages.fields_of(part)


def _encode(api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> bytes:
    return messages.encode_response(api_key, version, **fields)


def _behind_partitions(version: int, body: memoryview) -> int:
    """Return where the partitions of a flexible answer to Produce end. Raises Truncated, or Malformed."""
    try:
        topics, at = _count(body, 0)
        for _ in range(topics):
            at = at + _UUID_BYTES if version >= _TOPIC_IDS_FROM else _behind_text(body, at)
            partitions, at = _count(body, at)
            for _ in range(partitions):
                errors, at = _count(body, at + _PARTITION_FIXED_BYTES)
                for _ in range(errors):
                    at = skip_tagged_fields(body, _behind_text(body, at + INT32.size), ANSWER_TAGGED_FIELDS_MAX)
                at = skip_tagged_fields(body, _behind_text(body, at), ANSWER_TAGGED_FIELDS_MAX)
            at = skip_tagged_fields(body, at, ANSWER_TAGGED_FIELDS_MAX)
    except IndexError:
        raise Truncated(f"answer to Produce: {len(body)} bytes end within a partition") from None
    return at


def _count(body: memoryview, at: int) -> tuple[int, int]:
    """Return the length of a compact array or string (0 for null), and where its content begins."""
    byte = body[at]
    number, at = (byte, at + 1) if byte < 0x80 else read_unsigned_varint(body, at)
    return max(number - 1, 0), at


def _behind_text(body: memoryview, at: int) -> int:
    size, at = _count(body, at)
    return at + size


def _check_count(reader: Reader, count: int) -> None:
    if count * _BROKER_BYTES_MIN > reader.end - reader.position:
        raise Truncated(f"brokers: {count} entries announced, {reader.end - reader.position} bytes are there")


def _skip_string(reader: Reader, field: str, is_flexible: bool) -> None:
    """Pass over a string, or null."""
    size = reader.uvarint(field) - 1 if is_flexible else reader.int16(field)
    if size > 0:
        reader.take(size, field)


def _text(text: str, is_flexible: bool) -> bytes:
    if not is_flexible:
        return string(text)
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw
