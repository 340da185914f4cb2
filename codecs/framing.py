"""Frames of the Kafka protocol: a size of 4 bytes, big endian, and then that many bytes.

Owns the cutting of a byte stream into frames and the size limit. Never looks into a frame.
"""

from __future__ import annotations

from typing import Final

from .errors import LimitExceeded, Malformed
from .primitives import Buffer

Frame = bytes | bytearray
"""One frame without its size. A very large one grows in place as it arrives; it is not changed after that."""

SIZE_BYTES: Final = 4
FRAME_BYTES_CEILING: Final = 0x16_03_00_00 - 1
"""No limit goes above this (369 MB): a TLS hello or an HTTP method, read as a size, is larger and so is noticed."""

_JOINED_BYTES_MAX: Final = 8 << 20
"""Larger frames grow in one bytearray. Joining their pieces would copy the whole frame in one step (this much takes
2 ms), and hold it twice meanwhile. For smaller frames joining is cheaper: a bytearray that grows is moved several
times."""
_PIECES_MAX: Final = 256
"""Each piece is a bytes object with more than 40 bytes of overhead, even if a client sends byte by byte."""

_TLS_HELLO: Final = b"\x16\x03"
_TLS_ALERT: Final = b"\x15\x03"
_HTTP_ANSWER: Final = b"HTTP"
_HTTP_STARTS: Final = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")


def frame(*chunks: Buffer) -> bytes:
    """Return the chunks as one frame, with its size in front."""
    size = sum(map(len, chunks))
    assert size < 1 << 31
    return b"".join((size.to_bytes(SIZE_BYTES, "big"), *chunks))


def wrong_size(start: bytes, frame_bytes_max: int) -> LimitExceeded | Malformed:
    """Return the error for the first four bytes of a frame; it names the other protocol that they look like, if any."""
    if start.startswith(_TLS_HELLO):
        return Malformed("frame size: this is the start of a TLS connection, and this listener speaks plain Kafka")
    if start in _HTTP_STARTS:
        return Malformed(f"frame size: this is an HTTP request ({start.decode().strip()}), not the Kafka protocol")
    if start == _HTTP_ANSWER:
        return Malformed("frame size: this is the answer of an HTTP server, not the Kafka protocol")
    if start.startswith(_TLS_ALERT):
        return Malformed("frame size: this is an alert of TLS, not the Kafka protocol: TLS is spoken there")
    size = int.from_bytes(start, "big", signed=True)
    if size <= 0:
        return Malformed(f"frame size: {size}")
    return LimitExceeded(f"frame size: {size} bytes, the limit is {frame_bytes_max} bytes")


class FrameSplitter:
    """Turns what arrives on one connection into whole frames.

    Memory: what has arrived of the unfinished frame, never more. The size in front is believed only as a limit.
    """

    __slots__ = ("_frame_bytes_max", "_have", "_head", "_large", "_need", "_pieces", "error")

    def __init__(self, frame_bytes_max: int) -> None:
        assert frame_bytes_max > 0
        self._frame_bytes_max = min(frame_bytes_max, FRAME_BYTES_CEILING)
        self._head = b""  # up to 3 bytes of a size that has not arrived completely
        self._pieces: list[bytes] = []
        self._large: bytearray | None = None  # instead of `pieces`, once these are too much
        self._have = 0  # bytes in `pieces`, or in `large`
        self._need = 0  # size of the frame that `pieces` will be; 0 = its size is not known yet
        self.error: LimitExceeded | Malformed | None = None
        """What is wrong with the bytes after the frames that ``feed`` has returned last; None: nothing is."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the unfinished frame that are held here, with those of its size."""
        return len(self._head) + self._have + (SIZE_BYTES if self._need else 0)

    @property
    def missing_bytes(self) -> int:
        """Bytes of the unfinished frame that have not arrived; 0: its size is not known."""
        return self._need - self._have

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that ``data`` completes, in order, without their sizes.

        Raises LimitExceeded for a size above the limit, Malformed for one below 1 or for bytes of another protocol.
        If there are frames before these bytes, it returns the frames, and ``error`` has what it would have raised.
        After an error the connection is of no use: nothing tells where the next frame starts.
        """
        if self.error is not None:
            raise self.error
        if not self._need and not self._head:
            # What arrives is nearly always exactly one frame: no loop and one copy for it.
            size = int.from_bytes(data[:SIZE_BYTES], "big", signed=True)
            if 0 < size <= self._frame_bytes_max and len(data) == size + SIZE_BYTES:
                return [data[SIZE_BYTES:]]
        elif self._need and self._have + len(data) < self._need:
            self._keep(data)
            return []
        return self._split(data)

    def _keep(self, data: bytes) -> None:
        self._have += len(data)
        if self._large is not None:
            self._large += data
            return
        self._pieces.append(data)
        if self._have > _JOINED_BYTES_MAX or len(self._pieces) > _PIECES_MAX:
            self._large = bytearray().join(self._pieces)
            self._pieces.clear()

    def _split(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        position = 0
        if self._need:
            position = self._need - self._have
            if self._large is None:
                self._pieces.append(data[:position])
                frames.append(b"".join(self._pieces))
                self._pieces.clear()
            else:
                self._large += data[:position]
                frames.append(self._large)
                self._large = None
            self._have = self._need = 0
        elif self._head:
            data = self._head + data
            self._head = b""
        while len(data) - position >= SIZE_BYTES:
            size = int.from_bytes(data[position : position + SIZE_BYTES], "big", signed=True)
            if not 0 < size <= self._frame_bytes_max:
                # Raised without a name for it here: the traceback of an error that a local names is a circle.
                if not frames:
                    raise wrong_size(data[position : position + SIZE_BYTES], self._frame_bytes_max)
                self.error = wrong_size(data[position : position + SIZE_BYTES], self._frame_bytes_max)
                return frames
            position += SIZE_BYTES
            if len(data) - position < size:
                self._need = size
                if position < len(data):
                    self._keep(data[position:])
                return frames
            frames.append(data[position : position + size])
            position += size
        self._head = data[position:]
        return frames
