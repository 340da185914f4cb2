"""The end of a session in pass-through while a question about its client's rights waits for a batch: it ends too."""

import gc
from collections.abc import Callable
from weakref import ref

import pytest

from idemproxy.proxy.pass_through.backend import ClientBackend
from idemproxy.proxy.session.session import Session
from testkit.virtual.broker_faults import BrokerFault, BrokerFaultRates, ProduceSeen
from testkit.virtual.client import ClientSettings
from testkit.virtual.world import TOPIC, World, WorldSettings

LOOK_SECONDS, RIGHTS_SECONDS = 5.0, 10.0


class Scene:
    """The broker takes his second batch and does not answer. When the third one comes, what is known of his rights is
    too old. ``looks``: was it looked for an answer to the question, and had the session ended by then?"""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        client = ClientSettings(request_timeout=60.0)
        self.world = World(1, WorldSettings(brokers=1, has_principals=True, has_pass_through=True, client=client))
        self.world.start()
        (self.client,) = self.world.clients
        self.looks: list[bool] = []
        shipped = ClientBackend._has_no_answer

        def has_no_answer(backend: ClientBackend) -> None:
            self.looks.append(backend._is_over)
            shipped(backend)

        monkeypatch.setattr(ClientBackend, "_has_no_answer", has_no_answer)
        self._batches = 0
        self._out: list[ProduceSeen] = []
        self.world.cluster.rates = BrokerFaultRates(slow=(100.0, 100.0))
        self.world.cluster.choose_fault = self._choose
        for seconds in (RIGHTS_SECONDS - 1, 2, 1):
            self.client.send(TOPIC, 0)
            self.run(seconds)
        assert self._out

    def run(self, seconds: float, is_done: Callable[[], bool] = lambda: False) -> bool:
        return self.world.network.run(seconds, is_done)

    def _choose(self, seen: ProduceSeen) -> BrokerFault:
        self._batches += any(row[2] for row in seen.body.partitions)
        if self._out or self._batches < 2:
            return BrokerFault.NONE
        self._out.append(seen)
        return BrokerFault.LATE_ANSWER


def test_nothing_is_left_when_his_produce_connection_gives_the_connection_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    assert scene.run(120, lambda: scene.client.is_done)
    scene.client.close()
    scene.run(600)
    assert scene.looks.count(True) <= 1


def test_nothing_is_looked_at_again_when_he_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(monkeypatch)
    scene.client.close()
    scene.run(LOOK_SECONDS)
    assert scene.looks == [True]
    (proxy,) = scene.world.proxies
    assert proxy.engine.statistics().client_pools == 1, "his batch is still out"
    scene.run(600)
    assert scene.looks == [True]


def test_nothing_of_his_session_is_kept_by_what_is_known_of_his_batches() -> None:
    world = World(1, WorldSettings(brokers=1, has_principals=True, has_pass_through=True, clients=3))
    world.start()
    for client in world.clients:
        client.send(TOPIC, 0)
    assert world.network.run(60, lambda: all(client.is_done for client in world.clients))
    handlers = [connection.handler for connection in world.proxies[0].engine.sessions]
    sessions = [ref(handler) for handler in handlers if isinstance(handler, Session)]
    del handlers
    assert len(sessions) >= 3
    for client in world.clients:
        client.close()
    world.network.run(60)
    gc.collect()
    assert [session() for session in sessions] == [None] * len(sessions)
