"""A disk without room: at the start, and under a proxy that runs. What may not be written leads to /dev/full, which
refuses every byte as a full disk does, for every user."""

import json
from pathlib import Path

import pytest

from idemproxy.demo.legacy_cluster import LegacyCluster
from testkit.real.brokers.kafka_cluster import fresh_topic
from testkit.real.clients.raw_client import RawClient, batch
from testkit.real.proxies.proxy_process import ProxyProcess, wait_until

FULL = Path("/dev/full")


def redis_servers(directory: Path) -> list[int]:
    """The processes that work in this directory."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and (process / "cwd").resolve().is_relative_to(directory):
                found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("place", ["instances.new", "redis/redis.socket"])
def test_a_start_ends_with_one_error_message_and_leaves_no_redis(
    legacy_broker: LegacyCluster, tmp_path: Path, place: str
) -> None:
    proxy = ProxyProcess(tmp_path, legacy_broker.address(0))
    (proxy.data_directory / place).parent.mkdir(parents=True)
    (proxy.data_directory / place).symlink_to(FULL)
    proxy.launch()
    try:
        assert proxy.wait() == 2, proxy.log
        wait_until(lambda: redis_servers(tmp_path) == [], "no server is left")
    finally:
        (proxy.data_directory / place).unlink(missing_ok=True)
        proxy.__exit__()
    lines = [line for line in proxy.log.splitlines() if " INFO " not in line]
    assert len(lines) == 1, proxy.log
    assert f"the data directory {proxy.data_directory}" in lines[0]
    assert lines[0].endswith("No space left on device")


def test_a_running_proxy_reports_a_full_disk_once_and_keeps_serving(
    legacy_broker: LegacyCluster, tmp_path: Path
) -> None:
    topic, journal = fresh_topic(legacy_broker, 1), tmp_path / "journal"
    journal.symlink_to(FULL)
    with ProxyProcess(tmp_path, legacy_broker.address(0), options=("--journal", str(journal))) as proxy:
        with RawClient(proxy.address) as client:
            producer_id = client.new_producer_id()
            for number in range(3):
                answer = client.produce_one(topic, 0, batch([b"x"], producer_id=producer_id, sequence=number))
                assert (answer.error_code, answer.base_offset) == (0, number)
        proxy.wait_for_log("the journal cannot be written: No space left on device")
        assert sum("the journal" in line for line in proxy.log.splitlines()) == 1
        (proxy.data_directory / "instances.new").symlink_to(FULL)
        proxy.kill_redis()  # a new data generation, and with it a new proxy instance to be written down
        proxy.wait_for_log("the data directory cannot be written: No space left on device", 60)
        with RawClient(proxy.address) as client:
            wait_until(lambda: client.end_offset(topic, 0) == 3, "it answers")
        assert proxy.stop() == 0
        assert "Traceback" not in proxy.log


def test_a_journal_that_stands_still_resumes_by_itself(legacy_broker: LegacyCluster, tmp_path: Path) -> None:
    """The file itself is the same all the time: its size is limited, as by a quota, until the limit is taken away."""
    topic, journal = fresh_topic(legacy_broker, 1), tmp_path / "journal"
    with ProxyProcess(tmp_path, legacy_broker.address(0), options=("--journal", str(journal))) as proxy:
        with RawClient(proxy.address) as client:
            producer_id = client.new_producer_id()
            sent = 0

            def send() -> None:
                nonlocal sent
                answer = client.produce_one(topic, 0, batch([b"x"], producer_id=producer_id, sequence=sent))
                assert (answer.error_code, answer.base_offset) == (0, sent)
                sent += 1

            def lines() -> list[str]:
                whole, _, _unfinished = journal.read_text().rpartition("\n")
                return [json.loads(line)["event"] for line in whole.splitlines()]

            send()
            wait_until(lambda: "answered" in lines(), "a first batch is journaled")
            known = limit_files(proxy.pid, journal.stat().st_size + 10)
            send()
            proxy.wait_for_log("the journal cannot be written")
            assert journal.read_bytes().endswith(b"\n"), "no half line stays"
            limit_files(proxy.pid, known)

            def goes_on() -> bool:
                send()
                return "missing" in lines()

            wait_until(goes_on, "the journal goes on")
        proxy.wait_for_log("the journal is written again:")
        assert "Traceback" not in proxy.log


def limit_files(pid: int, size_bytes: int) -> int:
    """Limit the size of files that a process may write; return the limit of before."""
    import resource

    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))
    return soft
