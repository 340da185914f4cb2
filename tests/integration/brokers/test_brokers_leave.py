"""A broker is taken out of the cluster for good, as when a cluster gets smaller."""

import re
import socket
import urllib.request
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST, neighbouring_ports
from idemproxy.proxy.versions import ApiKey
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

pytestmark = pytest.mark.long

QUIET_SECONDS = 3.0
"""A broker that is only down is connected to again every second."""
LEFT = "has left the cluster: its connections are closed"


def brokers_measured(port: int) -> set[int]:
    """Brokers that there are gauges of."""
    text = urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10).read().decode()
    return {int(number) for number in re.findall(r'idemproxy_broker_up\{broker="(\d+)"', text)}


def test_a_broker_that_has_left_is_connected_to_no_more_until_it_is_back(tmp_path: Path) -> None:
    admin = neighbouring_ports(1)
    with (
        LegacyCluster(tmp_path / "kafka", brokers=2, replication=1) as cluster,
        ProxyProcess(
            tmp_path / "proxy", cluster.address(0), brokers=2, options=("--admin-bind", f"{HOST}:{admin}")
        ) as proxy,
    ):
        cluster.create_topic("t", assignment=[[0]])
        wait_until(lambda: brokers_measured(admin) == {0, 1}, "both brokers are known")
        cluster.stop_broker(1)
        with RawClient(proxy.address) as client, socket.create_server(cluster.address(1)) as there:

            def has_left() -> bool:
                client.ask(ApiKey.METADATA, 1, topics=None)  # as clients do now and then
                return LEFT in proxy.log

            wait_until(has_left, "the broker has left", 60)
            assert brokers_measured(admin) == {0}
            there.settimeout(0)
            try:
                while True:
                    there.accept()[0].close()  # who came before
            except BlockingIOError:
                pass
            there.settimeout(QUIET_SECONDS)
            try:
                came = there.accept()
            except TimeoutError:
                came = None
            assert came is None
            said = proxy.log.count("broker 1 at ")
            producer_id = client.new_producer_id()
            assert client.produce_one("t", 0, batch([b"x"], producer_id=producer_id)).error_code == 0
            assert proxy.log.count("broker 1 at ") == said
        cluster.start_broker(1)
        wait_until(lambda: brokers_measured(admin) == {0, 1}, "it is back", 60)
