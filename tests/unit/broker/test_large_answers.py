"""Answers of brokers that are large, for clients that do not take them: the broker keeps them until there is room. And
the other way round: what has no answer, for a broker that does not take it."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from idemproxy.codecs.message_set import encode_set
from idemproxy.codecs.produce import encode_request
from idemproxy.proxy import limits
from idemproxy.proxy.admission.memory_budget import MemoryBudget, MemoryStatistics, Reservation
from idemproxy.proxy.connection.shell import ConnectionShell
from idemproxy.proxy.events import SlowClient
from idemproxy.proxy.session.pipe import Pipe
from idemproxy.proxy.session.session import Session
from idemproxy.proxy.settings.config import Caps
from testkit.virtual.line import Line, request
from testkit.virtual.wire import VirtualWire
from testkit.virtual.world import TOPIC, World, WorldSettings

KB = 1000
ANSWER_BYTES = 200 * KB
ROOM_BYTES = 1000 * KB
CAPS = Caps(response_bytes_total_max=ROOM_BYTES, client_response_bytes_max=100 * KB, request_bytes_total_max=5000 * KB)
PRODUCE, FETCH, API_VERSIONS = 0, 1, 18


def fetch(correlation_id: int, bytes_max: int = ANSWER_BYTES) -> bytes:
    """A fetch of the log's begin, that does not wait."""
    name = TOPIC.encode()
    body = struct.pack(">iiiih", -1, 0, 1, 1, len(name)) + name + struct.pack(">iiqi", 1, 0, 0, bytes_max)
    return request(correlation_id, FETCH, 2, body)


def produce(correlation_id: int, value: bytes, acks: int = 0) -> bytes:
    """A batch in message format v1, without a producer id."""
    chunks = encode_request(2, acks, 10_000, [(TOPIC, 0, encode_set([(None, value, 0)], magic=1))])
    return request(correlation_id, PRODUCE, 2, b"".join(map(bytes, chunks)))


class Scene:
    def __init__(self, caps: Caps = CAPS) -> None:
        self.world = World(1, WorldSettings(brokers=1))
        self.world.start()
        (self.proxy,) = self.world.proxies
        self.engine = self.proxy.engine
        self.engine.set_caps(caps)
        log = self.world.cluster.log(TOPIC, 0)
        for number in range(30):
            log.append(encode_set([(None, bytes([number]) * 10 * KB, 0)], magic=1), 0.0)
        log.high_watermark = log.end_offset
        self.most = 0

    def client(self, *, is_deaf: bool = False) -> Line:
        client = Line()
        self.world.network.host("client").connect(self.proxy.address, client)
        assert self.world.network.run(1, lambda: client.wire is not None)
        assert client.wire is not None
        if is_deaf:
            client.wire.pause()
        return client

    def send(self, client: Line, *requests: bytes) -> None:
        assert client.wire is not None
        client.wire.send(b"".join(requests))

    def run(self, seconds: float) -> None:
        """Run, and look all the time how much memory the answers take."""
        for _ in range(round(seconds / 0.005)):
            self.world.network.run(0.005)
            self.most = max(self.most, sum(map(memory_of, self.engine.sessions)))

    @property
    def hung_up(self) -> list[str]:
        return [event.what for _, _, event in self.proxy.events if isinstance(event, SlowClient)]

    def nothing_is_held(self) -> bool:
        held: MemoryStatistics = self.engine.memory.statistics()
        return held.bytes_held == held.answer_bytes_held == held.answer_bytes_due == held.waiting == 0


def session_of(connection: ConnectionShell) -> Session:
    """The session of a client's connection."""
    assert isinstance(connection.handler, Session)
    return connection.handler


def memory_of(connection: ConnectionShell) -> int:
    """Bytes of answers that are kept for one client: not complete, not given on, not taken."""
    session = session_of(connection)
    kept = connection.wire.unsent if connection.wire is not None else 0
    kept += sum(sum(map(len, slot.chunks)) for slot in session._slots if slot.chunks is not None)
    return kept + (session._pipe._splitter.buffered_bytes if isinstance(session._pipe, Pipe) else 0)


