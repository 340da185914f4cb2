"""Marks of where logs ended at what time: what is kept of them, and their packed form (rule R10)."""

import pytest

from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.proxy.partition_log.offset_checkpoints import CheckpointFormatError, OffsetCheckpoints
from idemproxy.state.entry import NO_ANCHOR

PLACE, OTHER = ("topic", 0), ("tópico", 7)
WALL_MS = 1_700_000_000_000


def at(offset: int) -> Position:
    return Position(offset, offset.to_bytes(8, "big") if offset else NO_ANCHOR)


def noted(*times: int, checkpoints: OffsetCheckpoints | None = None) -> OffsetCheckpoints:
    """Marks of one partition that grows by a record a second."""
    checkpoints = checkpoints or OffsetCheckpoints(600.0)
    for time in times:
        checkpoints.note(float(time), PLACE, at(time))
    return checkpoints


def test_a_checkpoint_serves_when_it_is_older_than_the_horizon_and_the_newest_of_these_does() -> None:
    checkpoints = noted(0, 100, 200, 300)
    assert checkpoints.before_horizon(PLACE, 600) is None
    assert checkpoints.before_horizon(PLACE, 601) == at(0)
    assert checkpoints.before_horizon(PLACE, 850) == at(200)
    assert checkpoints.before_horizon(OTHER, 10_000) is None


def test_of_the_older_ones_only_the_newest_is_kept() -> None:
    checkpoints = noted(*range(1, 3002, 100))
    assert checkpoints.before_horizon(PLACE, 3002) == at(2401)
    assert checkpoints.before_horizon(PLACE, 3001) == at(2301)
    assert checkpoints.before_horizon(PLACE, 2801) is None, "what was older is gone"


def test_a_partition_that_stands_still_keeps_the_older_time() -> None:
    checkpoints = OffsetCheckpoints(600.0)
    checkpoints.note(0, PLACE, at(5))
    checkpoints.note(599, PLACE, at(5))
    assert checkpoints.before_horizon(PLACE, 601) == at(5)


def test_without_an_anchor_only_the_start_of_a_log_is_a_checkpoint() -> None:
    checkpoints = OffsetCheckpoints(600.0)
    checkpoints.note(0, PLACE, Position(5, NO_ANCHOR))
    checkpoints.note(0, OTHER, Position(0, NO_ANCHOR))
    assert checkpoints.before_horizon(PLACE, 601) is None
    assert checkpoints.before_horizon(OTHER, 601) == Position(0, NO_ANCHOR)


def test_the_newest_bounds_are_taken_ten_times_in_a_horizon() -> None:
    checkpoints = OffsetCheckpoints(600.0)
    for now in range(0, 601):
        checkpoints.take(now, {PLACE: (float(now), at(now + 1))})
    assert [checkpoints.before_horizon(PLACE, now) for now in (601, 659, 661)] == [at(1), at(1), at(61)]


def test_the_first_bounds_are_taken_as_soon_as_there_are_some() -> None:
    checkpoints = OffsetCheckpoints(600.0)
    checkpoints.take(0, {})
    checkpoints.take(1, {PLACE: (1.0, at(5))})
    assert checkpoints.before_horizon(PLACE, 602) == at(5)


def test_a_log_that_may_have_been_cut_has_no_checkpoints() -> None:
    checkpoints = noted(0)
    checkpoints.forget(PLACE)
    checkpoints.forget(OTHER)
    assert checkpoints.before_horizon(PLACE, 601) is None


def test_of_too_many_partitions_the_longest_idle_one_is_dropped() -> None:
    checkpoints = OffsetCheckpoints(600.0, partitions_max=2)
    for number in (0, 1):
        checkpoints.note(number, ("topic", number), at(1))
    checkpoints.note(2, ("topic", 0), at(2))
    checkpoints.note(3, ("topic", 2), at(1))
    assert len(checkpoints) == 2
    assert [checkpoints.before_horizon(("topic", number), 700) is None for number in (0, 1, 2)] == [False, True, False]


# ---------------------------------------------------------------------- packed
def test_another_life_knows_them_by_the_wall_clock() -> None:
    checkpoints = noted(0, 100, 200)
    checkpoints.note(150, OTHER, at(3))
    data = checkpoints.pack(300, WALL_MS)
    other = OffsetCheckpoints(600.0)
    other.unpack(data, 10, WALL_MS + 350_000)  # the process was away for 350 s, and its machine may be another one
    assert other.before_horizon(PLACE, 10) == at(0)
    assert other.before_horizon(PLACE, 61) == at(100)
    assert other.before_horizon(OTHER, 109) is None
    assert other.before_horizon(OTHER, 111) == at(3)


def test_a_copy_is_packed_while_more_is_noted() -> None:
    checkpoints = noted(0, 100)
    copy = checkpoints.copied()
    noted(200, checkpoints=checkpoints)
    checkpoints.note(200, OTHER, at(3))
    assert copy.pack(300, WALL_MS) == noted(0, 100).pack(300, WALL_MS)


def test_a_checkpoint_from_the_future_is_dropped() -> None:
    data = noted(0, 100).pack(100, WALL_MS)
    other = OffsetCheckpoints(600.0)
    other.unpack(data, 0, WALL_MS - 50_000)  # the clock was set back by 50 s
    assert other.before_horizon(PLACE, 10_000) == at(0)


def test_nothing_packed_is_nothing_known() -> None:
    other = OffsetCheckpoints(600.0)
    other.unpack(OffsetCheckpoints().pack(0, WALL_MS), 0, WALL_MS)
    assert len(other) == 0


def test_what_is_damaged_is_refused_as_a_whole() -> None:
    data = noted(0, 100).pack(100, WALL_MS)
    damaged = [data[:length] for length in range(len(data))]
    damaged += [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(len(data))]
    for one in (*damaged, data + b"\0", b"\x02" + data[1:]):
        other = OffsetCheckpoints(600.0)
        with pytest.raises(CheckpointFormatError):
            other.unpack(one, 0, WALL_MS)
        assert len(other) == 0
