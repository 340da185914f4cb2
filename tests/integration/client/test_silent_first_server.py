"""Two servers are named; the first one takes connections and says nothing (a proxy that stands still, a machine that is
gone). The second one serves."""

from __future__ import annotations

import contextlib
import socket

import pytest
import trio

from idemproxy.client import Client, NotDelivered, ProducerId, Receipt, Record, Undecided, limits
from idemproxy.client.trio_client import TrioClient
from testkit.real.brokers.lone_server import LoneServer

SECONDS = 0.3


@pytest.mark.parametrize("shell", ["blocking", "trio"])
def test_a_producer_goes_to_the_next_server(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", SECONDS)
    batch = [Record(b"v", timestamp_ms=1)]
    with socket.create_server(("127.0.0.1", 0)) as silent, LoneServer() as good:  # the kernel takes connections
        both = ["{}:{}".format(*silent.getsockname()), good.address]
        if shell == "blocking":
            with Client(both) as client, client.producer(ProducerId(1), delivery_seconds_max=SECONDS * 10) as producer:
                receipt = producer.publish("t", 0, batch)
        else:

            async def publish() -> Receipt:
                async with (
                    TrioClient(both) as client,
                    client.producer(ProducerId(1), delivery_seconds_max=SECONDS * 10) as producer,
                ):
                    return await producer.publish("t", 0, batch)

            receipt = trio.run(publish)
        assert receipt.base_offset == 0


@pytest.mark.parametrize("shell", ["blocking", "trio"])
def test_a_producer_with_little_time_goes_to_the_next_server(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As examples/kv_store.py: 5 s for a delivery, 10 s for a connection."""
    monkeypatch.setattr(limits, "CONNECT_SECONDS_MAX", SECONDS * 2)
    batch = [Record(b"v", timestamp_ms=1)]
    with socket.create_server(("127.0.0.1", 0)) as silent, LoneServer() as good:
        both = ["{}:{}".format(*silent.getsockname()), good.address]
        if shell == "blocking":
            with Client(both) as client, client.producer(ProducerId(1), delivery_seconds_max=SECONDS) as producer:
                for _ in range(3):
                    with contextlib.suppress(NotDelivered, Undecided):
                        assert producer.publish("t", 0, batch).base_offset == 0
                        return
                    producer.start_at("t", 0, 0)
        else:

            async def publish() -> None:
                async with (
                    TrioClient(both) as client,
                    client.producer(ProducerId(1), delivery_seconds_max=SECONDS) as producer,
                ):
                    for _ in range(3):
                        with contextlib.suppress(NotDelivered, Undecided):
                            assert (await producer.publish("t", 0, batch)).base_offset == 0
                            return
                        producer.start_at("t", 0, 0)
                    raise AssertionError

            return trio.run(publish)
    raise AssertionError
