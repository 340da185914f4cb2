"""Who wants no answer cannot retry: a producer id is of no use to it, and is refused (rule R16)."""

from __future__ import annotations

import pytest

from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.virtual.line import Line, request
from testkit.virtual.pass_through_client import Introduced
from testkit.virtual.world import TOPIC, World, WorldSettings


def produce(*producer_ids: int) -> bytes:
    """One request without acks, with a batch of each of these for partitions of their own."""
    rows = [(TOPIC, number, batch([b"value"], producer_id=one)) for number, one in enumerate(producer_ids)]
    return request(1, ApiKey.PRODUCE, 3, RawClient.produce_body(rows, version=3, acks=0, timeout_ms=30_000))


@pytest.mark.parametrize("is_pass_through", [False, True])
@pytest.mark.parametrize(("producer_ids", "stored"), [((-1,), 1), ((1_000,), 0), ((1_000, 1_001), 0), ((-1, 1_000), 1)])
def test_an_idempotent_batch_with_acks_zero_is_refused_by_closing_its_connection(
    is_pass_through: bool, producer_ids: tuple[int, ...], stored: int
) -> None:
    world = World(
        1, WorldSettings(brokers=1, partitions=2, has_principals=is_pass_through, has_pass_through=is_pass_through)
    )
    if world.cluster.users is not None:
        world.cluster.users |= {"raw": True}
    world.start()
    world.network.run(2)
    (proxy,) = world.proxies
    line = Line()
    host = world.network.host("client")
    host.connect(proxy.addresses[0], Introduced("raw", line) if is_pass_through else line)
    assert world.network.run(5, lambda: line.wire is not None)
    assert line.wire is not None
    line.wire.send(produce(*producer_ids))
    world.network.run(10)
    assert line.is_lost == (producer_ids != (-1,))
    assert not line.data, "nobody waits for an answer, and the next one would be taken for another request's"
    assert [world.cluster.log(TOPIC, partition).end_offset for partition in (0, 1)] == [stored, 0]
    assert proxy.engine.statistics().entries == 0
    assert proxy.engine.memory.bytes_held == 0
    assert world.errors() == []
