"""Leaders that move while a batch is in doubt: who has to pass the quiescence check, and whose log is read (rules R6,
R8)."""

from typing import Any

from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import EarliestOffset, FetchAnswer, FetchRecords
from idemproxy.proxy.flow.effects import Append, Unanswered
from idemproxy.proxy.flow.outcome import InDoubt, Outcome
from idemproxy.proxy.partition_log.log_offsets import Later, Position
from idemproxy.proxy.partition_log.log_search import LogSearch, Wanted
from idemproxy.state.entry import NO_ANCHOR
from testkit.stage.sequencer import PARTITION, PRODUCER_ID, TOPIC, Client, Stage

CRASH_SECONDS = 3.0


def asked_brokers(stage: Stage) -> set[int]:
    return {broker for broker, _ in stage.asked}


def lost_and_moved(stage: Stage, leader: int) -> Any:
    """The request is lost, and the partition has another leader then."""

    def lose(effect: Append) -> Outcome:
        stage.leader = leader
        return InDoubt("the request is lost", effect.broker_id)

    return lose


def test_an_intent_that_is_forwarded_again_names_the_leader_that_it_goes_to() -> None:
    stage = Stage()
    stage.outcomes += [lost_and_moved(stage, 2), stage.loses_answer]
    stage.before[Append] = lambda effect: leaders.append((effect.broker_id, stage.entry().intent.leader))  # type: ignore[union-attr]
    leaders: list[tuple[int, int]] = []
    request = stage.send(Client(), 0)
    stage.run(30)
    assert leaders == [(1, 1), (2, 2)]
    assert request.offset == 0


def test_who_takes_over_waits_for_the_leader_that_the_last_try_went_to() -> None:
    stage = Stage()
    stage.outcomes += [lost_and_moved(stage, 2), stage.never_answers]
    stage.send(Client(), 0)
    stage.run(CRASH_SECONDS)
    stage.die()
    stage.leader = 3
    stage.replicas = ()  # who is asked whether he leads too is not of interest here
    stage.asked.clear()
    request = stage.send(Client(), 0)
    stage.run(30)
    assert request.offset == 0
    assert asked_brokers(stage) == {2, 3}


def test_a_rebuild_waits_for_the_leader_of_the_open_intent_that_it_replaces() -> None:
    stage = Stage()
    stage.outcomes.append(stage.never_answers)
    stage.send(Client(), 0)
    stage.die()
    stage.begin_lease_epoch()
    stage.leader = 2
    stage.asked.clear()
    request = stage.send(Client(), 0)
    stage.run(30)
    assert request.offset == 0
    assert asked_brokers(stage) == {1, 2}


def test_without_a_leader_nothing_is_concluded() -> None:
    stage = Stage()
    stage.outcomes.append(stage.loses_answer)
    stage.send(Client(), 0)
    stage.die()
    stage.leader = None
    stage.asked.clear()
    request = stage.send(Client(), 0)
    stage.run(5)
    stage.leader = 1
    began = stage.now
    stage.run(30, until=lambda: bool(request.answers))
    assert request.offset == 0
    assert stage.now - began >= limits.QUIESCENCE_SECONDS


def test_a_search_interrupted_while_it_begins_again_still_finds_every_batch() -> None:
    stage = Stage()
    for sequence in range(3):
        stage.send(Client(), sequence)
    stage.run(1)
    search = LogSearch(Wanted(TOPIC, PARTITION, PRODUCER_ID, Position(0, NO_ANCHOR), None, frozenset()))
    results: list[Any] = []

    def run_once() -> Any:
        stage.runner.start(search.run(), results.append)
        stage.run(5)
        return results.pop()

    def only_the_first(_broker: int, question: Any) -> Any:
        if not isinstance(question, FetchRecords):
            return None
        first = stage.log.messages[0].message.data
        return FetchAnswer(0, 3, memoryview(first)) if question.offset == 0 else Unanswered("away")

    stage.reply = only_the_first
    assert isinstance(run_once(), Later)
    stage.leader = 2
    stage.reply = lambda _broker, question: Unanswered("away") if isinstance(question, EarliestOffset) else None
    assert isinstance(run_once(), Later)
    stage.leader = 1
    stage.reply = lambda _broker, _question: None
    assert [piece.base_sequence for piece in run_once().pieces] == [0, 1, 2]
