"""Tokens of clients on their way to a broker and back, and whom they name."""

import json
from base64 import urlsafe_b64encode

import pytest

from idemproxy.codecs.framing import frame
from idemproxy.codecs.sasl import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, SaslError
from idemproxy.proxy.pass_through.principal import MECHANISMS, Conversation
from idemproxy.proxy.pass_through.sasl_relay import SaslRelay
from idemproxy.proxy.session.pipe import Pipe
from idemproxy.proxy.versions import ApiKey
from testkit.virtual.network import Network, NetworkSettings
from testkit.virtual.sasl import ADDRESS, IN_PIECES, NEW, OLD, WHOLE, Rules, VirtualSaslBroker

TOKEN = b"\0proxy\0secret"


class Scene:
    """A client's exchange with a broker of this kind."""

    def __init__(self, rules: Rules, client_version: int, settings: NetworkSettings = WHOLE) -> None:
        self.network = Network(5, settings)
        self.log: list[str] = []
        self.begun: list[tuple[int, list[str]]] = []
        self.tokens: list[bytes] = []
        self.reasons: list[str] = []
        rules.starts_at = "handshake"
        self.network.listen(self.network.host("kafka"), ADDRESS, lambda: VirtualSaslBroker(rules, self.log))
        self.relay = SaslRelay(
            self.network.host("proxy"),
            ADDRESS,
            {key: (0, last) for key, last in rules.versions.items()},
            PLAIN,
            client_version,
            has_begun=lambda code, mechanisms: self.begun.append((code, mechanisms)),
            answered=self.tokens.append,
            refused=self._refused,
        )
        self.network.run(1)

    def _refused(self, reason: str, is_certain: bool) -> None:
        self.reasons.append(reason)
        self.is_certain = is_certain

    def say(self, token: bytes) -> None:
        self.relay.say(token)
        self.network.run(1)


@pytest.mark.promise("compared-19")
@pytest.mark.parametrize("settings", [WHOLE, IN_PIECES])
@pytest.mark.parametrize(
    ("versions", "client_version", "how"),
    [(OLD, 0, "token"), (OLD, 1, "token"), (NEW, 0, "token"), (NEW, 1, "SASL_AUTHENTICATE")],
)
def test_tokens_reach_every_broker_from_every_client(
    settings: NetworkSettings, versions: dict[ApiKey, int], client_version: int, how: str
) -> None:
    scene = Scene(Rules(dict(versions), echo=b"\0\0\0\1later"), client_version, settings)
    assert scene.begun == [(0, [PLAIN])]
    scene.say(TOKEN)
    assert (scene.tokens, scene.reasons) == ([b""], [])
    assert scene.log == ["connected", "SASL_HANDSHAKE", how]
    broken: list[str] = []
    pipe = Pipe(scene.network.host("proxy"), broken.append)
    scene.relay.hand_over(pipe)
    bodies: list[bytes] = []
    pipe.request(ApiKey.LIST_GROUPS, 0, [b""], lambda body: bodies.append(bytes(body)))
    scene.network.run(1)
    assert (bodies, broken) == ([b"later"], [])
    pipe.close()
    scene.network.run(1)
    assert scene.network.open_connections() == []


@pytest.mark.parametrize(
    ("rules", "client_version", "said"),
    [
        (Rules(password=b"other"), 0, "hung up"),
        (Rules(password=b"other"), 1, "hung up"),
        (Rules(dict(NEW), password=b"other"), 1, "wrong, "),
        (Rules(hangs_up_on="SASL_HANDSHAKE"), 0, "hung up"),
    ],
)
def test_a_refusal_is_reported_once(rules: Rules, client_version: int, said: str) -> None:
    scene = Scene(rules, client_version)
    if not scene.reasons:
        scene.say(TOKEN)
    (reason,) = scene.reasons
    assert said in reason or "closed" in reason
    assert scene.is_certain == (rules.versions == NEW), "old brokers only hang up"
    assert scene.tokens == []
    scene.relay.close()
    scene.network.run(30)
    assert len(scene.reasons) == 1
    assert scene.network.open_connections() == []


@pytest.mark.parametrize("garbage", [frame(b"\0"), frame(bytes(4)), b"\x7f\xff\xff\xff", b"\xff" * 4])
def test_an_answer_that_cannot_be_read_ends_it(garbage: bytes) -> None:
    rules = Rules(starts_at="handshake")
    network = Network(5, WHOLE)
    reasons: list[str] = []

    class Stranger(VirtualSaslBroker):
        def received(self, data: bytes) -> None:
            assert self.wire is not None
            self.wire.send(garbage)

    network.listen(network.host("kafka"), ADDRESS, lambda: Stranger(rules, []))
    SaslRelay(
        network.host("proxy"), ADDRESS, {ApiKey.SASL_HANDSHAKE: (0, 0)}, PLAIN, 0,
        has_begun=lambda *_: None, answered=lambda _: None, refused=lambda reason, _: reasons.append(reason),
    )  # fmt: skip
    network.run(5)
    assert len(reasons) == 1
    assert network.open_connections() == []


def test_a_client_that_has_gone_while_the_broker_was_connected_leaves_nothing_open() -> None:
    network = Network(5, WHOLE)
    network.listen(network.host("kafka"), ADDRESS, lambda: VirtualSaslBroker(Rules(), []))
    relay = SaslRelay(
        network.host("proxy"), ADDRESS, {ApiKey.SASL_HANDSHAKE: (0, 0)}, PLAIN, 0,
        has_begun=lambda *_: None, answered=lambda _: None, refused=lambda *_: None,
    )  # fmt: skip
    relay.close()
    network.run(5)
    assert network.open_connections() == []


