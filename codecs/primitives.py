"""The smallest pieces of the wire format: variable-length integers, and reading them with every bound checked.

Knows no message. The fixed-size integers are ``struct`` formats in the files that use them.
"""

from __future__ import annotations

from .errors import Malformed, Truncated

Buffer = bytes | bytearray | memoryview

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10
INT64_BITS = 64


def read_unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return (value, position after it). Raises Truncated, or Malformed when it does not fit in 32 bits."""
    value = shift = 0
    for start in range(position, position + VARINT_BYTES_MAX):
        if start >= len(data):
            raise Truncated(f"varint at {position}: the data ends within it")
        byte = data[start]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                raise Malformed(f"varint at {position}: more than 32 bits")
            return value, start + 1
        shift += 7
    raise Malformed(f"varint at {position}: more than {VARINT_BYTES_MAX} bytes")


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """Return (zig-zag value of up to 64 bits, position after it). Raises Truncated or Malformed."""
    value = shift = 0
    for start in range(position, position + VARLONG_BYTES_MAX):
        if start >= len(data):
            raise Truncated(f"varint at {position}: the data ends within it")
        byte = data[start]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> INT64_BITS:
                raise Malformed(f"varint at {position}: more than {INT64_BITS} bits")
            return (value >> 1) ^ -(value & 1), start + 1
        shift += 7
    raise Malformed(f"varint at {position}: more than {VARLONG_BYTES_MAX} bytes")


def encode_unsigned_varint(value: int) -> bytes:
    """Return ``value`` (0 to 2**64 - 1) in groups of seven bits, lowest first."""
    assert 0 <= value < 1 << INT64_BITS
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_varlong(value: int) -> bytes:
    """Return the signed ``value`` (64 bits) in zig-zag form. A varint of 32 bits has the same form."""
    return encode_unsigned_varint((value << 1) ^ (value >> (INT64_BITS - 1)))


def wrap_int64(value: int) -> int:
    """Return ``value`` as Java's long would hold it: sums of two 64-bit numbers from outside wrap, as in Kafka."""
    return ((value + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
