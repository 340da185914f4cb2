"""The produce connection of one client at the wire (DESIGN section 7; rules R3, R4, R16, R17)."""

from collections.abc import Callable
from typing import Any

import pytest

from idemproxy.codecs.framing import frame
from idemproxy.proxy.broker.queued_append import AppendOfFlow
from idemproxy.proxy.flow.effects import Append
from idemproxy.proxy.flow.outcome import Appended, InDoubt, NotSent, Outcome, Refused
from idemproxy.proxy.pass_through.connection import ClientConnection
from idemproxy.proxy.pass_through.produce_connections import ClientProduceConnections
from idemproxy.proxy.pass_through.write_acl import WriteAcl
from idemproxy.proxy.versions import ApiKey
from idemproxy.reactor import Address
from testkit.virtual.broker_end import BrokerEnd
from testkit.virtual.network import Network, NetworkSettings

BROKER, TOPIC = 1, "topic"
ADDRESS: Address = ("kafka", 9092)
WINDOW_BYTES = 4096
CALM = NetworkSettings(split_chance=0, partial_write_chance=0, truncation_chance=0, window_bytes=WINDOW_BYTES)
NOT_LEADER, DENIED = 6, 29


class Scene:
    """A client whom the broker has accepted, and his produce connection."""

    def __init__(self) -> None:
        self.network = Network(1, CALM)
        self.broker = self.network.host("kafka")
        self.end = BrokerEnd()
        self.network.listen(self.broker, ADDRESS, lambda: self.end)
        host = self.network.host("proxy")
        self.broken: list[str] = []
        self.answers: list[bytes] = []
        self.over: list[ClientProduceConnections] = []
        self.events: list[Any] = []
        self.may_send = self.is_there = True
        self.connection = ClientConnection(host)
        self.connection.broken = self.broken.append
        host.connect(ADDRESS, self.connection.pipe)
        self.write_acl = WriteAcl(host.now, lambda _topics: None)
        self.produce_connections = ClientProduceConnections(
            host,
            BROKER,
            self.connection,
            self.write_acl,
            may_send=lambda: self.may_send,
            is_there=lambda: self.is_there,
            is_over=self.over.append,
            report=self.events.append,
        )
        self.run()

    def ask(self, name: bytes) -> None:
        """Something of the client's own."""
        self.connection.request(ApiKey.LIST_GROUPS, 0, [name], lambda body: self.answers.append(bytes(body)))

    def append(
        self,
        partition: int = 0,
        *,
        size: int = 100,
        broker: int = BROKER,
        may_send: Callable[[], str | None] = lambda: None,
    ) -> list[Outcome]:
        """Ask for an append; what comes of it will be in the list."""
        outcomes: list[Outcome] = []
        append = Append(broker, TOPIC, partition, bytes(size), 30_000, may_send)
        self.produce_connections.queue_append(AppendOfFlow(append, outcomes.append), broker)
        return outcomes

    def run(self, seconds: float = 0.05) -> None:
        self.network.run(seconds)


# ---------------------------------------------------------------------- one produce, and nothing else
def test_a_batch_leaves_when_everything_before_it_is_answered() -> None:
    scene = Scene()
    scene.ask(b"one")
    scene.ask(b"two")
    outcomes = scene.append()
    scene.run()
    assert scene.end.keys == [ApiKey.LIST_GROUPS] * 2
    scene.end.answer()
    scene.run()
    assert scene.end.keys == [ApiKey.LIST_GROUPS]
    scene.end.answer()
    scene.run()
    assert scene.end.keys == [ApiKey.PRODUCE]
    scene.end.answer_produce(base_offset=41)
    scene.run()
    assert [one.base_offset for one in outcomes if isinstance(one, Appended)] == [41]


def test_client_requests_wait_for_the_batch_in_flight_in_their_order() -> None:
    scene = Scene()
    scene.append(0)
    scene.run()
    scene.append(1)
    scene.ask(b"one")
    scene.ask(b"two")
    scene.run()
    assert scene.end.keys == [ApiKey.PRODUCE]
    scene.end.answer_produce()
    scene.run()
    assert [frame[-3:] for frame in scene.end.frames] == [b"one", b"two"], "and the next batch behind them"
    scene.ask(b"six")
    for said in (b"1", b"2"):
        scene.end.answer(said)
    scene.run()
    assert scene.end.keys == [ApiKey.PRODUCE]
    scene.end.answer_produce()
    scene.run()
    scene.end.answer(b"6")
    scene.run()
    assert scene.answers == [b"1", b"2", b"6"]


def test_after_requests_without_an_answer_one_with_an_answer_leaves_first() -> None:
    scene = Scene()
    scene.connection.request(ApiKey.PRODUCE, 2, [b"acks 0"], None)
    scene.append()
    scene.run()
    scene.end.drop()
    assert scene.end.keys == [ApiKey.API_VERSIONS], "nobody knows how long the broker works on what was before"
    scene.end.answer()
    scene.run()
    assert scene.end.keys == [ApiKey.PRODUCE]