# ---------------------------------------------------------------------- deaf consumers
DEAF = 30
SMALL_EACH = limits.RECEIVE_BYTES + limits.BACKLOG_BYTES
"""Of each: what came with one read before it was known how large it is, and what is too little to be counted."""


def test_deaf_consumers_of_large_answers_stay_within_the_limit_and_others_continue() -> None:
    scene = Scene()
    known = scene.client()
    scene.send(known, fetch(1))
    scene.run(1)
    for _ in range(DEAF):
        scene.send(scene.client(is_deaf=True), *(fetch(number) for number in range(10)))
    newcomer = scene.client()
    scene.run(1)
    scene.send(newcomer, fetch(1, 20 * KB))
    for number in range(2, 9):
        scene.send(known, fetch(number))
        scene.run(0.5)
    assert known.answers == list(range(1, 9)), "half of the room is for those who take what they get"
    assert newcomer.answers == [1], "a small answer needs no room"
    scene.send(newcomer, fetch(2))
    scene.run(2 * limits.UNTAKEN_SECONDS_SCARCE * DEAF * ANSWER_BYTES / (ROOM_BYTES / 2))
    assert newcomer.answers == [1, 2], "a large one comes when those who take nothing have been hung up on"
    assert len(scene.hung_up) == DEAF
    assert scene.most < ROOM_BYTES + DEAF * SMALL_EACH < DEAF * 10 * ANSWER_BYTES / 10


def test_after_one_large_answer_a_deaf_consumers_next_stay_at_the_broker() -> None:
    scene = Scene(Caps(client_response_bytes_max=100 * KB))
    deaf = scene.client(is_deaf=True)
    scene.send(deaf, *(fetch(number) for number in range(15)))
    scene.run(10)
    window_bytes = scene.world.network.settings.window_bytes
    assert scene.most < 100 * KB + window_bytes + 2 * ANSWER_BYTES + SMALL_EACH, "there is room for all of them"
    assert not deaf.is_lost
    assert deaf.wire is not None
    deaf.wire.resume()
    scene.run(10)
    assert deaf.answers == list(range(15))
    assert scene.nothing_is_held()


def test_a_waiting_answer_does_not_keep_the_brokers_answer_at_the_broker() -> None:
    """An answer of the proxy's own waits for one that comes after a large one, over the same connection."""
    scene = Scene()
    client = scene.client()
    scene.send(client, fetch(1), fetch(2, 11 * KB), request(3, API_VERSIONS))
    scene.run(3)
    assert client.answers == [1, 2, 3]
    assert scene.nothing_is_held()


def test_a_large_answer_that_waits_counts_and_later_ones_stay_upstream() -> None:
    scene = Scene(Caps(client_response_bytes_max=100 * KB))
    client = scene.client()
    session = session_of(*scene.engine.sessions)
    scene.send(client, fetch(1), *(fetch(number) for number in range(2, 12)))
    assert scene.world.network.run(1, lambda: len(session._slots) == 11)
    slot, held = session._slots[0], session._answer
    kept: list[Any] = []
    later = lambda one, *chunks: kept.append((one, *chunks)) if one is slot else held(one, *chunks)  # noqa: E731
    session._answer = later  # type: ignore[method-assign]
    scene.run(3)
    assert len(kept) == 1
    assert ANSWER_BYTES * 0.9 < scene.engine.memory.answer_bytes_due < 3 * ANSWER_BYTES
    assert scene.most < 3 * ANSWER_BYTES + SMALL_EACH
    held(*kept[0])
    scene.run(5)
    assert client.answers == list(range(1, 12))
    assert scene.nothing_is_held()


