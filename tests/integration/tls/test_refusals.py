"""TLS between real sockets and endpoints: who is refused, what is said of it, and what handshakes cost the others."""

import socket
import ssl
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
import trio

from idemproxy.proxy import limits
from idemproxy.proxy.settings.tls import TlsClient, TlsServer
from testkit.real.tls.certificates import Authority, old_style
from testkit.real.tls.scene import SECONDS_MAX, Recorder, Scene, TlsKit, connected, context, play, until


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> TlsKit:
    return TlsKit(tmp_path_factory.mktemp("certificates"))


# ---------------------------------------------------------------------- who is refused, and what is said
def refused_by_listener(settings: TlsServer, trusted: ssl.SSLContext) -> str:
    """What the listener says of a client that it does not want."""

    def client(port: int) -> None:
        with pytest.raises(OSError, match=r"(?i)reset|alert|EOF|pipe|verify"), connected(port, trusted) as line:  # noqa: PT012
            line.sendall(b"hello")
            line.recv(1)

    async def act(scene: Scene) -> None:
        await trio.to_thread.run_sync(client, scene.port)
        await until(lambda: scene.refused)

    scene = play(settings, act)
    assert scene.accepted == []
    return scene.refused[0]


def test_a_client_without_the_certificate_that_is_required_is_refused(kit: TlsKit) -> None:
    assert "the client shows no certificate" in refused_by_listener(kit.strict_server, context(kit.authority))


def test_a_client_of_another_authority_is_refused(kit: TlsKit) -> None:
    said = refused_by_listener(kit.strict_server, context(kit.authority, kit.other_authority.issue("stranger")))
    assert "the peer's certificate is not accepted" in said
    assert "of a listener tls.client_ca_file, names whom to trust" in said


def test_a_client_whose_certificate_has_expired_is_refused(kit: TlsKit) -> None:
    old = kit.authority.issue("old", expires_in=timedelta(days=-1))
    assert "certificate has expired" in refused_by_listener(kit.strict_server, context(kit.authority, old))


@pytest.mark.parametrize("is_overdue", [False, True], ids=["list of today", "list overdue"])
def test_a_client_whose_certificate_is_revoked_is_refused(tmp_path: Path, is_overdue: bool) -> None:
    """With a list that should have been replaced nobody can tell who is revoked."""
    authority = Authority(tmp_path)
    good, revoked = authority.issue("good"), authority.issue("revoked")
    listed = authority.revoke(revoked, next_in=timedelta(hours=-1 if is_overdue else 1))
    settings = TlsServer(
        good.cert, good.key, client_ca_file=authority.ca_file, client_auth="required", client_crl_file=listed
    )
    if is_overdue:
        assert "CRL has expired" in refused_by_listener(settings, context(authority, good))
        return
    assert "certificate revoked" in refused_by_listener(settings, context(authority, revoked))

    async def act(scene: Scene) -> None:
        side = scene.certificates.side(TlsClient(authority.ca_file, good.cert, good.key), "upstream.tls")
        far = Recorder()
        scene.reactor.over_tls(side).connect(("localhost", scene.port), far)
        await until(lambda: scene.accepted)

    play(settings, act)


def test_a_client_that_does_not_trust_us_is_reported(kit: TlsKit) -> None:
    assert "does not trust our certificate" in refused_by_listener(kit.server, context(kit.other_authority))


