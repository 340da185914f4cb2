"""Two brokers that both say they lead: one has been deposed and has not heard of it, and metadata may name it. For a
while nothing follows from what its log lacks (rules R6, R9, R10)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from mutants.scenes import foreign

from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy.bridge.asks import (
    HIGH_WATERMARK_REPLICA_ID,
    LOG_END_REPLICA_ID,
    FetchAnswer,
    FetchRecords,
    LatestOffset,
    OffsetAnswer,
)
from idemproxy.proxy.flow.effects import Leader
from testkit.stage.sequencer import PARTITION, TOPIC, Client, Stage
from testkit.virtual.log import PartitionLog

TRUE_LEADER, DEPOSED = 1, 2
NOT_LEADER, TIMED_OUT, DUPLICATE = 6, 7, 46
DEPOSED_SECONDS, LONG_ENOUGH_SECONDS = 10, 120
"""A broker that wakes up learns of its successor within its session's time-out, 6 s by default."""
LOG_END = LatestOffset(TOPIC, PARTITION, LOG_END_REPLICA_ID)


class TwoLeaders:
    """The log of the deposed one is that of the stage up to where the true one took over, from now on a log of its
    own. For a while it has not heard of that."""

    def __init__(self, stage: Stage, *, end: int, high_watermark: int | None = None) -> None:
        self.stage = stage
        self.log: PartitionLog = deepcopy(stage.log)
        self.log.truncate(end, unclean=True)
        self.log.high_watermark = end if high_watermark is None else high_watermark
        self.asked: list[Any] = []
        """What the deposed one was asked."""
        self.hears_at = stage.now + DEPOSED_SECONDS
        stage.reply = self._answer

    def metadata_names_the_deposed(self, condition: Callable[[], bool] = lambda: True) -> None:
        """As long as this holds, until it has heard of it itself."""

        def before(_effect: Leader) -> None:
            self.stage.leader = DEPOSED if condition() and self.stage.now < self.hears_at else TRUE_LEADER

        self.stage.before[Leader] = before

    def _answer(self, broker: int, question: Any) -> OffsetAnswer | FetchAnswer | None:
        log = self.stage.log
        if broker == DEPOSED:
            if self.stage.now >= self.hears_at:
                is_fetch = isinstance(question, FetchRecords)
                return FetchAnswer(NOT_LEADER, -1, memoryview(b"")) if is_fetch else OffsetAnswer(NOT_LEADER, -1)
            self.asked.append(question)
            log = self.log
        if isinstance(question, LatestOffset):
            return OffsetAnswer(
                0, log.high_watermark if question.replica_id == HIGH_WATERMARK_REPLICA_ID else log.end_offset
            )
        if not isinstance(question, FetchRecords):
            return None
        if question.offset > log.end_offset:
            return FetchAnswer(1, -1, memoryview(b""))
        data = log.read(question.offset, question.bytes_max, whole_first=True, up_to=log.high_watermark)
        return FetchAnswer(0, log.high_watermark, memoryview(data))


# ---------------------------------------------------------------------- a batch in doubt
def a_batch_that_the_true_one_has(stage: Stage, client: Client) -> Any:
    """It left when metadata named the true leader; its answer is lost."""
    stage.outcomes.append(stage.loses_answer)
    return stage.send(client, 0)


def with_three_records() -> Stage:
    stage = Stage()
    foreign(stage, b"a", b"b", b"c")
    return stage


@pytest.mark.promise("deposed-leader")
def test_the_log_of_a_leader_that_has_been_deposed_proves_no_absence() -> None:
    """Metadata names the true one again in the moment when its log was read."""
    scene = TwoLeaders(stage := with_three_records(), end=3)
    scene.metadata_names_the_deposed(
        lambda: len(stage.sent) == 1 and not any(isinstance(one, FetchRecords) for one in scene.asked)
    )
    request = a_batch_that_the_true_one_has(stage, Client())
    stage.run(LONG_ENOUGH_SECONDS)
    assert stage.stored_values() == [b"a", b"b", b"c", b"value 0"]
    assert request.offset == 3


