"""``idemproxy run --workers 2`` in front of a real broker: one copy of each record whichever process dies, one
admin port for all, and no process left over."""

import fcntl
import json
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from idemproxy.demo.ports import HOST
from idemproxy.demo.verdict import Position
from idemproxy.state.store import cluster_key
from testkit.real.brokers.kafka_cluster import fresh_topic, librdkafka_settings, produce, verdict
from testkit.real.proxies.proxy_process import wait_until
from testkit.real.proxies.supervised import WORKERS, Supervised

pytestmark = pytest.mark.long

PRODUCERS = 4
RECORDS = 3_000
PARTITIONS = 4


@pytest.fixture
def proxy(legacy_broker: LegacyCluster, tmp_path: Path) -> Iterator[Supervised]:
    with Supervised(tmp_path, legacy_broker.address(0)) as running:
        running.wait_until_ready()
        yield running


def is_replaced(proxy: Supervised, worker: int) -> bool:
    running = proxy.workers
    return len(running) == WORKERS and worker not in running


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_workers_that_are_killed_lose_and_repeat_nothing_and_are_replaced(
    proxy: Supervised, legacy_broker: LegacyCluster
) -> None:
    topic = fresh_topic(legacy_broker, PARTITIONS)
    told: dict[Position, int] = {}
    failures: list[BaseException] = []

    def load(name: str) -> None:
        settings = librdkafka_settings(
            f"{HOST}:{proxy.address[1]}", enable_idempotence=True, max_in_flight_requests_per_connection=5
        )
        try:
            told.update(produce(settings, topic, PARTITIONS, RECORDS, name))
        except BaseException as error:  # the test's own thread reports it
            failures.append(error)

    threads = [threading.Thread(target=load, args=(f"producer-{index}",)) for index in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    for index in range(WORKERS + 1):
        victim = proxy.workers[index % WORKERS]
        os.kill(victim, signal.SIGKILL)
        wait_until(partial(is_replaced, proxy, victim), "the worker is replaced", 60)
        time.sleep(0.5)
    for thread in threads:
        thread.join()
    assert not failures
    assert len(told) == PRODUCERS * RECORDS
    found = verdict(legacy_broker, topic, PARTITIONS, told)
    assert (found.duplicates, found.lost, found.reordered) == (0, 0, 0), found
    proxy.wait_until_ready()
    assert proxy.metric("idemproxy_workers") == WORKERS
    assert proxy.metric("idemproxy_worker_restarts_total") == WORKERS + 1
    assert "has ended with signal 9; the other workers are unaffected, it is started again in" in proxy.log


def test_a_supervisor_that_was_killed_starts_again_once_its_workers_have_finished(proxy: Supervised) -> None:
    workers = proxy.workers
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)  # they cannot notice yet
    proxy.kill()
    proxy.launch()
    line = proxy.wait_for_log("whose supervisor was killed")
    assert "worker-1, worker-2 of an earlier start" in line
    assert not proxy.workers
    assert proxy.stop(10) == 0, "a signal ends the waiting"
    proxy.launch()
    proxy.wait_for_log("whose supervisor was killed")
    for worker in workers:
        os.kill(worker, signal.SIGCONT)
    proxy.wait_until_ready()
    assert not any(map(is_alive, workers))
    assert not set(workers) & set(proxy.workers)


