"""One connection without a socket: greeting, login, requests and their answers."""

import pytest

from idemproxy.client.errors import AnswersOutOfOrder, AuthenticationFailed, ConnectionFailed, UnsupportedServer
from idemproxy.client.link import Link
from idemproxy.client.security import Sasl, login_maker
from idemproxy.codecs import messages
from idemproxy.codecs.framing import frame
from idemproxy.codecs.headers import parse_request_header
from testkit.stage.client import API_VERSIONS, api_versions, ready_link

HANDSHAKE, AUTHENTICATE = 17, 36
METADATA = 3


def answer_to(number: int, body: bytes = b"") -> bytes:
    return frame(number.to_bytes(4, "big"), body)


def asked(data: bytes) -> tuple[int, int]:
    """API and version of the one request in these bytes."""
    header = parse_request_header(data[4:])
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return header.api_key, header.api_version


def sasl_link(mechanism: str = "PLAIN") -> Link:
    return Link("client", login_maker(Sasl(mechanism, "alice", "secret"), "client"))


def test_a_link_is_ready_when_it_knows_the_versions() -> None:
    link = Link("client", None)
    assert asked(link.start()) == (API_VERSIONS, 0)
    data = api_versions({0: (3, 9), 3: (0, 12)})
    for at in range(len(data)):
        assert not link.is_ready
        assert link.greeted(data[at : at + 1]) == b""
    assert link.is_ready
    assert link.is_quiet
    assert link.version_of(0, 3, 8, "Produce") == 8
    assert link.version_of(3, 0, 4, "Metadata") == 4


def greeting_of_a_reader(*answers: bytes) -> tuple[Link, list[tuple[int, int]]]:
    """A link that reads old brokers, too, and what it has asked."""
    link = Link("client", None, reads_old_brokers=True)
    said = [asked(link.start())]
    for data in answers:
        reply = link.greeted(data)
        said += [asked(reply)] if reply else []
    return link, said


def test_a_broker_without_versions_is_known_by_its_metadata() -> None:
    body = messages.encode_response(METADATA, 0, brokers=[{"node_id": 0, "host": "h", "port": 1}], topics=[])
    link, said = greeting_of_a_reader(answer_to(1, body))
    assert said == [(METADATA, 1)], "0.9 loses requests of other connections when it gets ApiVersions"
    assert link.is_ready
    assert link.versions == {1: (0, 0), 2: (0, 0), METADATA: (0, 0)}


def test_a_broker_with_versions_is_asked_for_them_after_its_metadata() -> None:
    brokers = [{"node_id": 0, "host": "h", "port": 1, "rack": None}]
    body = messages.encode_response(METADATA, 1, brokers=brokers, controller_id=0, topics=[])
    link, said = greeting_of_a_reader(answer_to(1, body), api_versions({METADATA: (0, 4)}, 2))
    assert said == [(METADATA, 1), (API_VERSIONS, 0)]
    assert link.versions == {METADATA: (0, 4)}


def test_metadata_in_no_layout_that_is_known_ends_the_connection() -> None:
    with pytest.raises(ConnectionFailed, match="cannot be read"):
        greeting_of_a_reader(answer_to(1, b"?"))


def test_what_both_sides_do_not_have_is_said() -> None:
    link = ready_link({0: (0, 2), 3: (5, 12)})
    with pytest.raises(UnsupportedServer, match="no Produce in version 3 to 8: it has 0 to 2"):
        link.version_of(0, 3, 8, "Produce")
    with pytest.raises(UnsupportedServer, match="it has 5 to 12"):
        link.version_of(3, 0, 4, "Metadata")
    with pytest.raises(UnsupportedServer, match="it has none"):
        link.version_of(22, 0, 1, "InitProducerId")