def test_whether_it_may_still_be_sent_is_asked_when_its_turn_has_come() -> None:
    scene = Scene()
    scene.ask(b"one")
    reasons: list[str | None] = [None]
    outcomes = scene.append(may_send=lambda: reasons[0])
    scene.run()
    reasons[0] = "a client has gone"
    scene.end.answer()
    scene.run()
    assert (outcomes, scene.end.keys) == ([NotSent("a client has gone")], [])
    scene.ask(b"two")
    scene.run()
    assert len(scene.end.keys) == 1, "others go on"


def test_a_batch_after_a_slow_request_is_returned_unsent_and_retriable() -> None:
    scene = Scene()
    scene.ask(b"fetch")
    outcomes = scene.append()
    scene.run(3)
    assert [type(one) for one in outcomes] == [NotSent]
    again = scene.append()
    scene.end.answer()
    scene.run()
    scene.end.answer_produce()
    scene.run()
    assert [type(one) for one in again] == [Appended]


def test_held_back_answers_do_not_delay_the_answer_to_the_clients_batch() -> None:
    scene = Scene()
    outcomes = scene.append()
    scene.run()
    scene.connection.hold(True)
    scene.end.answer_produce()
    scene.run()
    assert [type(one) for one in outcomes] == [Appended]
    scene.ask(b"one")
    scene.run()
    scene.end.answer()
    scene.run()
    assert scene.answers == []
    scene.connection.hold(False)
    scene.run()
    assert len(scene.answers) == 1


# ---------------------------------------------------------------------- where it may not go
def test_for_another_broker_it_is_refused_as_that_one_would_not_be_asked() -> None:
    scene = Scene()
    outcomes = scene.append(broker=2)
    scene.run()
    assert (outcomes, scene.end.keys) == ([Refused(NOT_LEADER)], [])


def test_nothing_is_sent_to_a_broker_whose_version_is_not_certain_now() -> None:
    scene = Scene()
    scene.is_there = False
    outcomes = scene.append()
    scene.run()
    assert (outcomes, scene.end.keys) == ([NotSent("the broker is away")], [])
    scene.is_there = True
    scene.ask(b"one")
    outcomes = scene.append()
    scene.run()
    scene.is_there = False
    scene.end.answer()
    scene.run()
    assert (outcomes, scene.end.keys) == ([NotSent("the broker is away")], [])


def test_over_a_connection_that_has_ended_nothing_is_sent() -> None:
    scene = Scene()
    scene.connection.close()
    outcomes = scene.append()
    scene.run()
    assert [type(one) for one in outcomes] == [NotSent]
    assert scene.over == [scene.produce_connections]


# ---------------------------------------------------------------------- R4, unknown outcome
def test_past_the_deadline_the_rest_of_a_batch_does_not_leave() -> None:
    scene = Scene()
    scene.append()
    scene.run()
    scene.end.answer_produce()
    scene.run()
    scene.broker.pause(3)
    outcomes = scene.append(size=3 * WINDOW_BYTES)
    scene.run(1)
    scene.may_send = False
    scene.run(5)
    assert len(scene.end.data) <= WINDOW_BYTES
    assert scene.end.is_lost
    assert [one.is_late for one in outcomes if isinstance(one, InDoubt)] == [True]
    assert len(scene.broken) == 1, "his connection with it"


def test_what_the_client_asks_himself_needs_no_lease() -> None:
    scene = Scene()
    scene.append()
    scene.run()
    scene.end.answer_produce()
    scene.run()
    scene.may_send = False
    outcomes = scene.append()
    scene.ask(b"one")
    scene.run()
    assert scene.end.keys == [ApiKey.LIST_GROUPS]
    scene.end.answer()
    scene.run()
    assert (outcomes, scene.end.keys) == ([NotSent("the lease has ended")], [])


@pytest.mark.parametrize("how", ["lost", "silent", "garbage", "new lease epoch", "the end"])
def test_a_batch_that_was_out_when_its_connection_ended_is_in_doubt_once(how: str) -> None:
    scene = Scene()
    outcomes, waiting = scene.append(), scene.append(1)
    scene.run()
    assert scene.end.wire is not None
    if how == "lost":
        scene.end.wire.reset()
    elif how == "garbage":
        scene.end.wire.send(frame(b"\xff\xff\xff\xff"))
    elif how == "new lease epoch":
        scene.produce_connections.give_up_busy("a new lease epoch")
    elif how == "the end":
        scene.produce_connections.drop("the end")
    scene.run(20)
    assert [type(one) for one in (*outcomes, *waiting)] in ([InDoubt, InDoubt], [InDoubt, NotSent])
    assert len(scene.broken) == 1
    assert scene.over == [scene.produce_connections]
    assert scene.network.open_connections() == []
    assert not scene.connection.is_lent, "nobody waits for anything there"


