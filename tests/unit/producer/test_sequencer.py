"""One sequencer on a clock and a store of the test's own: batches whose clients leave at a bad moment."""

from collections.abc import Callable
from typing import Any

from idemproxy.codecs.record_batch import Record, encode_batch, parse_single_batch
from idemproxy.proxy.admission.memory_budget import MemoryBudget
from idemproxy.proxy.flow.effects import Append, Ask, Leader, Now, Pause, Read, Swap, Unanswered, Wait
from idemproxy.proxy.flow.outcome import Appended, NotSent
from idemproxy.proxy.flow.runner import FlowRunner, Resume
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.proxy.producer import answers
from idemproxy.proxy.producer.batch import Answer, Batch
from idemproxy.proxy.producer.context import Context
from idemproxy.proxy.producer.life import Life
from idemproxy.proxy.producer.retry_notes import RetryNotes
from idemproxy.proxy.producer.sequencer import Sequencer
from idemproxy.proxy.settings.config import Caps
from idemproxy.state.decide import BatchIdentity
from idemproxy.state.entry import NO_ANCHOR
from idemproxy.state.producer_ids import block_of, pack_block
from idemproxy.state.store import Swapped, block_key

PRODUCER_ID = 7000
GENERATION = bytes(range(16))
BLOCK_KEY = block_key("test", block_of(PRODUCER_ID))


class Client:
    """A connection, and the one request that waits on it."""

    def __init__(self) -> None:
        self.retry_notes = RetryNotes()
        self.name = "client"
        self.address = "10.0.0.1"
        self.way = None
        self.is_closed = False
        self.answers: list[Answer] = []
        self.link = None
        self.number = 1

    @property
    def is_gone(self) -> bool:
        return self.is_closed or bool(self.answers)

    @property
    def connection(self) -> "Client":
        return self

    def rest(self, seconds: float) -> None:
        """Nothing is refused for that here."""

    def answer(self, answer: Answer) -> None:
        if not self.answers:
            self.answers.append(answer)

    @property
    def is_done(self) -> bool:
        return bool(self.answers)

    def appended(self, base_offset: int, log_append_time_ms: int) -> None:
        self.answer(answers.appended(base_offset, log_append_time_ms))

    def leave(self) -> None:
        """It keeps nothing."""


class Outside:
    """Performs the effects: the store takes every swap, an append is asked whether it may be sent, time stands still
    until the test lets it go on."""

    def __init__(self) -> None:
        self.waiting: list[Resume] = []
        self.appended = 0
        self.before_append: Callable[[], None] = lambda: None
        self.runner = FlowRunner(
            {
                Read: lambda effect, resume: resume(pack_block(GENERATION, 0) if effect.key == BLOCK_KEY else None),
                Swap: lambda _effect, resume: resume(Swapped()),
                Append: self._append,
                Ask: lambda _effect, resume: resume(Unanswered("nobody is asked")),
                Leader: lambda _effect, resume: resume(0),
                Now: lambda _effect, resume: resume(0.0),
                Wait: lambda _effect, resume: self.waiting.append(resume),
                Pause: lambda _effect, resume: self.waiting.append(lambda _result: resume(False)),
            }
        )
        life, memory = Life("test", generation=GENERATION), MemoryBudget(Caps())
        context = Context(life, lambda _event: None, memory, leader_of=lambda _topic, _number: 0)
        context.bounds.note("topic", 0, Position(0, NO_ANCHOR))
        self.sequencer = Sequencer(context, self.runner, PRODUCER_ID, "topic", 0)

    def let_time_pass(self) -> None:
        waiting, self.waiting = self.waiting, []
        for resume in waiting:
            resume(None)

    def _append(self, effect: Any, resume: Resume) -> None:
        self.before_append()
        reason = effect.may_send()
        if reason is not None:
            resume(NotSent(reason))
            return
        offset, self.appended = self.appended, self.appended + sum(one.record_count for one in effect.identities)
        resume(Appended(offset))


def batch(client: Client, sequence: int = 0) -> Batch:
    records = memoryview(
        encode_batch(
            [Record(0, 1_700_000_000_000, None, b"value", ())],
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=sequence,
        )
    )
    return Batch(BatchIdentity(0, sequence, 1), records, parse_single_batch(records), 5000, 0.0, [client])


def test_a_retry_that_comes_after_its_first_try_was_dropped_is_a_first_try_again() -> None:
    outside = Outside()
    first, second = Client(), Client()

    def leave() -> None:
        first.is_closed = True

    outside.before_append = leave
    outside.sequencer.submit(batch(first))
    assert outside.appended == 0  # nobody starts for a client that has gone (rule R17)

    outside.before_append = lambda: None
    outside.sequencer.submit(batch(second))
    for _ in range(3):
        outside.let_time_pass()
    assert [answer.base_offset for answer in second.answers] == [0]
    assert outside.appended == 1


def test_a_retry_that_comes_before_the_send_takes_the_first_try_over() -> None:
    outside = Outside()
    first, second = Client(), Client()

    def come_back() -> None:
        first.is_closed = True
        outside.sequencer.submit(batch(second))

    outside.before_append = come_back
    outside.sequencer.submit(batch(first))
    assert [answer.base_offset for answer in second.answers] == [0]
    assert outside.appended == 1
