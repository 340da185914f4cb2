"""The table of an entry's states (``state/entry_states.py``) against what becomes of entries: nothing happens that is
not in it, and all that is in it happens."""

from __future__ import annotations

import os

import pytest
from mutants.scenes import foreign
from simulation.entry_steps import StepsSeen, steps_of_worlds

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.proxy.flow.effects import Append, Swap
from idemproxy.proxy.flow.outcome import Outcome
from idemproxy.state.entry_states import STEPS
from testkit.stage.sequencer import KEY, Client, Stage

FIRST_SEED, SEEDS, BATCHES = 1, 25, 60
LIVES_OUT_SECONDS = 60
RECORD_BYTES, PART_BYTES_MAX = 2000, 2500
TABLE = {(one.before.value, one.after.value, one.function) for one in STEPS}


def rows_of(before: str, after: str, function: str) -> set[tuple[str, str, str]]:
    """The rows that a step may be. Of a scene it is not known which function it was."""
    pair = {one for one in TABLE if one[:2] == (before, after)}
    return {one for one in pair if one[2] == function or (function == "?" and one[2])}


class Scene:
    """One producer on a stage, looked at before each effect and after the last one."""

    def __init__(self, steps: StepsSeen, stage: Stage | None = None) -> None:
        self.stage = stage or Stage()
        self._steps = steps
        self.look_on()

    def look_on(self) -> None:
        """Also at the sequencer that is new now."""
        self.stage.runner.on_effect = lambda _effect: self.look()

    def look(self) -> None:
        sequencer = self.stage.sequencer
        assert sequencer.stream.held.entry == sequencer.statistics().entry  # which is the same object then
        self._steps.look(sequencer, [sequencer.statistics()])

    def send(self, *sequences: int, epoch: int = 0) -> None:
        """Batches of one record, one after the other."""
        for sequence in sequences:
            self.stage.send(Client(), sequence, epoch=epoch)
            self.run()

    def run(self) -> None:
        """Until nothing is left to do."""
        self.stage.run(LIVES_OUT_SECONDS)
        self.look()


def cannot_be_told(steps: StepsSeen) -> None:
    """The answer is lost, and retention has deleted what the log had. What was unrecoverable outlives the store."""
    scene = Scene(steps)
    stage = scene.stage
    scene.send(0)

    def lost_and_deleted(effect: Append) -> Outcome:
        outcome = stage.loses_answer(effect)
        foreign(stage, b"foreign")
        stage.log.retain(2)
        stage.earliest = 2
        return outcome

    stage.outcomes.append(lost_and_deleted)
    scene.send(1)
    stage.begin_lease_epoch()
    scene.send(1)
    client = Client()
    for epoch, sequence in ((0, 1), (1, 0)):
        stage.send(client, sequence, epoch=epoch)
        scene.run()


def compacted(steps: StepsSeen) -> None:
    """The store has lost the producer, and compaction its last batches."""
    scene = Scene(steps)
    scene.send(0, 1, 2, 3)
    stage = scene.stage
    del stage.log.messages[2:]
    stage.values.clear()
    stage.begin_lease_epoch()
    stage.sequencer = stage.new_sequencer()
    scene.look_on()
    scene.send(2)
    stage.begin_lease_epoch(bytes(range(2, 18)))
    client = Client()
    for epoch, sequence in ((0, 3), (1, 0)):
        stage.send(client, sequence, epoch=epoch)
        scene.run()


def in_parts(steps: StepsSeen) -> None:
    """The broker takes one record at a time, and refuses the second one for now; then the store loses everything."""
    for is_lost in (False, True):
        scene = Scene(steps)
        stage = scene.stage
        values = [os.urandom(RECORD_BYTES) for _ in range(2)]
        refused: list[Append] = []

        def judge(effect: Append, stage: Stage = stage, refused: list[Append] = refused) -> Outcome:
            stage.outcomes.append(lambda effect: judge(effect, stage, refused))
            if len(effect.message_set) > PART_BYTES_MAX:
                return stage.refuses(int(ErrorCode.MESSAGE_TOO_LARGE))(effect)
            if stage.log.messages and not refused:
                refused.append(effect)
                return stage.refuses(int(ErrorCode.NOT_ENOUGH_REPLICAS))(effect)
            return stage.succeeds(effect)

        stage.outcomes.append(judge)
        stage.send(Client(), 0, *values)
        scene.run()
        if is_lost:
            stage.values.clear()
            stage.begin_lease_epoch()
        retry = stage.send(Client(), 0, *values)
        scene.run()
        assert (retry.code, len(stage.log.messages)) == (0, 2)


def busy(steps: StepsSeen, batches: int = 4) -> Scene:
    """Its proxy owns the entry."""
    scene = Scene(steps, Stage(answers_later=True, owns=True))
    stage = scene.stage
    stage.before[Swap] = stage.on_append = lambda _effect: scene.look()
    for sequence in range(batches):
        stage.send(Client(), sequence)
        stage.run(0.01)
    scene.look()
    return scene


def reservation(steps: StepsSeen) -> None:
    """The answer of a busy producer's batch is lost; a new lease epoch begins; its proxy dies; and its entry is deleted
    by hand while a batch is out."""
    scene = busy(steps)
    scene.stage.outcomes.append(scene.stage.loses_answer)
    scene.send(4)
    scene = busy(steps)
    scene.stage.begin_lease_epoch()
    scene.look()
    scene = busy(steps)
    scene.stage.die()
    scene.stage.send(Client(), 4)
    scene.look_on()
    scene.run()
    scene = busy(steps, 20)
    scene.stage.outcomes.append(scene.stage.never_answers)
    scene.stage.send(Client(), 20)
    del scene.stage.values[KEY]
    scene.run()


@pytest.mark.timeout(300)
def test_entries_take_the_steps_of_the_table_and_no_others() -> None:
    seen = steps_of_worlds(range(FIRST_SEED, FIRST_SEED + SEEDS), BATCHES)
    assert seen.keys() - TABLE == set()
    steps = StepsSeen()
    for scene in (cannot_be_told, compacted, in_parts, reservation):
        scene(steps)
    assert [one for one in steps.seen if not rows_of(*one)] == []
    assert TABLE - seen.keys() - {row for one in steps.seen for row in rows_of(*one)} == set()
