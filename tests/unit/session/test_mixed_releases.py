"""A connection to the bootstrap port in a cluster of several releases, as there is while it is upgraded: what is
forwarded is encoded for the broker that it goes to. Others would close the connection."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from idemproxy.codecs import messages
from idemproxy.proxy.pass_through.authentication import ClientAuthentication
from idemproxy.proxy.versions import ApiKey
from idemproxy.reactor import Endpoint
from testkit.virtual.line import Line, request
from testkit.virtual.pass_through_client import Introduced
from testkit.virtual.proxy import _place_of
from testkit.virtual.releases import KEEPS_2_8
from testkit.virtual.world import TOPIC, World, WorldSettings

CONNECTIONS, QUESTIONS = 4, 6
BOOTSTRAP = ("proxy-1", 9000)


def fetch() -> bytes:
    """In a version that only the newer broker has."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}
    topics = [{"topic": TOPIC, "partitions": [partition]}]
    body = messages.encode_request(
        ApiKey.FETCH, 4, replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1_000, isolation_level=0, topics=topics
    )
    return request(1, ApiKey.FETCH, 4, body)


def metadata() -> bytes:
    return request(1, ApiKey.METADATA, 1, messages.encode_request(ApiKey.METADATA, 1, topics=[{"name": TOPIC}]))


@pytest.mark.parametrize(("question", "is_pass_through"), [(fetch, False), (fetch, True), (metadata, True)])
def test_what_is_forwarded_from_the_bootstrap_port_is_encoded_for_its_broker(
    question: Callable[[], bytes], is_pass_through: bool
) -> None:
    world = World(1, WorldSettings(brokers=2, has_principals=is_pass_through, has_pass_through=is_pass_through))
    if world.cluster.users is not None:
        world.cluster.users |= {"raw": True}
    newer = world.cluster.brokers[2]
    newer.release = newer.next_release = KEEPS_2_8
    world.start()
    world.network.run(2)
    (proxy,) = world.proxies
    assert len({broker.version for broker in proxy.engine.topology.brokers if broker.is_ready}) == 2
    if is_pass_through:
        make = partial(proxy.engine.accept, None, _place_of, make=partial(ClientAuthentication, proxy.host))
        world.network.listen(proxy.host, BOOTSTRAP, make)
    lines = [Line() for _ in range(CONNECTIONS)]
    for line in lines:
        endpoint: Endpoint = Introduced("raw", line) if is_pass_through else line
        world.network.host("client").connect(BOOTSTRAP if is_pass_through else proxy.address, endpoint)
        assert world.network.run(5, lambda line=line: line.wire is not None)  # type: ignore[misc]
        for number in range(1, QUESTIONS + 1):
            for _ in range(world.network.random.randrange(2)):
                proxy.engine.topology.any_broker()  # as somebody else does in between
            assert line.wire is not None
            line.wire.send(question())
            world.network.run(2, lambda line=line, number=number: len(line.answers) == number or line.is_lost)  # type: ignore[misc]
    assert [(len(line.answers), line.is_lost) for line in lines] == [(QUESTIONS, False)] * CONNECTIONS
    assert world.errors() == []
