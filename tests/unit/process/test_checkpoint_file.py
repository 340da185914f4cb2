"""Marks in the data directory: what one process leaves for the next, and what it says when it cannot."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from idemproxy.proxy.events import OperatorMessage
from idemproxy.proxy.partition_log.log_offsets import Position
from idemproxy.proxy.partition_log.offset_checkpoints import OffsetCheckpoints
from idemproxy.proxy.process.server import Server
from idemproxy.proxy.settings.addresses import Listener
from idemproxy.proxy.settings.config import Settings

PLACE = ("topic", 0)
POSITION = Position(7, b"anchored")
Begin = Callable[[], tuple[Server, list[Any]]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Begin a process in one data directory, as far as before anything is served; the one before ends."""
    with ExitStack() as lives:

        def one() -> tuple[Server, list[Any]]:
            lives.close()
            said: list[Any] = []
            settings = Settings((("127.0.0.1", 1),), (Listener("one", "127.0.0.1", 0, 0),), data_directory=tmp_path)
            server = Server(settings, said.append)
            trio.run(server._checkpoints.read)  # as it is done when the brokers turn out to have no idempotence
            lives.callback(server._directory.close)
            return server, [
                event for event in said if isinstance(event, OperatorMessage) and "data directory" in event.what
            ]

        yield one


def packed(age_seconds: int) -> bytes:
    checkpoints = OffsetCheckpoints()
    checkpoints.note(0, PLACE, POSITION)
    return checkpoints.pack(age_seconds, time.time_ns() // 1_000_000)


def test_what_one_process_has_noted_the_next_one_knows(begin: Begin) -> None:
    server, _ = begin()
    now = server.engine.reactor.now()
    server.engine.context.bounds.checkpoints.note(now - 1000, PLACE, POSITION)
    trio.run(server._checkpoints.write)
    server, said = begin()
    assert said == []
    assert server.engine.context.bounds.checkpoints.before_horizon(PLACE, server.engine.reactor.now()) == POSITION


def test_checkpoints_that_are_not_there_are_said_once_and_nothing_is_wrong(begin: Begin) -> None:
    _, said = begin()
    assert [event.level for event in said] == ["debug"]


def test_damaged_checkpoints_are_said_once_and_not_used(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_bytes(packed(1000)[:-1])
    server, said = begin()
    assert [event.level for event in said] == ["warning"]
    assert len(server.engine.context.bounds.checkpoints) == 0


def test_instance_ids_that_are_damaged_are_said_and_are_none(begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_bytes(packed(1000))
    (tmp_path / "instances").write_bytes(bytes(17))
    server, said = begin()
    assert [(event.level, "instances" in event.what) for event in said] == [("warning", True)]
    assert server._earlier == []


def test_checkpoints_that_cannot_be_written_are_said_once_and_end_nothing(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = begin()
    said: list[Any] = []
    monkeypatch.setattr(server._checkpoints, "_report", said.append)
    (tmp_path / "checkpoints.new").mkdir()
    for _ in range(2):
        trio.run(server._checkpoints.write)
    assert len(said) == 1
    (tmp_path / "checkpoints.new").rmdir()
    trio.run(server._checkpoints.write)
    assert (tmp_path / "checkpoints").exists()
