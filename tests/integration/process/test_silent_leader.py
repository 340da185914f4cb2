"""A leader that does not answer is named within five seconds, with the partitions whose batches wait for it."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from threading import Thread

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess

SHOWN_SECONDS_MAX = 5.0


def concerns(admin: int) -> list[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/api/v1/page", timeout=30) as answer:
        found: list[str] = json.loads(answer.read())["status"]["concerns"]
        return found


def test_a_silent_leader_shows_in_log_and_status_page_within_five_seconds(tmp_path: Path) -> None:
    (admin,) = free_ports(1)
    options = ("--admin-bind", f"127.0.0.1:{admin}")
    with LegacyCluster(tmp_path / "kafka") as cluster:
        cluster.create_topic("orders", 1, 1)
        with (
            ProxyProcess(tmp_path, cluster.address(0), options=options) as proxy,
            RawClient(proxy.address) as client,
        ):
            producer_id = client.new_producer_id()
            assert client.produce_one("orders", 0, batch([b"a"], producer_id=producer_id, sequence=0)).error_code == 0
            cluster.pause_broker(0)
            records = batch([b"b"], producer_id=producer_id, sequence=1)
            sender = Thread(target=lambda: client.produce_one("orders", 0, records))
            sender.start()
            began = time.monotonic()
            line = proxy.wait_for_log("has not answered a produce request for 3 s: orders-0", 30)
            took = time.monotonic() - began
            (concern,) = (one for one in concerns(admin) if "produce request" in one)
            cluster.resume_broker(0)
            sender.join()
    assert took < SHOWN_SECONDS_MAX
    assert " WARNING broker 0 at {}:{} has not".format(*cluster.address(0)) in line
    assert concern.startswith("broker 0 has not answered a produce request for ")
    assert concern.endswith(": orders-0")
