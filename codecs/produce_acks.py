"""Which acknowledgement a produce request asks for, read from the start of its frame. Reads nothing after that.

Source: ProduceRequest.json; the request's header is in ``headers.py``.
"""

from __future__ import annotations

from typing import Final

from .errors import Truncated
from .headers import is_flexible, skip_tagged_fields
from .primitives import Buffer, read_unsigned_varint

START_BYTES_MAX: Final = 96 * 1024
"""Of a frame, up to its acks: the client id and the transactional id have 32 KiB each at most."""
_PRODUCE: Final = 0
_TRANSACTIONAL_ID_FROM: Final = 3
_BEFORE_CLIENT_ID: Final = 8
_INT16_BYTES: Final = 2
_NEGATIVE_FROM: Final = 1 << 15


def acks_of(data: Buffer, position: int, size: int, api_version: int) -> tuple[int, int] | None:
    """Return the acks of the request whose header begins at ``position`` and that has ``size`` bytes, header included,
    and where they end. None: not enough of it has arrived yet. Raises Truncated or Malformed."""
    at = position + _BEFORE_CLIENT_ID
    try:
        at = _behind_string(data, at)
        if is_flexible(_PRODUCE, api_version):
            at = skip_tagged_fields(data, at)
            length, at = read_unsigned_varint(data, at)
            at += max(length - 1, 0)
        elif api_version >= _TRANSACTIONAL_ID_FROM:
            at = _behind_string(data, at)
        acks = data[at] << 8 | data[at + 1]
    except (IndexError, Truncated):
        if len(data) - position < size:
            return None
        raise Truncated(f"produce request: {size} bytes end before its acks") from None
    if at + _INT16_BYTES > position + size:
        raise Truncated(f"produce request: {size} bytes end before its acks")
    return (acks if acks < _NEGATIVE_FROM else acks - (1 << 16)), at + _INT16_BYTES


def _behind_string(data: Buffer, at: int) -> int:
    """Return where a string, or null, ends."""
    length = data[at] << 8 | data[at + 1]
    return at + _INT16_BYTES + (length if length < _NEGATIVE_FROM else 0)