@pytest.mark.parametrize(("bytes_per_second", "stays"), [(4 * KB, False), (64 * KB, True)])
def test_while_others_wait_for_room_who_takes_next_to_nothing_is_hung_up_on(bytes_per_second: int, stays: bool) -> None:
    """The wire is read from as slowly as the network's window lets it: one read of a piece in so many seconds."""
    scene = Scene(Caps(response_bytes_total_max=300 * KB, client_response_bytes_max=100 * KB))
    scene.world.network.update(window_bytes=16 * KB)
    slow = scene.client(is_deaf=True)
    scene.send(slow, fetch(1), fetch(2))
    scene.run(1)
    others = [scene.client() for _ in range(2)]
    for _ in range(30):
        for other in others:
            if not other.is_lost:
                scene.send(other, fetch(7, 295 * KB))
        assert slow.wire is not None
        before = len(slow.data)
        slow.wire.resume()
        scene.world.network.run(0.05, lambda before=before: len(slow.data) > before)  # type: ignore[misc]
        slow.wire.pause()
        scene.run(16 * KB / bytes_per_second)
    assert slow.is_lost != stays


def test_memory_held_for_a_client_is_released_when_it_leaves() -> None:
    scene = Scene()
    clients = [scene.client(is_deaf=True) for _ in range(DEAF)]
    for client in clients:
        scene.send(client, *(fetch(number) for number in range(10)))
    scene.run(0.5)
    assert not scene.nothing_is_held()
    for client in clients:
        assert client.wire is not None
        client.wire.reset()
    scene.run(1)
    assert scene.nothing_is_held()
    assert scene.engine.statistics().connections == 0


# ---------------------------------------------------------------------- room
class _Asker:
    def __init__(self, holdings: MemoryBudget, size: int, *, is_new: bool = False) -> None:
        self.goes = 0
        self.room: Reservation = holdings.reserve(size, self.go, is_new)

    def go(self) -> None:
        self.goes += 1


def test_room_is_given_in_the_order_of_the_asking_and_never_too_much() -> None:
    holdings = MemoryBudget(Caps(response_bytes_total_max=1000 * KB))
    asked = [_Asker(holdings, size * KB) for size in (600, 300, 200, 50, 900)]
    assert [one.room.is_there for one in asked] == [True, True, False, False, False], "nobody is overtaken"
    assert holdings.has_many_answers
    asked[1].room.release()
    asked[1].room.release()
    assert [one.room.is_there for one in asked[2:]] == [True, True, False]
    asked[0].room.release()
    asked[3].room.release()
    assert not asked[4].room.is_there
    asked[2].room.release()
    assert [one.goes for one in asked] == [0, 0, 1, 1, 1], "who had it at once is not called"
    assert holdings.answer_bytes_due == 900 * KB
    assert not holdings.has_many_answers


def test_new_clients_share_half_of_the_room_and_take_turns_with_the_others() -> None:
    holdings = MemoryBudget(Caps(response_bytes_total_max=1000 * KB))
    new = [_Asker(holdings, 200 * KB, is_new=True) for _ in range(5)]
    assert [one.room.is_there for one in new] == [True, True, False, False, False]
    known = [_Asker(holdings, 300 * KB) for _ in range(4)]
    assert [one.room.is_there for one in known] == [True, True, False, False]
    holdings.hold_answers(200 * KB, is_new=True)
    new[0].room.release()
    holdings.hold_answers(-200 * KB, is_new=True)
    assert not any(one.room.is_there for one in (known[2], new[2])), "it is the turn of one that does not fit"
    known[0].room.release()
    assert [one.goes for one in (known[2], new[2], known[3], new[3])] == [1, 1, 0, 0]
    new[1].room.release()
    new[2].room.release()
    assert [one.goes for one in (known[3], new[3])] == [1, 0]
    for one in (*new, *known):
        one.room.release()
    assert holdings.answer_bytes_due == holdings._new_bytes == 0


def test_a_large_answer_for_a_new_client_comes_alone() -> None:
    holdings = MemoryBudget(Caps(response_bytes_total_max=1000 * KB))
    assert _Asker(holdings, 5000 * KB, is_new=True).room.is_there


