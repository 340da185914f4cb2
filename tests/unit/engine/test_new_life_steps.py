"""A new proxy instance closes the connections of idempotent clients in steps; none continues in the new lease
epoch (R10)."""

from __future__ import annotations

from typing import Any

from idemproxy.proxy.connection.shell import ConnectionShell
from idemproxy.proxy.session.session import Session
from idemproxy.proxy.versions import ApiKey
from testkit.virtual.line import Line, request
from testkit.virtual.world import World, WorldSettings

CLIENTS = 1_000
STEP_MAX = 500


def test_thousands_of_clients_are_closed_in_steps_and_none_continues(monkeypatch: Any) -> None:
    world = World(1, WorldSettings(brokers=1))
    world.start()
    world.network.run(2)
    proxy = world.proxies[0]
    engine = proxy.engine
    lines = [Line() for _ in range(CLIENTS)]
    host = world.network.host("client")
    ask = request(1, ApiKey.INIT_PRODUCER_ID, 0, b"\xff\xff\0\0\x27\x10")
    for line in lines:
        host.connect(proxy.addresses[0], line)
    assert world.network.run(60, lambda: all(line.wire is not None for line in lines))
    for line in lines:
        assert line.wire is not None
        line.wire.send(ask)
    assert world.network.run(60, lambda: all(line.answers for line in lines))
    old = list(engine.sessions)
    assert len(old) == CLIENTS
    assert all(session.is_idempotent for session in old)
    told = [len(line.answers) for line in lines]
    ended, most, handled = 0, 0, []
    end, handle = ConnectionShell._end, Session._handle

    def counted(session: Any, *args: Any, **more: Any) -> None:
        nonlocal ended, most
        ended += 1
        most = max(most, ended)
        end(session, *args, **more)

    monkeypatch.setattr(ConnectionShell, "_end", counted)

    def noted(session: Any, *args: Any, **more: Any) -> None:
        handled.append(session)
        handle(session, *args, **more)

    monkeypatch.setattr(Session, "_handle", noted)
    later = engine.reactor.later

    def next_pass(seconds: float, callback: Any) -> Any:
        def call() -> None:
            nonlocal ended
            ended = 0
            callback()

        return later(seconds, call)

    monkeypatch.setattr(engine.reactor, "later", next_pass, raising=False)
    engine._instance_begun()
    assert most <= STEP_MAX
    for session in old:  # what has come already, before its connection is closed
        if session in engine.sessions:
            assert session.handler.is_closed, "R17: nothing is forwarded for it from here on"
            session.received(ask)
            session.handler.answer_is_ready()
            session.handler.go_on()
    world.network.run(5)
    assert not handled
    assert most <= STEP_MAX
    assert not [session for session in old if session in engine.sessions]
    assert all(line.is_lost for line in lines)
    assert [len(line.answers) for line in lines] == told
    assert engine.memory.bytes_held == 0
    assert world.errors() == []
