"""ApiVersions: answered by the proxy itself, v0 to v3 in full. Never asks a broker and decides no range.

Some clients can not read the short refusal of an old broker, so even an unknown version gets a list with one range in
it. Source: KIP-35, KIP-511, ApiVersionsResponse; what clients ask for was seen with each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from ...codecs.error_codes import ErrorCode
from ...codecs.errors import WireError
from ...reactor import Buffer
from .. import limits
from ..versions import OWN_RANGES, ApiKey, reported
from .base import THROTTLE_NONE
from .fields import INT16, INT32, NO_TAGS, Reader, uvarint

_RANGE = Struct(">hhh")
_SOFTWARE_SINCE = 3


def answer(api_version: int, advertised: Mapping[int, tuple[int, int]]) -> bytes:
    """Return the body. A version that is not served: v0 layout, error 35 and the range of ApiVersions, as Kafka since
    2.4."""
    first, last = OWN_RANGES[ApiKey.API_VERSIONS]
    if not first <= api_version <= last:
        return unsupported()
    return encode(api_version, ErrorCode.NONE, reported(advertised, api_version))


def software(api_version: int, body: Buffer) -> str:
    """Return the name and the version of the client's library, as it states them since v3 (KIP-511); "" if it does not,
    or not so that it can be read: a broker is to judge that."""
    if api_version < _SOFTWARE_SINCE:
        return ""
    reader = Reader(body)
    try:
        found = [reader.compact_nullable_string(field) for field in ("client_software_name", "client_software_version")]
    except WireError:
        return ""
    return " ".join(text for text in found if text)[: limits.OLD_CLIENT_TEXT_MAX]


def unsupported() -> bytes:
    """Return what every client of every version can read."""
    return encode(0, ErrorCode.UNSUPPORTED_VERSION, {ApiKey.API_VERSIONS: OWN_RANGES[ApiKey.API_VERSIONS]})


def encode(api_version: int, error_code: int, ranges: Mapping[int, tuple[int, int]]) -> bytes:
    """Return an ApiVersions body in the layout of v0 to v3, sorted by key."""
    tail = NO_TAGS if api_version >= 3 else b""
    parts = [INT16.pack(error_code), uvarint(len(ranges) + 1) if api_version >= 3 else INT32.pack(len(ranges))]
    parts += [_RANGE.pack(key, *ranges[key]) + tail for key in sorted(ranges)]
    if api_version >= 1:
        parts.append(THROTTLE_NONE)
    return b"".join(parts) + tail
