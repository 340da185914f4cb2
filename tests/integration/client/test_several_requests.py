"""Several requests at once, and another connection: in both shells of the client, at a real socket."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trio

from idemproxy.client import blocking_connections, trio_connections
from idemproxy.client.asking import Ask, AskAtOnce, Disconnect
from idemproxy.client.errors import AnswersOutOfOrder, ConnectionFailed
from idemproxy.client.settings import ClientSettings
from idemproxy.producing.cluster import METADATA, Address, cluster_of, metadata_fields
from testkit.real.brokers.lone_server import LoneServer
from testkit.real.brokers.service_relay import AnswersOutOfOrder as OutOfOrderService
from testkit.real.brokers.service_relay import ServiceRelay

VERSIONS = (1, 1)
Run = Callable[[Address, Coroutine[Any, Any, Any]], Any]


def run_blocking(address: Address, flow: Coroutine[Any, Any, Any]) -> Any:
    settings = ClientSettings("{}:{}".format(*address), request_seconds_max=10)
    connections = blocking_connections.Connections(blocking_connections.Connector(settings))
    try:
        return connections.run(flow)
    finally:
        connections.close()


def run_on_trio(address: Address, flow: Coroutine[Any, Any, Any]) -> Any:
    settings = ClientSettings("{}:{}".format(*address), request_seconds_max=10)

    async def main() -> Any:
        connections = trio_connections.Connections(trio_connections.Connector(settings))
        try:
            return await connections.run(flow)
        finally:
            await connections.aclose()

    return trio.run(main)


@pytest.fixture(params=[run_blocking, run_on_trio])
def run(request: pytest.FixtureRequest) -> Run:
    found: Run = request.param
    return found


def at_once(address: Address, count: int) -> AskAtOnce:
    return AskAtOnce(address, METADATA, VERSIONS, "Metadata", (metadata_fields(["t"]),) * count)


def test_answers_come_in_the_order_of_the_requests(run: Run) -> None:
    async def flow(address: Address) -> list[Any]:
        one = await Ask(address, METADATA, VERSIONS, "Metadata", metadata_fields(["t"]))
        return [one, *await at_once(address, 5), *await at_once(address, 0)]

    with LoneServer() as server:
        answers = run((server.host, server.port), flow((server.host, server.port)))
        assert [cluster_of(one).brokers for one in answers] == [{0: (server.host, server.port)}] * 6
        assert len(server._open) == 1, "all of them over one connection"


def test_another_connection_is_used_after_one_was_closed(run: Run) -> None:
    async def flow(address: Address) -> None:
        await Disconnect(address)  # there is none
        for _ in range(2):
            await at_once(address, 2)
            await Disconnect(address)

    with LoneServer() as server:
        run((server.host, server.port), flow((server.host, server.port)))
        assert len(server._open) == 2


def test_a_connection_that_ends_among_the_answers_fails_all_of_them(run: Run) -> None:
    async def flow(address: Address) -> None:
        with pytest.raises(ConnectionFailed, match="closed the connection"):
            await at_once(address, 2)
        await at_once(address, 2)

    with LoneServer(cuts=range(1), at=METADATA) as server:
        run((server.host, server.port), flow((server.host, server.port)))
        assert len(server._open) == 2


def test_answers_out_of_order_are_told_from_other_failures(run: Run) -> None:
    produce: dict[str, Any] = {"transactional_id": None, "acks": -1, "timeout_ms": 1000, "topic_data": []}

    async def flow(address: Address) -> None:
        with pytest.raises(AnswersOutOfOrder):
            await AskAtOnce(address, 0, (3, 3), "Produce", (produce,) * 2)

    with LoneServer() as server, ServiceRelay((server.host, server.port), OutOfOrderService()) as relay:
        run(relay.address, flow(relay.address))
