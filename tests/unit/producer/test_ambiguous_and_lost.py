"""What a proxy knows of an ambiguous entry is not forgotten when Redis loses it (rules R10, R17)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from idemproxy.proxy.flow.effects import Append, Unanswered
from idemproxy.proxy.flow.outcome import InDoubt, Outcome
from idemproxy.state.entry import NO_CONTENT, Intent, IntentKind
from testkit.stage.sequencer import DATA_GENERATION, NEXT_DATA_GENERATION, Client, Stage

INVALID = 87
STRANGER = b"stranger"


@pytest.mark.parametrize("data_generation", [DATA_GENERATION, NEXT_DATA_GENERATION])
def test_what_is_ambiguous_stays_so_though_redis_has_lost_it(data_generation: bytes) -> None:
    stage = Stage()
    for sequence in range(3):
        stage.send(Client(), sequence)
        stage.run(1)
    left = stage.entry()
    dead = replace(
        left,
        version=9,
        intent=Intent(STRANGER, 0, (), 3, left.anchor, NO_CONTENT, 1, kind=IntentKind.APPEND_RESERVATION),
    )
    # what the dead owner has appended: the batch of which its client never heard
    stage.send(Client(), 3)
    stage.run(1)
    stage.put(dead)
    stage.log.retain(4)
    stage.earliest = 4
    stage.die()
    stored = stage.log.end_offset
    stage.send(Client(), 3)
    stage.run(20)
    assert stage.entry().is_ambiguous
    stage.values.clear()
    stage.begin_lease_epoch(data_generation)
    again = stage.send(Client(), 3)
    stage.run(60)
    assert (again.code, stage.log.end_offset) == (INVALID, stored), again.message


def test_the_broker_of_a_lost_batch_passes_the_quiescence_check_first() -> None:
    """R6: Redis has lost the reserve, this proxy has not. The leader has moved since."""
    stage = Stage()
    for sequence in range(2):
        stage.send(Client(), sequence)
        stage.run(1)
    replica = dict(stage.values)
    client = Client()
    held: list[Append] = []

    def hangs(effect: Append) -> Outcome:
        held.append(effect)
        return InDoubt("the connection was reset", 1)

    stage.outcomes.append(hangs)

    def loses() -> None:
        """In the step after the send: Redis fails over to a replica without the reserve."""
        stage.values.clear()
        stage.values.update(replica)
        stage.begin_lease_epoch(NEXT_DATA_GENERATION)
        client.is_closed = True
        stage.leader = 2

    stage.on_append = lambda effect: loses() if not held else None
    stage.send(client, 2)
    stage.run(0.5)
    assert held
    wakes_at = stage.now + 12

    def wake() -> None:
        """It works on what it had read; it leads again (R6: what it was sent may still come)."""
        stage.take(held[0])

    stage.later(12, wake)
    stage.reply = lambda broker, _question: Unanswered("it hangs") if broker == 1 and stage.now < wakes_at else None
    again = stage.send(Client(), 2)
    stage.run(60)
    assert again.code == 0
    assert stage.stored_values() == [b"value 0", b"value 1", b"value 2"]