def test_who_does_not_want_it_any_more_keeps_nobody_waiting() -> None:
    holdings = MemoryBudget(Caps(response_bytes_total_max=1000 * KB))
    first, second, third = (_Asker(holdings, 800 * KB) for _ in range(3))
    second.room.release()
    first.room.release()
    assert (second.goes, third.goes) == (0, 1)


def test_an_answer_above_the_limit_comes_alone_and_what_is_not_taken_counts() -> None:
    holdings = MemoryBudget(Caps(response_bytes_total_max=1000 * KB))
    huge = _Asker(holdings, 5000 * KB)
    assert huge.room.is_there
    holdings.hold_answers(600 * KB)
    huge.room.release()
    another = _Asker(holdings, 5000 * KB)
    assert not another.room.is_there, "others leave less than half"
    holdings.hold_answers(-200 * KB)
    assert another.room.is_there


# ---------------------------------------------------------------------- what has no answer
def broker_end(scene: Scene, client: Line) -> VirtualWire:
    """The broker's end of the connection that belongs to the only client."""
    scene.send(client, fetch(1, 11 * KB))
    scene.run(0.5)
    session = session_of(*scene.engine.sessions)
    assert isinstance(session._pipe, Pipe)
    near = session._pipe._wire
    assert isinstance(near, VirtualWire)
    return next(end for end in near.connection.ends if end is not near)


@pytest.mark.promise("compared-5")
def test_who_sends_without_wanting_an_answer_waits_when_the_broker_does_not_take_it() -> None:
    scene = Scene()
    client = scene.client()
    far = broker_end(scene, client)
    far.pause()
    before = scene.world.cluster.log(TOPIC, 0).end_offset
    for number in range(400):
        scene.send(client, produce(number, b"x" * 10 * KB))
    most = 0
    for _ in range(100):
        scene.run(0.1)
        most = max(most, scene.engine.memory.bytes_held)
    read_at_once = 2 * limits.RECEIVE_BYTES  # it counts as it came, and as it is converted for the broker
    assert CAPS.client_response_bytes_max < most < CAPS.client_response_bytes_max + read_at_once
    assert not client.is_lost
    far.resume()
    scene.run(20)
    assert scene.world.cluster.log(TOPIC, 0).end_offset == before + 400, "and nothing is lost"
    assert scene.nothing_is_held()


def test_acks_zero_batches_count_until_sent_though_their_client_has_left() -> None:
    scene = Scene()
    client = scene.client()
    far = broker_end(scene, client)
    far.pause()
    scene.send(client, *(produce(number, b"x" * 20 * KB) for number in range(30)))
    scene.run(2)
    assert client.wire is not None
    client.wire.close()
    scene.run(1)
    assert scene.engine.statistics().connections == 0
    assert scene.engine.memory.bytes_held > limits.BACKLOG_BYTES
    far.resume()
    scene.run(2)
    assert scene.nothing_is_held()


# ---------------------------------------------------------------------- a connection that a broker closes
@pytest.mark.promise("compared-8")
def test_a_broker_that_closes_an_idle_connection_does_not_end_the_clients() -> None:
    scene = Scene()
    client = scene.client()
    for number in range(2, 5):
        broker_end(scene, client).reset()
        scene.run(1)
        assert not client.is_lost
        scene.send(client, fetch(number))
        scene.run(1)
    assert [one for one in client.answers if one > 1] == [2, 3, 4]


@pytest.mark.parametrize("what", ["an answer is due", "something has no answer"])
def test_a_broker_that_closes_a_connection_that_matters_ends_the_clients_as_well(what: str) -> None:
    scene = Scene()
    client = scene.client()
    far = broker_end(scene, client)
    if what == "an answer is due":
        far.pause()
        scene.send(client, fetch(2))
    else:
        scene.send(client, produce(2, b"x"))
    scene.run(1)
    assert not client.is_lost
    far.reset()
    scene.run(1)
    assert client.is_lost