def test_one_admin_port_adds_up_all_workers(proxy: Supervised, legacy_broker: LegacyCluster) -> None:
    topic = fresh_topic(legacy_broker, PARTITIONS)
    settings = librdkafka_settings(f"{HOST}:{proxy.address[1]}", enable_idempotence=True)
    for index in range(PRODUCERS):
        produce(settings, topic, PARTITIONS, 200, f"one-{index}")
    _, text = proxy.get("/api/v1/page")
    status = json.loads(text)["status"]
    assert status["ready"]
    assert status["totals"]["batches"] == proxy.metric('idemproxy_batches_answered_total{verdict="appended"}') > 0
    assert status["times"]["batch"]["count"] == status["totals"]["batches"]
    assert proxy.metric("idemproxy_connections_limit") == 2 * 10_000
    assert proxy.metric("idemproxy_ready") == 1
    assert proxy.get(f"/api/v1/producers?topic={topic}")[0] == 200
    assert proxy.get("/api/v1/producers?producer_id=x")[0] == 400
    assert proxy.get("/readyz?exclude=nothing")[0] == 400
    assert proxy.get("/")[0] == 200
    victim = proxy.workers[0]
    os.kill(victim, signal.SIGKILL)
    wait_until(partial(is_replaced, proxy, victim), "the worker is replaced", 60)
    proxy.wait_until_ready()
    counted = proxy.metric('idemproxy_batches_answered_total{verdict="appended"}')
    assert counted == status["totals"]["batches"], "what it had counted stays"


def test_all_end_with_the_supervisor_and_the_next_start_finds_nothing_in_its_way(
    proxy: Supervised, legacy_broker: LegacyCluster
) -> None:
    workers = proxy.workers
    assert proxy.stop() == 0
    assert not any(map(is_alive, workers))
    proxy.start()
    proxy.wait_until_ready()
    workers = proxy.workers
    os.kill(proxy.pid, signal.SIGKILL)
    proxy.wait()
    wait_until(lambda: not any(map(is_alive, workers)), "workers end when their supervisor has gone")
    proxy.start()
    proxy.wait_until_ready()
    topic = fresh_topic(legacy_broker, PARTITIONS)
    settings = librdkafka_settings(f"{HOST}:{proxy.address[1]}", enable_idempotence=True)
    assert len(produce(settings, topic, PARTITIONS, 100)) == 100


def test_the_private_redis_is_the_supervisors_and_comes_back(proxy: Supervised, legacy_broker: LegacyCluster) -> None:
    topic = fresh_topic(legacy_broker, PARTITIONS)
    settings = librdkafka_settings(f"{HOST}:{proxy.address[1]}", enable_idempotence=True)
    produce(settings, topic, PARTITIONS, 100, "before")
    proxy.kill_redis()
    told = produce(settings, topic, PARTITIONS, 100, "behind")
    found = verdict(legacy_broker, topic, PARTITIONS)
    assert (len(told), found.duplicates, found.reordered) == (100, 0, 0)
    wait_until(lambda: "idemproxy_redis_restarts_total 1.0" in proxy.get("/metrics")[1], "the restart is counted")