def test_a_client_that_speaks_only_old_versions_is_refused(kit: TlsKit) -> None:
    old = context(kit.authority)
    old.set_ciphers("DEFAULT@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    assert "older versions of TLS" in refused_by_listener(kit.server, old)


def refused_by_us(settings: TlsServer, client: TlsClient, host: str = "localhost") -> str:
    """The reason why our own connection to a server fails."""
    far = Recorder()

    async def act(scene: Scene) -> None:
        side = scene.certificates.side(client, "upstream.tls")
        scene.reactor.over_tls(side).connect((host, scene.port), far)
        await until(lambda: far.reasons)

    play(settings, act)
    return far.reasons[0]


def test_a_server_of_another_authority_is_not_spoken_to(kit: TlsKit) -> None:
    assert "the peer's certificate is not accepted" in refused_by_us(kit.server, TlsClient(kit.other_authority.ca_file))


def test_a_server_with_another_name_is_not_spoken_to_unless_that_name_is_configured(kit: TlsKit) -> None:
    elsewhere = kit.authority.issue("elsewhere", "kafka.example")
    settings = TlsServer(elsewhere.cert, elsewhere.key)
    assert "'localhost'" in refused_by_us(settings, TlsClient(kit.authority.ca_file))
    assert "'127.0.0.1'" in refused_by_us(settings, TlsClient(kit.authority.ca_file), "127.0.0.1")

    async def act(scene: Scene) -> None:
        side = scene.certificates.side(TlsClient(kit.authority.ca_file, server_name="kafka.example"), "upstream.tls")
        far = Recorder()
        scene.reactor.over_tls(side).connect(("localhost", scene.port), far)
        await until(lambda: far.wire and scene.peers)

    assert play(settings, act).peers[0].server_name == "kafka.example"


def test_the_subject_name_of_a_server_certificate_counts_without_alternative_names(tmp_path: Path) -> None:
    old = old_style(tmp_path, "localhost")
    settings, client = TlsServer(old.cert, old.key), TlsClient(old.cert)
    far = Recorder()

    async def act(scene: Scene) -> None:
        side = scene.certificates.side(client, "upstream.tls")
        scene.reactor.over_tls(side).connect(("localhost", scene.port), far)
        await until(lambda: far.wire)

    play(settings, act)
    assert "'127.0.0.1'" in refused_by_us(settings, client, "127.0.0.1")


def test_a_server_whose_certificate_has_expired_is_not_spoken_to(kit: TlsKit) -> None:
    old = kit.authority.issue("old-server", expires_in=timedelta(days=-1))
    said = refused_by_us(TlsServer(old.cert, old.key), TlsClient(kit.authority.ca_file))
    assert "certificate has expired" in said


def test_connecting_without_the_certificate_that_a_server_wants_fails_with_that_reason(kit: TlsKit) -> None:
    far = Recorder()

    async def act(scene: Scene) -> None:
        side = scene.certificates.side(TlsClient(kit.authority.ca_file), "upstream.tls")
        scene.reactor.over_tls(side).connect(("localhost", scene.port), far)
        await until(lambda: far.reasons)

    scene = play(kit.strict_server, act)
    assert "the peer asks for a certificate of ours" in far.reasons[0]
    assert "the client shows no certificate" in scene.refused[0]


def test_a_server_that_does_not_speak_tls_is_said_to(kit: TlsKit) -> None:
    far = Recorder()

    async def act(scene: Scene) -> None:
        side = scene.certificates.side(TlsClient(kit.authority.ca_file), "upstream.tls")
        with socket.create_server(("127.0.0.1", 0)) as plain:
            scene.reactor.over_tls(side).connect(plain.getsockname(), far)
            line, _ = await trio.to_thread.run_sync(plain.accept)
            await trio.to_thread.run_sync(line.recv, 10)
            line.close()
            await until(lambda: far.reasons)

    play(kit.server, act)
    assert far.wire is None
    assert "TLS" in far.reasons[0] or "reset" in far.reasons[0]


def test_a_plain_client_on_a_tls_port_is_disconnected_without_an_alert(kit: TlsKit) -> None:
    got: list[bytes] = []

    def client(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as line:
            line.sendall(bytes.fromhex("0000000a00120000000000010000"))
            got.append(line.recv(100))

    async def act(scene: Scene) -> None:
        await trio.to_thread.run_sync(client, scene.port)
        await until(lambda: scene.refused)

    scene = play(kit.server, act)
    assert got == [b""], "an alert would look like an answer of 352 MB"
    assert scene.refused == ["the client does not speak TLS, and this listener speaks nothing else"]


def test_who_only_looks_whether_somebody_listens_is_not_complained_of(kit: TlsKit) -> None:
    async def act(scene: Scene) -> None:
        socket.create_connection(("127.0.0.1", scene.port)).close()
        await trio.sleep(0.1)

    assert play(kit.server, act).refused == []


def test_garbage_ends_only_the_connection_that_it_came_over(kit: TlsKit) -> None:
    random = Random(1)
    hello = _hello(kit.authority)
    name = range(hello.index(b"localhost"), hello.index(b"localhost") + len("localhost"))
    places = [place for place in range(1, len(hello)) if place not in name]  # Python itself complains of odd names

    def damaged() -> bytes:
        data = bytearray(hello)
        for _ in range(random.randrange(1, 20)):
            data[random.choice(places)] = random.randrange(256)
        return bytes(data)

    def garbage(port: int) -> None:
        for number in range(120):
            kinds = (damaged(), hello + random.randbytes(200), b"\x16" + random.randbytes(random.randrange(3000)))
            with socket.create_connection(("127.0.0.1", port), 0.05) as line, suppress(OSError):
                line.sendall(kinds[number % 3])
                line.recv(100)
        for number in range(20):  # in the middle of a connection that was good
            with connected(port, context(kit.authority)) as good:
                descriptor = good.detach()
            with socket.socket(fileno=descriptor) as line, suppress(OSError):
                line.sendall(b"\x17\x03\x03" + random.randbytes(number * 10))
                line.shutdown(socket.SHUT_WR)
                line.recv(100)
        with connected(port, context(kit.authority)) as line:
            line.sendall(b"good")
            assert line.recv(1) == b"."

    async def act(scene: Scene) -> None:
        scene.begin = lambda wire: wire.send(b".")
        await trio.to_thread.run_sync(garbage, scene.port)
        await until(lambda: scene.accepted[-1].data == b"good")
        assert sum(b"good" in one.data for one in scene.accepted) == 1

    play(kit.server, act)


# ---------------------------------------------------------------------- limits of handshakes
@pytest.mark.promise("compared-9")
def test_a_handshake_that_is_not_finished_in_time_is_ended(kit: TlsKit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TLS_HANDSHAKE_SECONDS", 0.2)

    async def act(scene: Scene) -> None:
        with socket.create_connection(("127.0.0.1", scene.port), SECONDS_MAX) as line:
            line.sendall(b"\x16\x03\x01")
            assert await trio.to_thread.run_sync(line.recv, 1) == b""
            await until(lambda: scene.refused)

    assert play(kit.server, act).refused == ["the TLS handshake was not finished within 0 s"]


def test_a_crowd_of_unfinished_handshakes_loses_its_oldest_and_keeps_nobody_out(
    kit: TlsKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TLS_HANDSHAKES_MAX", 5)

    def client(port: int) -> None:
        with connected(port, context(kit.authority)) as line:
            assert line.recv(1) == b"."

    async def act(scene: Scene) -> None:
        scene.begin = lambda wire: wire.send(b".")
        idle = [socket.create_connection(("127.0.0.1", scene.port), SECONDS_MAX) for _ in range(8)]
        for line in idle[:3]:
            assert await trio.to_thread.run_sync(line.recv, 1) == b"", "the oldest are hung up on"
        await trio.to_thread.run_sync(client, scene.port)
        for line in idle:
            line.close()

    play(kit.server, act)


def test_others_are_served_between_the_steps_of_many_handshakes(kit: TlsKit) -> None:
    crowd = 40
    answered_at_ping: list[int] = []

    async def act(scene: Scene) -> None:
        def answered() -> int:
            return sum(_has_bytes(line) for line in lines)

        class Plain(Recorder):
            def received(self, data: bytes) -> None:
                answered_at_ping.append(answered())

        plain = scene.reactor.listen("127.0.0.1", 0, lambda _peer: Plain())
        other = socket.create_connection(("127.0.0.1", plain.port), SECONDS_MAX)
        lines = [socket.create_connection(("127.0.0.1", scene.port), SECONDS_MAX) for _ in range(crowd)]
        await trio.sleep(2)  # all are accepted
        for line in lines:
            line.sendall(_hello(kit.authority))
        other.sendall(b"ping")
        await until(lambda: answered() == crowd)  # nothing ran since the hellos were sent
        for line in (other, *lines):
            line.close()

    play(kit.server, act)
    assert answered_at_ping[0] <= 1, "a pass does one step of one handshake"


def _hello(authority: Authority) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context(authority).wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def _has_bytes(line: socket.socket) -> bool:
    line.setblocking(False)
    try:
        return bool(line.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
