"""A byte stream that is forwarded as it arrives, except that the start of a frame may be replaced. Owns where frames
begin.

A whole frame is never kept: ``look`` sees the start of each one, and says how much of it is replaced by what. All else
is forwarded in the pieces in which it arrived, also the rest of a frame of which only the start is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from .errors import LimitExceeded, WireError
from .framing import FRAME_BYTES_CEILING, SIZE_BYTES, wrong_size
from .primitives import Buffer


class Cut(NamedTuple):
    """What becomes of one frame: its first ``taken`` bytes, the four of its size included, are replaced by ``instead``.
    The rest is forwarded, or dropped (``drops_rest``)."""

    taken: int
    instead: Buffer
    drops_rest: bool = False


PASSES: Final = Cut(0, b"")
"""The frame is forwarded as it is."""

STOPS: Final = Cut(0, b"")
"""The stream ends in front of the frame: ``FrameStream.rest`` has it, and what came behind it."""

Look = Callable[[bytes, int, int], Cut | None]
"""Called with bytes, the position in them at which the frame begins (with its size), and how many bytes the frame has
without its size. None: more bytes are needed to decide."""


def _drop(_data: bytes, _start: int, _size: int) -> Cut:
    """The stream was closed: every further frame is dropped."""
    return Cut(0, b"", drops_rest=True)


class FrameStream:
    """One direction of one connection.

    Memory: the start of one frame, as long as ``look`` wants more of it; never more than ``start_bytes_max``.
    """

    __slots__ = ("_drops", "_frame_bytes_max", "_left", "_look", "_start", "_start_bytes_max", "error", "rest")

    def __init__(self, look: Look, frame_bytes_max: int, start_bytes_max: int) -> None:
        self._look = look
        self._frame_bytes_max = min(frame_bytes_max, FRAME_BYTES_CEILING)
        self._start_bytes_max = start_bytes_max
        self._start = b""
        self._left = 0
        """Bytes that have not arrived yet of the frame that was decided on last."""
        self._drops = False
        """Is the rest of that frame dropped?"""
        self.error: WireError | None = None
        """What is wrong with the bytes after those that ``feed`` has returned last; None: nothing is."""
        self.rest = b""
        """The bytes from a frame on at which it stopped, for who takes them away; nothing is fed before that."""

    @property
    def is_between(self) -> bool:
        """Is the stream between two frames, so that no frame has begun?"""
        return not self._left and not self._start

    @property
    def is_within(self) -> bool:
        """Is the rest of a frame due that is forwarded?"""
        return self._left > 0 and not self._drops

    @property
    def start_bytes(self) -> int:
        """Bytes that are kept here."""
        return len(self._start)

    def close(self) -> None:
        """Drop every frame that was not decided on yet, without showing it to ``look``: what is kept of one, and what
        comes."""
        self._look = _drop
        self._start = b""

    def feed(self, data: bytes) -> list[Buffer]:
        """Return the bytes to forward, in order. Raises WireError for an impossible frame size, and what ``look``
        raises. If a frame ends before these bytes, it returns what is to be forwarded until there, and ``error`` has
        what it would have raised. After an error the stream is of no use."""
        left, end = self._left, len(data)
        if left >= end:
            self._left = left - end
            return [] if self._drops else [data]
        if not left and not self._start and end >= SIZE_BYTES:
            # What arrives is nearly always one frame, or the beginning of a large one.
            size = int.from_bytes(data[:SIZE_BYTES], "big", signed=True)
            if end - SIZE_BYTES <= size <= self._frame_bytes_max:
                cut = self._look(data, 0, size)
                if cut is PASSES:
                    self._drops = False
                    self._left = size + SIZE_BYTES - end
                    return [data]
                return self._split(data, 0, (cut, SIZE_BYTES + size))
        if self._start:
            data = self._start + data
            self._start = b""
        return self._split(data, left)

    def _split(self, data: bytes, left: int, first: tuple[Cut | None, int] | None = None) -> list[Buffer]:
        """Return the bytes to forward of ``data``, which begins with ``left`` bytes of an earlier frame. ``first``: the
        decision on the next frame and where that ends, if ``look`` has been asked already."""
        out: list[Buffer] = []
        end = len(data)
        kept, position = left if self._drops else 0, left
        while position < end:
            try:
                (cut, after), first = first or self._next(data, position), None
                if cut is None:
                    self._keep(data[position:])
                    break
            except WireError as error:
                if not position:
                    raise
                self.error = error
                break
            if cut is STOPS:
                self.rest = data[position:]
                break
            if cut is not PASSES:
                if kept < position:
                    out.append(data[kept:position])
                if cut.instead:
                    out.append(cut.instead)
                kept = min(after, end) if cut.drops_rest else position + cut.taken
            self._drops = cut.drops_rest
            position = after
        self._left = max(position - end, 0)
        last = min(position, end)
        if kept < last:
            out.append(data if kept == 0 and last == end else data[kept:last])
        return out

    def _next(self, data: bytes, position: int) -> tuple[Cut | None, int]:
        """Return what becomes of the frame that begins here, and where it ends."""
        behind_size = position + SIZE_BYTES
        if behind_size > len(data):
            return None, position
        size = int.from_bytes(data[position:behind_size], "big", signed=True)
        if not 0 <= size <= self._frame_bytes_max:
            raise wrong_size(data[position:behind_size], self._frame_bytes_max)
        return self._look(data, position, size), behind_size + size

    def _keep(self, start: bytes) -> None:
        if len(start) > self._start_bytes_max:
            raise LimitExceeded(f"start of a frame: more than {self._start_bytes_max} bytes are needed of it")
        self._start = start
