"""One partition of a producer: what an answer means for its batch and for those after it."""

from __future__ import annotations

import pytest

from idemproxy.client.records import Record, finish
from idemproxy.codecs.produce import PartitionAnswer
from idemproxy.producing.errors import (
    BehindFailed,
    Fenced,
    NotDelivered,
    OutOfOrder,
    ProduceError,
    Refused,
    Undecided,
    Undeterminable,
    UnknownProducer,
)
from idemproxy.producing.numbered_batch import Place, ProducerId, Receipt, number
from idemproxy.producing.partition_queue import Outcome, PartitionQueue, QueuedBatch

PLACE = Place("t", 0)
PRODUCER = ProducerId(7)
BROKER = 3
STORED, NOT_ENOUGH, TIMED_OUT, GAP, TOO_LARGE = 0, 19, 7, 45, 10


class Scene:
    """A queue whose batches have one record each."""

    def __init__(self, *, was_used: bool = False) -> None:
        self.queue = PartitionQueue(PLACE, 0, was_used=was_used)
        self.out: dict[int, QueuedBatch] = {}

    def add(self, count: int = 1) -> None:
        for _ in range(count):
            batch = number(finish([Record(b"v", timestamp_ms=1)]), PRODUCER, self.queue.next_sequence)
            self.queue.add(batch, 10.0 + self.queue.next_sequence, None)

    def send(self) -> list[int]:
        """Send all that may be sent; return the sequences."""
        sent = []
        while (queued := self.queue.sendable()) is not None:
            self.queue.sent(queued, BROKER)
            self.out[queued.batch.header.base_sequence] = queued
            sent.append(queued.batch.header.base_sequence)
        return sent

    def answer(self, sequence: int, code: int, base_offset: int = -1) -> list[tuple[int, Receipt | ProduceError]]:
        found, _ = self.queue.answered(self.out.pop(sequence), PartitionAnswer(*PLACE, code, base_offset))
        return told(found)

    def lose(self) -> list[tuple[int, Receipt | ProduceError]]:
        lost, self.out = list(self.out.values()), {}
        return told([outcome for queued in lost for outcome in self.queue.lost(queued)])

    def begin(self) -> None:
        """The first batch is stored: from now on five are in flight."""
        self.add()
        self.send()
        self.add(6)
        self.answer(0, STORED, 0)


def told(outcomes: list[Outcome]) -> list[tuple[int, Receipt | ProduceError]]:
    return [(one.batch.batch.header.base_sequence, one.result) for one in outcomes]


def kinds(outcomes: list[tuple[int, Receipt | ProduceError]]) -> list[tuple[int, type]]:
    return [(sequence, type(result)) for sequence, result in outcomes]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_first_batch_goes_alone_and_then_five_are_in_flight(scene: Scene) -> None:
    scene.add(8)
    assert scene.send() == [0]
    scene.answer(0, STORED, 0)
    assert scene.send() == [1, 2, 3, 4, 5]
    scene.answer(1, STORED, 1)
    assert scene.send() == [6]


def test_after_a_pause_the_first_batch_goes_alone_again(scene: Scene) -> None:
    scene.begin()
    for sequence in scene.send():
        scene.answer(sequence, STORED, sequence)
    assert scene.send() == [6]
    scene.answer(6, STORED, 6)
    scene.add(3)
    assert scene.send() == [7]


def test_a_failed_batch_goes_again_when_the_later_ones_are_answered(scene: Scene) -> None:
    scene.begin()
    assert scene.send() == [1, 2, 3, 4, 5]
    assert scene.answer(1, NOT_ENOUGH) == []
    assert scene.send() == []
    for sequence in (2, 3, 4):
        assert scene.answer(sequence, GAP) == []
    assert scene.send() == []
    scene.answer(5, GAP)
    assert scene.send() == [1, 2, 3, 4, 5]


def test_what_is_answered_in_between_counts_among_the_five(scene: Scene) -> None:
    scene.begin()
    scene.send()
    scene.answer(1, TIMED_OUT)
    for sequence in (2, 3, 4, 5):
        assert kinds(scene.answer(sequence, STORED, sequence)) == [(sequence, Receipt)]
    assert scene.send() == [1], "with 6 behind it the server would know 1 no more"
    assert kinds(scene.answer(1, STORED, 1)) == [(1, Receipt)]
    assert scene.send() == [6]


