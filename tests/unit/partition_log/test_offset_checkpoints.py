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


def test_the_newest_checkpoint_that_is_older_than_the_horizon_serves() -> None:
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


def test_a_log_that_may_have_been_cut_has_no_checkpoints() -> None:
    checkpoints = noted(0)
    checkpoints.forget(PLACE)
    checkpoints.forget(OTHER)
    assert checkpoints.before_horizon(PLACE, 601) is None


def test_a_partition_too_many_gets_none_and_takes_none_from_others() -> None:
    """If each took the place of another one, none would ever have a checkpoint that is old enough."""
    checkpoints = OffsetCheckpoints(600.0, partitions_max=100)
    places = [("topic", number) for number in range(101)]
    for minute in range(15):
        for place in places:
            checkpoints.note(minute * 60.0, place, at(1 + minute))
    found = [checkpoints.before_horizon(place, 14 * 60.0) for place in places]
    assert found == [at(4)] * 100 + [None]


def test_the_one_that_is_idle_for_longest_gives_way_once_its_checkpoint_has_served() -> None:
    checkpoints = OffsetCheckpoints(600.0, partitions_max=2)
    idle, busy, new = (("topic", number) for number in range(3))
    checkpoints.note(0, idle, at(1))
    for now in range(0, 1202, 60):
        checkpoints.note(now, busy, at(1 + now))
        checkpoints.note(now, new, at(1))
    assert checkpoints.before_horizon(idle, 1201) == at(1)
    checkpoints.note(1201, new, at(1))
    assert len(checkpoints) == 2
    assert [checkpoints.before_horizon(place, 1802) for place in (idle, busy, new)] == [None, at(1201), at(1)]


def test_nobody_has_checkpoints_where_there_is_no_room() -> None:
    checkpoints = OffsetCheckpoints(600.0, partitions_max=0)
    checkpoints.note(0, PLACE, at(1))
    assert len(checkpoints) == 0


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
