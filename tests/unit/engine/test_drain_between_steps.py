"""While a drain looks at all producers in steps, a client without a producer id sends its first batch: it is answered
before the proxy ends, or its client sends again what is stored (rule R15)."""

from __future__ import annotations

from idemproxy.proxy.producer.sequencer import Sequencer
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.virtual.line import Line, request
from testkit.virtual.world import TOPIC, World, WorldSettings


def test_a_first_batch_that_comes_between_two_steps_is_answered() -> None:
    world = World(1, WorldSettings(brokers=1))
    world.start()
    world.network.run(2)
    proxy = world.proxies[0]
    engine = proxy.engine
    line = Line()
    world.network.host("client").connect(proxy.addresses[0], line)
    assert world.network.run(5, lambda: line.wire is not None and bool(engine.sessions))
    world.network.run(1)
    (session,) = engine.sessions
    sequencer = Sequencer(engine.context, engine.runner, 1, TOPIC, 0)
    for number in range(25_000):
        engine._sequencers.get((number, TOPIC, 0), lambda: sequencer)
    drained: list[bool] = []
    engine.drain(lambda: drained.append(session.has_produce_in_flight))
    assert not drained, "it takes several steps"
    body = RawClient.produce_body([(TOPIC, 0, batch([b"value"]))], version=3, acks=-1, timeout_ms=30_000)
    session.received(request(1, ApiKey.PRODUCE, 3, body))
    assert session.has_produce_in_flight
    assert world.network.run(5, lambda: bool(drained))
    world.network.run(2)
    assert len(line.answers) == world.cluster.log(TOPIC, 0).end_offset == 1