def test_a_gap_before_which_all_is_stored_is_final(scene: Scene) -> None:
    scene.begin()
    scene.send()
    outcomes = scene.answer(1, GAP)
    assert kinds(outcomes) == [(1, OutOfOrder), (6, BehindFailed)]
    assert kinds(scene.answer(2, GAP)) == [(2, BehindFailed)]
    assert kinds(scene.answer(3, STORED, 3)) == [(3, Receipt)]
    assert kinds(scene.answer(4, TIMED_OUT)) == [(4, Undecided)]
    assert kinds(scene.lose()) == [(5, Undecided)]
    assert scene.queue.is_idle
    assert isinstance(scene.queue.failure, OutOfOrder)


@pytest.mark.parametrize(
    ("code", "expected"),
    [(GAP, OutOfOrder), (59, UnknownProducer), (47, Fenced), (90, Fenced), (49, Fenced), (TOO_LARGE, Refused),
     (29, Refused), (43, Refused), (87, Undeterminable), (99, Undecided), (-77, Undecided)],
)  # fmt: skip
def test_a_final_error_has_a_type_of_its_own(scene: Scene, code: int, expected: type) -> None:
    scene.add()
    scene.send()
    ((_, error),) = scene.answer(0, code)
    assert type(error) is expected
    assert isinstance(error, ProduceError)
    assert (error.code, error.base_sequence, error.record_count) == (code, 0, 1)
    assert error.in_log is (False if expected is Refused else None)
    assert str(code) in str(error)


def test_an_earlier_try_that_may_have_appended_makes_a_refusal_undecided(scene: Scene) -> None:
    scene.add()
    for code, offset in ((TIMED_OUT, -1), (6, 17)):  # with an offset it was appended there, whatever the code
        scene.send()
        assert scene.answer(0, code, offset) == []
    scene.send()
    assert kinds(scene.answer(0, TOO_LARGE)) == [(0, Undecided)]


@pytest.mark.parametrize(("code", "offset"), [(6, 17), (3, 0), (7, -1), (20, -1), (56, -1), (-1, -1)])
def test_which_answers_leave_an_unknown_outcome(scene: Scene, code: int, offset: int) -> None:
    scene.add()
    scene.send()
    scene.answer(0, code, offset)
    assert kinds(told(scene.queue.expire(100.0))) == [(0, Undecided)]


@pytest.mark.parametrize("code", [2, 3, 5, 6, 14, 19, 74, 75])
def test_which_answers_leave_none(scene: Scene, code: int) -> None:
    scene.add()
    scene.send()
    scene.answer(0, code)
    ((_, error),) = told(scene.queue.expire(100.0))
    assert isinstance(error, NotDelivered)
    assert (error.code, error.in_log) == (code, False)


def test_a_partition_that_was_used_before_is_in_doubt_from_the_start() -> None:
    scene = Scene(was_used=True)
    scene.add(2)
    scene.send()
    assert kinds(scene.answer(0, TOO_LARGE)) == [(0, Undecided), (1, Undecided)]


def test_damage_on_the_way_is_believed_twice(scene: Scene) -> None:
    scene.add()
    for _ in range(2):
        assert scene.send() == [0]
        assert scene.answer(0, 2) == []
    scene.send()
    assert kinds(scene.answer(0, 2)) == [(0, Refused)]


def test_time_is_over_for_one_after_the_other_and_nothing_is_sent_any_more(scene: Scene) -> None:
    scene.begin()  # deadlines are 10 s and one more for each
    scene.send()
    assert scene.queue.expire(10.9) == []
    assert scene.queue.first_deadline == 11.0
    assert kinds(told(scene.queue.expire(12.0))) == [(1, Undecided), (6, BehindFailed), (2, Undecided)]
    assert scene.send() == []
    assert scene.answer(1, STORED, 1) == [], "its outcome was told"
    assert kinds(scene.answer(3, STORED, 3)) == [(3, Receipt)]
    assert kinds(told(scene.queue.expire(100.0))) == [(4, Undecided), (5, Undecided)]
    assert scene.queue.is_idle


def test_a_restart_after_a_failure_waits_for_what_is_still_out(scene: Scene) -> None:
    scene.add()
    scene.send()
    scene.queue.expire(100.0)
    assert scene.queue.is_idle
    scene.queue.start_at(0)
    assert scene.queue.failure is None
    scene.add()
    late = scene.out.pop(0)
    assert scene.send() == []
    scene.queue.lost(late)
    assert scene.send() == [0]


def test_closing_a_producer_ends_all_its_batches_at_once(scene: Scene) -> None:
    scene.begin()
    scene.send()
    outcomes = told(scene.queue.give_up("the producer was closed"))
    assert kinds(outcomes)[:2] == [(1, Undecided), (6, BehindFailed)]
    assert {type(result) for _, result in outcomes[2:]} == {Undecided}
    assert "the producer was closed, and it may be in the log" in str(outcomes[0][1])
    assert scene.queue.is_idle
