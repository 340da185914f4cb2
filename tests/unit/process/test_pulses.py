"""Which workers their supervisor takes for hung, by the beats that it has heard."""

from idemproxy.proxy.limits import (
    SUPERVISOR_LATE_SECONDS,
    WORKER_LOOK_SECONDS,
    WORKER_SILENT_SECONDS_MAX,
    WORKER_START_SECONDS_MAX,
)
from idemproxy.proxy.process.pulses import Pulses

START = 100.0
LOOKS = int(WORKER_SILENT_SECONDS_MAX / WORKER_LOOK_SECONDS)


class Watched:
    """Two workers that have sent a beat, and the looks of their supervisor."""

    def __init__(self) -> None:
        self.pulses = Pulses()
        self.now = START
        for number in (1, 2):
            self.pulses.begin(number, START)
            self.pulses.beat(number, START)
        self.pulses.look(START)

    def look(self, *beating: int, after: float = WORKER_LOOK_SECONDS) -> list[int]:
        self.now += after
        for number in beating:
            self.pulses.beat(number, self.now)
        return self.pulses.look(self.now)


def test_a_worker_that_is_silent_for_longer_than_a_lease_is_killed_once() -> None:
    watched = Watched()
    assert [watched.look(2) for _ in range(LOOKS)] == [[]] * LOOKS
    assert watched.pulses.silent(watched.now) == {1: WORKER_SILENT_SECONDS_MAX}
    assert watched.look(2) == [1]
    assert watched.look(2) == [], "SIGKILL is sent once"


def test_the_worker_in_its_place_is_judged_by_its_own_beats() -> None:
    watched = Watched()
    while 1 not in watched.look(2):
        pass
    watched.pulses.end(1)
    watched.pulses.begin(1, watched.now)
    starting = int(WORKER_START_SECONDS_MAX / WORKER_LOOK_SECONDS)
    assert [watched.look(2) for _ in range(starting)] == [[]] * starting, "it loads its modules"
    assert watched.pulses.silent(watched.now) == {}
    assert watched.look(2) == [1], "it has hung before its first beat"


def test_a_supervisor_that_stood_still_kills_nobody_for_what_it_has_not_heard() -> None:
    watched = Watched()
    assert watched.look(after=600.0) == []
    assert watched.pulses.silent(watched.now) == {}, "the time of each has begun again"
    assert [watched.look(1, 2) for _ in range(2 * LOOKS)] == [[]] * 2 * LOOKS
    assert watched.look(after=600.0) == []
    assert [watched.look(1) for _ in range(LOOKS)] == [[]] * LOOKS
    assert watched.look(1) == [2], "one that hangs is found after it, too"


def test_a_supervisor_that_is_a_little_late_counts_on() -> None:
    watched = Watched()
    late = WORKER_LOOK_SECONDS + SUPERVISOR_LATE_SECONDS
    found = [watched.look(1, after=late) for _ in range(int(WORKER_SILENT_SECONDS_MAX / late) + 1)]
    assert found[-1] == [2]


def test_a_worker_that_sigkill_does_not_end_is_named() -> None:
    watched = Watched()
    while 1 not in watched.look(2):
        pass
    assert watched.pulses.unkillable(watched.now) == []
    for _ in range(LOOKS + 1):
        watched.look(2)
    assert watched.pulses.unkillable(watched.now) == [1]
    watched.pulses.end(1)
    assert watched.pulses.unkillable(watched.now) == []


def test_a_beat_that_is_read_after_the_end_keeps_nothing() -> None:
    watched = Watched()
    watched.pulses.end(1)
    watched.pulses.beat(1, watched.now)
    assert [watched.look(2) for _ in range(2 * LOOKS)] == [[]] * 2 * LOOKS
    assert watched.pulses.silent(watched.now) == {}
