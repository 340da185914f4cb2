"""What follows a batch that failed retriably gets no answer that makes its client begin a new epoch (rule R11)."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from idemproxy.codecs.error_codes import ErrorCode
from idemproxy.codecs.message_set import encode_set
from idemproxy.proxy import limits
from idemproxy.proxy.admission.memory_budget import MemoryBudget
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import Outcome
from idemproxy.proxy.producer import answers
from idemproxy.proxy.producer.batch import Answer
from idemproxy.proxy.producer.sequencer import Sequencer
from idemproxy.proxy.session.conditional_topics import ConditionalTopics
from idemproxy.proxy.session.produce import Part, ProduceCall
from idemproxy.proxy.session.routing import BatchKind, Way
from idemproxy.proxy.session.sweeper import Sweepable
from idemproxy.proxy.settings.config import Caps
from idemproxy.state.entry import principal_of
from testkit.stage.door import DoorClient, call_of, code_of, way_by_proxy
from testkit.stage.sequencer import PARTITION, TOPIC, Client, Stage, batch_of

NOT_LEADER, REQUEST_TIMED_OUT, HELD_BACK = 6, 7, 19
UNSUPPORTED, OUT_OF_ORDER, INVALID = 43, 45, 87


def a_stage_with_one_batch() -> tuple[Stage, Client]:
    stage, client = Stage(), Client()
    stage.send(client, 0)
    stage.run(1)
    return stage, client


@pytest.mark.promise("compared-7")
def test_a_batch_after_one_that_must_be_sent_again_is_no_gap() -> None:
    stage, client = a_stage_with_one_batch()
    stage.outcomes.append(stage.refuses(NOT_LEADER))
    lower, upper = stage.send(client, 1), stage.send(client, 2)
    stage.run(1)
    assert (lower.code, upper.code) == (NOT_LEADER, HELD_BACK)
    lower, upper = stage.send(client, 1), stage.send(client, 2)
    stage.run(1)
    assert (lower.offset, upper.offset) == (1, 2)


def test_a_batch_that_was_held_back_does_not_hold_itself_back() -> None:
    stage, client = a_stage_with_one_batch()
    stage.outcomes.append(stage.refuses(NOT_LEADER))
    lower, upper = stage.send(client, 1), stage.send(client, 2)
    stage.run(1)
    assert (lower.code, upper.code) == (NOT_LEADER, HELD_BACK)
    stage.outcomes.append(stage.refuses(INVALID))
    lower = stage.send(client, 1)
    stage.run(1)
    assert lower.code == INVALID
    upper, last = stage.send(client, 2), stage.send(client, 3)
    stage.run(1)
    assert (upper.code, last.code) == (OUT_OF_ORDER, OUT_OF_ORDER)


def test_a_failure_for_good_waits_until_the_batch_before_it_was_sent_again() -> None:
    """Java sends everything that is unfinished again under a new epoch: the lower batch, which is in the log, too."""
    stage, client = a_stage_with_one_batch()
    stage.outcomes.append(stage.loses_answer)
    lower = stage.send(client, 1)
    upper = stage.send(client, 2, headers=[("a-header", b"")])
    lower.answer(answers.in_doubt("its time is up"))
    stage.run(10)
    assert upper.code == HELD_BACK
    lower, upper = stage.send(client, 1), stage.send(client, 2, headers=[("a-header", b"")])
    stage.run(10)
    assert (lower.offset, upper.code) == (1, UNSUPPORTED)


def test_out_of_order_never_leaves_before_an_unrecoverable_batch_is_answered() -> None:
    """Its client would send both again under a new epoch, and the lower one may be in the log. If the connection breaks
    between these answers it has not even heard that nobody can tell."""
    stage, client = a_stage_with_one_batch()

    def lost_and_deleted(effect: Append) -> Outcome:
        outcome = stage.loses_answer(effect)
        stage.log.append(encode_set([(None, b"foreign", 0)], magic=1), stage.now)
        stage.log.advance(stage.log.end_offset)
        stage.log.retain(2)
        stage.earliest = 2
        return outcome

    stage.outcomes.append(lost_and_deleted)
    first, upper = stage.send(client, 1), stage.send(client, 2)
    first.answer(answers.in_doubt("its time is up"))
    lower = stage.send(client, 1)
    stage.run(60)
    assert (lower.code, upper.code) == (INVALID, HELD_BACK)
    upper = stage.send(client, 2)
    stage.run(1)
    assert upper.code == OUT_OF_ORDER


def test_a_permanent_failure_never_leaves_before_an_earlier_retrys_answer() -> None:
    stage, client = a_stage_with_one_batch()
    stage.outcomes.append(stage.loses_answer)
    first, upper = stage.send(client, 1), stage.send(client, 2, headers=[("a-header", b"")])
    first.answer(answers.in_doubt("its time is up"))
    lower = stage.send(client, 1)
    stage.run(10)
    assert (lower.offset, upper.code) == (1, HELD_BACK)
    upper = stage.send(client, 2, headers=[("a-header", b"")])
    stage.run(1)
    assert upper.code == UNSUPPORTED


def test_an_epoch_that_begins_before_an_older_batchs_retry_has_no_gap() -> None:
    """It comes again as the first batch of the new epoch; what is here before it waits for it."""
    stage, client = a_stage_with_one_batch()
    stage.outcomes.append(stage.refuses(NOT_LEADER))
    older, early = stage.send(client, 1), stage.send(client, 1, epoch=1)
    stage.run(1)
    assert (older.code, early.code) == (NOT_LEADER, HELD_BACK)
    first, second = stage.send(client, 0, epoch=1), stage.send(client, 1, epoch=1)
    stage.run(1)
    assert (first.offset, second.offset) == (1, 2)


def test_an_epoch_that_begins_ahead_of_its_first_batch_has_no_gap() -> None:
    """A batch failed for good; what was still out is numbered again, and sent after what is new."""
    stage, client = a_stage_with_one_batch()
    stage.outcomes.append(stage.refuses(INVALID))
    failed, early = stage.send(client, 1), stage.send(client, 3, epoch=1)
    stage.run(1)
    assert (failed.code, early.code) == (INVALID, HELD_BACK)
    requests = [stage.send(client, sequence, epoch=1) for sequence in range(4)]
    gap = stage.send(client, 5, epoch=1)
    stage.run(1)
    assert [request.offset for request in requests] == [1, 2, 3, 4]
    assert gap.code == OUT_OF_ORDER


def test_a_failure_that_was_fixed_over_another_connection_is_waited_for_once() -> None:
    stage, client = a_stage_with_one_batch()
    stage.outcomes.append(stage.refuses(NOT_LEADER))
    assert stage.send(client, 1).code == NOT_LEADER
    stage.run(1)
    other = Client()
    assert stage.send(other, 1).offset == 1
    stage.run(1)
    assert stage.send(client, 2).offset == 2
    stage.run(1)
    first = stage.send(client, 9)
    stage.run(1)
    gap = stage.send(client, 9)
    stage.run(1)
    assert (first.code, gap.code) == (HELD_BACK, OUT_OF_ORDER)


def test_no_batch_fails_for_good_while_one_before_it_is_unanswered() -> None:
    """It was stored before its client came here, and comes again to learn that it is there."""
    stage, client = a_stage_with_one_batch()
    stage.outcomes.append(lambda effect: (stage.take(effect), stage.never_answers(effect))[1])
    stage.send(client, 1)
    stage.die()
    here = Client()
    lower, upper = stage.send(here, 1), stage.send(here, 2, headers=[("a-header", b"")])
    stage.run(10)
    assert (lower.offset, upper.code) == (1, HELD_BACK)
    again = stage.send(here, 2, headers=[("a-header", b"")])
    stage.run(1)
    assert again.code == UNSUPPORTED
    assert stage.stored_values() == [b"value 0", b"value 1"]


def test_a_batch_that_got_through_does_not_hide_one_before_it_that_comes_again() -> None:
    stage, client = a_stage_with_one_batch()
    stage.outcomes.append(stage.loses_answer)
    lower = stage.send(client, 1)
    lower.answer(answers.in_doubt("its time is up"))
    stage.run(10)
    assert stage.send(client, 2).offset == 2
    stage.run(1)
    upper = stage.send(client, 3, headers=[("a-header", b"")])
    stage.run(1)
    assert upper.code == HELD_BACK
    assert stage.send(client, 1).code in (None, 0)
    stage.run(10)
    again = stage.send(client, 3, headers=[("a-header", b"")])
    stage.run(1)
    assert again.code == UNSUPPORTED
    assert stage.stored_values() == [b"value 0", b"value 1", b"value 2"]


def test_what_an_older_epoch_left_holds_nothing_back_once_the_new_one_has_begun() -> None:
    stage, client = a_stage_with_one_batch()
    stage.outcomes.append(stage.refuses(NOT_LEADER))
    assert stage.send(client, 1).code == NOT_LEADER
    stage.run(1)
    assert stage.send(client, 0, epoch=1).offset == 1
    stage.run(1)
    gap = stage.send(client, 5, epoch=1)
    stage.run(1)
    assert gap.code == OUT_OF_ORDER


@pytest.mark.parametrize(
    "code", [ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE]
)
def test_these_codes_make_no_client_begin_a_new_epoch(code: ErrorCode) -> None:
    assert not answers.ends_epoch(int(code))


# ---------------------------------------------------------------------- a topic that nobody has seen yet
class LookedFor:
    """What is around a request whose topic has to be looked for: a stage, and brokers that take their time."""

    is_draining = False
    conditional_topics = ConditionalTopics()
    reactor: Any = None
    """Of no use: nothing takes several steps here."""

    def way_of(self, topic: str, kind: BatchKind) -> Way | Answer:
        return way_by_proxy(self.conditional_topics, topic, kind)

    def __init__(self) -> None:
        self.stage = Stage()
        self.memory = MemoryBudget(Caps())
        self.is_known = False
        self.looks: list[Callable[[], None]] = []

    def now(self) -> float:
        return self.stage.now

    def known_sequencer(self, _key: object) -> Sequencer:
        return self.stage.sequencer

    def sequencer(self, _producer_id: int, _topic: str, _partition: int) -> Sequencer:
        return self.stage.sequencer

    def has_partition(self, _topic: str, _partition: int) -> bool:
        return self.is_known

    def look_for_topic(self, _topic: str, done: Callable[[], None]) -> None:
        self.looks.append(done)

    def sweep(self, call: Sweepable, parts: Sequence[Part]) -> None:
        """Its time is not up in this scene."""

    def swept(self, call: Sweepable) -> None:
        """As above."""

    def report(self, event: object) -> None:
        self.stage.events.append(event)


class Sending(DoorClient):
    """A client whose requests go through that. It keeps sequences and codes in the order of the answers."""

    def __init__(self, scene: LookedFor) -> None:
        super().__init__()
        self.principal = principal_of(None)
        self.scene = scene
        self.calls: dict[int, ProduceCall] = {}
        self.told: list[tuple[int, int]] = []

    def produce(self, sequence: int) -> None:
        item = (TOPIC, PARTITION, batch_of([b"value %d" % sequence], sequence))
        self.calls[sequence] = call_of(self.scene, self, [item])
        self.calls[sequence].begin()

    def answer_is_ready(self) -> None:
        (sequence,) = (one for one, call in self.calls.items() if call.chunks)
        code = code_of(self.calls.pop(sequence), TOPIC, PARTITION)
        assert code is not None
        self.told.append((sequence, code))

    def find(self) -> None:
        """The brokers have answered."""
        self.scene.is_known = True
        for look in self.scene.looks:
            look()
        self.scene.stage.run(1)


@pytest.mark.promise("waiting-for-topic")
def test_what_overtakes_a_batch_whose_topic_is_looked_for_is_no_gap() -> None:
    """Somebody else has asked for this topic a moment before, and is answered first."""
    scene = LookedFor()
    client = Sending(scene)
    client.produce(0)
    scene.is_known = True
    client.produce(1)
    scene.stage.run(1)
    client.find()
    assert client.told == [(1, HELD_BACK), (0, 0)]
    client.produce(1)
    scene.stage.run(1)
    assert client.told[2:] == [(1, 0)]
    assert scene.stage.stored_values() == [b"value 0", b"value 1"]


@pytest.mark.parametrize("is_old", [False, True])
def test_that_a_topic_was_looked_for_is_no_failure_of_the_batches_that_waited(is_old: bool) -> None:
    """Both wait; the first one is refused then, and comes again. An id that is old enough might begin anywhere."""
    scene = LookedFor()
    client = Sending(scene)
    if is_old:
        scene.stage.context.instance.wall_clock_ms = lambda: 2 * limits.PRODUCER_EXPIRY_SECONDS * 1000
    scene.stage.outcomes.append(scene.stage.refuses(6))
    client.produce(0)
    client.produce(1)
    client.find()
    assert client.told == [(0, 6), (1, HELD_BACK)]
    for sequence in (0, 1):
        client.produce(sequence)
        scene.stage.run(1)
    assert client.told[2:] == [(0, 0), (1, 0)]
    assert scene.stage.stored_values() == [b"value 0", b"value 1"]
