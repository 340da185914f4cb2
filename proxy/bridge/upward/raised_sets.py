"""The message sets of one produce request as batches: made in steps, kept until they are sent. Sends nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from ....codecs.error_codes import ErrorCode
from ....codecs.errors import WireError
from ....codecs.old_formats.raising import RefusedSet, raising, splitting
from ....codecs.steps import Steps
from ....producing.numbered_batch import Place
from ....reactor import Buffer

_BYTES_PER_BYTE_MAX: Final = 4
RAISED_BYTES_MIN: Final = 16 << 20
"""What the batches of a request may have: four times its bytes, as they compress less well, and 16 MB in any case. Sets
above it are refused: by wrappers of several codecs a request of 100 MB would become 3 GB."""


class SetBatches:
    """Those of a set that were not submitted yet. ``size_bytes``: of all; a set may have 200,000, and after each event
    it is asked for."""

    __slots__ = ("_batches", "size_bytes")

    def __init__(self, batches: Iterable[Buffer] = ()) -> None:
        self._batches = deque(batches)
        self.size_bytes = sum(map(len, self._batches))

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Buffer]:
        return iter(self._batches)

    @property
    def first(self) -> Buffer:
        """The next one."""
        return self._batches[0]

    def pop_first(self) -> Buffer:
        """Take the next one away."""
        first = self._batches.popleft()
        self.size_bytes -= len(first)
        return first

    def put_back(self, batch: Buffer) -> None:
        """It is the next one again."""
        self._batches.appendleft(batch)
        self.size_bytes += len(batch)


def raised_bytes_max(request_bytes: int) -> int:
    """Return what the batches of a request of so many bytes may have."""
    return max(_BYTES_PER_BYTE_MAX * request_bytes, RAISED_BYTES_MIN)


def raising_all(
    sets: Mapping[Place, tuple[Sequence[Buffer], int]], arrived_ms: int, unpacked_bytes_max: int, bytes_max: int
) -> Steps[dict[Place, list[Buffer] | RefusedSet]]:
    """Return the batches of each set, of which there are two where a request names a partition twice. ``sets``: with
    the most bytes of a batch. ``bytes_max``: of all batches."""
    room = bytes_max
    found: dict[Place, list[Buffer] | RefusedSet] = {}
    for place, (message_sets, batch_bytes_max) in sets.items():
        batches: list[Buffer] = []
        found[place] = batches
        for message_set in message_sets:
            made = yield from raising(
                message_set,
                arrival_ms=arrived_ms,
                batch_bytes_max=batch_bytes_max,
                unpacked_bytes_max=unpacked_bytes_max,
            )
            if not isinstance(made, RefusedSet) and (size_bytes := sum(map(len, made))) > room:
                made = RefusedSet(ErrorCode.MESSAGE_TOO_LARGE, f"{size_bytes} bytes, and {room} are left for it")
            if isinstance(made, RefusedSet):
                found[place] = made
                break
            batches += made
            room -= size_bytes
        yield
    return found


def splitting_all(
    batches: Sequence[Buffer], bytes_max: int, unpacked_bytes_max: int
) -> Steps[list[Buffer] | RefusedSet]:
    """Return the batches within the limit, but the first one in several in any case: it was refused. RefusedSet where
    one can not be taken apart: a batch of format v2 that stood in the set has not been looked into."""
    pieces: list[Buffer] = []
    try:
        for index, batch in enumerate(batches):
            if index and len(batch) <= bytes_max:
                pieces.append(batch)
            else:
                pieces += yield from splitting(batch, min(bytes_max, len(batch) // 2), unpacked_bytes_max)
    except WireError as error:
        return RefusedSet(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    return pieces
