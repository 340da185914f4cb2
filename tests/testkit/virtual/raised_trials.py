"""What has to hold in the worlds of ``raised_world``, the kinds of worlds, and mutants that some of them notice:
``python -m testkit.virtual.raised_trials MUTANT`` ends with 1 if one does."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from testkit.virtual.mutant import Patch, patch_in_place

if TYPE_CHECKING:
    from testkit.virtual.raised_world import RaisedWorld, Try

TIMED_OUT = 7
_OF_BATCHES = ", batches"
SEEDS = 120
_PRODUCE, _IDS = "proxy.bridge.upward.produce", "proxy.bridge.upward.producer_ids"

MUTANTS: Final[Mapping[str, Patch]] = {
    "a lost batch is given up at once, and its epoch stays": Patch(
        _PRODUCE, "RaisedProduce._take", "self._unfinished.append(one.place)", "pass"
    ),
    "what may be in the log is reported as absent": Patch(
        _PRODUCE,
        "RaisedProduce._take",
        "self._end(one, ErrorCode.REQUEST_TIMED_OUT, is_outcome_unknown=True)",
        "self._end(one, ErrorCode.NOT_LEADER_OR_FOLLOWER)",
    ),
    "a request that was sent is taken for one that was not": Patch(
        _PRODUCE,
        "RaisedProduce.lost",
        "self._core.lost(broker, now, was_sent=was_sent)",
        "self._core.lost(broker, now, was_sent=False)",
    ),
    "a batch that may be in the log is sent again under another epoch": Patch(
        "producing.partition_queue",
        "PartitionQueue.lost",
        "self._came_back(batch)",
        "self._came_back(batch)\nself.failure = OutOfOrder(self.place, 0, 1, '')\nreturn self._drop(batch)",
    ),
    "an unfinished id returns in the same epoch": Patch(
        _IDS, "ProducerIdPool.begin_next_epoch", "lent.producer_id.epoch + 1", "lent.producer_id.epoch"
    ),
    "an unfinished id is not kept for its client": Patch(
        _PRODUCE,
        "RaisedProduce._find_id",
        "self._pool.lend(self._client, places, self._preferred)",
        "self._pool.lend(self._client._replace(client_id=str(now)), places, self._preferred)",
    ),
    "a batch is written while an earlier one may arrive under another id": Patch(
        _IDS,
        "ProducerIdPool.may_write",
        "self._unfinished.get((lent.client, place), lent.number) == lent.number",
        "True",
    ),
    "a client that connects again does not wait": Patch(
        "proxy.bridge.upward.departed_clients",
        "DepartedClients.has_open_before",
        "oldest is not connection and number <= count",
        "False",
    ),
    "the base offset is that of the last batch": Patch(
        _PRODUCE, "RaisedProduce._stored", "not one.is_appended", "True"
    ),
}
"""By what they do wrong."""


@dataclass(frozen=True)
class Kind:
    """Of a world. ``late_ones_are_refused``: also what comes after its time comes in order, as there are ids enough.
    ``losses_are_possible``: elections lose what was acknowledged with acks 1. ``sends_batches``: clients speak
    Produce 8."""

    name: str
    late_ones_are_refused: bool = False
    losses_are_possible: bool = False
    sends_batches: bool = False

    def make(self, seed: int) -> RaisedWorld:
        """Return the world of this seed."""
        from testkit.virtual.raised_world import Mishaps, RaisedWorld

        mishaps = {
            "mild": Mishaps(),
            "without acks": Mishaps(departure=0.2),
            "bad": Mishaps(refusal=0.25, failed_append=0.25, loss=0.5, move=0.3, unreachable=0.2),
            "late": Mishaps(refusal=0.25, failed_append=0.25, loss=0.5, move=0.3, unreachable=0.2),
            "departures": Mishaps(loss=0.4, departure=0.5),
            "lossy elections": Mishaps(loss=0.3, move=0.3, lossy_move=0.5),
        }[self.name.removesuffix(_OF_BATCHES)]
        more = {"ids_max": 50, "partitions": 3} if self.late_ones_are_refused else {}
        acks = (1, 1, -1) if self.losses_are_possible else (0, -1) if self.name == "without acks" else (-1,)
        version = 8 if self.sends_batches else 2
        return RaisedWorld(Random(seed), mishaps, acks=acks, client_version=version, **more)

    def try_out(self, seed: int, steps: int = 600) -> None:
        """Raise AssertionError if something is wrong in this world."""
        world = self.make(seed)
        for _ in range(steps):
            world.step()
        world.settle()
        self._check(world)

    def _check(self, world: RaisedWorld) -> None:
        lost = {value for log in world.logs.values() for batch in log.truncated for value in batch.values}
        for one in world.tries:
            found = _offsets(world, one)
            assert found == sorted(found), "the order of a set"
            if one.code == 0:
                missing = set(one.values) - {world.logs[one.place].values[at] for at in found}
                assert missing <= lost if self.losses_are_possible else not missing
                assert missing or self.losses_are_possible or not one.acks or one.base_offset == found[0]
            elif one.code not in (TIMED_OUT, None):
                assert found == [], f"{one} is in the log"
            if self.late_ones_are_refused and one.before is not None:
                before = max(_offsets(world, one.before), default=-1)
                assert not found or before < found[0], "the retry has overtaken"
        for place in world.places:
            self._check_order(world, [one for one in world.tries if one.place == place])
        assert all(len(log.producers) <= world.pool.known for log in world.logs.values())

    def _check_order(self, world: RaisedWorld, tries: list[Try]) -> None:
        by_connection: dict[int, list[int]] = {}
        for one in tries:
            if one.code == 0 or self.late_ones_are_refused:
                by_connection.setdefault(one.connection, []).extend(_offsets(world, one))
        assert all(found == sorted(found) for found in by_connection.values()), "the order of a connection's sets"


KINDS: Final = (
    Kind("mild"),
    Kind("bad"),
    Kind("without acks"),
    Kind("late", late_ones_are_refused=True),
    Kind("departures", late_ones_are_refused=True),
    Kind("lossy elections", losses_are_possible=True),
    Kind(f"bad{_OF_BATCHES}", sends_batches=True),
    Kind(f"late{_OF_BATCHES}", late_ones_are_refused=True, sends_batches=True),
    Kind(f"departures{_OF_BATCHES}", late_ones_are_refused=True, sends_batches=True),
)


def _offsets(world: RaisedWorld, one: Try) -> list[int]:
    """The offsets of a try's records; each is there once at most."""
    values = world.logs[one.place].values
    assert len(values) == len(set(values)), "a record is in the log twice"
    return [values.index(value) for value in one.values if value in values]


def main(name: str) -> int:
    """Run worlds of the mutant until one notices."""
    patch_in_place([MUTANTS[name]])
    for seed in range(SEEDS):
        for kind in KINDS:
            try:
                kind.try_out(seed)
            except AssertionError as error:
                print(f"{kind.name}, seed {seed}: {error}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