def test_answers_come_in_the_order_of_the_requests() -> None:
    link = ready_link({METADATA: (0, 4)})
    numbers = [link.request(METADATA, 4, b"body")[0].correlation_id for _ in range(3)]
    assert numbers == [2, 3, 4]
    found = link.received(answer_to(2, b"one") + answer_to(3, b"two"))
    assert [bytes(one.body) for one in found] == [b"one", b"two"]
    assert not link.is_quiet
    link.received(answer_to(4))
    assert link.is_quiet


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (answer_to(3), "answers 3 where 2 is due"),
        (answer_to(2) + answer_to(3), "what was not asked"),
        (frame(b"\0"), "cannot be read"),
        (b"\x16\x03\x03\x00\x7a", "TLS"),
        (b"\0\0\0\0", "frame size: 0"),
    ],
)
def test_what_cannot_be_an_answer_ends_the_link(data: bytes, said: str) -> None:
    link = ready_link({METADATA: (0, 4)})
    link.request(METADATA, 4)
    with pytest.raises(ConnectionFailed, match=said):
        link.received(data)


def test_an_answer_to_a_later_request_is_told_from_one_to_none() -> None:
    for number, is_asked in ((3, True), (9, False)):
        link = ready_link({METADATA: (0, 4)})
        link.request(METADATA, 4)
        link.request(METADATA, 4)
        with pytest.raises(ConnectionFailed, match=f"answers {number} where 2 is due") as failed:
            link.received(answer_to(number))
        assert isinstance(failed.value, AnswersOutOfOrder) == is_asked


def test_a_server_that_refuses_the_first_question_is_not_supported() -> None:
    link = Link("client", None)
    link.start()
    body = messages.encode_response(API_VERSIONS, 0, error_code=35, api_keys=[])
    with pytest.raises(UnsupportedServer, match="code 35"):
        link.greeted(answer_to(1, body))


def test_a_login_comes_first() -> None:
    link = sasl_link()
    assert asked(link.start()) == (API_VERSIONS, 0)
    reply = link.greeted(api_versions({HANDSHAKE: (0, 1), AUTHENTICATE: (0, 2)}))
    assert asked(reply) == (HANDSHAKE, 1)
    body = messages.encode_response(HANDSHAKE, 1, error_code=0, mechanisms=["PLAIN"])
    reply = link.greeted(answer_to(2, body))
    assert asked(reply) == (AUTHENTICATE, 0)
    assert reply.endswith(b"\0alice\0secret")
    body = messages.encode_response(AUTHENTICATE, 0, error_code=0, error_message=None, auth_bytes=b"")
    assert asked(link.greeted(answer_to(3, body))) == (API_VERSIONS, 0)
    assert not link.is_ready
    link.greeted(api_versions({METADATA: (0, 4)}))
    assert link.is_ready


def test_a_refused_login_is_said_without_the_password() -> None:
    link = sasl_link()
    link.start()
    link.greeted(api_versions({HANDSHAKE: (0, 0)}))
    link.greeted(answer_to(2, messages.encode_response(HANDSHAKE, 0, error_code=0, mechanisms=["PLAIN"])))
    error = link.explain_loss("reset")  # so do old brokers refuse
    assert isinstance(error, AuthenticationFailed)
    assert str(error) == "authentication failed: the broker closed the connection after PLAIN as 'alice' (reset)"

    link = sasl_link("SCRAM-SHA-256")
    link.start()
    link.greeted(api_versions({HANDSHAKE: (0, 1), AUTHENTICATE: (0, 0)}))
    body = messages.encode_response(HANDSHAKE, 1, error_code=33, mechanisms=["PLAIN"])
    with pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256 is not enabled"):
        link.greeted(answer_to(2, body))
    assert "secret" not in repr(Sasl("PLAIN", "alice", "secret"))
    with pytest.raises(ValueError, match="GSSAPI"):
        Sasl("GSSAPI", "alice", "secret")


def test_a_connection_that_ends_without_a_login_is_only_that() -> None:
    error = Link("client", None).explain_loss("reset")
    assert (type(error), str(error)) == (ConnectionFailed, "reset")
