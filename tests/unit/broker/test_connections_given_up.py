"""Connections to brokers that are closed while they are being opened, or that cannot be opened for a while."""

from typing import Any

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.bridge.asks import LOG_END_REPLICA_ID, FetchRecords, LatestOffset
from idemproxy.proxy.broker.broker import Broker
from idemproxy.proxy.broker.produce_connection_pool import ProduceConnectionPool
from idemproxy.proxy.flow.effects import Append, Unanswered
from idemproxy.proxy.flow.outcome import InDoubt, NotSent, Outcome
from idemproxy.proxy.partition_log.log_chunk import ReadLog
from testkit.stage.clock import Clock, Wire
from testkit.virtual import kafka_bytes as kafka

BROKER = 1


def pool_on(clock: Clock) -> ProduceConnectionPool:
    pool = ProduceConnectionPool(clock, BROKER, clock.opening.append, may_send=lambda: True, report=lambda _event: None)
    pool.set_usable(True)
    return pool


def append_to(pool: ProduceConnectionPool, partition: int, outcomes: list[Outcome]) -> None:
    pool.append(Append(BROKER, "topic", partition, b"set", 30_000, lambda: None), outcomes.append)


def test_a_produce_connection_closed_while_opening_stays_closed() -> None:
    clock = Clock()
    pool = pool_on(clock)
    outcomes: list[Outcome] = []
    append_to(pool, 0, outcomes)
    clock.run()
    pool.close()
    assert [type(outcome) for outcome in outcomes] == [NotSent]
    (produce_connection,) = clock.opening
    wire = Wire()
    produce_connection.connected(wire)
    clock.run(5)
    assert wire.was_reset
    assert wire.sent == b""


def test_a_produce_connection_closed_while_opening_may_fail_to_open() -> None:
    clock = Clock()
    pool = pool_on(clock)
    outcomes: list[Outcome] = []
    append_to(pool, 0, outcomes)
    clock.run()
    pool.close()
    clock.opening[0].lost("cannot connect")
    clock.run(5)
    assert [type(outcome) for outcome in outcomes] == [NotSent]
    assert len(clock.opening) == 1, "nothing is opened for a pool that is closed"


def test_a_failed_second_produce_connection_is_opened_again_for_a_waiting_append() -> None:
    clock = Clock()
    pool = pool_on(clock)
    outcomes: list[Outcome] = []
    append_to(pool, 0, outcomes)
    clock.run()
    clock.opening[0].connected(Wire())
    clock.run()
    append_to(pool, 1, outcomes)
    clock.run(0.1)
    assert len(clock.opening) == 2
    clock.opening[1].lost("cannot connect")
    clock.run(2)
    assert len(clock.opening) == 3
    second = Wire()
    clock.opening[2].connected(second)
    clock.run()
    assert second.sent
    clock.run(60)
    assert outcomes
    assert all(isinstance(outcome, InDoubt) for outcome in outcomes)


