"""What happens with free memory: it is kept for the next batch under load, and given back to the kernel when the
process is idle.

Buffers of requests and of batches come and go by the megabyte. Mapped again each time they would cost 40 % of a large
batch's CPU, so they come from the heap, and the heap keeps what a load has once needed: hundreds of MB in a proxy to
which no client is connected. So it is checked now and then whether this process has grown and has little to do. Then
all free memory goes back to the kernel in small steps, so that a client that sends something meanwhile does not wait
for all of it."""

from __future__ import annotations

import ctypes
import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import trio

from .. import limits

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGE_BUFFER_BYTES = 4 * limits.MIB
_FREE_BYTES_KEPT = 128 * limits.MIB
_GC_THRESHOLDS = (5_000, 10, 400)
"""A request makes hundreds of short-lived objects and no cycles; by default the collector runs much more often. It
stops everything, so no full collection may be needed: what belongs to a request or a connection breaks its reference
cycles when that ends. A cycle of a connection has grown old by then, and only a full collection would find it. CPU time
of one collection, with all of the start frozen: data generation 0 takes 2 to 4 ms and data generation 1 takes 6 to 20
ms; a full one takes 20 ms with 400 connections that produce, and 130 to 160 ms with 10,000 idle producers on 400
connections, which have 164,000 objects. Without the freeze 10 ms more. Under these loads no collection found a
cycle."""
_YOUNG = 1
"""The oldest data generation that is collected when the process is idle: data generation 2 has all producers in
memory."""
_PIECES_BYTES = (limits.MIB, limits.MIB // 8, limits.MIB // 32)
"""Free memory is taken in pieces of these sizes, the largest first; smaller ones are left to the last step."""
_FREED_AT_ONCE = 500
_MADV_DONTNEED = 4


def tune() -> None:
    """Keep buffers of some MB in the heap: else each 1 MB batch is mapped and unmapped again (36 to 43 % of its CPU).
    Larger ones are mapped: where a batch unpacks to 60 MB, buffers grow without copies, and without leaving holes of
    twice that size."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BUFFER_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _FREE_BYTES_KEPT)
    except (OSError, AttributeError):
        pass  # another C library: slower, not wrong
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def resident_bytes() -> int:
    """Return the resident bytes of this process; 0 where /proc does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def give_back() -> Iterator[None]:
    """Give what is free back to the kernel: 0.1 ms for each MB of it, in steps of ``limits.MEMORY_STEP_BYTES``.

    ``malloc_trim`` alone does all of it in one step, 60 ms for 600 MB. In a thread it would hold up this one all the
    same, as it has the heap's lock for so long. So what is free is taken piece by piece first, and emptied; then there
    is little left to do for it."""
    gc.collect(_YOUNG)
    yield
    try:
        libc = _libc()
    except (OSError, AttributeError):  # another C library keeps its free memory
        return
    taken: list[int] = []
    try:
        yield from _take_and_empty(libc, taken)
        while taken:
            _free(libc, taken, _FREED_AT_ONCE)
            yield
    finally:
        _free(libc, taken, len(taken))
    libc.malloc_trim(0)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.malloc_trim.argtypes, libc.malloc_trim.restype = [ctypes.c_size_t], ctypes.c_int
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes, libc.free.restype = [ctypes.c_void_p], None
    libc.sbrk.argtypes, libc.sbrk.restype = [ctypes.c_ssize_t], ctypes.c_void_p
    libc.madvise.argtypes, libc.madvise.restype = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int], ctypes.c_int
    return libc


def _take_and_empty(libc: ctypes.CDLL, taken: list[int]) -> Iterator[None]:
    """Take all free pieces of the heap as it is, and let the kernel have the pages inside each of them."""
    page = os.sysconf("SC_PAGE_SIZE")
    since = 0
    for size in _PIECES_BYTES:
        while True:
            end = libc.sbrk(0)
            piece = libc.malloc(size)
            if piece is None:
                break
            taken.append(piece)
            if piece + size > end:  # new memory: no piece of this size is free any more
                break
            first, last = -(-piece // page) * page, (piece + size) // page * page
            libc.madvise(first, last - first, _MADV_DONTNEED)
            since += size
            if since >= limits.MEMORY_STEP_BYTES:
                since = 0
                yield


def _free(libc: ctypes.CDLL, taken: list[int], count: int) -> None:
    for _ in range(min(count, len(taken))):
        libc.free(taken.pop())


class MemoryWatch:
    """Decides from one check to the next whether there is memory to give back, and the time for it."""

    def __init__(self, cpu_seconds: float) -> None:
        """``cpu_seconds``: used by this process so far."""
        self._cpu_seconds = cpu_seconds
        self._least = 0  # the start itself leaves something

    def is_due(self, seconds: float, cpu_seconds: float, resident: int) -> bool:
        """Is it time to give memory back? ``seconds``: since the last check."""
        used, self._cpu_seconds = cpu_seconds - self._cpu_seconds, cpu_seconds
        return used < limits.QUIET_CPU_SHARE * seconds and resident > self._least + limits.MEMORY_GROWN_BYTES

    def given_back(self, resident: int) -> None:
        """Note what is left after giving back, from which growth is measured."""
        self._least = resident


async def stay_small(give_back: Callable[[], Iterable[None]] = give_back) -> None:
    """Check for as long as the process runs. Other tasks run between the steps of ``give_back``."""
    watch = MemoryWatch(time.process_time())
    last = time.monotonic()
    while True:
        await trio.sleep(limits.MEMORY_LOOK_SECONDS)
        now = time.monotonic()
        if watch.is_due(now - last, time.process_time(), resident_bytes()):
            for _step in give_back():
                await trio.lowlevel.checkpoint()
            watch.given_back(resident_bytes())
        last = now