# ---------------------------------------------------------------------- who is named
def web_token(claims: object) -> bytes:
    parts = (b'{"alg":"none"}', json.dumps(claims).encode(), b"")
    return b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in parts)


def bearer(claims: object, acting_for: bytes = b"") -> bytes:
    return b"n," + acting_for + b",\x01auth=Bearer " + web_token(claims) + b"\x01\x01"


def two_tokens(first: object, scheme: bytes, second: object) -> bytes:
    """Kafka's own parser believes the second one, whatever the case of its scheme."""
    return bearer(first)[:-1] + b"auth=" + scheme + b" " + web_token(second) + b"\x01\x01"


@pytest.mark.parametrize(
    ("mechanism", "token", "name"),
    [
        (PLAIN, b"\0alice\0secret", "alice"),
        (PLAIN, b"alice\0alice\0secret", "alice"),
        (PLAIN, "\0älice\0secret".encode(), "älice"),
        (SCRAM_SHA_256, b"n,,n=alice,r=abc", "alice"),
        (SCRAM_SHA_512, b"n,a=alice,n=alice,r=abc", "alice"),
        (SCRAM_SHA_256, b"n,,n=a=2Cb=3Dc=3D2C,r=abc", "a,b=c=2C"),
        (OAUTHBEARER, bearer({"sub": "alice"}), "alice"),
        (OAUTHBEARER, bearer({"sub": "alice"}, b"a=alice"), "alice"),
        (OAUTHBEARER, bearer({"sub": "alice"}).replace(b"Bearer ", b"bearer  "), "alice"),
    ],
)
def test_the_name_is_read_from_the_first_token(mechanism: str, token: bytes, name: str) -> None:
    conversation = Conversation(mechanism)
    conversation.client_says(token)
    assert conversation.name == name
    conversation.client_says(b"something else")
    assert conversation.name == name


@pytest.mark.parametrize(
    ("mechanism", "token", "said"),
    [
        (PLAIN, b"bob\0alice\0secret", "acts for somebody else"),
        (PLAIN, b"\0\0secret", "empty"),
        (PLAIN, b"\0alice", "three parts"),
        (PLAIN, b"\0alice\0secret\0more", "three parts"),
        (PLAIN, b"\0\xff\0secret", "UTF-8"),
        (PLAIN, b"\0al\nice\0secret", "printable"),
        (PLAIN, b"\0" + b"a" * 2000 + b"\0secret", "too long"),
        (SCRAM_SHA_256, b"n,a=bob,n=alice,r=abc", "acts for somebody else"),
        (SCRAM_SHA_256, b"n,,n=alice,n=bob,r=abc", "no SCRAM"),
        (SCRAM_SHA_256, b"n,,r=abc,n=alice", "no SCRAM"),
        (SCRAM_SHA_256, b"p=tls-unique,,n=alice,r=abc", "no SCRAM"),
        (SCRAM_SHA_256, b"n,,n=a=2cb,r=abc", "not written"),
        (SCRAM_SHA_256, b"n,,n=id,r=abc,tokenauth=true", "delegation tokens"),
        (SCRAM_SHA_256, b"n,,n=id,r=abc,tokenauth=TRUE", "delegation tokens"),
        (SCRAM_SHA_256, b"nonsense", "cannot be read"),
        (SCRAM_SHA_256, b"n,x,n=alice,r=abc", "cannot be read"),
        (OAUTHBEARER, bearer({"sub": "alice"}, b"a=bob"), "somebody else"),
        (OAUTHBEARER, bearer({}), "names nobody"),
        (OAUTHBEARER, bearer([]), "names nobody"),
        (OAUTHBEARER, bearer({"sub": 7}), "somebody else"),
        (OAUTHBEARER, b"n,,\x01auth=Bearer opaque\x01\x01", "no JSON web token"),
        (OAUTHBEARER, b"n,,\x01auth=Bearer a.!.c\x01\x01", "names nobody"),
        (OAUTHBEARER, b"n,,\x01auth=Bearer a." + urlsafe_b64encode(b"[" * 30_000) + b".c\x01\x01", "names nobody"),
        (OAUTHBEARER, bearer({"sub": "a"}) + bearer({"sub": "b"}), "no JSON web token"),
        (OAUTHBEARER, two_tokens({"sub": "victim"}, b"bearer", {"sub": "thief"}), "no JSON web token"),
        (OAUTHBEARER, two_tokens({"sub": "victim"}, b"BEARER ", {"sub": "thief"}), "no JSON web token"),
    ],
)
def test_who_names_nobody_or_two_is_stopped_before_the_broker_hears_of_it(
    mechanism: str, token: bytes, said: str
) -> None:
    with pytest.raises(SaslError, match=said):
        Conversation(mechanism).client_says(token)


def test_an_exchange_is_over_when_the_broker_has_said_yes_and_not_before() -> None:
    assert Conversation(PLAIN).broker_says(b"")
    for mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
        scram = Conversation(mechanism)
        assert not scram.broker_says(b"v=too-soon")
        assert scram.broker_says(b"v=abc")
        scram = Conversation(mechanism)
        assert not scram.broker_says(b"r=abc,s=abc,i=4096")
        assert not scram.broker_says(b"e=invalid-proof")
        assert not scram.broker_says(b"v=abc"), "a third answer is none of SCRAM's"
    token = Conversation(OAUTHBEARER)
    assert not token.broker_says(b'{"status":"invalid_token"}')
    assert len(MECHANISMS) == 4


def test_a_name_that_cannot_be_encoded_is_none() -> None:
    with pytest.raises(SaslError):
        Conversation(OAUTHBEARER).client_says(bearer({"sub": "\ud800"}))
