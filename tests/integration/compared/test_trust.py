"""Whom we trust may change without a restart, too: authorities of clients, and of brokers (compared.md)."""

from __future__ import annotations

import shutil
import ssl
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from idemproxy.proxy.settings.tls import TlsClient, TlsServer
from testkit.real.tls.certificates import Authority, Files
from testkit.real.tls.scene import Recorder, Scene, connected, context, play, until


class Trust:
    """Two authorities, and the one file in which those that count stand."""

    def __init__(self, directory: Path) -> None:
        self.old, self.new = Authority(directory / "old", "old"), Authority(directory / "new", "new")
        self.file = directory / "authorities.pem"
        self.take(self.old)

    def take(self, *authorities: Authority) -> None:
        """Let these count from the next look on."""
        self.file.write_bytes(b"".join(one.ca_file.read_bytes() for one in authorities))


@pytest.mark.promise("compared-15")
def test_reloaded_client_authorities_admit_new_clients_and_reject_old_ones(tmp_path: Path) -> None:
    trust = Trust(tmp_path)
    own = trust.old.issue("listener")
    settings = TlsServer(own.cert, own.key, client_ca_file=trust.file, client_auth="required")

    def is_let_in(port: int, files: Files) -> bool:
        try:
            with connected(port, context(trust.old, files)) as client:
                client.sendall(b"?")
                return client.recv(1) == b"."
        except (ssl.SSLError, ConnectionError):
            return False

    async def act(scene: Scene) -> None:
        scene.begin = lambda wire: wire.send(b".")
        before, after = trust.old.issue("before"), trust.new.issue("after")

        async def let_in() -> tuple[bool, bool]:
            old = await trio.to_thread.run_sync(is_let_in, scene.port, before)
            return old, await trio.to_thread.run_sync(is_let_in, scene.port, after)

        assert await let_in() == (True, False)
        trust.take(trust.old, trust.new)
        assert scene.certificates.reload() == []
        assert await let_in() == (True, True)
        with ExitStack() as stack:
            client = await trio.to_thread.run_sync(
                stack.enter_context, connected(scene.port, context(trust.old, before))
            )
            trust.take(trust.new)
            assert scene.certificates.reload() == []
            assert await let_in() == (False, True)
            assert await trio.to_thread.run_sync(client.recv, 1) == b".", "who is there stays"

    play(settings, act)


@pytest.mark.promise("compared-15")
def test_a_broker_of_a_new_authority_is_believed_from_then_on(tmp_path: Path) -> None:
    trust = Trust(tmp_path)
    broker = trust.new.issue("broker")

    async def act(scene: Scene) -> None:
        side = scene.certificates.side(TlsClient(trust.file), "upstream.tls")
        reactor = scene.reactor.over_tls(side)
        first = Recorder()
        reactor.connect(("127.0.0.1", scene.port), first)
        await until(lambda: first.reasons)
        assert "unable to get local issuer certificate" in first.reasons[0]
        shutil.copy(trust.new.ca_file, trust.file)
        assert scene.certificates.reload() == []
        second = Recorder()
        reactor.connect(("127.0.0.1", scene.port), second)
        await until(lambda: second.wire)
        assert second.reasons == []

    play(TlsServer(broker.cert, broker.key), act)
