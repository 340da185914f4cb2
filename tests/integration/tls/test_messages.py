"""What a peer sends that is for TLS alone: it costs the proxy no more than a little, and the others nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio

from idemproxy.proxy import limits
from idemproxy.reactor import Wire
from testkit.real.tls.records import TlsRecords
from testkit.real.tls.scene import SECONDS_MAX, Scene, TlsKit, context, play, until

NEW_KEYS_BYTES = 27
MANY = 8 * limits.BACKLOG_BYTES // NEW_KEYS_BYTES
"""Several times as much as is borne."""
SMALL_BUFFER = 4096
"""Of the kernel: what it does not hold is held here."""


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> TlsKit:
    return TlsKit(tmp_path_factory.mktemp("certificates"))


async def while_a_client_sends(
    kit: TlsKit, key_log: Path, port: int, write: Callable[[TlsRecords], list[bytes]], condition: Callable[[], object]
) -> None:
    """Wait for the condition while a client is there that sends all of this and takes no answer."""
    is_over = threading.Event()

    def client() -> None:
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            line.settimeout(SECONDS_MAX)
            line.connect(("127.0.0.1", port))
            with suppress(ConnectionError):
                line.sendall(b"".join(write(TlsRecords(line, context(kit.authority), key_log))))
            is_over.wait(SECONDS_MAX)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, client)
        try:
            await until(condition)
        finally:
            is_over.set()


@pytest.mark.parametrize(("wants_answers", "between"), [(True, b""), (False, b""), (True, b"a")])
def test_who_asks_for_new_keys_without_end_is_hung_up_on(
    kit: TlsKit, tmp_path: Path, wants_answers: bool, between: bytes
) -> None:
    def write(records: TlsRecords) -> list[bytes]:
        pieces = []
        for number in range(MANY):
            pieces.append(records.new_keys(wants_answers))
            if between and number % 50 == 0:
                pieces.append(records.data(between))
        return pieces

    async def act(scene: Scene) -> None:
        scene.begin = lambda wire: wire._socket.setsockopt(  # type: ignore[attr-defined]
            socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER
        )
        await while_a_client_sends(
            kit, tmp_path / "keys", scene.port, write, lambda: scene.accepted and scene.accepted[0].reasons
        )
        assert scene.accepted[0].reasons == ["the peer sends messages of TLS itself without end"]

    play(kit.server, act)


def test_new_keys_now_and_then_are_as_good_as_the_old_ones(kit: TlsKit, tmp_path: Path) -> None:
    piece = bytes(1000)

    def write(records: TlsRecords) -> list[bytes]:
        return [one for _ in range(500) for one in (records.data(piece), records.new_keys(wants_answer=True))]

    async def act(scene: Scene) -> None:
        await while_a_client_sends(
            kit,
            tmp_path / "keys",
            scene.port,
            write,
            lambda: scene.accepted and scene.accepted[0].data == piece * 500,
        )
        assert not any("without end" in reason for reason in scene.accepted[0].reasons)

    play(kit.server, act)


def test_only_a_client_with_an_unfinished_tls_message_is_disconnected(kit: TlsKit, tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        def answer_later(wire: Wire) -> None:
            scene.reactor.later(0.2, lambda: wire.send(b"answer"))

        scene.begin = answer_later
        await while_a_client_sends(
            kit,
            tmp_path / "keys",
            scene.port,
            lambda records: [records.data(b"question"), records.unfinished()],
            lambda: scene.accepted and scene.accepted[0].reasons,
        )
        assert scene.accepted[0].data == b"question"
        assert scene.accepted[0].reasons[0].startswith("TLS: nothing can be sent")
        scene.begin = lambda _wire: None
        await while_a_client_sends(
            kit,
            tmp_path / "others keys",
            scene.port,
            lambda records: [records.data(b"question")],
            lambda: len(scene.accepted) == 2 and scene.accepted[1].data == b"question",
        )

    play(kit.server, act)