@pytest.mark.promise("deposed-leader")
def test_a_deposed_leaders_log_proves_no_absence_for_a_client_that_returns() -> None:
    scene, client = TwoLeaders(stage := with_three_records(), end=3), Client()
    scene.metadata_names_the_deposed(lambda: len(stage.sent) == 1)
    a_batch_that_the_true_one_has(stage, client)
    client.is_closed = True
    stage.run(DEPOSED_SECONDS)
    retry = stage.send(Client(), 0)
    stage.run(LONG_ENOUGH_SECONDS)
    assert stage.stored_values() == [b"a", b"b", b"c", b"value 0"]
    assert retry.offset == 3


def test_the_end_of_a_deposed_leaders_log_is_not_that_of_the_true_ones() -> None:
    """It has a record that nobody replicates, so its high watermark does not come to its end before it hears of it."""
    scene = TwoLeaders(stage := with_three_records(), end=3, high_watermark=2)

    def has_heard() -> bool:
        if scene.asked.count(LOG_END) == 3:
            scene.hears_at = stage.now
        return stage.now >= scene.hears_at

    scene.metadata_names_the_deposed(lambda: len(stage.sent) == 1 and not has_heard())
    request = a_batch_that_the_true_one_has(stage, Client())
    stage.run(LONG_ENOUGH_SECONDS)
    assert stage.stored_values() == [b"a", b"b", b"c", b"value 0"]
    assert request.offset == 3


# ---------------------------------------------------------------------- batches that are stored
def with_seven_batches() -> Stage:
    """All of them at the true leader; the connection over which they left has ended."""
    stage, client = Stage(), Client()
    for sequence in range(7):
        stage.send(client, sequence)
        stage.run(1)
    stage.produce_connection.is_open = False
    return stage


@pytest.mark.promise("deposed-leader")
def test_a_batch_below_the_window_that_a_deposed_leader_lacks_is_no_gap() -> None:
    scene = TwoLeaders(stage := with_seven_batches(), end=1)
    scene.metadata_names_the_deposed()
    retry = stage.send(Client(), 1)
    stage.run(LONG_ENOUGH_SECONDS)
    assert retry.code in (TIMED_OUT, DUPLICATE)
    again = stage.send(Client(), 1)
    stage.run(LONG_ENOUGH_SECONDS)
    assert again.code == DUPLICATE


def the_retry_of_the_sixth_gets_its_offset(scene: TwoLeaders) -> None:
    """At once, or when it comes again."""
    scene.metadata_names_the_deposed()
    retry = scene.stage.send(Client(), 5)
    scene.stage.run(LONG_ENOUGH_SECONDS)
    assert retry.code in (0, TIMED_OUT)
    again = scene.stage.send(Client(), 5)
    scene.stage.run(LONG_ENOUGH_SECONDS)
    assert again.offset == 5


@pytest.mark.promise("deposed-leader")
def test_a_batch_that_a_deposed_leader_lacks_has_not_vanished() -> None:
    the_retry_of_the_sixth_gets_its_offset(TwoLeaders(with_seven_batches(), end=1))


def test_nor_has_one_in_whose_place_a_deposed_leader_has_another() -> None:
    """The election was not clean: what it had there is gone as soon as it hears of it."""
    scene = TwoLeaders(with_seven_batches(), end=5)
    scene.log.append(encode_set([(None, b"another", 0)], magic=1), scene.stage.now)
    scene.log.advance(6)
    the_retry_of_the_sixth_gets_its_offset(scene)


@pytest.mark.promise("deposed-leader")
def test_in_a_new_data_generation_a_deposed_leader_decides_no_producers_state() -> None:
    scene = TwoLeaders(stage := with_seven_batches(), end=1)
    stage.values.clear()
    stage.die()
    scene.metadata_names_the_deposed()
    retry = stage.send(Client(), 6)
    stage.run(LONG_ENOUGH_SECONDS)
    assert retry.offset == 6
    assert len(stage.stored_values()) == 7
