"""Addresses that can not be connected to, as a broker may name them: the caller gets the reason, nothing else ends.
And names with several addresses."""

import os
import resource
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import pytest
import trio

from idemproxy.proxy import limits
from idemproxy.proxy.settings.tls import TlsClient
from testkit.real.tls.scene import Recorder, Scene, TlsKit, play, until

WHILE_SECONDS = 0.3


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> TlsKit:
    return TlsKit(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize(
    ("host", "port"),
    [("", 9092), ("a..b", 9092), (f"{'x' * 70}.test", 9092), ("a\0b", 9092), ("127.0.0.1", 70_000), ("::1", -1)],
    ids=["empty", "empty label", "long label", "zero byte", "port above all", "port below all"],
)
def test_an_invalid_address_is_reported_to_the_caller(kit: TlsKit, host: str, port: int, over_tls: bool) -> None:
    async def act(scene: Scene) -> None:
        side = scene.certificates.side(TlsClient(kit.authority.ca_file), "upstream.tls")
        reactor = scene.reactor.over_tls(side) if over_tls else scene.reactor
        far = Recorder()
        reactor.connect((host, port), far)
        assert far.reasons == [], "never from inside the call"
        await until(lambda: far.reasons)
        assert far.wire is None
        near = Recorder()
        scene.reactor.over_tls(side).connect(("localhost", scene.port), near)
        await until(lambda: near.wire)  # the others are unaffected

    play(kit.server, act)


def test_a_name_that_no_certificate_can_have_is_reported_too(kit: TlsKit) -> None:
    async def act(scene: Scene) -> None:
        side = scene.certificates.side(TlsClient(kit.authority.ca_file, server_name=".kafka.test"), "upstream.tls")
        far = Recorder()
        scene.reactor.over_tls(side).connect(("127.0.0.1", scene.port), far)
        await until(lambda: far.reasons)
        assert "label empty" in far.reasons[0]

    play(kit.server, act)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Nothing more can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    held: list[socket.socket] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, hard))
        with pytest.raises(OSError, match=r"Too many open files"):  # noqa: PT012
            while True:
                held.append(socket.socket())  # fills the gaps
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in held:
            one.close()


def test_a_connection_without_a_free_descriptor_fails_with_that_reason(kit: TlsKit) -> None:
    async def act(scene: Scene) -> None:
        far = Recorder()
        with no_descriptors():
            scene.reactor.connect(("127.0.0.1", scene.port), far)
        await until(lambda: far.reasons)
        assert far.reasons == ["cannot connect: this process has no file descriptor left (ulimit -n)"]
        await trio.lowlevel.checkpoint()

    play(kit.server, act)


# ---------------------------------------------------------------------- several addresses
class Names(trio.abc.HostnameResolver):
    """A name service with one name."""

    def __init__(self, name: str, hosts: list[str]) -> None:
        self._name = name
        self._hosts = hosts

    async def getaddrinfo(self, host: Any, port: Any, *_rest: Any, **_options: Any) -> Any:
        assert host in (self._name, self._name.encode())
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in self._hosts]

    async def getnameinfo(self, _address: Any, _flags: int) -> tuple[str, str]:
        raise AssertionError("nobody asks for the name of an address")


def test_addresses_of_a_name_are_tried_and_the_good_one_goes_first(kit: TlsKit) -> None:
    async def act(scene: Scene) -> None:
        trio.socket.set_custom_hostname_resolver(Names("kafka.test", ["127.0.0.9", "127.0.0.1"]))
        plain = scene.reactor.listen("127.0.0.1", 0, scene.accept)
        first, second = Recorder(), Recorder()
        scene.reactor.connect(("kafka.test", plain.port), first)
        await until(lambda: first.wire)
        with socket.create_server(("127.0.0.9", plain.port)) as late:
            late.setblocking(False)
            scene.reactor.connect(("kafka.test", plain.port), second)
            await until(lambda: second.wire and len(scene.accepted) == 2)
            with pytest.raises(BlockingIOError):
                late.accept()
        assert first.wire is not None
        first.wire.send(b"hello")
        scene.reactor.end_pass()
        await until(lambda: scene.accepted[0].data == b"hello")
        assert (first.reasons, second.reasons) == ([], [])

    play(kit.server, act)


@pytest.mark.promise("compared-16")
def test_an_address_that_says_nothing_is_left_for_the_next_one_after_a_while(
    kit: TlsKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", WHILE_SECONDS)

    async def act(scene: Scene) -> None:
        trio.socket.set_custom_hostname_resolver(Names("kafka.test", ["127.0.0.9", "127.0.0.1"]))
        plain = scene.reactor.listen("127.0.0.1", 0, scene.accept)
        with ExitStack() as stack:
            # A server whose queue is full: the kernel drops what comes.
            silent = stack.enter_context(socket.create_server(("127.0.0.9", plain.port), backlog=0))
            for _ in range(3):
                crowd = stack.enter_context(socket.socket())
                crowd.setblocking(False)
                crowd.connect_ex(silent.getsockname())
            far = Recorder()
            begun = trio.current_time()
            scene.reactor.connect(("kafka.test", plain.port), far)
            await until(lambda: far.wire)
            assert trio.current_time() - begun >= WHILE_SECONDS, "the silent one was tried first"
            await until(lambda: scene.accepted)
            assert far.reasons == []

    play(kit.server, act)


def test_when_no_address_is_good_all_reasons_are_reported_at_once(kit: TlsKit) -> None:
    async def act(scene: Scene) -> None:
        trio.socket.set_custom_hostname_resolver(Names("kafka.test", ["127.0.0.9", "127.0.0.1"]))
        side = scene.certificates.side(TlsClient(kit.other_authority.ca_file), "upstream.tls")
        far = Recorder()
        scene.reactor.over_tls(side).connect(("kafka.test", scene.port), far)
        await until(lambda: far.reasons)
        (reason,) = far.reasons
        assert reason.startswith("cannot connect: connection refused: nothing listens there; TLS handshake: ")

    play(kit.server, act)


@pytest.mark.parametrize("patience", [30.0, 0.3], ids=["long enough", "too short"])
def test_a_servers_slow_handshake_has_a_time_of_its_own(
    kit: TlsKit, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", 1.5)
    monkeypatch.setattr(limits, "TLS_HANDSHAKE_SECONDS", patience)
    far = Recorder()

    async def act(scene: Scene) -> None:
        side = scene.certificates.side(TlsClient(kit.authority.ca_file), "upstream.tls")
        with socket.create_server(("127.0.0.1", 0)) as slow, ExitStack() as stack:
            scene.reactor.over_tls(side).connect(("localhost", slow.getsockname()[1]), far)
            line, _ = await trio.to_thread.run_sync(slow.accept)
            stack.enter_context(line)
            await trio.sleep(1.6)
            if patience > 1:
                trusted = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                trusted.load_cert_chain(kit.own.cert, kit.own.key)
                wrap = partial(trusted.wrap_socket, line, server_side=True)
                stack.enter_context(await trio.to_thread.run_sync(wrap))
            await until(lambda: far.wire or far.reasons)

    play(kit.server, act)
    assert (far.wire is not None) == (patience > 1)
    assert not [reason for reason in far.reasons if reason.startswith("no connection within")]
