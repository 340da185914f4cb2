"""Stored values as earlier versions of the proxy wrote them."""

from idemproxy.state.entry import HEAD, IS_TIMED, WINDOW_BATCH, WINDOW_BATCH_UNTIMED

_CRC_BYTES = 4


def as_format_1(entry: bytes) -> bytes:
    """Return an entry as proxies stored it that kept no checksum of the batches in the window, which is the last field
    of each."""
    window_batches, flags = entry[HEAD.size - 2 : HEAD.size]
    size = (WINDOW_BATCH if flags & IS_TIMED else WINDOW_BATCH_UNTIMED).size
    older = bytearray(entry[: HEAD.size])
    older[0] = 1
    for number in range(window_batches):
        start = HEAD.size + number * size
        older += entry[start : start + size - _CRC_BYTES]
    return bytes(older + entry[HEAD.size + window_batches * size :])
