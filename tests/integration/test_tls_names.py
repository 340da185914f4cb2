"""Addresses that can not be connected to, as a broker may name them: whoever wanted one is told, nothing else ends."""

import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from idemproxy.proxy.tls_settings import TlsClient
from testkit.tls_scene import Recorder, Scene, TlsKit, play, until


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> TlsKit:
    return TlsKit(tmp_path_factory.mktemp("certificates"))


@pytest.mark.parametrize("over_tls", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize(
    ("host", "port"),
    [("", 9092), ("a..b", 9092), (f"{'x' * 70}.test", 9092), ("a\0b", 9092), ("127.0.0.1", 70_000), ("::1", -1)],
    ids=["empty", "empty label", "long label", "zero byte", "port above all", "port below all"],
)
def test_an_address_that_is_none_is_told_to_who_wanted_it(kit: TlsKit, host: str, port: int, over_tls: bool) -> None:
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
        await until(lambda: near.wire)  # the others go on

    play(kit.server, act)


def test_a_name_that_no_certificate_can_have_is_told_too(kit: TlsKit) -> None:
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


def test_who_wants_a_connection_when_descriptors_have_run_out_is_told(kit: TlsKit) -> None:
    async def act(scene: Scene) -> None:
        far = Recorder()
        with no_descriptors():
            scene.reactor.connect(("127.0.0.1", scene.port), far)
        await until(lambda: far.reasons)
        assert far.reasons == [f"cannot connect: {errno.errorcode[errno.EMFILE]}"]
        await trio.lowlevel.checkpoint()

    play(kit.server, act)