# ---------------------------------------------------------------------- the client goes
def test_when_the_client_goes_the_connection_stays_until_the_answer_is_there() -> None:
    scene = Scene()
    outcomes = scene.append(0)
    scene.run()
    waiting = scene.append(1, may_send=lambda: "a client has gone")
    scene.ask(b"one")
    scene.connection.close()
    scene.run()
    assert (waiting, scene.end.is_lost) == ([NotSent("a client has gone")], False)
    scene.end.answer_produce()
    scene.run()
    assert [type(one) for one in outcomes] == [Appended]
    assert scene.end.is_lost
    assert scene.end.keys == []
    assert (scene.broken, scene.over) == ([], [scene.produce_connections])


def test_a_batch_that_is_still_waited_for_is_sent_though_he_has_gone() -> None:
    """A retry of it may have come over another connection."""
    scene = Scene()
    scene.ask(b"fetch")
    outcomes = scene.append()
    scene.run()
    scene.connection.close()
    scene.run()
    scene.end.answer()
    scene.run()
    assert scene.end.keys == [ApiKey.PRODUCE]
    scene.end.answer_produce()
    scene.run()
    assert ([type(one) for one in outcomes], scene.end.is_lost) == ([Appended], True)


def test_an_acks_0_batch_is_sent_though_nobody_waits_for_earlier_requests() -> None:
    scene = Scene()
    scene.append()
    scene.run()
    scene.end.answer_produce()
    scene.run()
    scene.ask(b"fetch")
    reasons: list[str | None] = [None]
    outcomes = scene.append(may_send=lambda: reasons[0])
    scene.run()
    scene.connection.request(ApiKey.PRODUCE, 2, [b"acks 0"], None)
    scene.ask(b"one")
    reasons[0] = "a client has gone"
    scene.connection.close()
    scene.run()
    assert (outcomes, scene.end.is_lost) == ([NotSent("a client has gone")], False)
    assert scene.end.keys == [ApiKey.LIST_GROUPS, ApiKey.PRODUCE, ApiKey.API_VERSIONS]
    assert scene.end.frames[1].endswith(b"acks 0")
    assert scene.connection.pipe._unsent_bytes == 0, "nothing is counted for him for ever"
    scene.end.answer()
    scene.end.drop()
    scene.end.answer()
    scene.run()
    assert scene.end.is_lost
    assert scene.over == [scene.produce_connections]


def test_the_connection_is_not_closed_on_what_the_broker_may_not_have_read() -> None:
    """After a batch its socket is one that is reset when it is closed."""
    scene = Scene()
    scene.append(0)
    scene.run()
    scene.end.answer_produce()
    scene.run()
    scene.connection.request(ApiKey.PRODUCE, 2, [b"acks 0"], None)
    scene.connection.close()
    scene.run()
    assert not scene.end.is_lost
    scene.end.drop()
    scene.end.answer()
    scene.run()
    assert scene.end.is_lost


def test_answers_for_a_client_that_stopped_reading_and_left_are_read() -> None:
    scene = Scene()
    scene.append(0)
    scene.run()
    scene.end.answer_produce()
    scene.run()
    scene.ask(b"fetch")
    scene.connection.hold(True)
    scene.connection.request(ApiKey.PRODUCE, 2, [b"acks 0"], None)
    scene.connection.close()
    scene.run()
    scene.end.answer()
    scene.end.drop()
    scene.end.answer()
    scene.run()
    assert scene.end.is_lost
    assert scene.over == [scene.produce_connections]


# ---------------------------------------------------------------------- what the broker says of him
def test_an_append_tells_what_he_may_do() -> None:
    scene = Scene()
    heard: list[int] = []
    for code, offset in ((0, 7), (DENIED, -1)):
        scene.run()
        since = scene.network.now
        scene.write_acl.confirm(TOPIC, 0, since, heard.append)
        scene.append()
        scene.run()
        scene.end.answer_produce(code, offset)
        scene.run()
        scene.write_acl.confirm(TOPIC, 0, since, heard.append)
    assert heard == [0, DENIED]


def test_a_large_answer_right_before_a_batch_does_not_keep_that_from_its_answer() -> None:
    scene = Scene()
    pipe = scene.connection.pipe

    def large(_body: memoryview) -> None:
        pipe._is_held = True  # as a pipe does then, until its client was looked at
        pipe._read_or_not()

    pipe.request(ApiKey.LIST_GROUPS, 0, [b"large"], large)
    outcomes = scene.append()
    scene.run()
    scene.end.answer()
    scene.run()
    assert scene.end.keys == [ApiKey.PRODUCE]
    scene.end.answer_produce()
    scene.run()
    assert [type(one) for one in outcomes] == [Appended]


def test_while_a_batch_of_a_slow_partition_is_out_others_wait_for_the_connection() -> None:
    scene = Scene()
    scene.append(0)
    scene.run()
    other = scene.append(1)
    scene.ask(b"one")
    scene.run(4)
    assert scene.end.keys == [ApiKey.PRODUCE]
    scene.end.answer_produce()
    scene.run()
    assert scene.end.keys == [ApiKey.LIST_GROUPS], "the client's own comes first, as it came first"
    scene.end.answer()
    scene.run()
    scene.end.answer_produce()
    scene.run()
    assert [type(one) for one in other] == [Appended]
    assert scene.answers == [b""]
