"""What the positions of many connections take together is bounded."""

from __future__ import annotations

from idemproxy.proxy.bridge.upward.positions import FetchPositions, KeptBatch, PositionsBudget, ReadPosition

PARTITION = (b"\0\1t", 0)


def kept(size: int) -> KeptBatch:
    return KeptBatch(PARTITION, 0, bytes(size), 0, 0)


def test_above_the_bound_the_batch_of_the_connection_that_fetched_longest_ago_is_dropped() -> None:
    budget = PositionsBudget(kept_bytes_max=100)
    first, second, third = (FetchPositions(budget) for _ in range(3))
    for one in (first, second):
        one.kept = kept(50)
    first.note(PARTITION, ReadPosition(0, 1))
    third.kept = kept(50)
    assert (first.kept is None, second.kept is None, third.kept is None) == (False, True, False)
    assert budget.kept_bytes == 100
    third.kept = kept(200)
    assert first.kept is None
    assert third.kept is not None, "one may have more"
    third.kept = None
    assert budget.kept_bytes == 0


def test_positions_of_all_connections_are_bounded_and_those_of_an_ended_one_do_not_count() -> None:
    budget = PositionsBudget(positions_max=1000)
    connections = [FetchPositions(budget) for _ in range(3000)]
    for number in range(10):
        for one in connections:
            one.note((b"\0\1t", number), ReadPosition(0, 1))
            assert budget.positions <= 1000
    assert sum(map(len, connections)) == budget.positions
    for one in connections:
        one.forget((b"\0\1t", 9))
        one.clear()
    assert budget.positions == budget.kept_bytes == 0