def test_a_setting_that_needs_a_restart_is_refused_once_others_reload_everywhere(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    config = tmp_path / "idemproxy.yaml"
    config.write_text("limits: {producers_max: 1000}\n")
    with Supervised(tmp_path, legacy_broker.address(0), "--config", str(config)) as proxy:
        proxy.wait_until_ready()
        assert proxy.metric("idemproxy_entries_limit") == 2 * 1000
        config.write_text("limits: {producers_max: 500}\nproducers: {append_reservations: false}\n")
        proxy.signal(signal.SIGHUP)
        proxy.wait_for_log("not reloaded: producers.append_reservations: only a restart can change this")
        config.write_text("limits: {producers_max: 500}\n")
        proxy.signal(signal.SIGHUP)
        wait_until(lambda: proxy.metric("idemproxy_entries_limit") == 2 * 500, "all workers have read it")
        os.kill(proxy.workers[0], signal.SIGKILL)
        wait_until(lambda: proxy.metric("idemproxy_worker_restarts_total") == 1, "the worker is replaced")
        wait_until(lambda: proxy.metric("idemproxy_entries_limit") == 2 * 500, "one that is started later has it, too")
        assert proxy.log.count("not reloaded") == 1


def test_a_port_that_another_process_has_ends_the_start(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    with Supervised(tmp_path, legacy_broker.address(0)) as proxy:
        proxy.stop()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(proxy.address)
            other.listen()
            proxy.launch()
            assert proxy.wait() == 2
        assert "address already in use by another process; end it" in proxy.log


def test_what_ends_one_worker_for_good_ends_all(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    with Supervised(tmp_path, legacy_broker.address(0)) as proxy:
        proxy.wait_until_ready()
        proxy.stop()
        with (proxy.data_directory / "worker-2" / "proxy.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            proxy.launch()
            assert proxy.wait() == 2
        assert "another idemproxy uses the data directory" in proxy.log
        assert "end it, or give this one another (--data-directory)" in proxy.log
        assert "worker 2 has found what ends the proxy" in proxy.log


def test_a_worker_that_cannot_restart_is_retried_and_the_others_are_unaffected(
    proxy: Supervised, legacy_broker: LegacyCluster
) -> None:
    """What ends a start may have passed when the next one is tried, and a worker that runs lives through it."""
    victim, other = proxy.workers
    files = [proxy.data_directory / f"worker-{number}" / "instances.new" for number in (1, 2)]
    for file in files:
        file.symlink_to("/dev/full")
    try:
        os.kill(victim, signal.SIGKILL)
        line = proxy.wait_for_log("cannot start again")
        assert "the other workers are unaffected, it is started again in" in line
        proxy.wait_for_log("cannot be written: No space left on device")
        topic = fresh_topic(legacy_broker, PARTITIONS)
        settings = librdkafka_settings(f"{HOST}:{proxy.address[1]}", enable_idempotence=True)
        assert len(produce(settings, topic, PARTITIONS, 100)) == 100
    finally:
        for file in files:
            file.unlink(missing_ok=True)
    wait_until(lambda: len(proxy.workers) == WORKERS and proxy.get("/readyz")[0] == 200, "the worker is replaced")
    assert is_alive(other)


def test_a_fatal_error_in_replaced_workers_too_ends_the_whole_proxy(proxy: Supervised) -> None:
    for victim in proxy.workers:
        os.kill(victim, signal.SIGKILL)
        wait_until(partial(is_replaced, proxy, victim), "the worker is replaced")
    wait_until(lambda: proxy.get("/readyz")[0] == 200, "they serve")
    assert proxy.redis("SET", cluster_key("default"), "another cluster") == b"OK"
    proxy.redis("CLIENT", "KILL", "TYPE", "normal")
    assert proxy.wait() == 2
    assert "has found what ends the proxy" in proxy.log


def test_a_worker_without_descriptors_is_retried_and_the_others_are_unaffected(
    proxy: Supervised, legacy_broker: LegacyCluster
) -> None:
    victim, other = proxy.workers
    limits = resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        os.kill(victim, signal.SIGKILL)
        line = proxy.wait_for_log("cannot be started: .*Too many open files")
        assert "the other workers are unaffected, it is started again in" in line
        topic = fresh_topic(legacy_broker, PARTITIONS)
        settings = librdkafka_settings(f"{HOST}:{proxy.address[1]}", enable_idempotence=True)
        assert len(produce(settings, topic, PARTITIONS, 100)) == 100
    finally:
        resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE, limits)
    wait_until(partial(is_replaced, proxy, victim), "the worker is replaced")
    assert is_alive(other)
    assert "Traceback" not in proxy.log


def test_a_first_start_of_a_worker_that_fails_ends_all_with_a_sentence(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    with Supervised(tmp_path, legacy_broker.address(0)) as proxy:
        proxy.wait_until_ready()
        proxy.stop()
        (proxy.data_directory / "worker-2").rename(tmp_path / "away")
        (proxy.data_directory / "worker-2").touch()
        proxy.launch()
        assert proxy.wait() == 2
        assert "worker 2 cannot be started: [Errno 17] File exists" in proxy.log
        assert "Traceback" not in proxy.log
