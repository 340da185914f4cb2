"""A process that was stopped for seconds says so itself."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.proxies.proxy_process import ProxyProcess


def test_a_process_that_was_stopped_says_for_how_long(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    with ProxyProcess(tmp_path, legacy_broker.address(0)) as proxy:
        proxy.signal(signal.SIGSTOP)
        time.sleep(5)  # longer than the shortest standstill that is reported
        proxy.signal(signal.SIGCONT)
        line = proxy.wait_for_log(r"this process stood still for [0-9.]+ s")
        assert " ERROR " in line
        assert float(line.partition("stood still for ")[2].split()[0]) >= 3
