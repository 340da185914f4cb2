"""Message sets of old clients in random worlds: answers that fail, come late or never, brokers that move."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from testkit.virtual.raised_world import TIMED_OUT, Mishaps, RaisedWorld, Try

seeds = st.integers(0, 2**32)
MILD = Mishaps()
BAD = Mishaps(refusal=0.25, failed_append=0.25, loss=0.5, move=0.3, unreachable=0.2)


def run(world: RaisedWorld, steps: int = 600) -> None:
    for _ in range(steps):
        world.step()
    world.settle()


def places_of(world: RaisedWorld, one: Try) -> list[int]:
    """The offsets of a try's records, by their order in the log; each is there once at most."""
    values = world.logs[one.place].values
    assert len(values) == len(set(values)), "a record is in the log twice"
    return [values.index(value) for value in one.values if value in values]


def check(world: RaisedWorld, *, losses_are_possible: bool = False, late_ones_are_refused: bool = False) -> None:
    """``late_ones_are_refused``: also what came after its time comes in order."""
    lost = {value for log in world.logs.values() for batch in log.truncated for value in batch.values}
    for one in world.tries:
        found = places_of(world, one)
        assert found == sorted(found), "the order of a set"
        if one.code == 0:
            missing = set(one.values) - {world.logs[one.place].values[at] for at in found}
            assert missing <= lost if losses_are_possible else not missing
            if not missing and not losses_are_possible:
                assert one.base_offset == found[0]
        elif one.code not in (TIMED_OUT, None):
            assert found == [], f"{one} is in the log"
        if late_ones_are_refused and one.before is not None:
            assert not found or max(places_of(world, one.before), default=-1) < found[0], "the retry has overtaken"
    for place, log in world.logs.items():
        by_connection: dict[int, list[int]] = {}
        for one in world.tries:
            if one.place != place or (one.code != 0 and not late_ones_are_refused):
                continue
            by_connection.setdefault(one.connection, []).extend(places_of(world, one))
        assert all(found == sorted(found) for found in by_connection.values()), "the order of a connection's sets"
        assert len(log.producers) <= world.pool.known


@settings(max_examples=60)
@given(seeds, st.sampled_from([MILD, BAD]))
def test_a_set_is_stored_once_and_in_order_and_its_answer_is_true(seed: int, mishaps: Mishaps) -> None:
    world = RaisedWorld(Random(seed), mishaps)
    run(world)
    check(world)


@settings(max_examples=60)
@given(seeds, st.sampled_from([MILD, BAD]))
def test_what_comes_late_is_not_stored_after_the_next_set_of_its_client(seed: int, mishaps: Mishaps) -> None:
    world = RaisedWorld(Random(seed), mishaps, ids_max=50, places_per_request=1)
    run(world)
    check(world, late_ones_are_refused=True)


@settings(max_examples=60)
@given(seeds)
def test_a_set_of_a_client_that_connects_again_is_not_stored_after_its_retry(seed: int) -> None:
    mishaps = Mishaps(loss=0.4, departure=0.5)
    world = RaisedWorld(Random(seed), mishaps, ids_max=50, places_per_request=1)
    run(world)
    check(world, late_ones_are_refused=True)


@settings(max_examples=60)
@given(seeds)
def test_after_an_election_that_loses_acknowledged_sets_the_others_are_stored_once(seed: int) -> None:
    mishaps = Mishaps(loss=0.3, move=0.3, lossy_move=0.5)
    world = RaisedWorld(Random(seed), mishaps, acks=(1, 1, -1))
    run(world)
    check(world, losses_are_possible=True)
