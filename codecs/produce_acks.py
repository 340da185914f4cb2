"""Which acknowledgement a produce request asks for, read from the start of its frame. Reads nothing behind that.

Source: ProduceRequest.json; the request's header is in ``headers.py``.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from .errors import Truncated
from .headers import is_flexible, skip_tagged_fields
from .primitives import Buffer, read_unsigned_varint

START_BYTES_MAX: Final = 96 * 1024
"""Of a frame, up to its acks: the client id and the transactional id have 32 KiB each at most."""
_PRODUCE: Final = 0
_TRANSACTIONAL_ID_FROM: Final = 3
_BEFORE_CLIENT_ID: Final = 8
_INT16: Final = Struct(">h")


def acks_of(data: Buffer, position: int, size: int, api_version: int) -> int | None:
    """Return the acks of the request whose header begins at ``position`` and that has ``size`` bytes; None: the bytes
    that are here do not tell yet. Raises Truncated, or Malformed."""
    flexible = is_flexible(_PRODUCE, api_version)
    at = position + _BEFORE_CLIENT_ID
    try:
        at += _INT16.size + max(_INT16.unpack_from(data, at)[0], 0)
        if flexible:
            at = skip_tagged_fields(data, at)
        if api_version >= _TRANSACTIONAL_ID_FROM and flexible:
            length, at = read_unsigned_varint(data, at)
            at += max(length - 1, 0)
        elif api_version >= _TRANSACTIONAL_ID_FROM:
            at += _INT16.size + max(_INT16.unpack_from(data, at)[0], 0)
        acks: int = _INT16.unpack_from(data, at)[0]
    except (error, Truncated):
        if len(data) - position < size:
            return None
        raise Truncated(f"produce request: {size} bytes end before its acks") from None
    if at + _INT16.size > position + size:
        raise Truncated(f"produce request: {size} bytes end before its acks")
    return acks
