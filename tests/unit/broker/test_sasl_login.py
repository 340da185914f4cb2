"""Connections that show who we are before anybody uses them, on a virtual network with brokers of both kinds."""

import itertools
from collections.abc import Callable

import pytest

from idemproxy.codecs.framing import frame
from idemproxy.codecs.sasl import PLAIN, SCRAM_SHA_256
from idemproxy.proxy import limits
from idemproxy.proxy.broker.sasl_credentials import Credentials
from idemproxy.proxy.broker.sasl_login import OverSasl
from idemproxy.proxy.events import OperatorMessage
from idemproxy.proxy.settings.sasl import SaslClient
from idemproxy.proxy.versions import ApiKey
from testkit.virtual.network import Network, NetworkSettings
from testkit.virtual.sasl import ADDRESS, IN_PIECES, NEW, OLD, WHOLE, Client, Rules, VirtualSaslBroker


class Scene:
    """A broker, and a reactor over SASL."""

    def __init__(self, rules: Rules, settings: NetworkSettings = WHOLE, mechanism: str = PLAIN) -> None:
        self.rules = rules
        self.network = Network(3, settings)
        self.host = self.network.host("proxy")
        self.log: list[str] = []
        self.network.listen(self.network.host("kafka"), ADDRESS, lambda: VirtualSaslBroker(rules, self.log))
        self.said: list[OperatorMessage] = []
        self.credentials = Credentials(SaslClient(mechanism, "proxy", "secret"), lambda count: bytes(count))
        self.over = OverSasl(self.host, self.credentials, self.said.append)

    def connect(self) -> Client:
        client = Client()
        self.over.connect(ADDRESS, client)
        self.run(lambda: client.wire is not None or client.reasons != [])
        return client

    def run(self, until: Callable[[], bool], seconds: float = 30.0) -> None:
        assert self.network.run(seconds, until), "it never came"

    @property
    def connections(self) -> int:
        return self.log.count("connected")


@pytest.mark.parametrize("settings", [WHOLE, IN_PIECES])
@pytest.mark.parametrize(
    ("versions", "asked"), [(OLD, ["API_VERSIONS", "SASL_HANDSHAKE", "token"]),
                            (NEW, ["API_VERSIONS", "SASL_HANDSHAKE", "SASL_AUTHENTICATE"])]
)  # fmt: skip
def test_a_connection_is_handed_over_once_the_broker_has_accepted_us(
    settings: NetworkSettings, versions: dict[ApiKey, int], asked: list[str]
) -> None:
    scene = Scene(Rules(dict(versions), echo=b"answer"), settings)
    client = scene.connect()
    assert scene.log == ["connected", *asked]
    assert client.wire is not None
    client.wire.send(frame(b"question"))
    scene.run(lambda: len(client.data) == 10)
    assert client.data == frame(b"answer")
    assert (client.reasons, scene.said) == ([], [])


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        (Rules(password=b"other"), "authentication failed: the broker closed the connection after PLAIN as 'proxy'"),
        (Rules(dict(NEW), password=b"other"), r"the broker says 'wrong, \x1b[31mmy friend'"),
        (Rules(mechanisms=(SCRAM_SHA_256,)), "PLAIN is not enabled at the broker, it has 'SCRAM-SHA-256'"),
        (Rules(handshake_error=34), "takes no SASL (error 34)"),
        (Rules({ApiKey.API_VERSIONS: 0}), "knows no SaslHandshake"),
        (Rules(hangs_up_on="API_VERSIONS"), "is this a listener for SASL?"),
        (Rules(hangs_up_on="SASL_HANDSHAKE"), "closed the connection during the SASL handshake"),
        (Rules(hangs_up_on="token"), "authentication failed: the broker closed the connection"),
        (Rules(silent_on="API_VERSIONS"), "does not finish the SASL exchange within 10 s"),
        (Rules(silent_on="token"), "does not finish the SASL exchange within 10 s"),
        (Rules(after=b"more"), "continues after the end"),
    ],
)
def test_a_refused_login_reports_its_reason_once_to_caller_and_operator(rules: Rules, said: str) -> None:
    scene = Scene(rules)
    client = scene.connect()
    assert client.wire is None
    scene.network.run(30)
    (reason,) = client.reasons
    assert said in reason
    (line,) = scene.said
    assert line.level == "error"
    assert f"upstream.sasl: kafka:9093, PLAIN as 'proxy': {reason}" in line.what
    assert "secret" not in line.what
    assert scene.network.open_connections() == []


