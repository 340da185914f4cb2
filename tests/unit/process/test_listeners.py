"""A broker's port that another process has, on real sockets and a clock that does not wait: how often it is tried and
reported, what clients get meanwhile, and that the start does not get over it."""

import socket
from collections.abc import Mapping

import trio
import trio.testing

from idemproxy.demo.ports import HOST, neighbouring_ports
from idemproxy.proxy import limits
from idemproxy.proxy.bridge.cluster import BrokerAddress
from idemproxy.proxy.events import OperatorMessage
from idemproxy.proxy.net.event_loop import TrioReactor
from idemproxy.proxy.process.listeners import Listeners
from idemproxy.proxy.settings.addresses import Listener

ONE = BrokerAddress(0, "old-1.example", 9092)
OTHER = BrokerAddress(1, "old-2.example", 9092)
HOURS = 3 * 3600.0


class Scene:
    """Listeners at free ports. ``said``: what was reported, with the time; ``ends``: why the start has ended."""

    def __init__(self) -> None:
        self.port = neighbouring_ports(3)
        self.said: list[tuple[float, str]] = []
        self.ends: list[str] = []
        self.reactor = TrioReactor(lambda where, error: self.ends.append(f"{where}: {error}"))
        self.reactor.now = trio.current_time
        listener = Listener("clients", HOST, self.port, self.port + 1)
        self.listeners = Listeners(
            self.reactor, (listener,), lambda *_, **__: None, self._report, {}, give_up=self.ends.append
        )

    def _report(self, event: object) -> None:
        assert isinstance(event, OperatorMessage)
        self.said.append((self.reactor.now(), event.what))

    def open(self, brokers: Mapping[int, BrokerAddress]) -> bool:
        self.listeners.open_for(brokers)
        return self.listeners.open_bootstrap()


def test_a_taken_port_is_tried_constantly_and_reported_ever_less_often() -> None:
    async def run() -> None:
        scene = Scene()
        async with trio.open_nursery() as nursery:
            await nursery.start(scene.reactor.run)
            assert scene.open({0: ONE})
            with socket.create_server((HOST, scene.port + 2)):
                scene.listeners.open_for({0: ONE, 1: OTHER})
                began = scene.reactor.now()
                await trio.sleep(HOURS)
                told = [round(at - began, -1) for at, _ in scene.said]
                assert told == [0, 60, 180, 420, 900, 1860, 3780, 7380]
                assert len({what for _, what in scene.said}) == 1
                (why,) = scene.listeners.taken()
                assert why in scene.said[0][1]
                assert "broker 1" not in scene.listeners.shown([0, 1])[0]
            await trio.sleep(limits.LISTEN_AGAIN_SECONDS + 1)
            assert scene.listeners.taken() == []
            assert scene.said[-1][1] == f"listening on {HOST}:{scene.port + 2} at last: clients see broker 1"
            assert "broker 1" in scene.listeners.shown([0, 1])[0]
            assert scene.ends == []
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_the_port_of_a_broker_that_has_gone_again_is_nobodys_concern() -> None:
    async def run() -> None:
        scene = Scene()
        async with trio.open_nursery() as nursery:
            await nursery.start(scene.reactor.run)
            assert scene.open({0: ONE})
            with socket.create_server((HOST, scene.port + 2)):
                scene.listeners.open_for({0: ONE, 1: OTHER})
                assert len(scene.listeners.taken()) == 1
                scene.listeners.open_for({0: ONE})
                assert scene.listeners.taken() == []
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_all_ports_taken_at_the_start_are_named_and_no_client_admitted() -> None:
    async def run() -> None:
        scene = Scene()
        async with trio.open_nursery() as nursery:
            await nursery.start(scene.reactor.run)
            with socket.create_server((HOST, scene.port + 1)), socket.create_server((HOST, scene.port + 2)):
                assert not scene.open({0: ONE, 1: OTHER})
                assert "for broker 0" in scene.ends[0]
                assert "for broker 1" in scene.ends[0]
                assert scene.said == []
            nursery.cancel_scope.cancel()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))
