"""What a client gets before the broker has accepted it: the exchange of tokens, and nothing else; what it gets then."""

from __future__ import annotations

import pytest

from idemproxy.proxy import limits
from idemproxy.proxy.pass_through.authentication import ClientAuthentication
from idemproxy.proxy.session.session import Session
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.virtual.line import Line, request
from testkit.virtual.pass_through_client import Introduced, handshake, token
from testkit.virtual.world import TOPIC, World, WorldSettings

ILLEGAL_SASL_STATE = 34
NAME = "raw"


def produce(number: int, acks: int, producer_id: int = -1) -> bytes:
    """One batch."""
    rows = [(TOPIC, 0, batch([b"value"], producer_id=producer_id))]
    return request(number, ApiKey.PRODUCE, 3, RawClient.produce_body(rows, version=3, acks=acks, timeout_ms=5_000))


class Scene:
    """A proxy whose clients have to authenticate at the broker, and one that has connected."""

    def __init__(self, *, is_introduced: bool = False) -> None:
        self.world = World(1, WorldSettings(brokers=1, has_principals=True, has_pass_through=True))
        assert self.world.cluster.users is not None
        self.world.cluster.users |= {NAME: True}
        self.world.start()
        self.run(2)
        (self.proxy,) = self.world.proxies
        self.line = Line()
        endpoint = Introduced(NAME, self.line) if is_introduced else self.line
        self.world.network.host("client").connect(self.proxy.addresses[0], endpoint)
        assert self.world.network.run(5, lambda: self.line.wire is not None)
        self.run()

    def send(self, *requests: bytes) -> None:
        assert self.line.wire is not None
        self.line.wire.send(b"".join(requests))
        self.run()

    def run(self, seconds: float = 1) -> None:
        self.world.network.run(seconds)

    @property
    def endpoints(self) -> list[type]:
        return [type(one.handler) for one in self.proxy.engine.sessions]

    def nothing_is_stored(self) -> None:
        """Nor known, nor held, nor wrong."""
        assert self.world.cluster.log(TOPIC, 0).end_offset == 0
        assert self.proxy.engine.statistics().entries == 0
        assert self.proxy.engine.memory.bytes_held == 0
        assert self.world.errors() == []


OTHERS = [ApiKey.METADATA, ApiKey.FETCH, ApiKey.INIT_PRODUCER_ID, ApiKey.FIND_COORDINATOR, ApiKey.CREATE_TOPICS]


@pytest.mark.parametrize("key", OTHERS)
def test_who_has_not_authenticated_is_answered_nothing_else(key: ApiKey) -> None:
    scene = Scene()
    scene.send(request(1, ApiKey.API_VERSIONS), request(2, key, 0, b"\0\0\0\0"))
    assert scene.line.is_lost
    assert scene.endpoints == []
    scene.nothing_is_stored()


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("producer_id", [-1, 77])
@pytest.mark.parametrize("hangs_up", [False, True])
def test_of_who_has_not_authenticated_nothing_is_stored(acks: int, producer_id: int, hangs_up: bool) -> None:
    scene = Scene()
    assert scene.line.wire is not None
    batches = [produce(number, acks, producer_id) for number in range(3)]
    scene.line.wire.send(b"".join([*[request(0, ApiKey.API_VERSIONS)] * limits.REQUESTS_PER_TURN_MAX * 2, *batches]))
    if hangs_up:
        scene.line.wire.close()
    scene.run(20)
    assert scene.endpoints == []
    scene.nothing_is_stored()


def test_who_asks_for_versions_again_and_again_before_authentication_is_hung_up_on() -> None:
    scene = Scene()
    most = limits.REQUESTS_BEFORE_AUTHENTICATION_MAX
    scene.send(*[request(number, ApiKey.API_VERSIONS) for number in range(most)])
    assert (scene.line.answers, scene.line.is_lost) == (list(range(most)), False)
    scene.send(request(most, ApiKey.API_VERSIONS))
    assert scene.line.is_lost


@pytest.mark.parametrize("rest", [produce(9, 0), produce(9, 1), produce(9, 0)[:-1], b"\0"])
def test_who_does_not_wait_for_the_end_of_authentication_is_hung_up_on(rest: bytes) -> None:
    scene = Scene()
    scene.send(handshake(NAME))
    scene.send(token(NAME), rest)
    scene.run(20)
    assert scene.line.is_lost
    assert scene.endpoints == []
    scene.nothing_is_stored()


def test_what_is_asked_while_the_broker_is_asked_is_answered_in_its_order() -> None:
    scene = Scene()
    plain = b"\0\5PLAIN"
    scene.send(
        request(1, ApiKey.SASL_HANDSHAKE, 1, plain),
        request(2, ApiKey.API_VERSIONS),
        request(3, ApiKey.SASL_HANDSHAKE, 1, plain),
    )
    assert scene.line.answers == [1, 2, 3]
    assert bytes(scene.line.data).endswith(ILLEGAL_SASL_STATE.to_bytes(2, "big") + bytes(4))


def test_a_token_sent_as_the_broker_dies_gets_only_a_disconnect() -> None:
    """Clients take a no for the last word, and give up."""
    scene = Scene()
    scene.send(request(1, ApiKey.SASL_HANDSHAKE, 1, b"\0\5PLAIN"))
    assert scene.line.answers == [1]
    (broker,) = scene.world.cluster.brokers.values()
    broker.host.crash()
    scene.run(limits.LOGIN_REFUSAL_SECONDS / 4)
    assert scene.line.wire is not None
    assert not scene.line.is_lost
    scene.line.wire.send(request(2, ApiKey.SASL_AUTHENTICATE, 0, token(NAME)))
    scene.run(3)
    assert (scene.line.answers, scene.line.is_lost) == ([1], True)


def test_who_is_accepted_has_a_session_of_its_own_name_and_cannot_begin_again() -> None:
    scene = Scene()
    assert scene.endpoints == [ClientAuthentication]
    scene.send(handshake(NAME))
    scene.send(token(NAME))
    assert scene.endpoints == [Session]
    (session,) = scene.proxy.engine.sessions
    other = Scene(is_introduced=True)
    (of_another_proxy,) = other.proxy.engine.sessions
    assert session.principal == of_another_proxy.principal != b""
    scene.line.data.clear()
    scene.send(request(7, ApiKey.SASL_HANDSHAKE, 1, b"\0\5PLAIN"), produce(8, 1))
    code = int.from_bytes(scene.line.data[8:10], "big")
    assert (scene.line.answers, code) == ([7, 8], ILLEGAL_SASL_STATE)
    scene.send(request(9, ApiKey.SASL_AUTHENTICATE, 2, b"\0\0\0\0"))
    assert scene.line.is_lost, "no such version"
    assert scene.world.errors() == []


def test_who_is_silent_is_hung_up_on_in_time_and_who_is_accepted_stays() -> None:
    silent, accepted = Scene(), Scene(is_introduced=True)
    for scene in (silent, accepted):
        scene.run(limits.SASL_SECONDS + 1)
    assert (silent.line.is_lost, accepted.line.is_lost) == (True, False)
