"""Clients that begin and stop halfway, that ask and do not listen, that ask for everything at once, or for nothing."""

from __future__ import annotations

import pytest

from idemproxy.codecs import messages
from idemproxy.proxy import limits
from idemproxy.proxy.events import SlowClient
from idemproxy.proxy.settings.config import Caps
from idemproxy.proxy.versions import ApiKey
from testkit.virtual import line as virtual_line
from testkit.virtual.line import Line
from testkit.virtual.world import TOPIC, World, WorldSettings

API_VERSIONS, METADATA = 18, 3
UNSENT_MAX = 100_000
HELD_MAX = 100_000
LARGE_BYTES = 10_000_000


def request(correlation_id: int, api_key: int = API_VERSIONS) -> bytes:
    """A request without a body."""
    return virtual_line.request(correlation_id, api_key)


class Scene:
    def __init__(self) -> None:
        self.world = World(1, WorldSettings(brokers=1))
        self.world.start()
        (self.proxy,) = self.world.proxies
        self.proxy.engine.set_caps(Caps(client_response_bytes_max=UNSENT_MAX, request_bytes_total_max=HELD_MAX))

    def client(self) -> Line:
        client = Line()
        self.world.network.host("client").connect(self.proxy.address, client)
        self.run(1)
        return client

    def run(self, seconds: float) -> None:
        self.world.network.run(seconds)

    def send(self, client: Line, data: bytes, seconds: float = 1) -> None:
        assert client.wire is not None
        client.wire.send(data)
        self.run(seconds)

    @property
    def hung_up(self) -> list[str]:
        """What was said of those that were hung up on."""
        return [event.what for _, _, event in self.proxy.events if isinstance(event, SlowClient)]


@pytest.fixture
def scene() -> Scene:
    return Scene()


# ---------------------------------------------------------------------- requests that do not come
@pytest.mark.promise("compared-9")
@pytest.mark.parametrize("sent", [b"\0", b"\0\0\0\x40\0\0", LARGE_BYTES.to_bytes(4, "big") + bytes(60_000)])
def test_a_client_that_does_not_continue_its_request_is_disconnected_and_reported(scene: Scene, sent: bytes) -> None:
    client = scene.client()
    scene.send(client, sent)
    scene.run(limits.UNFINISHED_SECONDS * 2 - 2)
    assert not client.is_lost
    scene.run(limits.UNFINISHED_SECONDS + 1)
    assert client.is_lost
    assert scene.hung_up == [f"only {len(sent)} bytes of a request came in {2 * limits.UNFINISHED_SECONDS:.0f} s"]
    assert scene.proxy.engine.memory.bytes_held == 0


def test_a_client_that_sends_a_byte_now_and_then_is_disconnected(scene: Scene) -> None:
    client = scene.client()
    for byte in LARGE_BYTES.to_bytes(4, "big") + bytes(20):
        scene.send(client, bytes([byte]))
    assert client.is_lost
    assert len(scene.hung_up) == 1


def test_a_large_request_on_a_slow_line_arrives(scene: Scene) -> None:
    scene.proxy.engine.set_caps(Caps())
    client = scene.client()
    whole = request(7, API_VERSIONS)
    pieces = [(1_000_000).to_bytes(4, "big") + whole[4:], *[bytes(20_000)] * 30]
    for piece in pieces:
        scene.send(client, piece)
    assert not client.is_lost
    assert scene.hung_up == []


def test_successive_requests_cut_in_the_middle_are_not_one_unfinished_request(scene: Scene) -> None:
    client = scene.client()
    stream = b"".join(request(number) for number in range(60))
    size = len(request(0))
    for number in range(30):
        scene.send(client, stream[number * size + 5 : (number + 1) * size + 5] if number else stream[: size + 5])
    assert not client.is_lost
    assert client.answers == list(range(30))


def test_unfinished_requests_do_not_keep_the_others_waiting_for_long(scene: Scene) -> None:
    stalled = [scene.client() for _ in range(2)]
    for one in stalled:
        scene.send(one, LARGE_BYTES.to_bytes(4, "big") + bytes(60_000))
    behaving = scene.client()
    scene.send(behaving, request(1))
    scene.send(behaving, request(2))
    assert behaving.answers == [], "there is no room"
    scene.run(limits.UNFINISHED_SECONDS * 3)
    assert behaving.answers == [1, 2]
    assert [one.is_lost for one in stalled] == [True, True]


# ---------------------------------------------------------------------- answers that are not taken
def ask_until_nothing_is_read(scene: Scene, *clients: Line) -> None:
    for _ in range(40):
        for client in clients:
            scene.send(client, b"".join(request(number) for number in range(1000)), 0.5 / len(clients))


def test_who_takes_no_answers_gets_no_more_and_is_hung_up_on(scene: Scene) -> None:
    client = scene.client()
    assert client.wire is not None
    client.wire.pause()
    ask_until_nothing_is_read(scene, client)
    held = scene.proxy.engine.memory.answer_bytes_held
    assert UNSENT_MAX < held < 1.2 * UNSENT_MAX
    scene.run(limits.UNTAKEN_SECONDS)
    assert len(scene.hung_up) == 1
    assert "it read none of" in scene.hung_up[0]
    assert scene.proxy.engine.memory.answer_bytes_held == scene.proxy.engine.memory.bytes_held == 0