@pytest.mark.parametrize("had_begun", [False, True])
def test_a_write_is_late_if_the_lease_ended_after_its_first_look(had_begun: bool) -> None:
    clock = Clock()
    may_send = True
    pool = ProduceConnectionPool(
        clock, BROKER, clock.opening.append, may_send=lambda: may_send, report=lambda _event: None
    )
    pool.set_usable(True)
    outcomes: list[Outcome] = []
    for partition in (0, 1):  # what was asked for the one before does not count
        append_to(pool, partition, outcomes)
        clock.run()
        if partition == 0:
            wire = Wire()
            clock.opening[0].connected(wire)
            clock.run()
            assert wire.may_write()
            assert wire.may_write()
            answer = kafka.produce_answer(2, [("topic", 0, 0, 0)])
            clock.opening[0].received((len(answer) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + answer)
    clock.run()
    if had_begun:
        assert wire.may_write()
    may_send = False
    assert not wire.may_write()
    clock.opening[0].lost("the lease ended before the last byte was sent")
    assert isinstance(outcomes[1], InDoubt)
    assert outcomes[1].is_late == had_begun


@pytest.mark.parametrize("was_away", [False, True])
def test_a_broker_that_throttles_is_waited_for_unless_it_was_away_meanwhile(was_away: bool) -> None:
    clock = Clock()
    pool = pool_on(clock)
    outcomes: list[Outcome] = []
    for partition in (0, 1):
        append_to(pool, partition, outcomes)
        clock.run()
        if partition == 0:
            clock.opening[0].connected(Wire())
            clock.run()
            answer = kafka.produce_answer(2, [("topic", 0, 0, 0)], 1000)
            clock.opening[0].received((len(answer) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + answer)
    clock.run()
    outcomes.clear()
    if was_away:
        pool.set_usable(False)
        pool.set_usable(True)
    clock.run(limits.UPSTREAM_TIMEOUT_SECONDS_MAX + limits.PRODUCE_CONNECTION_ANSWER_SECONDS_MAX + 2)
    assert len(outcomes) == was_away


def test_a_broker_that_is_closed_while_it_is_being_connected_to_stays_closed() -> None:
    clock = Clock()
    ready: list[Any] = []
    broker = Broker(
        clock,
        BROKER,
        ("kafka", 9092),
        may_send=lambda: True,
        admits=_ours,
        on_ready=ready.append,
        report=lambda _event: None,
    )
    broker.open()
    broker.close()
    wire = Wire()
    clock.opening[0].connected(wire)
    clock.run(5)
    assert wire.was_reset
    assert len(clock.opening) == 1
    assert not ready


def test_a_broker_is_named_in_the_log_as_in_the_configuration() -> None:
    clock, said = Clock(), list[Any]()
    broker = Broker(
        clock, BROKER, ("2001:db8::1", 9092), may_send=lambda: True, admits=_ours, on_ready=_ignore, report=said.append
    )
    broker.open()
    for _ in range(2):
        clock.opening[-1].lost("refused")
        clock.run(5)
    assert [event.what for event in said] == ["broker 1 at [2001:db8::1]:9092 is away: refused"]
    broker.close()


# ---------------------------------------------------------------------- questions
class Asked(Broker):
    """A broker that is ready. ``frames`` are the questions that have left, not answered yet."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(
            self.clock, BROKER, ("kafka", 9092), may_send=lambda: True, admits=_ours, on_ready=_ignore, report=_ignore
        )
        self.wire = Wire()
        self.open()
        self.endpoint = self.clock.opening[0]
        self.endpoint.connected(self.wire)
        self.answer(kafka.metadata_answer(1, [(BROKER, "kafka", 9092)], "cluster", BROKER, []))
        self.answer(kafka.api_versions_answer())
        self.answer(kafka.metadata_answer(2, [(BROKER, "kafka", 9092)], "cluster", BROKER, []))
        assert self.is_ready

    @property
    def questions(self) -> list[kafka.Request]:
        """What has left and is not answered."""
        data, found = self.wire.sent, []
        while data:
            end = 4 + int.from_bytes(data[:4], "big")
            found.append(kafka.parse_request(data[4:end]))
            data = data[end:]
        return found

    def answer(self, body: bytes) -> None:
        """Answer the oldest question."""
        end = 4 + int.from_bytes(self.wire.sent[:4], "big")
        request = kafka.parse_request(self.wire.sent[4:end])
        self.wire.sent = self.wire.sent[end:]
        self.endpoint.received(kafka.frame(request.correlation_id, body))

    def open_reading(self) -> None:
        """The connection for reading, which the first fetch has asked for, is there: what follows is about it."""
        self.wire, self.endpoint = Wire(), self.clock.opening[-1]
        self.endpoint.connected(self.wire)


def _ignore(_: object) -> None:
    pass


def _ours(_: str | None) -> bool:
    return True


def test_a_thousand_unknown_outcomes_share_one_probe() -> None:
    broker = Asked()
    answers: list[Any] = []
    for _ in range(1000):
        broker.ask(LatestOffset("topic", 0), answers.append)
    broker.ask(LatestOffset("topic", 1), answers.append)
    assert len(broker.questions) == 2
    broker.answer(kafka.list_offsets_answer(1, [("topic", 0, 0, 7)]))
    assert [answer.offset for answer in answers] == [7] * 1000
    broker.ask(LatestOffset("topic", 0), answers.append)
    assert len(broker.questions) == 2


def test_a_thousand_unknown_outcomes_share_a_log_end_asked_for_after_each() -> None:
    broker = Asked()
    early: list[Any] = []
    late: list[Any] = []
    for _ in range(1000):
        broker.ask(LatestOffset("topic", 0, LOG_END_REPLICA_ID), early.append)
    broker.clock.run(0)
    for _ in range(1000):
        broker.ask(LatestOffset("topic", 0, LOG_END_REPLICA_ID), late.append)
    broker.clock.run(0)
    assert len(broker.questions) == 1
    broker.answer(kafka.list_offsets_answer(1, [("topic", 0, 0, 7)]))
    assert ([answer.offset for answer in early], late) == ([7] * 1000, [])
    assert len(broker.questions) == 1, "what was in doubt may have been appended since the first one was asked"
    broker.answer(kafka.list_offsets_answer(1, [("topic", 0, 0, 8)]))
    assert [answer.offset for answer in late] == [8] * 1000
    assert len(broker.questions) == 0


def test_a_thousand_unknown_outcomes_read_the_log_a_few_at_a_time() -> None:
    broker = Asked()
    answers: list[Any] = []
    for offset in range(1000):
        broker.ask(FetchRecords("topic", 0, offset, limits.FETCH_BYTES), answers.append)
    broker.open_reading()
    most = 0
    while broker.questions:
        most = max(most, len(broker.questions))
        broker.answer(kafka.fetch_answer(broker.questions[0].api_version, [("topic", 0, 0, 1000, b"")]))
    assert most == limits.FETCHES_AT_A_TIME
    assert len(answers) == 1000


def test_a_lost_connection_answers_every_question() -> None:
    broker = Asked()
    answers: list[Any] = []
    for offset in range(20):
        broker.ask(FetchRecords("topic", 0, offset, limits.FETCH_BYTES), answers.append)
        broker.ask(LatestOffset("topic", 0), answers.append)
    control = broker.endpoint
    broker.open_reading()
    control.lost("reset by the peer")
    broker.clock.run(0.01)
    assert len(answers) == 40
    assert {type(answer) for answer in answers} == {Unanswered}
    assert broker.wire.was_reset


def test_a_question_is_answered_while_logs_are_read() -> None:
    """After a megabyte it would be late, and an unknown outcome would wait until every log has been read (rule R6)."""
    broker = Asked()
    control, wire, answers = broker.endpoint, broker.wire, list[Any]()
    for _ in range(limits.FETCHES_AT_A_TIME + 1):
        broker.ask(FetchRecords("topic", 0, 0, limits.FETCH_BYTES), answers.append)
    broker.open_reading()
    broker.ask(LatestOffset("topic", 0), answers.append)
    assert [len(broker.questions), answers] == [limits.FETCHES_AT_A_TIME, []]
    broker.wire, broker.endpoint = wire, control
    broker.answer(kafka.list_offsets_answer(1, [("topic", 0, 0, 7)]))
    assert [answer.offset for answer in answers] == [7]


@pytest.mark.parametrize("was_open", [False, True])
def test_a_lost_connection_for_reading_ends_what_was_read_and_nothing_else(was_open: bool) -> None:
    broker = Asked()
    control, wire, answers = broker.endpoint, broker.wire, list[Any]()
    for offset in range(20):
        broker.ask(FetchRecords("topic", 0, offset, limits.FETCH_BYTES), answers.append)
    if was_open:
        broker.open_reading()
    broker.clock.opening[-1].lost("reset by the peer")
    broker.clock.run(0.01)
    assert [type(answer) for answer in answers] == [Unanswered] * 20
    assert broker.is_ready
    broker.ask(FetchRecords("topic", 0, 0, limits.FETCH_BYTES), answers.append)
    broker.open_reading()
    assert len(broker.questions) == 1, "the next one opens another"
    broker.wire, broker.endpoint = wire, control
    assert not wire.was_reset


@pytest.mark.parametrize("is_open", [False, True])
def test_a_broker_that_is_closed_answers_all_who_wait_for_its_logs(is_open: bool) -> None:
    """A few fetches are out at a time: the others wait for their turn, and one that was asked this moment is not even
    put there yet."""
    broker, answers = Asked(), list[Any]()
    for partition in range(limits.FETCHES_AT_A_TIME + 2):
        broker.ask(ReadLog("topic", partition, 5), answers.append)
    broker.clock.run()
    if is_open:
        broker.open_reading()
        assert len(broker.questions) == limits.FETCHES_AT_A_TIME
    broker.ask(ReadLog("topic", 100, 5), answers.append)
    broker.ask(FetchRecords("topic", 101, 5, limits.FETCH_BYTES), answers.append)
    broker.close()
    broker.clock.run()
    assert [type(answer) for answer in answers] == [Unanswered] * (limits.FETCHES_AT_A_TIME + 4)


def test_nothing_is_asked_of_a_broker_that_is_closed() -> None:
    """A caller that learns that there is no answer may ask again at once, or later."""
    broker, answers = Asked(), list[Any]()
    question = ReadLog("topic", 0, 5)
    fetch, end = FetchRecords("topic", 0, 5, limits.FETCH_BYTES), LatestOffset("topic", 0)

    def again(answer: Any) -> None:
        answers.append(answer)
        for one in (question, fetch, end):
            broker.ask(one, answers.append)

    for one in (question, fetch, end):
        broker.ask(one, again)
    broker.clock.run()
    control = broker.wire
    broker.open_reading()
    control.sent = broker.wire.sent = b""
    broker.close()
    broker.clock.run()
    again(None)
    broker.clock.run(600)
    assert [type(answer) for answer in answers if answer is not None] == [Unanswered] * 15
    assert control.sent == broker.wire.sent == b""
    assert control.was_reset
    assert broker.wire.was_reset
    assert len(broker.clock.opening) == 2


def read_all(broker: Asked, partitions: int, seconds: float) -> list[int]:
    """Read the logs of so many partitions at once, of which the broker answers one after the other, each after so many
    seconds; then another one. Return how much was asked for of each."""
    asked, answers = list[int](), list[Any]()
    for partition in range(partitions):
        broker.ask(ReadLog("topic", partition, 0), answers.append)
    broker.clock.run()
    broker.open_reading()
    for number in range(partitions + 1):
        if number == partitions:
            broker.ask(ReadLog("topic", number, 0), answers.append)
            broker.clock.run()
        broker.clock.run(seconds)
        question = broker.questions[0]
        ((topic, partition, _, bytes_max),) = kafka.parse_fetch(question.body, question.api_version).partitions
        asked.append(bytes_max)
        broker.answer(kafka.fetch_answer(question.api_version, [(topic, partition, 0, 1000, b"")]))
        broker.clock.run()
    assert len(answers) == partitions + 1
    return asked


def test_a_broker_is_not_slow_because_many_logs_are_read() -> None:
    assert read_all(Asked(), 40, 0.1 * limits.ASK_SECONDS_MAX) == [limits.FETCH_BYTES] * 41


def test_a_broker_that_is_slow_is_asked_for_less_of_its_logs() -> None:
    assert read_all(Asked(), 1, 0.6 * limits.ASK_SECONDS_MAX) == [limits.FETCH_BYTES, limits.FETCH_BYTES // 4]


@pytest.mark.parametrize("ends", [True, False])
def test_an_answer_is_waited_for_as_long_as_bytes_of_it_come(ends: bool) -> None:
    """A megabyte over a slow link, or a message of 60 MB over any: asked for again, it would take as long again."""
    broker, answers = Asked(), list[Any]()
    broker.ask(FetchRecords("topic", 0, 0, limits.FETCH_BYTES), answers.append)
    broker.open_reading()
    (question,) = broker.questions
    body = kafka.fetch_answer(question.api_version, [("topic", 0, 0, 1000, b"\0" * 1000)])
    frame = kafka.frame(question.correlation_id, body)
    for start in range(0, 1000, 200):
        broker.clock.run(0.9 * limits.ASK_SECONDS_MAX)
        broker.endpoint.received(frame[start : start + 200])
    assert not answers
    if ends:
        broker.endpoint.received(frame[1000:])
    broker.clock.run(1.1 * limits.ASK_SECONDS_MAX)
    assert [type(answer) is Unanswered for answer in answers] == [not ends]
    assert broker.wire.was_reset is not ends


def test_a_broker_of_another_cluster_is_not_served() -> None:
    """An address may be given to somebody else while its broker is away."""
    clock, said, ready = Clock(), list[str](), list[Any]()
    broker = Broker(
        clock,
        BROKER,
        ("kafka", 9092),
        may_send=lambda: True,
        admits=lambda cluster_id: cluster_id in (None, "ours"),
        on_ready=ready.append,
        report=_ignore,
        on_refused=lambda refused: said.append(refused.why_refused),
    )
    broker.open()
    for cluster_id in ("another", "ours"):
        wire = Wire()
        clock.opening[-1].connected(wire)
        for body in (
            kafka.metadata_answer(1, [(BROKER, "kafka", 9092)], cluster_id, BROKER, []),
            kafka.api_versions_answer(),
            kafka.metadata_answer(2, [(BROKER, "kafka", 9092)], cluster_id, BROKER, []),
        ):
            request = kafka.parse_request(wire.sent[4:])
            wire.sent = b""
            clock.opening[-1].received(kafka.frame(request.correlation_id, body))
        assert (broker.is_ready, wire.was_reset) == ((True, False) if cluster_id == "ours" else (False, True))
        clock.run(limits.CONNECT_BACKOFF_SECONDS_MIN * 2)
    assert ready == [broker]
    assert said == ["broker 1 at kafka:9092 cannot be served: it belongs to another cluster, another"]
    broker.close()
