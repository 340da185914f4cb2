"""Brokers that hang up on idle connections, or are not where they should be (docs/explanation/compared.md)."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, free_ports, neighbouring_ports
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.configured_proxy import ConfiguredProxy
from testkit.real.proxies.proxy_process import ProxyProcess

BROKERS_IDLE_SECONDS = 4
"""So many that a busy machine has its next request out before, and none is on its way when the broker hangs up."""
Place = tuple[str, int]


@pytest.mark.promise("compared-8")
def test_a_broker_that_closes_idle_connections_costs_a_client_nothing(tmp_path: Path) -> None:
    settings = {"connections.max.idle.ms": BROKERS_IDLE_SECONDS * 1000}
    with LegacyCluster(tmp_path / "kafka", broker_settings=settings) as cluster:
        cluster.create_topic("t", 1)
        with ProxyProcess(tmp_path, cluster.address(0)) as proxy:
            with RawClient(proxy.address) as client:
                producer_id = client.new_producer_id()
                for sequence in range(4):
                    records = batch([b"a"], producer_id=producer_id, sequence=sequence)
                    answer = client.produce_one("t", 0, records)
                    assert (answer.error_code, answer.base_offset) == (0, sequence)
                    assert client.end_offset("t", 0) == sequence + 1, "this passes over a connection of its own"
                    time.sleep(2 * BROKERS_IDLE_SECONDS)
            assert proxy.stop() == 0
            counted = json.loads(proxy.wait_for_log("counters: ").partition("counters: ")[2])
    assert counted["batches_answered_total{verdict=appended}"] == counted["appends_sent_total"] == 4
    assert counted["produce_connections_lost_total"] >= 3, "after each batch the broker hung up"
    assert not [name for name in counted if "doubt" in name]


@contextmanager
def address_that_takes_no_connection() -> Iterator[Place]:
    """Who connects hears nothing: the kernel's queue is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((HOST, 0), backlog=0))
        for _ in range(3):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        yield listening.getsockname()


@contextmanager
def address_that_says_nothing() -> Iterator[Place]:
    """Who connects is connected, and hears nothing."""
    with socket.create_server((HOST, 0)) as listening:
        yield listening.getsockname()


def seconds_to_the_first_client(directory: Path, bootstrap: list[Place]) -> float:
    """Return how long a start of the proxy takes."""
    began = time.monotonic()
    settings = {
        "upstream": {"bootstrap": [f"{host}:{port}" for host, port in bootstrap]},
        "listeners": [{"bind": f"{HOST}:{neighbouring_ports(2)}"}],
    }
    with ConfiguredProxy(directory, settings):
        return time.monotonic() - began


@pytest.mark.promise("compared-16")
def test_bootstrap_addresses_that_lead_nowhere_do_not_delay_the_start(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    good = legacy_broker.address(0)
    with address_that_takes_no_connection() as deaf, address_that_says_nothing() as dumb:
        nobody = (HOST, free_ports(1)[0])
        bad = [deaf, dumb, nobody, deaf, dumb]
        # The best of three pairs: only a start that asks them one after the other is late in each, by 20 s. On a busy
        # machine two starts a moment apart may differ by seconds.
        late_by = min(
            seconds_to_the_first_client(tmp_path / f"slow-{number}", [*bad, good])
            - seconds_to_the_first_client(tmp_path / f"quick-{number}", [good])
            for number in range(3)
        )
    assert late_by < 3