def test_who_takes_answers_slowly_gets_them_all(scene: Scene) -> None:
    client = scene.client()
    assert client.wire is not None
    client.wire.pause()
    ask_until_nothing_is_read(scene, client)
    for _ in range(200):
        client.wire.resume()
        scene.run(0.01)
        client.wire.pause()
        scene.run(limits.UNTAKEN_SECONDS / 4)
        if len(client.answers) == 40_000:
            break
    assert client.answers == [*range(1000)] * 40
    assert scene.hung_up == []
    assert scene.proxy.engine.memory.answer_bytes_held == 0


def test_if_many_do_not_take_their_answers_those_are_hung_up_on_first(scene: Scene) -> None:
    caps = Caps(
        client_response_bytes_max=UNSENT_MAX,
        request_bytes_total_max=HELD_MAX,
        response_bytes_total_max=3 * UNSENT_MAX // 2,
    )
    scene.proxy.engine.set_caps(caps)
    deaf = [scene.client() for _ in range(2)]
    for one in deaf:
        assert one.wire is not None
        one.wire.pause()
    ask_until_nothing_is_read(scene, *deaf)
    behaving = scene.client()
    scene.send(behaving, request(1))
    scene.run(limits.UNFINISHED_SECONDS * 2)
    scene.send(behaving, request(2))
    assert behaving.answers == [1, 2]
    assert scene.hung_up
    assert all("it read none of" in what for what in scene.hung_up)
    assert scene.proxy.engine.memory.answer_bytes_held < 3 * UNSENT_MAX // 2


def test_large_answers_that_are_taken_at_once_count_nothing_and_hold_nobody_up(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BACKLOG_BYTES", 100)
    scene.proxy.engine.set_caps(Caps(client_response_bytes_max=200, response_bytes_total_max=1024))
    client = scene.client()
    for number in range(100):
        scene.send(client, request(number), 0.05)
        assert len(client.answers) == number + 1
        assert scene.proxy.engine.memory.answer_bytes_held == 0
    assert scene.hung_up == []


# ---------------------------------------------------------------------- very many, or none
@pytest.mark.promise("compared-10")
def test_thousands_of_requests_at_once_are_answered_in_turn_and_the_others_in_between(scene: Scene) -> None:
    greedy, behaving = scene.client(), scene.client()
    assert greedy.wire is not None
    assert behaving.wire is not None
    most = 0
    answered_when: list[int] = []
    greedy.wire.send(b"".join(request(number) for number in range(1500)))
    behaving.wire.send(request(1))
    for _ in range(10_000):
        scene.run(0.0002)
        sessions = scene.proxy.engine.sessions
        most = max(most, *(len(session.handler._slots) for session in sessions))
        if behaving.answers and not answered_when:
            answered_when.append(len(greedy.answers))
        if len(greedy.answers) == 1500:
            break
    assert greedy.answers == list(range(1500))
    assert most <= limits.REQUESTS_IN_FLIGHT_MAX
    assert answered_when[0] < 200
    assert scene.proxy.engine.memory.bytes_held == 0


def test_a_connection_that_asks_for_nothing_is_closed_and_one_that_does_is_not(scene: Scene) -> None:
    idle, active = scene.client(), scene.client()
    for number in range(int(limits.IDLE_SECONDS / 100) - 1):
        scene.send(active, request(number), 100)
    assert not idle.is_lost
    scene.send(active, request(999), 200)
    assert idle.is_lost
    assert not active.is_lost
    assert scene.hung_up == [], "nobody has to know"
    scene.run(limits.IDLE_SECONDS + 100)
    assert active.is_lost
    assert scene.proxy.engine.statistics().connections == 0


def test_who_has_hung_up_is_not_served_for_ever(scene: Scene) -> None:
    """What it has asked for last is answered in a few weeks."""
    client = scene.client()
    topics = [{"topic": TOPIC, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}]
    fields = {"replica_id": -1, "max_wait_ms": 2**31 - 1, "min_bytes": 2**31 - 1, "topics": topics}
    body = messages.encode_request(ApiKey.FETCH, 2, **fields)
    scene.send(client, virtual_line.request(1, ApiKey.FETCH, 2, body))
    assert client.wire is not None
    client.wire.close()
    scene.run(limits.IDLE_SECONDS - 2 * limits.IDLE_LOOK_SECONDS)
    assert scene.proxy.engine.statistics().connections == 1, "as at a broker"
    scene.run(4 * limits.IDLE_LOOK_SECONDS)
    assert scene.proxy.engine.statistics().connections == 0


def test_a_changed_idle_time_counts_for_connections_that_are_already_open(scene: Scene) -> None:
    client = scene.client()
    scene.run(130)
    assert not client.is_lost
    scene.proxy.engine.set_caps(Caps(idle_seconds=120))
    scene.run(70)
    assert client.is_lost


def test_who_takes_nothing_of_a_little_and_asks_for_nothing_more_is_idle(scene: Scene) -> None:
    client = scene.client()
    assert client.wire is not None
    client.wire.pause()
    (session,) = scene.proxy.engine.sessions
    assert session.wire is not None
    while not session.wire.unsent:
        scene.send(client, b"".join(request(number) for number in range(50)), 0.05)
    assert session.wire.unsent < limits.BACKLOG_BYTES
    scene.run(limits.IDLE_SECONDS - 2 * limits.IDLE_LOOK_SECONDS)
    assert not client.is_lost
    scene.run(4 * limits.IDLE_LOOK_SECONDS)
    assert client.is_lost
    assert scene.proxy.engine.memory.answer_bytes_held == 0