def test_a_connection_lost_after_its_handover_is_reported_like_any_other() -> None:
    scene = Scene(Rules(hangs_up_on="open"))
    client = scene.connect()
    assert client.wire is not None
    client.wire.send(frame(b"question"))
    scene.run(lambda: client.reasons != [])
    assert scene.said == []


def test_a_broker_that_is_away_is_not_a_refusal() -> None:
    scene = Scene(Rules())
    scene.network.unlisten(ADDRESS)
    client = scene.connect()
    assert len(client.reasons) == 1
    assert scene.said == []
    scene.network.listen(scene.network.host("kafka"), ADDRESS, lambda: VirtualSaslBroker(scene.rules, scene.log))
    assert scene.connect().wire is not None


def test_a_broker_that_has_refused_us_is_left_alone_for_longer_and_longer() -> None:
    scene = Scene(Rules(password=b"other"))
    tries: list[float] = []
    while scene.network.now < 60:
        before = scene.connections
        assert scene.connect().reasons != []
        if scene.connections > before:
            tries.append(scene.network.now)
        scene.network.run(0.05)
    pauses = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert pauses == pytest.approx([1, 2, 4, 8, 10, 10, 10, 10], abs=0.2)
    assert len(scene.said) == 1
    scene.rules.password = b"secret"
    scene.network.run(10)
    assert scene.connect().wire is not None
    assert [line.level for line in scene.said] == ["error", "info"]


def test_other_credentials_are_tried_at_once() -> None:
    scene = Scene(Rules(password=b"new"))
    assert scene.connect().reasons != []
    scene.credentials.replace(SaslClient(PLAIN, "proxy", "new"))
    assert scene.connect().wire is not None
    assert scene.connections == 2


def test_several_connections_that_are_refused_together_count_once() -> None:
    scene = Scene(Rules(password=b"other"))
    clients = [Client() for _ in range(20)]
    for client in clients:
        scene.over.connect(ADDRESS, client)
    scene.run(lambda: all(client.reasons for client in clients))
    assert len(scene.said) == 1
    scene.network.run(1.1)
    before = scene.connections
    scene.connect()
    assert scene.connections == before + 1, "tried again after the first pause"


@pytest.mark.parametrize("size", [-1, limits.SASL_FRAME_BYTES_MAX + 1, 0x15030100])
def test_a_peer_that_is_not_kafka_is_reported_as_such(size: int) -> None:
    scene = Scene(Rules())

    class Stranger(VirtualSaslBroker):
        def received(self, data: bytes) -> None:
            assert self.wire is not None
            self.wire.send(size.to_bytes(4, "big", signed=True))

    scene.network.listen(scene.network.host("kafka"), ADDRESS, lambda: Stranger(scene.rules, scene.log))
    (reason,) = scene.connect().reasons
    assert f"has {size} bytes: this is no listener of Kafka, or it speaks TLS" in reason


@pytest.mark.parametrize(
    "garbage", [b"", b"\0", b"\0\0\0\1", b"\0\0\0\1\0\0\0", b"\0\0\0\2" + bytes(10), b"\0\0\0\1" + b"\xff" * 50]
)
def test_bytes_that_are_no_answer_end_the_exchange_with_a_sentence(garbage: bytes) -> None:
    scene = Scene(Rules())

    class Stranger(VirtualSaslBroker):
        def received(self, data: bytes) -> None:
            assert self.wire is not None
            self.wire.send(frame(garbage))

    scene.network.listen(scene.network.host("kafka"), ADDRESS, lambda: Stranger(scene.rules, scene.log))
    (reason,) = scene.connect().reasons
    assert reason
    assert scene.network.open_connections() == []
