"""When memory is given back: decided from the CPU used and the memory held since the last look, and done for real."""

import subprocess
import sys
from itertools import pairwise

import pytest

from idemproxy.proxy.limits import MEMORY_GROWN_BYTES, MEMORY_STEP_BYTES, MIB, QUIET_CPU_SHARE
from idemproxy.proxy.process.free_memory import MemoryWatch, resident_bytes

LOOK = 10.0
BUSY = LOOK * QUIET_CPU_SHARE


def test_the_first_quiet_look_gives_back_what_the_start_has_left() -> None:
    watch = MemoryWatch(3.0)
    assert not watch.is_due(LOOK, 3.0 + BUSY, 50 * MIB)
    assert watch.is_due(LOOK, 3.0 + BUSY, 50 * MIB)


def test_grown_memory_is_given_back_once_and_not_under_load() -> None:
    watch = MemoryWatch(0.0)
    watch.given_back(50 * MIB)
    assert not watch.is_due(LOOK, 0.1, 50 * MIB + MEMORY_GROWN_BYTES)
    assert not watch.is_due(LOOK, 0.1 + BUSY, 500 * MIB)
    assert watch.is_due(LOOK, 0.2 + BUSY, 51 * MIB + MEMORY_GROWN_BYTES)
    watch.given_back(80 * MIB)  # there is more to remember than before
    assert not watch.is_due(LOOK, 0.2 + BUSY, 80 * MIB + MEMORY_GROWN_BYTES)
    assert watch.is_due(LOOK, 0.2 + BUSY, 81 * MIB + MEMORY_GROWN_BYTES)


def test_a_look_that_comes_late_does_not_take_more_cpu_for_less() -> None:
    watch = MemoryWatch(0.0)
    assert not watch.is_due(LOOK, BUSY, MIB * 100)
    assert watch.is_due(3 * LOOK, 2 * BUSY, MIB * 100)


def test_what_this_process_holds_is_what_the_kernel_says() -> None:
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith("VmRSS:")]
    assert resident_bytes() == pytest.approx(int(line.split()[1]) * 1024, rel=0.2)


PROGRAM = """
from idemproxy.proxy.process.free_memory import give_back, resident_bytes, tune
tune()
batches = [bytearray(b'x' * {size}) for _ in range({count})]
rest = [bytes(batch) for batch in batches[::40]]
batches.clear()
held = [resident_bytes()]
steps = give_back()
for step in steps:
    held.append(resident_bytes())
    if len(held) == {stops_after}:
        steps.close()
held.append(resident_bytes())
assert all(one == b'x' * {size} for one in rest)
again = [bytearray(b'y' * {size}) for _ in range({count})]
print(*held)
"""


def given_back(size: int, count: int, stops_after: int = -1) -> list[int]:
    """The bytes that a process holds after each step, when it gives back most of so many batches of this size."""
    program = PROGRAM.format(size=size, count=count, stops_after=stops_after)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    return [int(one) for one in said.stdout.split()]


def test_a_buffer_that_grows_leaves_no_holes_in_memory() -> None:
    """Two at a time, so that none can grow where it is."""
    program = (
        "from idemproxy.proxy.process.free_memory import resident_bytes, tune\n"
        "tune()\n"
        "before = resident_bytes()\n"
        "buffers = [bytearray(), bytearray()]\n"
        "for _ in range(60):\n"
        "    for buffer in buffers:\n"
        "        buffer += bytes(1 << 20)\n"
        "full = resident_bytes()\n"
        "del buffers, buffer\n"
        "print(full - before, resident_bytes() - before)\n"
    )
    command = [sys.executable, "-c", program]
    full, left = map(int, subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.split())
    assert full < 170 * MIB
    assert left < 50 * MIB


@pytest.mark.parametrize(("size", "count"), [(500_000, 400), (50_000, 4_000), (1_500_000, 150)])
def test_a_heap_in_pieces_is_given_back_in_small_steps(size: int, count: int) -> None:
    held = given_back(size, count)
    assert held[0] - held[-1] > 150 * MIB
    assert max(before - after for before, after in pairwise(held)) < 4 * MEMORY_STEP_BYTES, "nobody waits for all of it"


def test_who_is_ended_while_it_gives_back_has_its_heap_as_before() -> None:
    held = given_back(500_000, 400, stops_after=10)
    assert len(held) == 11
    assert held[0] - held[-1] > 4 * MEMORY_STEP_BYTES
