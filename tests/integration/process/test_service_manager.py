"""What systemd gets to know of a proxy: that it waits and for what, that it serves, that it ends, and which end no
restart helps."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import free_ports
from testkit.real.proxies.proxy_process import ProxyProcess

SECONDS_MAX = 60


def told(manager: socket.socket) -> dict[str, str]:
    """The assignments of the next datagram."""
    manager.settimeout(SECONDS_MAX)
    return dict(line.split("=", 1) for line in manager.recv(4096).decode().splitlines())


@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_proxy_tells_when_it_serves_and_when_it_drains(
    legacy_broker: LegacyCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool
) -> None:
    name = f"@{tmp_path.name}-{os.getpid()}" if is_abstract else os.fspath(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name[1:]}" if is_abstract else name)
        with ProxyProcess(tmp_path, legacy_broker.address(0)) as proxy:
            assert told(manager) == {"READY": "1", "STATUS": "serving"}
            proxy.signal(signal.SIGHUP)
            assert set(told(manager)) == {"RELOADING", "MONOTONIC_USEC"}
            assert told(manager) == {"READY": "1"}
            assert proxy.stop() == 0
            assert told(manager)["STOPPING"] == "1"


def test_a_proxy_that_waits_tells_for_what(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    name = os.fspath(tmp_path / "notify")
    command = [sys.executable, "-m", "idemproxy", "run", "--upstream", "127.0.0.1:9", "--listen", f"127.0.0.1:{port}"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        environment = {**os.environ, "NOTIFY_SOCKET": name}
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
        try:
            assert told(manager)["STATUS"].startswith("still waiting for a broker after 5 s")
        finally:
            process.terminate()
            assert process.wait(SECONDS_MAX) == 0


def test_only_a_wrong_configuration_ends_with_the_status_after_which_systemd_does_not_restart(tmp_path: Path) -> None:
    unit = Path("deploy/systemd/idemproxy.service").read_text()
    assert "\nRestartPreventExitStatus=78\n" in unit
    assert "\nType=notify\n" in unit
    command = [sys.executable, "-m", "idemproxy", "run", "--upstream"]
    assert subprocess.run([*command, "nowhere"], cwd=tmp_path, stderr=subprocess.DEVNULL, timeout=240).returncode == 78
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen = ["--listen", f"127.0.0.1:{other.getsockname()[1]}"]
        ended = subprocess.run([*command, "k:1", *listen], cwd=tmp_path, stderr=subprocess.DEVNULL, timeout=240)
    assert ended.returncode == 2, "another process may free the port"
