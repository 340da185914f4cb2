"""Headers of requests and responses. Owns which version of an API is flexible; never reads a body.

Source: Kafka's RequestHeader.json and ResponseHeader.json; ApiMessageType.requestHeaderVersion.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from .errors import Malformed, Truncated
from .primitives import Buffer, read_unsigned_varint

API_VERSIONS: Final = 18

FLEXIBLE_FROM: Final[dict[int, int]] = {
    0: 9,
    1: 12,
    2: 6,
    3: 9,
    4: 4,
    5: 2,
    6: 6,
    7: 3,
    8: 8,
    9: 6,
    10: 3,
    11: 6,
    12: 4,
    13: 4,
    14: 4,
    15: 5,
    16: 3,
    API_VERSIONS: 3,
    19: 5,
    20: 4,
    21: 2,
    22: 2,
    23: 4,
    24: 3,
    25: 3,
    26: 3,
    27: 1,
    28: 3,
    29: 2,
    30: 2,
    31: 2,
    32: 4,
    33: 2,
    34: 2,
    35: 2,
    36: 2,
    37: 2,
    38: 2,
    39: 2,
    40: 2,
    41: 2,
    42: 2,
    43: 2,
    44: 1,
    48: 1,
    49: 1,
    **{api_key: 0 for api_key in (45, 46, 50, 51, 52, 53, 54, *range(55, 93))},
}
"""The first flexible version of each API (compact strings, tagged fields). 17 and 47 have none."""

_NEVER: Final = 1 << 15  # above every version

TAGGED_FIELDS_MAX: Final = 2
"""Tagged fields in one place of a request, of which it has up to 20,000: more, and reading it would take longer than a
step of the loop may. Kafka defines none in the header and in Produce requests."""

ANSWER_TAGGED_FIELDS_MAX: Final = 64
"""In one place of a broker's answer: newer brokers may add some."""

_REQUEST_START: Final = Struct(">hhih")
_KEY_VERSION_CORRELATION: Final = Struct(">hhi")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


class RequestHeader(NamedTuple):
    """The header of a request. ``body_offset`` is where the body starts in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether this version has compact strings and tagged fields (KIP-482). False for an unknown API."""
    return api_version >= FLEXIBLE_FROM.get(api_key, _NEVER)


def parse_request_header(frame: Buffer) -> RequestHeader:
    """Return the header (v1, or v2 when the version is flexible; the client id is never compact).

    Raises Truncated or Malformed. A client id that is not UTF-8 is kept with replacement characters, as Kafka does.
    """
    if len(frame) < _REQUEST_START.size:
        raise Truncated(f"request header: {len(frame)} bytes")
    api_key, api_version, correlation_id, length = _REQUEST_START.unpack_from(frame)
    position = _REQUEST_START.size
    client_id = None
    if length >= 0:
        end = position + length
        if end > len(frame):
            raise Truncated(f"client id at {position}: {length} bytes announced, {len(frame) - position} there")
        client_id = str(frame[position:end], "utf-8", "replace")
        position = end
    elif length != -1:
        raise Malformed(f"client id at {position - _INT16.size}: length {length}")
    if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER):
        position = skip_tagged_fields(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def encode_request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Return the header of a request, v1 or v2 by the version; a v2 header has no tagged fields."""
    start = _KEY_VERSION_CORRELATION.pack(api_key, api_version, correlation_id)
    end = b"\0" if is_flexible(api_key, api_version) else b""
    if client_id is None:
        return start + _INT16.pack(-1) + end
    name = client_id.encode("utf-8", "replace")
    return start + _INT16.pack(len(name)) + name + end


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Return the header of a response: v0, or v1 when the version is flexible. ApiVersions always has v0 (KIP-511)."""
    if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER) and api_key != API_VERSIONS:
        return _INT32.pack(correlation_id) + b"\0"
    return _INT32.pack(correlation_id)


def parse_response_header(frame: Buffer, api_key: int, api_version: int) -> tuple[int, int]:
    """Return (correlation id, where the body starts). Raises Truncated or Malformed."""
    if len(frame) < _INT32.size:
        raise Truncated(f"response header: {len(frame)} bytes")
    (correlation_id,) = _INT32.unpack_from(frame)
    if api_version >= FLEXIBLE_FROM.get(api_key, _NEVER) and api_key != API_VERSIONS:
        return correlation_id, skip_tagged_fields(frame, _INT32.size, ANSWER_TAGGED_FIELDS_MAX)
    return correlation_id, _INT32.size


def skip_tagged_fields(data: Buffer, position: int, at_most: int = TAGGED_FIELDS_MAX) -> int:
    """Return the position after the tagged fields that start at ``position``. Raises Truncated or Malformed."""
    if position < len(data) and data[position] == 0:
        return position + 1
    count, position = read_unsigned_varint(data, position)
    if count > at_most:
        raise Malformed(f"tagged fields at {position}: {count}, at most {at_most} are read")
    end = len(data) - 1
    for _ in range(count):
        if position < end and data[position] < 0x80 and data[position + 1] < 0x80:  # as almost always
            size = data[position + 1]
            position += 2
        else:
            _, position = read_unsigned_varint(data, position)
            size, position = read_unsigned_varint(data, position)
        if size > len(data) - position:
            raise Truncated(f"tagged field at {position}: {size} bytes announced, {len(data) - position} there")
        position += size
    return position
