"""A connection that ends before a token was sent is no refused login: so does a proxy that ends, or whose broker is
away while it passes SASL through."""

from __future__ import annotations

import pytest
import trio

from idemproxy.client import Client, ProducerId, Receipt, Record, Sasl
from idemproxy.client.trio_client import TrioClient
from testkit.real.brokers.lone_server import LoneServer

SASL = Sasl("PLAIN", "alice", "secret")


@pytest.mark.parametrize("at", [0, 18, 17, 36])
@pytest.mark.parametrize("shell", ["blocking", "trio"])
def test_a_producer_logs_in_again(shell: str, at: int) -> None:
    batch = [Record(b"v", timestamp_ms=1)]
    with LoneServer(range(1, 3), at) as server:  # metadata is there, then the leader's connection is cut twice
        if shell == "blocking":
            with Client(server.address, sasl=SASL) as client, client.producer(ProducerId(1)) as producer:
                receipt = producer.publish("t", 0, batch)
        else:

            async def publish() -> Receipt:
                async with TrioClient(server.address, sasl=SASL) as client, client.producer(ProducerId(1)) as producer:
                    return await producer.publish("t", 0, batch)

            receipt = trio.run(publish)
        assert receipt.base_offset == 0
