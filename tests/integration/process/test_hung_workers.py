"""A worker that hangs, real: its supervisor replaces it, and its share of new connections goes to those that work."""

import os
import re
import signal
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from idemproxy.demo.child_processes import stands_still
from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.proxy.limits import WORKER_SILENT_SECONDS_MAX
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.supervised import WORKERS, Supervised

CLIENTS = 40
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
SILENT = r"worker \d has not answered for \d s"
HUNG = "worker [12] has not answered for too long: its event loop hangs or its process was stopped"


@pytest.fixture
def proxy(legacy_broker: LegacyCluster, tmp_path: Path) -> Iterator[Supervised]:
    with Supervised(tmp_path, legacy_broker.address(0)) as running:
        running.wait_until_ready()
        yield running


def new_clients(proxy: Supervised) -> list[socket.socket]:
    """So many new connections that each worker has some, each with a request on its way."""
    clients = [socket.create_connection(proxy.address, timeout=30) for _ in range(CLIENTS)]
    for client in clients:
        client.sendall(API_VERSIONS)
    return clients


def is_served(client: socket.socket) -> bool:
    """Has it an answer? Else it was reset, and connects again."""
    with client:
        try:
            return bool(client.recv(100))
        except ConnectionResetError:
            return False


def has_open(process: int, path: Path) -> bool:
    return any(one.resolve() == path for one in Path(f"/proc/{process}/fd").iterdir())


def is_replaced(proxy: Supervised, worker: int) -> bool:
    return len(proxy.workers) == WORKERS and worker not in proxy.workers


def test_a_stopped_worker_is_replaced_and_no_client_stays_with_it(proxy: Supervised) -> None:
    victim, other = proxy.workers
    os.kill(victim, signal.SIGSTOP)
    wait_until(partial(stands_still, victim), "it stands still")
    clients = new_clients(proxy)
    wait_until(lambda: re.search(SILENT, proxy.get("/livez")[1]) is not None, "/livez names it")
    assert proxy.get("/livez")[0] == 200, "it is about to be replaced: nobody else has to act"
    served = sum(map(is_served, clients))
    assert 0 < served < CLIENTS, "some came to the other one, some to this one, which were reset at its end"
    wait_until(partial(is_replaced, proxy, victim), "it is replaced")
    assert len(re.findall(HUNG, proxy.log)) == 1
    assert other in proxy.workers
    proxy.wait_until_ready()
    assert all(map(is_served, new_clients(proxy)))
    assert proxy.get("/livez") == (200, "ok\n")
    assert proxy.metric("idemproxy_worker_hangs_total") == proxy.metric("idemproxy_worker_restarts_total") == 1


def test_a_worker_whose_loop_hangs_in_a_system_call_is_replaced(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    """Its journal is a pipe that nobody reads when SIGHUP has it opened again: that call does not return."""
    journal = tmp_path / "journal.jsonl.2"
    config = tmp_path / "idemproxy.yaml"
    config.write_text(f"journal: {{path: {tmp_path / 'journal.jsonl'}}}\n")
    with Supervised(tmp_path, legacy_broker.address(0), "--config", str(config)) as proxy:
        proxy.wait_until_ready()
        victim = next(worker for worker in proxy.workers if has_open(worker, journal))
        journal.unlink()
        os.mkfifo(journal)
        os.kill(victim, signal.SIGHUP)
        wait_until(lambda: "worker 2 has not answered for" in proxy.get("/livez")[1], "/livez names it")
        assert not stands_still(victim)
        journal.unlink()
        wait_until(partial(is_replaced, proxy, victim), "it is replaced")
        assert len(re.findall(HUNG, proxy.log)) == 1
        proxy.wait_until_ready()
        assert all(map(is_served, new_clients(proxy)))


@pytest.mark.parametrize("whole", [True, False], ids=["with its workers", "alone"])
def test_a_supervisor_that_stood_still_kills_nobody(proxy: Supervised, whole: bool) -> None:
    workers = proxy.workers
    stopped = [proxy.pid, *(workers if whole else [])]
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    time.sleep(2 * WORKER_SILENT_SECONDS_MAX)
    for process in stopped:
        os.kill(process, signal.SIGCONT)
    proxy.wait_until_ready()
    time.sleep(WORKER_SILENT_SECONDS_MAX + 2)
    assert sorted(proxy.workers) == sorted(workers)
    assert "has not answered" not in proxy.log
    assert proxy.get("/livez") == (200, "ok\n")
